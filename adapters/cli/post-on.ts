import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { setTimeout } from 'node:timers/promises'
import prettyMs from 'pretty-ms'
import { FleethookError } from '../../src/base/errors.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import type { ShownItem } from '../../src/operator/feed.ts'
import { authorization } from '../../src/wire/encode.ts'
import { environment, formats, problemWithSecret } from './arguments.ts'
import { codeOf, exchange } from './exchange.ts'
import { follow } from './feed.ts'
import type { Operator } from './operator.ts'
import { hintAboutSecret, isPage, refusalOf } from './send.ts'
import { colorsFor, escapeJson } from './terminal.ts'

export interface PostingOn {
  readonly to: URL
  /** The secret of the receiver at `to`. Default: `WEBHOOK_SECRET` of the environment or of the file `dotenv`. */
  readonly auth: string | undefined
  readonly dotenv: string
  readonly isJson: boolean
  /** The vehicle and the topic of the messages to post. */
  readonly which: { readonly vin?: string; readonly topic?: string }
}

/** The vehicles of which messages are under way at a time. */
const mostOpen = 8

/** Long enough for a handler that stands at a breakpoint for a moment. */
const timeoutMs = 30_000

/** The pause before it is tried again when it does not answer, in milliseconds. */
const againMs = 500

/** So often in a row a message has to come back before the command is sure that it posts to the receiver that it reads. */
const returns = 5

/** The texts whose way back is watched, and the times for each. */
const mostWatched = 1_000
const mostTimes = 50

/** When a message was posted and answered. */
interface Posted {
  readonly from: number
  readonly until: number
}

/** How a message was answered. */
interface Answered {
  readonly status: number
  readonly ms: number
  /** What was wrong, and what to do about it. Left out: it was accepted. */
  readonly refusal?: { readonly what: string; readonly hint: string }
}

/**
 * Posts each message that a running receiver gets to another one, in order per vehicle, until the signal aborts. A message that gets no
 * answer is posted again, so a restart of either side loses none that the feed has: what it has not is said.
 */
export async function postOn(operator: Operator, posting: PostingOn, signal: AbortSignal): Promise<boolean> {
  const { to, isJson, which } = posting
  const { dim } = colorsFor(process.stdout)
  const target = new Target(posting, signal)
  let lostAt = new Date()
  const onLost = (): void => {
    lostAt = operator.lostAt
    console.error('The receiver stopped. Waiting until it runs again. Press Ctrl+C to end.')
  }
  const onFound = (): void => {
    const [from, until] = [lostAt, new Date()].map((at) => at.toISOString().slice(11, 19))
    console.error(`The receiver runs again. What it took between ${from} and ${until} UTC is not posted here.`)
  }
  try {
    const query = new URLSearchParams({ ...which, received: 'true' })
    for await (const { items, missed, isKept, isLast } of follow(operator, query, signal, onLost, onFound)) {
      if (isKept && isLast) console.error(`Listening. Each new message is posted to ${to.origin}. Press Ctrl+C to end.`)
      if (missed > 0 && isJson) console.log(JSON.stringify({ missed }))
      else if (missed > 0)
        console.log(dim(`The feed dropped ${missed} items before they could be posted: messages are missing here.`))
      const lanes = [...Map.groupBy(isKept ? [] : items, ({ event }) => event?.vin ?? '').values()]
      const open = Array.from({ length: mostOpen }, async () => {
        for (let lane = lanes.shift(); lane !== undefined; lane = lanes.shift()) await target.postInOrder(lane)
      })
      await Promise.all(open)
    }
  } finally {
    target.close()
  }
  return true
}

/** The receiver that messages are posted to. */
class Target {
  readonly #to: URL
  readonly #agent: HttpAgent | HttpsAgent
  readonly #secret: string | undefined
  readonly #secretHint: string
  readonly #isJson: boolean
  readonly #signal: AbortSignal
  readonly #wayBack: WayBack
  readonly #hinted = new Set<string>()
  #isAway = false

  constructor({ to, auth, dotenv, isJson }: PostingOn, signal: AbortSignal) {
    const secret = auth ?? environment(dotenv)('WEBHOOK_SECRET')
    const problem = secret === undefined ? undefined : problemWithSecret(secret)
    if (problem !== undefined) throw new FleethookError('option_invalid', problem)
    const limits = { keepAlive: true, maxSockets: mostOpen }
    this.#to = to
    this.#agent = to.protocol === 'https:' ? new HttpsAgent(limits) : new HttpAgent(limits)
    this.#secret = secret
    this.#secretHint =
      auth === undefined ? hintAboutSecret(dotenv, secret) : 'The secret that was sent is the value of --auth.'
    this.#isJson = isJson
    this.#signal = signal
    this.#wayBack = new WayBack(to)
  }

  /** Posts the messages of one vehicle, each after the answer to the one before. */
  async postInOrder(items: readonly ShownItem[]): Promise<void> {
    for (const item of items) {
      const { id = '', text, event } = item
      if (text === undefined) {
        throw new FleethookError('option_invalid', 'This receiver shows no payloads, so there is nothing to post.', {
          hint: 'Give the address at which it mounts operatorRoutes, or the file of its inbox.',
        })
      }
      const from = Date.now()
      const format = formats.find((known) => known === event?.format) ?? 'service'
      const answered = await this.#post(text, {
        'content-type': 'application/json',
        'user-agent': 'fleethook-tail',
        'fleethook-delivery': id,
        ...(this.#secret === undefined ? {} : { authorization: authorization(this.#secret, format) }),
      })
      if (answered === undefined) return
      this.#tell(item, answered)
      this.#wayBack.watch(text, Date.parse(event?.receivedAt ?? ''), from)
    }
  }

  close(): void {
    this.#agent.destroy()
  }

  /** `undefined`: the command ended before there was an answer. */
  async #post(text: string, headers: Readonly<Record<string, string>>): Promise<Answered | undefined> {
    const [to, agent, ended] = [this.#to, this.#agent, this.#signal]
    while (!ended.aborted) {
      const late = AbortSignal.timeout(timeoutMs)
      try {
        const answer = await exchange(to, { agent, headers, body: text, signal: AbortSignal.any([late, ended]) })
        if (this.#isAway) console.error(`${to.origin} answers again.`)
        this.#isAway = false
        const { status, ms } = answer
        if (status >= 200 && status < 300 && !isPage(answer.text)) return { status, ms }
        return { status, ms, refusal: refusalOf(answer, to, this.#secretHint, '--to') }
      } catch (error) {
        if (ended.aborted) return undefined
        // It has the message, and may be at work on it.
        if (late.aborted) return { status: 0, ms: timeoutMs, refusal: { what: 'no answer in time', hint: '' } }
        if (!this.#isAway) console.error(`${to.origin} does not answer (${codeOf(error)}). Waiting until it does.`)
        this.#isAway = true
        await setTimeout(againMs, undefined, { signal: ended }).catch(() => {})
      }
    }
    return undefined
  }

  #tell({ id, vin, event, line }: ShownItem, { status, ms, refusal }: Answered): void {
    if (this.#isJson) {
      const about = {
        id,
        vin: vin ?? event?.vin,
        topic: event?.topic,
        status,
        ms: Math.round(ms),
        error: refusal?.what,
      }
      return console.log(escapeJson(JSON.stringify(about)))
    }
    const { green, red } = colorsFor(process.stdout)
    const took = prettyMs(ms, { compact: true }).padStart(6)
    const paint = refusal === undefined ? green : red
    const answer = refusal === undefined ? '' : ` → ${refusal.what}`
    console.log(`${paint(String(status || '---'))} ${took}  ${escapeControls(`${line ?? id ?? ''}${answer}`)}`)
    if (refusal === undefined || refusal.hint === '' || this.#hinted.has(refusal.what)) return
    this.#hinted.add(refusal.what)
    console.error(refusal.hint)
  }
}

/** Notices that messages are posted to the receiver that is read: then they come back. Bounded, so a loop of more messages is found late. */
class WayBack {
  readonly #to: URL
  /** When each text was posted, and the number of times it came back: received within such a time. */
  readonly #posted = new Map<string, { readonly times: readonly Posted[]; readonly count: number }>()

  constructor(to: URL) {
    this.#to = to
  }

  /** A message that was received was posted, and is answered now. Throws `option_invalid` when it came back too often. */
  watch(text: string, receivedAt: number, from: number): void {
    const { times = [], count: before = 0 } = this.#posted.get(text) ?? {}
    // The same text can be posted several times before the first one is back.
    const isBack = times.some((time) => receivedAt >= time.from && receivedAt <= time.until)
    const count = isBack ? before + 1 : 0
    if (count === returns) {
      throw new FleethookError(
        'option_invalid',
        `The receiver at ${this.#to.origin} is also the source: its messages come back.`,
        {
          hint: 'Name the other receiver: its operatorRoutes with --url, or the file of its inbox with --inbox.',
        },
      )
    }
    this.#posted.delete(text)
    this.#posted.set(text, { times: [...times.slice(-mostTimes), { from, until: Date.now() }], count })
    const [oldest] = this.#posted.size > mostWatched ? this.#posted.keys() : []
    if (oldest !== undefined) this.#posted.delete(oldest)
  }
}
