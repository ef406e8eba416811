import { cpSync, existsSync, mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { FleethookError } from 'fleethook'
import type { Inbox } from 'fleethook/extend'
import { fakeClock } from 'fleethook/testing'
import { expect } from 'vitest'
import { archiveOf, message as kept, reason, lettersIn, settledIn } from '../../src/testing/kept-message.ts'
import { settingsOf, waitingIn } from './sqlite-settings.ts'
import { type InboxFile, inboxOn, withCalls } from './sqlite-store.ts'

/** Calls of an inbox, and faults that happen to it. */
export const steps: readonly string[] = [
  ...['put', 'put', 'put', 'claim', 'settle', 'settle', 'reschedule', 'giveUp', 'revive', 'replay', 'discard', 'list'],
  ...['failBefore', 'failAfter', 'full', 'task', 'advance', 'crash'],
]

export interface Step {
  readonly does: string
  /** Picks one of the messages in the right state. */
  readonly which: number
  /** Whether the next step waits for this one. */
  readonly awaited: boolean
}

/** The state of a message as the receiver knows it. */
type State = 'pending' | 'settled' | 'dead' | 'gone'

interface Machine {
  act(step: Step): Promise<void>
  finish(): Promise<void>
}

const everything = { limit: 1_000 }

/**
 * An inbox on a disk that fails when a step says so, and the state of each message as its receiver knows it.
 * `slow`: the file answers late, like one in a thread.
 */
export async function machine(newPath: () => string, slow: boolean): Promise<Machine> {
  const clock = fakeClock(1_700_000_100_000)
  const known = new Map<number, State>()
  /** Messages with an unanswered call. */
  const busy = new Set<number>()
  /** After a crash: settled or deleted, which the receiver cannot know. */
  const uncertain = new Set<number>()
  const asked: Promise<void>[] = []
  /** Calls that a receiver repeats until they succeed. */
  const again: (() => Promise<void>)[] = []
  let path = newPath()
  let failing: 'before' | 'after' | 'full' | undefined
  let count = 0
  let lives = 0
  let { inbox, store } = make()
  await inbox.open()

  function make(): { inbox: Inbox; store: InboxFile } {
    const failable = (file: InboxFile): InboxFile => withCalls(file, { commit: commitOf(file) })
    return inboxOn(path, (file) => (slow ? late(failable(file)) : failable(file)), settingsOf({ clock }).settings)
  }

  function commitOf(file: InboxFile): InboxFile['commit'] {
    return async (batch) => {
      const failure = failing
      failing = undefined
      if (failure === 'full') throw new FleethookError('inbox_full', 'The disk is full.')
      if (failure === 'before') throw new FleethookError('inbox_unavailable', 'The write failed.')
      const result = await file.commit(batch)
      if (failure === 'after') throw new FleethookError('inbox_unavailable', 'The sync failed.')
      return result
    }
  }

  /** A message in this state without an unanswered call. */
  function pick(state: State, which: number): number | undefined {
    const free = [...known].filter(([n, now]) => now === state && !busy.has(n))
    return free[which % free.length]?.[0]
  }

  function ask<T>(n: number, run: () => Promise<T>, noted: (answer: T) => void, insists = false): Promise<void> {
    const life = lives
    busy.add(n)
    const answered = run().then(
      (answer) => {
        if (life !== lives) return
        busy.delete(n)
        noted(answer)
      },
      () => {
        if (life !== lives) return
        if (insists) again.push(() => ask(n, run, noted, true))
        else busy.delete(n)
      },
    )
    asked.push(answered)
    return answered
  }

  const becomes = (n: number, state: State) => (): void => void known.set(n, state)

  const ways: Record<string, readonly [from: State, ask: (n: number) => Promise<void>]> = {
    claim: [
      'pending',
      (n) =>
        ask(
          n,
          async () => inbox.claim(kept(n).id),
          (found) => expect(found?.message.id).toBe(kept(n).id),
        ),
    ],
    settle: ['pending', (n) => ask(n, async () => inbox.settle(kept(n).id), becomes(n, 'settled'), true)],
    reschedule: [
      'pending',
      (n) =>
        ask(
          n,
          async () => inbox.settle(kept(n).id, { as: 'later', next: { attempts: 1, notBefore: 5, deliveries: 1 } }),
          () => {},
        ),
    ],
    giveUp: [
      'pending',
      (n) => ask(n, async () => inbox.settle(kept(n).id, { as: 'dead', reason }), becomes(n, 'dead'), true),
    ],
    revive: [
      'dead',
      (n) =>
        ask(
          n,
          async () => archiveOf(inbox)?.revive(kept(n).id),
          (revived) => backAgain(n, revived),
        ),
    ],
    replay: [
      'settled',
      (n) =>
        ask(
          n,
          async () => archiveOf(inbox)?.revive(kept(n).id),
          (revived) => backAgain(n, revived),
        ),
    ],
    discard: ['dead', (n) => ask(n, async () => archiveOf(inbox)?.discard(kept(n).id), becomes(n, 'gone'), true)],
  }

  function backAgain(n: number, revived: { readonly id: string } | undefined): void {
    if (revived !== undefined || !uncertain.has(n)) expect(revived?.id).toBe(kept(n).id)
    if (revived !== undefined) known.set(n, 'pending')
  }

  /** Continues on a copy of the files, as a new process does after a crash. */
  async function crash(): Promise<void> {
    lives += 1
    const from = path
    path = newPath()
    mkdirSync(dirname(path), { recursive: true })
    for (const suffix of ['', '-wal']) if (existsSync(from + suffix)) cpSync(from + suffix, path + suffix)
    failing = undefined
    ;({ inbox, store } = make())
    const waiting = new Set((await waitingIn(await inbox.open())).map(({ id }) => id))
    const dead = new Set((await lettersIn(inbox, everything)).map(({ id }) => id))
    for (let n = 1; n <= count; n += 1) compare(n, waiting.has(kept(n).id), dead.has(kept(n).id))
    busy.clear()
    again.length = 0
  }

  /** A settled message may be pending again, and a dead letter whose revival failed may be pending. */
  function compare(n: number, waits: boolean, isDead: boolean): void {
    const state = known.get(n)
    if (!busy.has(n)) {
      if (state === 'pending') expect(waits).toBe(true)
      if (state === 'dead') expect(isDead || waits).toBe(true)
      if (state === 'settled') expect(isDead).toBe(false)
      if (state === 'gone') expect(waits || isDead).toBe(false)
    }
    if (waits) known.set(n, 'pending')
    else if (isDead) known.set(n, 'dead')
    else if (state === 'pending' || state === 'dead') {
      known.set(n, 'settled')
      uncertain.add(n)
    }
  }

  function begin({ does, which }: Step): Promise<unknown> | undefined {
    if (does === 'put') {
      const n = (count += 1)
      return ask(n, async () => inbox.put([kept(n)]), becomes(n, 'pending'))
    }
    if (does === 'list') return settledIn(inbox, everything).catch(() => {})
    const [from, way] = ways[does] ?? []
    const n = from === undefined ? undefined : pick(from, which)
    return n === undefined ? undefined : way?.(n)
  }

  const idsOf = (state: State): string[] =>
    [...known]
      .filter(([, now]) => now === state)
      .map(([n]) => kept(n).id)
      .toSorted()

  return {
    async act(step) {
      const { does, which, awaited } = step
      if (does === 'failBefore') failing = 'before'
      else if (does === 'failAfter') failing = 'after'
      else if (does === 'full') failing = 'full'
      else if (does === 'task') await setImmediate()
      else if (does === 'advance') await clock.advance(1_000 * (1 + (which % 4)))
      else if (does !== 'crash') {
        const begun = begin(step)
        // A failing disk is tried again only when time passes.
        if (awaited && begun !== undefined) await Promise.race([begun, clock.advance(0)])
      } else if (which < 6) await crash()
    },

    async finish() {
      failing = undefined
      for (let rest = 0; rest < 3; rest += 1) {
        await clock.advance(40_000)
        await setImmediate()
      }
      await Promise.all(asked)
      for (const insist of again.splice(0)) await insist()
      expect(again).toEqual([])
      expect(inbox.refusing()).toBeUndefined()
      // Every settled message is in the file after this.
      await settledIn(inbox, everything)
      const pending = idsOf('pending')
      expect((await store.waiting(-1)).items.map(({ id }) => id)).toEqual(pending)
      expect(inbox.usage()).toEqual({ messages: pending.length, bytes: pending.length * kept(0).bytes })
      expect((await lettersIn(inbox, everything)).map(({ id }) => id)).toEqual(idsOf('dead'))
      for (const id of pending) expect((await inbox.claim(id))?.message.id).toBe(id)
      await inbox.close()
    },
  }
}

function late(store: InboxFile): InboxFile {
  return withCalls(store, {
    open: inItsTime(store.open),
    find: inItsTime(store.find),
    message: inItsTime(store.message),
    deadLetters: inItsTime(store.deadLetters),
    settled: inItsTime(store.settled),
    commit: inItsTime(store.commit),
    probe: inItsTime(store.probe),
    tidy: inItsTime(store.tidy),
    close: inItsTime(store.close),
  })
}

function inItsTime<Given extends unknown[], T>(run: (...given: Given) => Promise<T>): (...given: Given) => Promise<T> {
  return async (...given) => {
    await setImmediate()
    try {
      return await run(...given)
    } finally {
      await setImmediate()
    }
  }
}
