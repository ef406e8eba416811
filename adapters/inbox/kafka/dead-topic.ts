import { backgroundTimer, type Clock, type Timer } from '../../../src/base/clock.ts'
import { type DeadLetter, isSelected, type Selection } from '../../../src/inbox/inbox.ts'
import { bytesOfMessage, pageOf } from '../../../src/inbox/pages.ts'
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
  readonly writerId: Buffer
}

/** A record in the topic of dead letters. Its partition does not follow from its key when the topic has got more partitions since. */
interface DeadRecord {
  readonly key: string
  readonly partition: number
}

/** A dead letter, and the records that {@link DeadTopic.remove} deletes. */
export interface FoundLetter {
  readonly letter: DeadLetter
  /** More than one when the message died again. */
  readonly records: readonly DeadRecord[]
}

/** How long dead letters that were read stay in memory for the next page, in milliseconds. */
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
    const { settings, writer, writerId } = this.#options
    const record = toDeadRecord(letter, {
      topic: settings.deadTopic,
      partition: this.#partitionOf(letter.id),
      writer: writerId,
    })
    await writer.append([record], letter.message.bytes)
  }

  /** Deletes a dead letter with the records that were found. */
  async remove({ records }: FoundLetter): Promise<void> {
    const { settings, writer } = this.#options
    for (const { key, partition } of records) await writer.append([tombstone(key, settings.deadTopic, partition)], 100)
  }

  async list(which: Selection): Promise<readonly DeadLetter[]> {
    await this.#update()
    const found = [...this.#letters.values()]
      .map(({ letter }) => letter)
      .filter(({ message }) => isSelected(message, which))
      .sort((a, b) => (a.id < b.id ? -1 : 1))
    return pageOf(found, which.limit, bytesOfMessage)
  }

  async find(id: string): Promise<DeadLetter | undefined> {
    const [found] = await this.findAll([id])
    return found?.letter
  }

  /** The dead letters that exist for these ids, in the same order. */
  async findAll(ids: readonly string[]): Promise<readonly FoundLetter[]> {
    await this.#update()
    return ids.flatMap((id) => this.#letters.get(id) ?? [])
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
    const { connector, settings, clock } = this.#options
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
    this.#forgetting = backgroundTimer(clock, idleMs, () => {
      this.#letters = new Map()
      this.#read = new Map()
      void this.#reader?.close()
      this.#reader = undefined
    })
  }

  #note({ partition, record }: PlacedRecord): void {
    const key = record.key?.toString() ?? ''
    const id = deadIdOf(key)
    const known = this.#letters.get(id)
    const others = known?.records.filter((one) => one.key !== key) ?? []
    const letter = fromDeadRecord(record)
    if (letter !== undefined) {
      // Partitions are read one after the other, so an earlier death can come later.
      const newest = known === undefined || known.letter.diedAt <= letter.diedAt ? letter : known.letter
      this.#letters.set(id, { letter: newest, records: [...others, { key, partition }] })
    } else if (known !== undefined && others.length > 0) this.#letters.set(id, { ...known, records: others })
    else this.#letters.delete(id)
  }
}
