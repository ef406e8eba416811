import { Agent, request } from 'node:http'
import { secret } from '../../runtimes/targets.ts'

/** Sends the messages of some vehicles, in order for each, and counts the answers outside the receiver. */
export interface Traffic {
  /** The messages that were answered with 200, as `vin number`. */
  readonly acknowledged: ReadonlySet<string>
  /** Answers by status; 0 where there was none. */
  readonly answers: ReadonlyMap<number, number>
  /** Milliseconds from sending a message to its acknowledgment, by when it was sent. */
  readonly ackMs: readonly { readonly sentAtMs: number; readonly ms: number }[]
  /** Posts until the receiver is gone or `over` returns true. Each vehicle sends its next message after the last answer. */
  pour(url: string, over?: () => boolean): Promise<void>
}

export interface TrafficOptions {
  readonly vins: readonly string[]
  /** Messages per second of all vehicles together. Default: as many as are answered. */
  readonly ratePerSecond?: number
  /** Bytes to add to each message. Default 0. */
  readonly extraBytes?: number
}

export function createTraffic({ vins, ratePerSecond, extraBytes = 0 }: TrafficOptions): Traffic {
  const acknowledged = new Set<string>()
  const answers = new Map<number, number>()
  const ackMs: { sentAtMs: number; ms: number }[] = []
  const numbers = new Map<string, number>()

  async function post(url: string, agent: Agent, vin: string): Promise<number> {
    const number = (numbers.get(vin) ?? 0) + 1
    numbers.set(vin, number)
    const sentAtMs = performance.now()
    const status = await statusOf(url, agent, messageOf(vin, number, extraBytes))
    answers.set(status, (answers.get(status) ?? 0) + 1)
    if (status === 200) {
      acknowledged.add(`${vin} ${number}`)
      ackMs.push({ sentAtMs, ms: performance.now() - sentAtMs })
    }
    return status
  }

  return {
    acknowledged,
    answers,
    ackMs,
    async pour(url, over = () => false) {
      const agent = new Agent({ keepAlive: true, maxSockets: vins.length })
      const everyMs = ratePerSecond === undefined ? 0 : (1000 * vins.length) / ratePerSecond
      await Promise.all(
        vins.map(async (vin, place) => {
          let dueAt = performance.now() + (everyMs * place) / vins.length
          while (!over()) {
            const early = dueAt - performance.now()
            if (early > 1) await new Promise((resolve) => setTimeout(resolve, early))
            dueAt += everyMs
            if ((await post(url, agent, vin)) === 0) return
          }
        }),
      )
      agent.destroy()
    },
  }
}

export function messageOf(vin: string, number: number, extraBytes = 0): string {
  const data = { Odometer: number, ...(extraBytes > 0 ? { Extra: 'x'.repeat(extraBytes) } : {}) }
  return JSON.stringify({ data, createdAt: '2026-05-01T00:00:00.000Z', vin })
}

/** The status of a complete answer, or 0 without one. */
export function statusOf(url: string, agent: Agent, body: string): Promise<number> {
  return new Promise((resolve) => {
    const posting = request(url, { agent, method: 'POST', headers: { authorization: secret } }, (response) => {
      response.resume()
      response.once('end', () => resolve(response.statusCode ?? 0))
      response.once('error', () => resolve(0))
    })
    posting.once('error', () => resolve(0))
    posting.end(body)
  })
}
