/* Receivers on real brokers, in the process of the tests. */
import { randomUUID } from 'node:crypto'
import { kafkaInbox, type KafkaInboxOptions } from '../../adapters/inbox/kafka.ts'
import { createReceiver, type GapEvent, type Log, type Receiver, type ReceiverOptions } from '../../src/index.ts'
import type { Brokers } from './brokers.ts'
import { createTopics } from './topics.ts'

/** A receiver, and what its handlers got, in the order in which they started. */
export interface Running extends AsyncDisposable {
  readonly receiver: Receiver
  readonly runs: {
    readonly vin: string
    readonly number: number
    readonly id: string
    readonly redelivered: boolean
    readonly replayed: boolean
  }[]
  readonly gaps: GapEvent[]
  readonly logged: string[]
  /** `padding`: how many characters longer the message is. */
  post(vin: string, number: number, padding?: number): Promise<number>
}

export interface Way extends Partial<KafkaInboxOptions> {
  readonly topic: string
  readonly handle?: (vin: string, number: number) => unknown
  readonly options?: Partial<ReceiverOptions>
}

interface Receivers {
  /** A receiver that is not open yet. */
  create(way: Way): Running
  run(way: Way): Promise<Running>
  newTopic(configs?: Readonly<Record<string, string>>): Promise<string>
}

const silent = (): void => {}

/** Creates receivers, each on this number of partitions. */
export function receiversOn(brokers: () => Brokers, partitions: number): Receivers {
  function create({ handle = silent, options = {}, ...inbox }: Way): Running {
    const runs: Running['runs'][number][] = []
    const gaps: GapEvent[] = []
    const logged: string[] = []
    const note = (line: string): void => void logged.push(line)
    const log: Log = { debug: silent, info: silent, warn: note, error: note }
    const given = { brokers: brokers().addresses, partitions, quiesceMs: 2_000, sessionMs: 6_000, ...inbox }
    const receiver = createReceiver({
      ...{ secret: false, inbox: kafkaInbox(given), log, retry: { attempts: 1 } },
      ...options,
    })
      .on('data', async ({ vin, data }, { delivery: { id, redelivered, replayed } }) => {
        const number = Number(data.Odometer)
        runs.push({ vin, number, id, redelivered, replayed })
        await handle(vin, number)
      })
      .on('gap', (gap) => void gaps.push(gap))
    return {
      ...{ receiver, runs, gaps, logged },
      async post(vin, number, padding = 0) {
        const data = { Odometer: number, Padding: 'x'.repeat(padding) }
        const body = { vin, createdAt: '2026-01-01T00:00:00Z', data }
        return (await receiver.accept({ authorization: undefined, body })).status
      },
      async [Symbol.asyncDispose]() {
        await receiver.drain({ deadlineMs: 5_000, handlerGraceMs: 200 })
      },
    }
  }
  return {
    create,
    async run(way) {
      const running = create(way)
      await running.receiver.open()
      return running
    },
    async newTopic(configs) {
      const topic = `test-${randomUUID().slice(0, 8)}`
      await createTopics(brokers().addresses, topic, partitions, configs)
      return topic
    },
  }
}

/** The numbers of the messages of a vehicle that were handled, in order. */
export function numbersOf({ runs }: Running, vin: string): readonly number[] {
  return runs.filter((one) => one.vin === vin).map(({ number }) => number)
}

/** The numbers from 0 up. */
export const count = (n: number): readonly number[] => Array.from({ length: n }, (_, number) => number)
