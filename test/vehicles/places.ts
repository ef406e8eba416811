import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { memoryInbox } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { objectInbox } from '../workers/object-inbox.ts'
import { objectStorage } from '../workers/object-storage.ts'
import { newFolder } from '../folder.ts'

/** A place that keeps states. Each call of `next` is the inbox of the next process. */
export interface Place {
  readonly next: () => InboxFactory
  readonly end: () => void
}

/** In a stand-in for the storage of a Durable Object. */
export function inDurableObject(): Place {
  const storage = objectStorage()
  const retained = { forMs: 3_600_000, maxBytes: 100_000_000 }
  const keeping = { maxBytes: 500_000_000, pendingMessages: 1_000, pendingBytes: 100_000_000, dead: retained }
  return {
    next:
      () =>
      ({ states }) =>
        objectInbox(storage, { ...keeping, states }),
    end: () => {},
  }
}

export const durablePlaces: readonly (readonly [where: string, open: () => Place])[] = [
  [
    'in SQLite',
    () => {
      const folder = newFolder('vehicles')
      return {
        next: () => sqliteInbox({ path: join(folder, 'inbox.db'), waitMs: 0 }),
        end: () => rmSync(folder, { recursive: true, force: true }),
      }
    },
  ],
  ['in a Durable Object', inDurableObject],
]

export const places: typeof durablePlaces = [
  ['in memory', () => ({ next: () => memoryInbox(), end: () => {} })],
  ...durablePlaces,
]
