import { randomUUID } from 'node:crypto'
import { backgroundTimer, pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { createMessages, noArchive } from '../../../src/inbox/archive.ts'
import type { Backlog, InboxStats } from '../../../src/observe/stats.ts'
import type { InboxMessage, InboxHost } from '../../../src/inbox/inbox.ts'
import { readsNothing } from '../forwarding.ts'
import type { Moved } from '../meanwhile/way.ts'
import type { Signs } from '../signs-of-life.ts'
import type { Asked } from '../../../src/observe/observer.ts'
import type { SharedSystem } from '../shared-inbox.ts'
import { backlogOf } from './backlog.ts'
import { clusterError, closeClient, codesOf, Connector, loadClient } from './client.ts'
import { DeadTopic } from './dead-topic.ts'
import type { KafkaSettings } from './options.ts'
import { Reader } from './reader.ts'
import { partitionOf, recordBytes, sameRun, toRecord } from './records.ts'
import { Replays } from './replays.ts'
import { checkTopics, type FoundTopics } from './topics.ts'
import { TopicSigns } from './life.ts'
import { mostBytes, mostMessages, Writer } from './writer.ts'

/** What this process holds once it has connected to the cluster. */
interface Connected {
  readonly connector: Connector
  readonly found: FoundTopics
  readonly writer: Writer
  readonly dead: DeadTopic
  readonly replays: Replays
  readonly signs: Signs
}

const startRequestMs = 4_000

/** How often the lag is read, in milliseconds. */
const backlogMs = 15_000

/** The bytes that a record may gain when it is written to the topic. */
const marginBytes = 1_024

export class KafkaSystem implements SharedSystem {
  readonly durability = 'replicated'
  readonly name = 'Kafka'
  readonly operator: Asked
  readonly #inbox: InboxHost
  readonly #settings: KafkaSettings
  #reader: Reader | undefined
  #connected: Connected | undefined
  #isClosed = false
  #backlog: Backlog | undefined

  constructor(settings: KafkaSettings, inbox: InboxHost) {
    this.#settings = settings
    this.#inbox = inbox
    const replays = (): Replays => this.#opened().replays
    this.operator = {
      deadLetters: {
        list: (which) => replays().deadLetters.list(which),
        get: (id) => replays().deadLetters.get(id),
        replay: (which) => replays().deadLetters.replay(which),
        discard: (which) => replays().deadLetters.discard(which),
      },
      // Messages are in the topic, and Kafka's own tools read it.
      messages: createMessages(noArchive, readsNothing),
      replay: (which) => replays().replay(which),
    }
  }

  refusing(): 'inbox_unavailable' | undefined {
    return this.#connected?.writer.failure === undefined ? undefined : 'inbox_unavailable'
  }

  facts(): readonly string[] {
    if (this.#settings.role === 'handle') return []
    return [this.#connected?.found.isWeak === true ? weak : strong]
  }

  figures(): InboxStats {
    const oldestWaitingMs = this.#reader?.oldestMs()
    return { oldestWaitingMs, ...this.#reader?.figures() }
  }

  backlog(): Backlog | undefined {
    return this.#backlog
  }

  /** Asks the brokers now and then: another process may have the lag, or none. */
  async #watch(connector: Connector): Promise<void> {
    while (!this.#isClosed) {
      this.#backlog = await backlogOf(connector, this.#settings).catch((error: unknown) => {
        this.#inbox.log.debug('the lag of the group could not be read', { error: [...codesOf(error)].join(' ') })
        return undefined
      })
      await this.#pause(backlogMs)
    }
  }

  read(): Reader {
    const { connector, dead, found } = this.#opened()
    this.#reader = new Reader({
      connector,
      dead,
      inbox: this.#inbox,
      settings: this.#settings,
      retentionMs: found.retentionMs,
    })
    return this.#reader
  }

  signs(): Signs {
    return this.#opened().signs
  }

  async close(): Promise<void> {
    this.#isClosed = true
    const { writer, dead } = this.#connected ?? {}
    await Promise.all([writer?.close(), dead?.close()])
  }

  #opened(): Connected {
    if (this.#connected === undefined) throw new FleethookError('inbox_unavailable', 'The inbox is not open.')
    return this.#connected
  }

  /** Connects to the cluster and checks its topics. */
  async connect(): Promise<void> {
    const { clock, read } = this.#inbox
    const settings = this.#settings
    const connector = new Connector(await loadClient(), settings)
    const found = await this.#find(connector, settings.confirmMs)
    const { topic, deadTopic, lifeTopic } = settings
    const writer = new Writer({ connector, settings, clock, topics: [topic, deadTopic, lifeTopic] })
    await writer.open()
    const shared = { connector, settings, clock, writer }
    const dead = new DeadTopic(shared)
    const replays = new Replays({ ...shared, dead, read })
    void this.#watch(connector)
    const signs = new TopicSigns({ ...shared, me: randomUUID().replaceAll('-', '').slice(0, 16) })
    this.#connected = { connector, found, writer, dead, replays, signs }
  }

  mayPass(error: unknown): boolean {
    return error instanceof FleethookError && error.code === 'inbox_unavailable'
  }

  /** Checks the topics. Retries for a while, because a broker may still be starting. */
  async #find(connector: Connector, withinMs: number): Promise<FoundTopics> {
    const { clock } = this.#inbox
    const untilMs = clock.now() + withinMs
    for (;;) {
      const admin = connector.admin(startRequestMs)
      try {
        return await checkTopics(admin, this.#settings, this.#inbox.log)
      } catch (error) {
        const failure = clusterError(error, this.#settings)
        if (failure.code === 'option_invalid' || clock.now() >= untilMs || this.#isClosed) throw failure
        // This timer keeps the process alive: nothing else does before the port is open.
        await pause(clock, 500)
      } finally {
        await closeClient(admin)
      }
    }
  }

  wayOf(lane: string): number {
    return partitionOf(this.#opened().connector.client, lane, this.#settings.partitions)
  }

  /** Appends messages to their partitions, without an await before that: they keep the order of these calls. */
  async put(messages: readonly InboxMessage[], moved?: Moved): Promise<void> {
    const most = this.#opened().found.mostBytes - marginBytes
    for (const message of messages) {
      const bytes = recordBytes(message)
      if (bytes <= most) continue
      // What to do: Raise `max.message.bytes` of the topic, and `message.max.bytes` of the brokers.
      throw new FleethookError('body_too_large', `The topic does not take a message of ${bytes} bytes.`, {
        hint: `The topic takes messages of up to ${most} bytes, and this body has one of ${bytes} bytes. Raise \`max.message.bytes\` of the topic.`,
      })
    }
    const byPartition = Map.groupBy(messages, ({ lane }) => this.wayOf(lane))
    const kept = [...byPartition].map(([partition, some]) => this.#appendTo(partition, some, moved))
    for (const result of await Promise.allSettled(kept)) if (result.status === 'rejected') throw result.reason
  }

  takeBack(partition: number): void {
    this.#opened().writer.takeBack(this.#settings.topic, partition)
  }

  /**
   * Appends messages to their partition. Resolves when the in-sync replicas have all of them. What moved goes one request after the other: a reader
   * drops a message that comes behind one with a higher id of the same receiver.
   */
  async #appendTo(partition: number, messages: readonly InboxMessage[], moved: Moved | undefined): Promise<void> {
    const { writer, found } = this.#opened()
    const { topic } = this.#settings
    const replayed = moved?.isReplayed === true ? (moved.replay ?? sameRun) : undefined
    const appended: Promise<void>[] = []
    for (const chunk of chunksOf(messages, Math.min(mostBytes, found.mostBytes - marginBytes))) {
      const records = chunk.messages.map((message) => toRecord(message, { topic, partition, replayed }))
      const confirmed = writer.append(records, chunk.bytes, { mayBeTakenBack: true })
      appended.push(confirmed)
      if (moved !== undefined) await confirmed
    }
    for (const result of await Promise.allSettled(appended)) if (result.status === 'rejected') throw result.reason
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      backgroundTimer(this.#inbox.clock, ms, resolve)
    })
  }
}

interface Chunk {
  readonly messages: InboxMessage[]
  bytes: number
}

/** Splits messages into chunks that fit in one request, and of which the topic takes each. */
function chunksOf(messages: readonly InboxMessage[], atMostBytes: number): readonly Chunk[] {
  const chunks: Chunk[] = []
  for (const message of messages) {
    const bytes = recordBytes(message)
    const last = chunks.at(-1)
    if (last === undefined || last.messages.length >= mostMessages || last.bytes + bytes > atMostBytes)
      chunks.push({ messages: [message], bytes })
    else {
      last.messages.push(message)
      last.bytes += bytes
    }
  }
  return chunks
}

const strong =
  'These machines are Kafka brokers: at least two have the message, possibly only in memory. It can be lost when all of them lose power at once.'
const weak =
  'The topics do not require two brokers, and `allowWeak` accepts that: an acknowledged message can be lost with one broker.'
