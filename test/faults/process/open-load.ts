/* Vehicles that post when a message is due, whether or not the last one was answered, each to one of some receivers. */
import { expect } from 'vitest'
import { createTraffic, type Sent } from './traffic.ts'

/** What makes no step for this time stands still, also on a slow machine, in milliseconds. */
const patienceMs = 120_000

export interface OpenLoadOptions {
  readonly vins: readonly string[]
  /** Of all vehicles together. */
  readonly ratePerSecond: number
  /** A sender waits for this long for an answer, in milliseconds. */
  readonly timeoutMs: number
  /** It stops by itself when it has sent this many messages. */
  readonly mostMessages: number
}

/** A load that stops with its scope, whatever happens. */
export interface OpenLoad extends AsyncDisposable {
  readonly sent: () => readonly Sent[]
  /** The messages that were answered with 200, as `vin number`. */
  readonly acknowledged: () => ReadonlySet<string>
  /** Resolves when each receiver has acknowledged this many more messages. */
  takesMore(count: number): Promise<void>
  /** Resolves when this many more messages were refused with 503. */
  refusesMore(count: number): Promise<void>
  /** Sends no more. Resolves when every message has its answer, or its connection has ended. */
  stop(): Promise<void>
  /** The 99th percentile of the time to the acknowledgment, in milliseconds, for messages that were sent between two times of `performance.now()`. */
  p99(fromMs: number, toMs: number): number
}

/** Begins to post. The vehicles are dealt out to the receivers in turn. */
export function pourOpenly(urls: readonly string[], options: OpenLoadOptions): OpenLoad {
  const { vins, ratePerSecond, timeoutMs, mostMessages } = options
  let isOver = false
  const traffics = urls.map((_, place) =>
    createTraffic({
      vins: vins.filter((_vin, n) => n % urls.length === place),
      ratePerSecond: ratePerSecond / urls.length,
      timeoutMs,
      neverWaits: true,
      goesOn: true,
    }),
  )
  const sent = (): readonly Sent[] => traffics.flatMap((traffic) => traffic.sent)
  const tooMany = (): boolean => traffics.reduce((sum, traffic) => sum + traffic.sent.length, 0) >= mostMessages
  const pouring = traffics.map((traffic, place) => traffic.pour(urls[place] ?? '', () => isOver || tooMany()))
  async function stop(): Promise<void> {
    isOver = true
    await Promise.all(pouring)
  }
  return {
    sent,
    acknowledged: () => new Set(traffics.flatMap((traffic) => [...traffic.acknowledged])),
    async takesMore(count) {
      const before = traffics.map(({ acknowledged }) => acknowledged.size)
      const least = (): number =>
        Math.min(...traffics.map(({ acknowledged }, place) => acknowledged.size - (before[place] ?? 0)))
      await expect
        .poll(least, { timeout: patienceMs, message: 'acknowledged by the slower receiver' })
        .toBeGreaterThanOrEqual(count)
    },
    async refusesMore(count) {
      const refused = (): number => sent().filter(({ status }) => status === 503).length
      const most = refused() + count
      await expect.poll(refused, { timeout: patienceMs, message: 'refused' }).toBeGreaterThanOrEqual(most)
    },
    stop,
    p99(fromMs, toMs) {
      const acks = traffics.flatMap(({ ackMs }) =>
        ackMs.filter((each) => each.sentAtMs >= fromMs && each.sentAtMs < toMs),
      )
      const sorted = acks.map(({ ms }) => ms).toSorted((one, other) => one - other)
      return Math.round((sorted[Math.floor(sorted.length * 0.99)] ?? 0) * 10) / 10
    },
    [Symbol.asyncDispose]: stop,
  }
}

/** Messages that got no answer while their receiver was there. The others ended with its process, or found none. */
export const unansweredInTime = (sent: readonly Sent[]): number =>
  sent.filter(({ error }) => error === 'no answer in time').length

/** Resolves when `left` is 0. Rejects when it has not become less for two minutes: a slow machine takes its time, and what stands still is a fault. */
export async function runsEmpty(what: string, left: () => Promise<number>): Promise<void> {
  for (let before = await left(); before > 0;) {
    const most = before
    await expect
      .poll(async () => (before = await left()), {
        interval: 500,
        timeout: patienceMs,
        message: `${what}, and it does not become less`,
      })
      .toBeLessThan(most)
  }
}
