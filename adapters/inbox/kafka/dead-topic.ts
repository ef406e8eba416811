import { backgroundTimer, type Clock, type Timer } from '../../../src/base/clock.ts'
import { type DeadLetter, type InboxMessage, isSelected, type Selection } from '../../../src/inbox/inbox.ts'
import { pageOf } from '../../../src/base/pages.ts'
import type { Connector } from './client.ts'
import type { KafkaSettings } from './options.ts'
import { deadIdOf, fromDeadRecord, partitionOf, toDeadRecord, tombstone } from './records.ts'
import { earliest, latest, type PlacedRecord, TopicReader } from './topic-reader.ts'
import type { Writer } from './writer.ts'

interface DeadTopicOptions {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly clock: Clock
  readonly writer: Writer
}

/** A record in the topic of dead letters. Its partition does not follow from its key when the topic has got more partitions since. */
interface DeadRecord {
  readonly key: string
  readonly partition: number
}

/** A dead letter without its message: a topic of large messages must fit into memory. */
export interface FoundLetter extends Pick<InboxMessage, 'id' | 'lane' | 'receivedAt' | 'bytes'> {
  readonly diedAt: number
  /** Where its newest record is. */
  readonly partition: number
  readonly offset: number
  /** The records that {@link DeadTopic.remove} deletes. More than one when the message died again. */
  readonly records: readonly DeadRecord[]
}

/** How long what was read of dead letters stays in memory for the next page, in milliseconds. */
const idleMs = 10_000

/**
 * Keeps the dead letters of all processes in a topic. The key of a record is the id with the time of death, and a tombstone deletes it. So a message that
 * dies again while it is replayed stays a dead letter, also when its second record comes before the tombstone of the first one.
 */
export class DeadTopic {
  readonly #options: DeadTopicOptions
  #reader: TopicReader | undefined
  /** By id. */
  #letters = new Map<string, FoundLetter>()
  #read = new Map<number, number>()
  #reading: Promise<void> = Promise.resolve()
  #forgetting: Timer | undefined

  constructor(options: DeadTopicOptions) {
    this.#options = options
  }

  async add(letter: DeadLetter): Promise<void> {
    const { settings, writer } = this.#options
    const record = toDeadRecord(letter, { topic: settings.deadTopic, partition: this.#partitionOf(letter.id) })
    await writer.append([record], letter.message.bytes)
  }

  /** Deletes a dead letter with the records that were found. */
  async remove({ records }: FoundLetter): Promise<void> {
    const { settings, writer } = this.#options
    for (const { key, partition } of records) await writer.append([tombstone(key, settings.deadTopic, partition)], 100)
  }

  async list(which: Selection): Promise<readonly DeadLetter[]> {
    await this.#update()
    const found = [...this.#letters.values()].filter((letter) => isSelected(letter, which))
    return this.read(
      pageOf(
        found.sort((a, b) => (a.id < b.id ? -1 : 1)),
        which.limit,
        ({ bytes }) => bytes,
      ),
    )
  }

  /** The dead letters that exist for these ids, in the same order. */
  async findAll(ids: readonly string[]): Promise<readonly FoundLetter[]> {
    await this.#update()
    return ids.flatMap((id) => this.#letters.get(id) ?? [])
  }

  /** Reads them from the topic, in the same order, without letters that were removed since. */
  async read(found: readonly FoundLetter[]): Promise<readonly DeadLetter[]> {
    const read = new Map<string, DeadLetter>()
    const wanted = new Map<number, Map<number, string>>()
    for (const { id, partition, offset } of found)
      wanted.set(partition, (wanted.get(partition) ?? new Map<number, string>()).set(offset, id))
    this.#forgetting?.cancel()
    const reader = (this.#reader ??= new TopicReader(this.#options.connector, this.#options.settings.deadTopic))
    for (const [partition, ids] of wanted)
      for (const offset of [...ids.keys()].sort((a, b) => a - b)) {
        if (read.has(ids.get(offset) ?? '')) continue
        // A fetch returns the records behind it too.
        for await (const page of reader.scan(new Map([[partition, offset]]), new Map([[partition, offset + 1]]), true))
          for (const { offset: at, record } of page) {
            const letter = ids.has(at) ? fromDeadRecord(record) : undefined
            if (letter !== undefined) read.set(letter.id, letter)
          }
      }
    this.#forgetLater()
    return found.flatMap(({ id }) => read.get(id) ?? [])
  }

  async close(): Promise<void> {
    this.#forgetting?.cancel()
    await this.#reader?.close()
  }

  #partitionOf(id: string): number {
    const { connector, settings } = this.#options
    return partitionOf(connector.client, id, settings.partitions)
  }

  /** Reads only what is newer than the last read, so that the next page of a list does not read the whole topic again. */
  #update(): Promise<void> {
    this.#reading = this.#reading.then(
      () => this.#readNew(),
      () => this.#readNew(),
    )
    return this.#reading
  }

  async #readNew(): Promise<void> {
    const { connector, settings } = this.#options
    this.#forgetting?.cancel()
    this.#reader ??= new TopicReader(connector, settings.deadTopic)
    const reader = this.#reader
    const partitions = (await reader.leaders(this.#read.size === 0)).map((_, partition) => partition)
    const [first, end] = await Promise.all([reader.offsets(partitions, earliest), reader.offsets(partitions, latest)])
    const from = new Map(
      partitions.map((partition) => [partition, Math.max(this.#read.get(partition) ?? 0, first.get(partition) ?? 0)]),
    )
    for await (const page of reader.scan(from, end)) {
      for (const placed of page) this.#note(placed)
    }
    this.#read = new Map(end)
    this.#forgetLater()
  }

  #forgetLater(): void {
    this.#forgetting?.cancel()
    this.#forgetting = backgroundTimer(this.#options.clock, idleMs, () => {
      this.#letters = new Map()
      this.#read = new Map()
      void this.#reader?.close()
      this.#reader = undefined
    })
  }

  #note({ partition, offset, record }: PlacedRecord): void {
    const key = record.key?.toString() ?? ''
    const id = deadIdOf(key)
    const known = this.#letters.get(id)
    const others = known?.records.filter((one) => one.key !== key) ?? []
    const letter = fromDeadRecord(record)
    if (letter !== undefined) {
      // Partitions are read one after the other, so an earlier death can come later.
      const { lane, receivedAt, bytes } = letter.message
      const { diedAt } = letter
      const records = [...others, { key, partition }]
      if (known !== undefined && known.diedAt > diedAt) this.#letters.set(id, { ...known, records })
      else this.#letters.set(id, { id, lane, receivedAt, bytes, diedAt, partition, offset, records })
    } else if (known !== undefined && others.length > 0) this.#letters.set(id, { ...known, records: others })
    else this.#letters.delete(id)
  }
}
