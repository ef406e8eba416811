import { Agent, request } from 'node:http'
import { setTimeout as wait } from 'node:timers/promises'

/** How long acknowledgments took, in milliseconds. */
export interface Latency {
  readonly messages: number
  readonly p50: number
  readonly p99: number
  readonly most: number
}

/** Normal traffic, which an attack by somebody else must not disturb. */
export interface Live {
  /** Continues for this time, and resolves to the times that the acknowledgments of these messages took. */
  during(ms: number): Promise<Latency>
  /** Resolves when every message was answered. */
  stop(): Promise<void>
  /** The numbers of the messages that got a 2xx. */
  readonly acknowledged: ReadonlySet<number>
  /** What happened to the others. */
  readonly refused: readonly string[]
}

export const connections = 16
const vehicles = 50

/**
 * Posts `perSecond` messages a second, each at its time, without waiting for earlier answers. A message that waits for
 * a connection waits for the receiver. Every tenth message opens a connection of its own, like a sender that has none
 * yet.
 */
export function goLive(url: string, secret: string, perSecond: number): Live {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  const acknowledged = new Set<number>()
  const refused: string[] = []
  const underWay = new Set<Promise<void>>()
  let taken: number[] = []
  let sent = 0
  const startedAt = performance.now()

  function post(number: number, dueAt: number): Promise<void> {
    const text = JSON.stringify({
      data: { BatteryLevel: number },
      createdAt: '2026-05-01T00:00:00Z',
      vin: `V${number % vehicles}`,
    })
    const into = taken
    return new Promise((resolve) => {
      const headers = { authorization: secret, 'content-length': text.length }
      const posting = request(
        url,
        { agent: number % 10 === 0 ? false : agent, method: 'POST', headers },
        (response) => {
          response.resume().once('end', () => {
            if (response.statusCode === 200) acknowledged.add(number)
            else refused.push(`${response.statusCode} for message ${number}`)
            into.push(performance.now() - dueAt)
            resolve()
          })
        },
      )
      posting.setTimeout(20_000, () => posting.destroy(new Error('no answer in 20 seconds')))
      posting.once('error', (error) => {
        refused.push(`${error.message} for message ${number}`)
        resolve()
      })
      posting.end(text)
    })
  }

  const timer = setInterval(() => {
    for (; sent < ((performance.now() - startedAt) * perSecond) / 1000; sent++) {
      const posted = post(sent, startedAt + (sent * 1000) / perSecond)
      underWay.add(posted)
      void posted.finally(() => underWay.delete(posted))
    }
  }, 5)

  return {
    acknowledged,
    refused,
    async during(ms) {
      taken = []
      const own = taken
      await wait(ms)
      taken = []
      await Promise.all(underWay)
      return latencyOf(own)
    },
    async stop() {
      clearInterval(timer)
      await Promise.all(underWay)
      agent.destroy()
    },
  }
}

function latencyOf(taken: readonly number[]): Latency {
  const sorted = taken.toSorted((a, b) => a - b)
  const at = (part: number): number => sorted[Math.ceil(part * sorted.length) - 1] ?? 0
  return { messages: sorted.length, p50: at(0.5), p99: at(0.99), most: at(1) }
}
