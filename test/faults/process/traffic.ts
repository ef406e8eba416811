import { Agent, request } from 'node:http'
import { secret } from '../../runtimes/targets.ts'

/** One message, as its sender saw it. */
export interface Sent {
  readonly vin: string
  readonly number: number
  /** When it was sent, and when the answer was complete or the connection failed: milliseconds since the epoch. */
  readonly sentAtMs: number
  readonly endedAtMs: number
  /** 0: no complete answer. */
  readonly status: number
  /** The `error` of the answer, or the code of the connection's error. */
  readonly error?: string
}

/** Sends the messages of some vehicles, in order for each, and counts the answers outside the receiver. */
export interface Traffic {
  readonly sent: readonly Sent[]
  /** The messages that were answered with 200, as `vin number`. */
  readonly acknowledged: ReadonlySet<string>
  /** Answers by status; 0 where there was none. */
  readonly answers: ReadonlyMap<number, number>
  /** Milliseconds from sending a message to its acknowledgment, by when it was sent. */
  readonly ackMs: readonly { readonly sentAtMs: number; readonly ms: number }[]
  /**
   * Posts until the receiver is gone or `over` returns true. Each vehicle sends its next message when it has the last answer.
   */
  pour(url: string, over?: () => boolean): Promise<void>
}

export interface TrafficOptions {
  readonly vins: readonly string[]
  /** The field that has the number of a message. Default `Odometer`. */
  readonly field?: string
  /** Messages per second of all vehicles together. Default: as many as are answered. */
  readonly ratePerSecond?: number
  /** Bytes to add to each message. Default 0. */
  readonly extraBytes?: number
  /** Vehicles send when a message is due, whether or not the last one was answered. */
  readonly neverWaits?: boolean
  /** Vehicles go on sending when there is no answer. Default: they stop, because the receiver is gone. */
  readonly goesOn?: boolean
  /**
   * How long the sender waits for an answer, in milliseconds, not counting the time in which the sender itself stood still.
   * Default: no limit.
   */
  readonly timeoutMs?: number
  /** The vehicles that open a connection for each message. `'half'`: every second one. Default: all keep theirs. */
  readonly opensConnections?: 'none' | 'half' | 'all'
  /** Each message of a vehicle with this distance has a fault of its own. Default: none. */
  readonly wrongEvery?: number
}

/** A message that the receiver has to refuse with a 4xx. */
const wrongs = [
  (body: string): Posting => ({ body, authorization: 'a-secret-of-somebody-else' }),
  (body: string): Posting => ({ body: body.slice(0, -1) }),
  (body: string): Posting => ({ body, path: '/nowhere' }),
] as const

export function createTraffic(options: TrafficOptions): Traffic {
  const {
    vins,
    field,
    ratePerSecond,
    extraBytes = 0,
    neverWaits = false,
    goesOn = false,
    timeoutMs,
    opensConnections = 'none',
    wrongEvery,
  } = options
  const sent: Sent[] = []
  const acknowledged = new Set<string>()
  const answers = new Map<number, number>()
  const ackMs: { sentAtMs: number; ms: number }[] = []
  const numbers = new Map<string, number>()

  async function send(url: string, agent: Agent | false, vin: string): Promise<number> {
    const number = (numbers.get(vin) ?? 0) + 1
    numbers.set(vin, number)
    const body = messageOf(vin, number, extraBytes, field)
    const isWrong = wrongEvery !== undefined && number % wrongEvery === 0
    const posting = (isWrong ? wrongs[(number / wrongEvery) % wrongs.length] : undefined)?.(body) ?? { body }
    const [sentAtMs, from] = [Date.now(), performance.now()]
    const { status, error } = await answerTo(url, agent, {
      ...posting,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    })
    sent.push({ vin, number, sentAtMs, endedAtMs: Date.now(), status, ...(error === undefined ? {} : { error }) })
    answers.set(status, (answers.get(status) ?? 0) + 1)
    if (status === 200) {
      acknowledged.add(`${vin} ${number}`)
      ackMs.push({ sentAtMs: from, ms: performance.now() - from })
    }
    return status
  }

  return {
    sent,
    acknowledged,
    answers,
    ackMs,
    async pour(url, over = () => false) {
      const kept = new Agent({ keepAlive: true, maxSockets: neverWaits ? Infinity : vins.length })
      const underWay = new Set<Promise<unknown>>()
      const everyMs = ratePerSecond === undefined ? 0 : (1000 * vins.length) / ratePerSecond
      await Promise.all(
        vins.map(async (vin, place) => {
          const opens = opensConnections === 'all' || (opensConnections === 'half' && place % 2 === 1)
          const agent = opens ? false : kept
          let dueAt = performance.now() + (everyMs * place) / vins.length
          while (!over()) {
            const early = dueAt - performance.now()
            if (early > 1) await new Promise((resolve) => setTimeout(resolve, early))
            // A vehicle that waited for an answer does not catch up on the messages that it missed meanwhile.
            dueAt = goesOn && !neverWaits ? Math.max(dueAt, performance.now()) + everyMs : dueAt + everyMs
            const answered = send(url, agent, vin)
            if (neverWaits) {
              underWay.add(answered)
              void answered.finally(() => underWay.delete(answered))
            } else if ((await answered) === 0 && !goesOn) return
          }
        }),
      )
      await Promise.all(underWay)
      kept.destroy()
    },
  }
}

export function messageOf(vin: string, number: number, extraBytes = 0, field = 'Odometer'): string {
  const data = { [field]: number, ...(extraBytes > 0 ? { Extra: 'x'.repeat(extraBytes) } : {}) }
  return JSON.stringify({ data, createdAt: '2026-05-01T00:00:00.000Z', vin })
}

interface Posting {
  readonly body: string
  readonly path?: string
  readonly authorization?: string
  readonly timeoutMs?: number
}

/** The status of a complete answer, or 0 without one. */
export async function statusOf(url: string, agent: Agent, body: string): Promise<number> {
  return (await answerTo(url, agent, { body })).status
}

/** A complete answer, or status 0 with the code of the connection's error. */
function answerTo(url: string, agent: Agent | false, posting: Posting): Promise<Pick<Sent, 'status' | 'error'>> {
  const { body, path = '', authorization = secret, timeoutMs } = posting
  return new Promise((resolve) => {
    const headers = { authorization, 'content-length': Buffer.byteLength(body) }
    const posted = request(`${url}${path}`, { agent, method: 'POST', headers }, (response) => {
      const parts: Buffer[] = []
      response.on('data', (part: Buffer) => parts.push(part))
      response.once('end', () => {
        const { statusCode: status = 0 } = response
        resolve(status === 200 ? { status } : { status, ...errorIn(Buffer.concat(parts).toString()) })
      })
      response.once('error', failed)
    })
    function failed(error: NodeJS.ErrnoException): void {
      resolve({ status: 0, error: error.code ?? error.message })
    }
    let timer: NodeJS.Timeout | undefined
    function wait(ms: number): void {
      const fromMs = performance.now()
      timer = setTimeout(() => {
        // A sender that stood still may not even have sent it.
        if (stalledUntilMs > fromMs) wait(ms)
        else posted.destroy(Object.assign(new Error(), { code: 'no answer in time' }))
      }, ms)
    }
    if (timeoutMs !== undefined) {
      watchSender()
      wait(timeoutMs)
    }
    posted.once('error', failed)
    posted.once('close', () => clearTimeout(timer))
    posted.end(body)
  })
}

const tickMs = 50
let tickedAtMs = -Infinity
let stalledUntilMs = -Infinity

/** Records when this process last stood still for more than a fifth of a second. */
function watchSender(): void {
  if (tickedAtMs > 0) return
  tickedAtMs = performance.now()
  setInterval(() => {
    const now = performance.now()
    if (now - tickedAtMs > tickMs + 200) stalledUntilMs = now
    tickedAtMs = now
  }, tickMs).unref()
}

function errorIn(text: string): Pick<Sent, 'error'> {
  try {
    const answer: unknown = JSON.parse(text)
    const isError =
      typeof answer === 'object' && answer !== null && 'error' in answer && typeof answer.error === 'string'
    return isError ? { error: String(answer.error) } : {}
  } catch {
    return {}
  }
}
