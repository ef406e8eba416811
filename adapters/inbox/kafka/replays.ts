import { deadLettersOf, msOf } from '../../../src/inbox/archive.ts'
import type { Clock } from '../../../src/base/clock.ts'
import { makerOf } from '../../../src/inbox/delivery-id.ts'
import type { DeadLetters, ReplaySelection } from '../../../src/observe/dead-letters.ts'
import { type InboxMessage, type InboxHost, listedLetter } from '../../../src/inbox/inbox.ts'
import { largestPage, pageOf } from '../../../src/base/pages.ts'
import { laneOf } from '../../../src/inbox/receipts.ts'
import { paced } from '../paced.ts'
import { closeClient, type Connector } from './client.ts'
import type { DeadTopic } from './dead-topic.ts'
import type { KafkaSettings } from './options.ts'
import { fromRecord, partitionOf, recordBytes, sameRun, toRecord } from './records.ts'
import { earliest, TopicReader } from './topic-reader.ts'
import type { Writer } from './writer.ts'

interface ReplaysOptions {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly clock: Clock
  readonly writer: Writer
  readonly dead: DeadTopic
  readonly read: NonNullable<InboxHost['read']>
}

/** How far a receiver's clock and the brokers' clocks may differ, in milliseconds. The topic has the brokers' times. */
const slackMs = 300_000

/** Appends a copy with the same id to the topic, where the owner of the partition handles it in order. */
export class Replays {
  readonly deadLetters: DeadLetters
  readonly #options: ReplaysOptions

  constructor(options: ReplaysOptions) {
    this.#options = options
    const { dead, read } = options
    this.deadLetters = deadLettersOf(
      {
        list: async (_, which) => (await dead.list(which)).map(listedLetter),
        replay: async (ids) => {
          const found = await dead.findAll(ids)
          // In pages, because a letter has its message.
          for (let at = 0; at < found.length;) {
            const page = pageOf(found.slice(at), largestPage, ({ bytes }) => bytes)
            at += page.length
            const letters = new Map((await dead.read(page)).map((letter) => [letter.id, letter]))
            await this.#eachPaced(page, async (one) => {
              const letter = letters.get(one.id)
              if (letter === undefined) return
              await this.#copy(letter.message, letter.replay ?? sameRun)
              await dead.remove(one)
            })
          }
          return found.length
        },
        discard: async (ids) => {
          const found = await dead.findAll(ids)
          for (const one of found) await dead.remove(one)
          return found.length
        },
      },
      read,
    )
  }

  /** Replays handled messages that retention has not deleted, in order per vehicle. Resolves to their number. */
  async replay({ from, to, vin, topic, dryRun }: ReplaySelection): Promise<number> {
    const { connector, settings, read } = this.#options
    const fromMs = msOf('from', from)
    const toMs = msOf('to', to)
    const lane = vin === undefined ? undefined : laneOf(vin)
    const reader = new TopicReader(connector, settings.topic)
    let count = 0
    try {
      const all = Array.from({ length: settings.partitions }, (_, partition) => partition)
      const partitions = lane === undefined ? all : [partitionOf(connector.client, lane, settings.partitions)]
      await reader.leaders(true)
      const [first, young, handled] = await Promise.all([
        reader.offsets(partitions, earliest),
        reader.offsets(partitions, Math.max(0, fromMs - slackMs)),
        this.#committed(),
      ])
      const starts = new Map(
        partitions.flatMap((partition): readonly (readonly [number, number])[] => {
          const start = young.get(partition) ?? -1
          return start < 0 ? [] : [[partition, Math.max(start, first.get(partition) ?? 0)]]
        }),
      )
      const lastIds = new Map<string, string>()
      for await (const page of reader.scan(starts, handled)) {
        const chosen: InboxMessage[] = []
        for (const { partition, record } of page) {
          const incoming = fromRecord(record)
          if (incoming === undefined || incoming.replayed || incoming.message.kind !== 'wire') continue
          const { message } = incoming
          // A record that is in the log twice was handled once.
          const key = `${partition}:${makerOf(message.id)}`
          if (message.id <= (lastIds.get(key) ?? '')) continue
          lastIds.set(key, message.id)
          if (message.receivedAt < fromMs || message.receivedAt >= toMs) continue
          if (lane !== undefined && message.lane !== lane) continue
          if (topic !== undefined && read(message).topic !== topic) continue
          chosen.push(message)
        }
        count += chosen.length
        if (dryRun !== true) await this.#eachPaced(chosen, (message) => this.#copy(message, crypto.randomUUID()))
      }
    } finally {
      await reader.close()
    }
    return count
  }

  /** The committed position of the group in each partition. */
  async #committed(): Promise<ReadonlyMap<number, number>> {
    const { connector, settings } = this.#options
    const admin = connector.admin(8_000)
    try {
      const [group] = await admin.listConsumerGroupOffsets({ groups: [settings.groupId] })
      const topic = group?.topics.find(({ name }) => name === settings.topic)
      return new Map(
        topic?.partitions.map(({ partitionIndex, committedOffset }) => [partitionIndex, Number(committedOffset)]) ?? [],
      )
    } finally {
      await closeClient(admin)
    }
  }

  async #copy(message: InboxMessage, replayed: string): Promise<void> {
    const { connector, settings, writer } = this.#options
    const partition = partitionOf(connector.client, message.lane, settings.partitions)
    const record = toRecord(message, { topic: settings.topic, partition, replayed })
    await writer.append([record], recordBytes(message))
  }

  /** Keeps the order of the items: appends to a partition happen in the order of the calls. */
  #eachPaced<Item>(items: readonly Item[], run: (item: Item) => Promise<void>): Promise<void> {
    return paced(this.#options.clock, items, (some) => Promise.all(some.map(run)))
  }
}
