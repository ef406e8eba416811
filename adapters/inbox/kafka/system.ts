import { randomUUID } from 'node:crypto'
import type { BackendParts } from '../../../src/backend/backend.ts'
import { createMessages } from '../../../src/backend/replay.ts'
import type { RelayBackend } from '../../../src/backend/relay.ts'
import { pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { guardedLog, type Log } from '../../../src/base/log.ts'
import type { OpenOptions } from '../../../src/hosting/drainable.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { DeadLetters, Messages, ReplaySelection } from '../../../src/inbox/dead-letters.ts'
import type { InboxStats } from '../../../src/inbox/stats.ts'
import type { InboxMessage, InboxSettings } from '../../../src/inbox/inbox.ts'
import type { SharedInbox, SharedSystem } from '../two-halves.ts'
import { clusterError, closeClient, Connector, loadClient } from './client.ts'
import { DeadTopic } from './dead-topic.ts'
import type { KafkaSettings } from './options.ts'
import { Reader } from './reader.ts'
import { partitionOf, recordBytes, toRecord } from './records.ts'
import { Replays } from './replays.ts'
import { checkTopics, type FoundTopics } from './topics.ts'
import { Life } from './life.ts'
import { mostBytes, mostMessages, Writer } from './writer.ts'

/** What this process holds once it has connected to the cluster. */
interface Connected {
  readonly connector: Connector
  readonly found: FoundTopics
  readonly writer: Writer
  readonly dead: DeadTopic
  readonly replays: Replays
  readonly life: Life | undefined
}

const startRequestMs = 4_000

/** The bytes that a record may gain when it is written to the topic. */
const marginBytes = 1_024

export class KafkaSystem implements SharedSystem {
  readonly durability = 'replicated'
  readonly #parts: BackendParts
  readonly #settings: KafkaSettings
  readonly #log: Log
  /** Identifies this process in its records. Its message ids rise within a partition, so a reader can tell when a record is there twice. */
  readonly #writerId = Buffer.from(randomUUID().replaceAll('-', '').slice(0, 16))
  #reader: Reader | undefined
  #connected: Connected | undefined

  constructor(settings: KafkaSettings, parts: BackendParts) {
    this.#settings = settings
    this.#parts = parts
    this.#log = guardedLog(parts.settings.log)
    this.messages = createMessages({}, parts.receipts.reread)
  }

  readonly deadLetters: DeadLetters = {
    list: (which) => this.#opened().replays.deadLetters.list(which),
    get: (id) => this.#opened().replays.deadLetters.get(id),
    replay: (which) => this.#opened().replays.deadLetters.replay(which),
    discard: (which) => this.#opened().replays.deadLetters.discard(which),
  }

  /** Messages are in the topic, and Kafka's own tools read it. */
  readonly messages: Messages

  replay(which: ReplaySelection): Promise<number> {
    return this.#opened().replays.replay(which)
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
    return {
      ...(oldestWaitingMs === undefined ? {} : { oldestWaitingMs }),
      ...this.#reader?.figures(),
    }
  }

  inbox(inbox: InboxSettings): SharedInbox {
    const { connector, dead, found } = this.#opened()
    this.#reader = new Reader({
      connector,
      dead,
      inbox,
      settings: this.#settings,
      retentionMs: found.retentionMs,
      put: async (messages) => {
        const refusal = await this.put(messages)
        if (refusal !== undefined) throw new FleethookError('inbox_unavailable', 'The topic does not take it.')
      },
    })
    return this.#reader
  }

  opened({ listeningWasKept = false }: OpenOptions): void {
    this.#connected?.life?.start(listeningWasKept)
  }

  async close(listenedUntilMs: number): Promise<void> {
    const { writer, life, dead } = this.#connected ?? {}
    await life?.close(listenedUntilMs)
    await Promise.all([writer?.close(), dead?.close()])
  }

  #opened(): Connected {
    if (this.#connected === undefined) throw new FleethookError('inbox_unavailable', 'The inbox is not open.')
    return this.#connected
  }

  /** Connects to the cluster and checks its topics. */
  async connect(front: RelayBackend | undefined): Promise<void> {
    const { clock } = this.#parts.settings
    const settings = this.#settings
    const connector = new Connector(await loadClient(), settings)
    const found = await this.#find(connector, settings.confirmMs)
    const { topic, deadTopic, lifeTopic } = settings
    const writer = new Writer({ connector, settings, clock, topics: [topic, deadTopic, lifeTopic] })
    await writer.open()
    const shared = { connector, settings, clock, writer, writerId: this.#writerId }
    const dead = new DeadTopic(shared)
    const replays = new Replays({ ...shared, dead, receipts: this.#parts.receipts })
    const life =
      front &&
      new Life({
        ...shared,
        log: this.#log,
        openGaps: () => front.openGaps(),
        onGap: (gap) => front.noteGap(gap),
        onSigned: () => front.reportGaps(),
      })
    this.#connected = { connector, found, writer, dead, replays, life }
  }

  /** Checks the topics. Retries for a while, because a broker may still be starting. */
  async #find(connector: Connector, withinMs: number): Promise<FoundTopics> {
    const { clock } = this.#parts.settings
    const untilMs = clock.now() + withinMs
    for (;;) {
      const admin = connector.admin(startRequestMs)
      try {
        return await checkTopics(admin, this.#settings, this.#log)
      } catch (error) {
        const failure = clusterError(error, this.#settings)
        if (failure.code === 'option_invalid' || clock.now() >= untilMs) throw failure
        // This timer keeps the process alive: nothing else does before the port is open.
        await pause(clock, 500)
      } finally {
        await closeClient(admin)
      }
    }
  }

  /** Appends messages to their partitions, without an await before that: they keep the order of these calls. */
  async put(messages: readonly InboxMessage[]): Promise<Refusal | undefined> {
    const { found, connector } = this.#opened()
    const most = found.mostBytes - marginBytes
    for (const message of messages) {
      const bytes = recordBytes(message)
      if (bytes <= most) continue
      return {
        error: 'body_too_large',
        hint: `The topic takes messages of up to ${most} bytes, and this body has one of ${bytes} bytes. Raise \`max.message.bytes\` of the topic.`,
      }
    }
    const byPartition = Map.groupBy(messages, ({ lane }) =>
      partitionOf(connector.client, lane, this.#settings.partitions),
    )
    const kept = [...byPartition].flatMap(([partition, some]) => this.#appendTo(partition, some))
    for (const result of await Promise.allSettled(kept)) if (result.status === 'rejected') throw result.reason
    return undefined
  }

  /** Each promise resolves when the in-sync replicas have the messages of one request. */
  #appendTo(partition: number, messages: readonly InboxMessage[]): readonly Promise<void>[] {
    const { writer, found } = this.#opened()
    const { topic } = this.#settings
    return chunksOf(messages, Math.min(mostBytes, found.mostBytes - marginBytes)).map((chunk) => {
      const records = chunk.messages.map((message) => toRecord(message, { topic, partition, writer: this.#writerId }))
      return writer.append(records, chunk.bytes)
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
