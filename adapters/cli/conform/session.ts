import { randomInt } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import type { Format } from '../../../src/events/event.ts'
import { maxVins, syntheticVin } from '../../../src/service/fleet/vin.ts'
import { authorization } from '../../../src/wire/encode.ts'
import type { JsonObject } from '../../../src/wire/record.ts'
import { type HandledList, type HandledMessage, messageIn, serialField } from './handled.ts'
import { type Answered, type Posted, posting } from './post.ts'

/** One message of a vehicle, to be found again among the handled ones. */
export interface SentMessage {
  readonly vin: string
  readonly serial: number
  readonly createdAt: string
}

/** What became of a post: an answer, or why there was none. */
export type Outcome = Answered | { readonly status: 0; readonly text: string }

const firstSerial = 100_000
const agoMs = 3 * 3_600_000
/** More vehicles than a run uses. */
const mostVehicles = 2_000

/** A run of the checks against one receiver: what was posted, and what the receiver says that it has handled. */
export class Session {
  readonly secret: string
  readonly handled: HandledList | undefined
  readonly patienceMs: number
  /** The time until each answer, in milliseconds. */
  readonly answerMs: number[] = []
  /** Whether an answer showed the secret. */
  showsSecret = false
  readonly #post: (posted: Posted) => Promise<Answered>
  readonly #firstVin = randomInt(maxVins - mostVehicles)
  readonly #startMs = Math.floor((Date.now() - agoMs) / 1_000) * 1_000
  #vehicles = 0
  readonly #sent = new Map<string, Set<number>>()

  constructor(url: string, secret: string, handled: HandledList | undefined, patienceMs: number) {
    this.#post = posting({ url, patienceMs })
    this.secret = secret
    this.handled = handled
    this.patienceMs = patienceMs
  }

  /** A VIN that no other check uses. */
  vin(): string {
    const vin = syntheticVin(this.#firstVin + this.#vehicles++)
    this.#sent.set(vin, new Set())
    return vin
  }

  /** The next message of a vehicle. Its second is as unique as its serial number, because some receivers keep only that. */
  message(vin: string = this.vin()): SentMessage {
    const serials = this.#sent.get(vin) ?? new Set()
    this.#sent.set(vin, serials)
    const serial = firstSerial + serials.size
    serials.add(serial)
    const createdAt = new Date(this.#startMs + serials.size * 1_000 + 123).toISOString()
    return { vin, serial, createdAt }
  }

  /** Posts as the service does, unless `posted` says otherwise. Never rejects. */
  async post(posted: Posted, format: Format = 'service'): Promise<Outcome> {
    const headers = posted.headers ?? {
      'content-type': 'application/json',
      authorization: authorization(this.secret, format),
    }
    const startedAt = performance.now()
    try {
      const answered = await this.#post({ ...posted, headers })
      this.answerMs.push(performance.now() - startedAt)
      this.showsSecret ||= (answered.text + [...answered.headers].flat().join()).includes(this.secret)
      return answered
    } catch (error) {
      return { status: 0, text: error instanceof Error ? error.message : String(error) }
    }
  }

  /** The messages of this run that the receiver has handled so far, in order. */
  async read(): Promise<readonly HandledMessage[]> {
    const entries = (await this.handled?.read()) ?? []
    const isSent = (vin: string, serial: number): boolean => this.#sent.get(vin)?.has(serial) ?? false
    const serialAt = (ms: number): number => firstSerial + Math.floor((ms - this.#startMs) / 1_000) - 1
    const found = entries.map((entry) => messageIn(entry, isSent, serialAt))
    const own = found.filter((each) => each !== undefined && this.#sent.has(each.vin))
    const handled = own.filter((each): each is HandledMessage => each !== undefined && 'serial' in each)
    this.#before ??= entries.length
    this.#blind = handled.length > 0 ? undefined : reasonOf(own.length, entries.length - this.#before)
    return handled
  }

  #before: number | undefined
  #blind: string | undefined
  /** Why the list does not tell one message from another. `undefined`: it does, or it is empty. */
  get blind(): string | undefined {
    return this.#blind
  }

  /** How many handled messages a vehicle has, when these are `least`, or when for `patienceMs` no more came. */
  async countOf(vin: string, least: number): Promise<number> {
    const count = async (): Promise<number> => (await this.read()).filter((each) => each.vin === vin).length
    const untilMs = Date.now() + this.patienceMs
    while ((await count()) < least && Date.now() < untilMs) await setTimeout(100)
    await setTimeout(300)
    return count()
  }

  /** Resolves to the handled messages when `expected` are among them, or when for `patienceMs` no more came. */
  async settled(expected: readonly SentMessage[]): Promise<readonly HandledMessage[]> {
    const waiting = new Set(expected.map(keyOf))
    let handled = await this.read()
    let newestMs = Date.now()
    for (;;) {
      for (const each of handled) waiting.delete(keyOf(each))
      if (waiting.size === 0 || Date.now() - newestMs > this.patienceMs) break
      await setTimeout(100)
      const next = await this.read()
      if (next.length > handled.length) newestMs = Date.now()
      handled = next
    }
    // A message that is handled twice is so a moment later.
    await setTimeout(300)
    return this.read()
  }
}

function reasonOf(own: number, others: number): string | undefined {
  if (own > 0) return 'the list has the VINs, and neither the value of Odometer nor createdAt beside them'
  return others > 0 ? `the list got ${others} entries, and none has a VIN of a message` : undefined
}

export const keyOf = ({ vin, serial }: { readonly vin: string; readonly serial: number }): string => `${vin} ${serial}`

/** A data message in a format, as the service writes it. `wrapped`: the values in the wrappers of the vehicle maker. */
export function dataIn(
  format: Format,
  { vin, serial, createdAt }: SentMessage,
  values: JsonObject = {},
  wrapped: JsonObject = {},
): JsonObject {
  const data = { [serialField]: serial, ...values }
  if (format === 'service') return { data, createdAt, vin }
  const list = [
    { key: serialField, value: { doubleValue: serial } },
    ...Object.entries(wrapped).map(([key, value]) => ({ key, value })),
  ]
  if (format === 'vehicle_maker') return { data: list, createdAt, vin }
  const time = Date.parse(createdAt) / 1_000
  return { time, host: 'conform', source: vin, sourcetype: 'vehicle:telemetry:data', event: data }
}
