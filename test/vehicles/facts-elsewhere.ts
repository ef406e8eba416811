/* Receivers of `facts-receiver.ts` in other processes, on the real clock. */
import { isDeepStrictEqual } from 'node:util'
import { expect, vi } from 'vitest'
import type { Target } from '../conformance/spawn.ts'
import type { HandledLog } from '../workers/log.ts'
import type { Noted, Question, Shown } from './facts-receiver.ts'
import { askedBy, type FactsPlace } from './facts-rows.ts'

export interface Elsewhere {
  /** The processes that can be asked. All of them take messages. */
  readonly targets: readonly Target[]
  /** Kills the processes that handle, and starts others. */
  readonly crash: () => Promise<void>
  readonly end: () => Promise<void>
}

/** Each question goes to the next process, and what is shown is asked of all of them. */
export function placeElsewhere(startMs: number, log: HandledLog<Noted>, elsewhere: Elsewhere): FactsPlace {
  let asked = 0
  const nextUrl = (): string => {
    asked += 1
    return elsewhere.targets[asked % elsewhere.targets.length]?.url ?? ''
  }
  const askAt = async <Answer>(url: string, question: Question): Promise<Answer> => {
    const response = await fetch(`${url}/ask`, { method: 'POST', body: JSON.stringify(question) })
    const answer: unknown = await response.json()
    if (!response.ok) throw new Error(String(answer))
    return answer as Answer
  }
  return {
    ...askedBy((question) => askAt(nextUrl(), question)),
    // The process that handles a vehicle shows a state before it has stored it. The others are a moment behind.
    async shown(vin, at) {
      const question = { what: 'shown', vin, at } as const
      const all = await Promise.all(elsewhere.targets.map(({ url }) => askAt<Shown | null>(url, question)))
      const [first = null] = all
      if (!all.every((each) => isDeepStrictEqual(each, first))) throw new Error('Not all processes show the same.')
      return first
    },
    startMs,
    now: Date.now,
    pass: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
    async eventually(read, expected) {
      await vi.waitFor(async () => expect(await read()).toEqual(expected), { timeout: 120_000, interval: 50 })
    },
    async send(body) {
      const response = await fetch(`${nextUrl()}/`, { method: 'POST', body: JSON.stringify(body) })
      expect(response.status).toBe(200)
    },
    told: (vin, ...rules) => log.entries.filter((each) => each.vin === vin && rules.includes(each.rule)),
    crash: elsewhere.crash,
    async [Symbol.asyncDispose]() {
      await elsewhere.end()
      await log[Symbol.asyncDispose]()
    },
  }
}
