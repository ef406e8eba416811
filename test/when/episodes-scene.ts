import {
  createReceiver,
  type EventOf,
  type FieldValues,
  type HandlerFilter,
  memoryInbox,
  type Receiver,
  type Vehicles,
  vehicles,
} from 'fleethook'
import { createClient } from 'fleethook/client'
import type { InboxFactory } from 'fleethook/extend'
import { message } from 'fleethook/testing'
import type { Edge, Happening, Occurrence } from 'fleethook/when'
import { silent } from '../vehicles/scene.ts'
import { idle, pendingOf, type SteppingClock, steppingClock } from './stepping.ts'

export const vin = '0FLEETV14T0000004'
export const startMs: number = Date.UTC(2026, 10, 21, 10)

/** What a vehicle says, and when, in seconds of its clock after {@link startMs}. Arrives then, or as many seconds later as `late` says. */
export type Said = readonly [second: number, data: FieldValues | { readonly state: string }, late?: number]

export const fields: NonNullable<HandlerFilter['fields']> = [
  'Gear',
  'Odometer',
  'EnergyRemaining',
  'Location',
  'VehicleSpeed',
  'DetailedChargeState',
  'BatteryLevel',
  'ACChargingEnergyIn',
  'DCChargingEnergyIn',
  'DestinationName',
  'Locked',
]

/** Where receivers keep their messages, one process after the other. */
export interface Place {
  /** The inbox of the next process. */
  readonly next: () => InboxFactory
  /** Called with each receiver, before its first message. */
  readonly host?: (receiver: Receiver, clock: SteppingClock) => void
  /** How many messages wait, where the receiver cannot say. */
  readonly pending?: () => number | Promise<number>
  readonly end?: () => void | Promise<void>
}

export interface EpisodeScene<Happened extends Occurrence> {
  readonly receiver: Receiver & { readonly vehicles: Vehicles }
  readonly clock: SteppingClock
  readonly told: Happened[]
  readonly happenings: Happening<Happened>[]
  /** Sends messages in the order of their arrival, and lets the time pass between them. */
  say(...said: readonly Said[]): Promise<void>
  /** Lets the time pass until this second. */
  until(second: number): Promise<void>
  /** Messages before this second may be missing. The receiver learns of it then, or as many seconds later as `late` says. */
  gap(second: number, late?: number): Promise<void>
  /** What `client.refill` gets from the service at this second. */
  refill(second: number, document: object): Promise<void>
  /** Ends the process. Its handlers have a second. */
  stop(): Promise<void>
}

export interface SceneOptions<Happened extends Occurrence> {
  readonly place?: Place
  readonly clock?: SteppingClock
  readonly of?: string
  /** Its handler is never done. */
  /** When the clock begins, in seconds. Default -3600. */
  readonly startsAt?: number
  readonly hangs?: true
  /** What the handler does after it was told. */
  readonly handle?: (happening: Happening<Happened>) => unknown
}

/** A receiver with one rule, and a clock that stands at second -3600. */
export function episodeScene<Happened extends Occurrence>(
  edge: Edge<Happened>,
  options: SceneOptions<Happened> = {},
): EpisodeScene<Happened> {
  const {
    place = { next: () => memoryInbox() },
    clock = steppingClock(startMs + (options.startsAt ?? -3_600) * 1_000),
    of = vin,
  } = options
  const happenings: Happening<Happened>[] = []
  const told: Happened[] = []
  const [attempts, restMs] = [2, 10]
  let isOver = false
  // The timers of a process end with it.
  const own: SteppingClock = { ...clock, after: (ms, run) => clock.after(ms, () => isOver || run()) }
  const receiver = createReceiver({
    ...{
      secret: false,
      log: silent,
      inbox: place.next(),
      clock: own,
      retry: { attempts, minMs: restMs, maxMs: restMs },
    },
    parts: [vehicles({ fields })],
  })
  /** Messages that are tried again later, or never done. */
  let [resting, hanging] = [0, 0]
  receiver.when(edge, async (happening, { delivery }) => {
    if (delivery.attempt > 1) resting -= 1
    happenings.push(happening)
    told.push(happening.change)
    if (options.hangs) {
      hanging += 1
      return new Promise(() => {})
    }
    try {
      await options.handle?.(happening)
    } catch (error) {
      if (delivery.attempt < attempts) resting += 1
      throw error
    }
  })
  place.host?.(receiver, own)
  const pending = pendingOf(receiver)
  const settled = (): Promise<void> =>
    idle(async () => {
      // One that rests has a timer, which an inbox sets when it has written that.
      if (resting > 0 && clock.nextMs() > clock.now() + restMs) return 1
      return Math.max(pending(), (await place.pending?.()) ?? 0) - resting - hanging
    })
  const until = async (second: number): Promise<void> => {
    await settled()
    await clock.advance(Math.max(0, startMs + second * 1_000 - clock.now()), settled)
  }
  return {
    receiver,
    clock,
    told,
    happenings,
    until,
    async say(...said) {
      const arrivals = said.map(([second, data, late = 0]) => ({ second, data, arrives: second + late }))
      for (const { second, data, arrives } of arrivals.toSorted((one, other) => one.arrives - other.arrives)) {
        await until(arrives)
        const createdAt = new Date(startMs + second * 1_000).toISOString()
        const about = { vin: of, createdAt }
        const made = 'state' in data ? message.state(data.state, about) : { ...message.data({}, about), data }
        const { status } = await receiver.accept({ authorization: undefined, body: made })
        if (status !== 200) throw new Error(`The message got ${status}.`)
      }
      await settled()
    },
    async gap(second, late = 0) {
      await until(second + late)
      const gap = gapAt(new Date(clock.now() - late * 1_000), new Date(clock.now()))
      await receiver.from({ feed: async ({ tell }) => void (await tell(gap)) })
      await settled()
      // The next message is not of the same millisecond.
      await clock.advance(1, settled)
    },
    async refill(second, document) {
      await until(second)
      const answer = async (): Promise<Response> => Response.json({ response: document })
      const client = createClient({ baseUrl: 'https://service.example', apiKey: 'the-key', clock, fetch: answer })
      await receiver.from(client.refill({ vin: of }))
      await settled()
    },
    async stop() {
      let isDrained = false
      const drained = receiver.drain({ deadlineMs: 1_000 }).then(() => (isDrained = true))
      const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1))
      while (!isDrained) await clock.advance(10, turn).then(turn)
      await drained
      isOver = true
    },
  }
}

function gapAt(at: Date, receivedAt: Date): EventOf<'gap'> {
  const about = { topic: 'gap', from: at, to: at, reason: 'stream_interrupted', missed: 0 } as const
  const id = `gap:stream_interrupted::${at.getTime()}`
  return { ...about, createdAt: at.toISOString(), at: receivedAt, receivedAt, id, format: null, raw: null, meta: {} }
}
