import type { Move } from './store.ts'

/** What became of messages and the file may say, or not, since a sync failed. */
export interface Doubtful {
  add(move: Move): void
  /** Something else has become of it, for certain. */
  forget(place: number): void
  /** Tells the file: to be called whenever there is sense in writing. What cannot be written is told the next time. */
  tell(): void
}

export function createDoubtful(leave: (move: Move) => Promise<void>): Doubtful {
  const moves = new Map<number, Move>()
  return {
    add(move) {
      moves.set(move.place, move)
    },
    forget: (place) => void moves.delete(place),
    tell() {
      for (const [place, move] of moves) {
        moves.delete(place)
        leave(move).catch(() => moves.set(place, move))
      }
    },
  }
}
