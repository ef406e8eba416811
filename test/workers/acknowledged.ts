import { post } from '../runtimes/client.ts'
import type { Entry } from './log.ts'

/** The messages that got a 2xx, counted outside the process under test. */
export interface Acknowledged {
  readonly byVin: ReadonlyMap<string, readonly number[]>
  readonly count: number
  /** Resolves when there is one more. */
  next(): Promise<void>
  /** Posts the messages of each vehicle one after another, until `stop` or until the server is gone. */
  load(url: string, vins: readonly string[]): { stop(): Promise<void> }
}

export function createAcknowledged(): Acknowledged {
  const byVin = new Map<string, number[]>()
  const next = new Map<string, number>()
  let count = 0
  let counted: (() => void)[] = []

  async function vehicle(url: string, vin: string, going: () => boolean): Promise<void> {
    while (going()) {
      const number = (next.get(vin) ?? 0) + 1
      next.set(vin, number)
      // A message without an answer may have arrived or not. Nothing was promised for it.
      const status = await post(url, vin, number).catch(() => 0)
      if (status === 0) return
      if (status !== 200) continue
      byVin.set(vin, [...(byVin.get(vin) ?? []), number])
      count += 1
      for (const tell of counted) tell()
      counted = []
    }
  }

  return {
    byVin,
    get count() {
      return count
    },
    next: () =>
      new Promise((resolve) => {
        counted.push(resolve)
      }),
    load(url, vins) {
      let going = true
      const all = Promise.all(vins.map((vin) => vehicle(url, vin, () => going)))
      return {
        async stop() {
          going = false
          await all
        },
      }
    },
  }
}

/** Acknowledged messages that no handler has seen. */
export function missingFrom(entries: readonly Entry[], { byVin }: Pick<Acknowledged, 'byVin'>): readonly string[] {
  const handled = new Set(entries.map(({ vin, number }) => `${vin} ${number}`))
  return [...byVin].flatMap(([vin, numbers]) =>
    numbers.map((number) => `${vin} ${number}`).filter((one) => !handled.has(one)),
  )
}

/**
 * Messages that break the order of a VIN, and duplicates without a reason. A message may come again only directly after
 * itself: when the process was killed, its handler had run, and no later one.
 */
export function disorderIn(entries: readonly Entry[]): readonly string[] {
  const last = new Map<string, number>()
  const wrong: string[] = []
  for (const { vin, number, redelivered } of entries) {
    const before = last.get(vin) ?? 0
    if (number < before || (number === before && !redelivered)) wrong.push(`${vin}: ${number} after ${before}`)
    last.set(vin, number)
  }
  return wrong
}
