import { FleethookError } from '../../../src/base/errors.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type { Inbox } from '../../../src/inbox/inbox.ts'
import type { GroupCommit } from './group-commit.ts'
import type { Room } from './room.ts'
import type { Move, Store } from './store.ts'

/** Makes a dead letter or a settled message a pending one again. */
export interface Revival extends Pick<Inbox, 'revive'> {
  /** What was to be revived and was not, and may be pending in the file all the same: how it becomes again what it was. */
  takeUndone(): readonly Move[]
}

export interface RevivalOptions {
  readonly store: Store
  readonly queue: GroupCommit
  /** Reads from the file. */
  readonly reading: <T>(read: () => Promise<T>) => Promise<T>
  readonly room: Room
  /** Takes the room, or throws. */
  readonly takeRoom: (messages: number, bytes: number) => void
}

export function createRevival({ store, queue, room, reading, takeRoom }: RevivalOptions): Revival {
  let undone: Move[] = []

  async function wayBack(id: string, place: number): Promise<Move> {
    const { found } = await reading(() => store.deadLetters({ limit: 1 }, place - 1))
    const [letter] = found
    if (letter?.id !== id) return { to: 'settled', place }
    const { error, attempts, diedAt } = letter
    return { to: 'dead', place, error, attempts, diedAt }
  }

  return {
    async revive(id) {
      const place = seqOf(id)
      if (Number.isNaN(place)) return undefined
      if (queue.touches(place)) await queue.flush()
      const message = await reading(() => store.message(place))
      if (message?.id !== id) return undefined
      const back = await wayBack(id, place)
      takeRoom(1, message.bytes)
      let revived: number | undefined
      try {
        revived = await queue.move({ to: 'pending', place })
      } catch (error) {
        // A full disk has written nothing.
        if (!(error instanceof FleethookError && error.code === 'inbox_full')) undone.push(back)
        throw error
      } finally {
        if (revived === undefined) room.give(1, message.bytes)
      }
      return revived === undefined ? undefined : { id, lane: message.lane, kind: message.kind }
    },

    takeUndone() {
      const taken = undone
      undone = []
      return taken
    },
  }
}
