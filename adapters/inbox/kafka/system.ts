import { randomUUID } from 'node:crypto'
import { backgroundTimer, pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { createMessages, noArchive } from '../../../src/operator/archive.ts'
import type { Backlog, InboxStats } from '../../../src/observe/stats.ts'
import type { InboxGap, InboxMessage, InboxSettings } from '../../../src/inbox/inbox.ts'
import { readsNothing } from '../forwarding.ts'
import type { Signs } from '../signs-of-life.ts'
import type { Asked } from '../../../src/observe/observer.ts'
import type { SharedSystem } from '../shared-inbox.ts'
import { backlogOf } from './backlog.ts'
import { clusterError, closeClient, codesOf, Connector, loadClient } from './client.ts'
import { DeadTopic } from './dead-topic.ts'
import type { KafkaSettings } from './options.ts'
import { Reader } from './reader.ts'
import { partitionOf, recordBytes, toRecord } from './records.ts'
import { Replays } from './replays.ts'
import { checkTopics, type FoundTopics } from './topics.ts'
import { TopicSigns } from './life.ts'
import { Spool } from './spool.ts'
import { mostBytes, mostMessages, Writer } from './writer.ts'

/** What this process holds once it has connected to the cluster. */
interface Connected {
  readonly connector: Connector
  readonly found: FoundTopics
  readonly writer: Writer
  readonly dead: DeadTopic
  readonly replays: Replays
  readonly signs: Signs
  readonly gaps: readonly InboxGap[]
  readonly spool: Spool | undefined
}

const startRequestMs = 4_000

/** The timeout of forwarding spooled messages to the brokers, in milliseconds. It is long because they are already on disk. */
const forwardMs = 30_000

/** How often the lag is read, in milliseconds. */
const backlogMs = 15_000

/** The bytes that a record may gain when it is written to the topic. */
const marginBytes = 1_024

export class KafkaSystem implements SharedSystem {
  readonly durability = 'replicated'
  readonly operator: Asked
  readonly #inbox: InboxSettings
  readonly #settings: KafkaSettings
  /** Identifies this process in its records. Its message ids rise within a partition, so a reader can tell when a record is there twice. */
  readonly #writerId = Buffer.from(randomUUID().replaceAll('-', '').slice(0, 16))
  #reader: Reader | undefined
  #connected: Connected | undefined
  #isClosed = false
  #backlog: Backlog | undefined

  constructor(settings: KafkaSettings, inbox: InboxSettings) {
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
    return this.#connected?.writer.failure !== undefined && this.#connected.spool === undefined
      ? 'inbox_unavailable'
      : undefined
  }

  facts(): readonly string[] {
    const { role, spool } = this.#settings
    const { found, spool: opened } = this.#connected ?? {}
    return [
      ...(role === 'handle' ? [] : [found?.isWeak === true ? weak : strong]),
      ...(spool === undefined || opened === undefined
        ? []
        : ['While brokers do not confirm, a 2xx means that the message is on the disk of this machine.']),
    ]
  }

  figures(): InboxStats {
    const oldestWaitingMs = this.#reader?.oldestMs()
    return { oldestWaitingMs, ...this.#reader?.figures(), spooled: this.#connected?.spool?.size }
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

  earlier(): readonly InboxGap[] {
    return this.#opened().gaps.filter(isStop)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    const { writer, dead, spool } = this.#connected ?? {}
    await Promise.all([writer?.close(), dead?.close()])
    await spool?.close()
  }

  #opened(): Connected {
    if (this.#connected === undefined) throw new FleethookError('inbox_unavailable', 'The inbox is not open.')
    return this.#connected
  }

  /** Connects to the cluster and checks its topics. With a spool, an unreachable cluster does not delay the start. */
  async connect(): Promise<string | undefined> {
    const { clock, read = readsNothing, onGap } = this.#inbox
    const settings = this.#settings
    const connector = new Connector(await loadClient(), settings)
    const opened = await this.#openSpool(connector)
    const spool = opened?.spool
    const found = await this.#find(connector, settings.confirmMs).catch(async (error: unknown) => {
      if (spool === undefined) throw error
      if (!(error instanceof FleethookError) || error.code !== 'inbox_unavailable') {
        await spool.close()
        throw error
      }
      // What to do: The spool is in use. Look at the brokers.
      this.#inbox.log.error('the cluster cannot be reached at the start: messages wait on the disk of this machine', {
        reason: error.message,
      })
      void this.#findLater(connector)
      return unknownTopics
    })
    const { topic, deadTopic, lifeTopic } = settings
    const writer = new Writer({
      connector,
      settings,
      clock,
      topics: [topic, deadTopic, lifeTopic],
      divert: spool && ((partition, appends) => spool.divert(partition, appends)),
    })
    if (found !== unknownTopics) await writer.open()
    const shared = { connector, settings, clock, writer, writerId: this.#writerId }
    const dead = new DeadTopic(shared)
    const replays = new Replays({ ...shared, dead, read })
    const gaps = opened?.gaps ?? []
    void this.#watch(connector)
    this.#connected = { connector, found, writer, dead, replays, signs: new TopicSigns(shared), gaps, spool }
    for (const gap of gaps) if (!isStop(gap)) onGap?.(gap)
    return opened?.lastId
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
        if (failure.code === 'option_invalid' || clock.now() >= untilMs) throw failure
        // This timer keeps the process alive: nothing else does before the port is open.
        await pause(clock, 500)
      } finally {
        await closeClient(admin)
      }
    }
  }

  /** The cluster could not be reached at the start, so its topics are checked when it answers. */
  async #findLater(connector: Connector): Promise<void> {
    while (!this.#isClosed) {
      await this.#pause(5_000)
      try {
        const found = await this.#find(connector, 0)
        if (this.#connected !== undefined) this.#connected = { ...this.#connected, found }
        return
      } catch (error) {
        if (error instanceof FleethookError && error.code === 'inbox_unavailable') continue
        // What to do: The cluster answers, but its topics are too weak: `reason`.
        this.#inbox.log.error('the topics cannot keep what this inbox promises', {
          reason: error instanceof Error ? error.message : 'unknown',
        })
        return
      }
    }
  }

  /** Opens the spool. `gaps`: where messages may be missing that were to go into its file. */
  async #openSpool(
    connector: Connector,
  ): Promise<
    { readonly spool: Spool; readonly gaps: readonly InboxGap[]; readonly lastId: string | undefined } | undefined
  > {
    const { spool: createSpool, partitions, role } = this.#settings
    if (createSpool === undefined || role === 'handle') return undefined
    const { clock, log, onFailure, onGap, openGaps = () => [] } = this.#inbox
    const inbox = createSpool({
      pendingMessages: undefined,
      pendingBytes: undefined,
      clock,
      log,
      onCapacity: () => {},
      onFailure,
      onGap: (gap) => {
        if (!isStop(gap)) onGap?.(gap)
      },
      openGaps,
    })
    if (inbox.durability === 'memory') {
      throw new FleethookError('option_invalid', 'Option `spool` of kafkaInbox keeps messages in memory only.', {
        hint: "Pass an inbox that keeps messages on disk: sqliteInbox({ path: 'data/spool.db' }).",
      })
    }
    const spool = new Spool({
      inbox,
      clock,
      log,
      partitionOf: (lane) => partitionOf(connector.client, lane, partitions),
      append: (partition, messages) => this.#appendTo(partition, messages, { withinMs: forwardMs, inTurn: true }),
      failed: (error) =>
        this.#inbox.log.debug('the messages of the spool could not be sent to the brokers yet', {
          error: [...codesOf(error)].join(' '),
        }),
    })
    const { lastId, gaps = [] } = await spool.open()
    if (spool.size > 0)
      this.#inbox.log.warn(
        // What to do: Nothing to do.
        'an earlier process left messages on the disk of this machine: they go to the brokers first',
        {
          messages: spool.size,
        },
      )
    return { spool, gaps, lastId }
  }

  /** Appends messages to their partitions, without an await before that: they keep the order of these calls. */
  async put(messages: readonly InboxMessage[]): Promise<void> {
    const { found, connector, spool } = this.#opened()
    const most = found.mostBytes - marginBytes
    for (const message of messages) {
      const bytes = recordBytes(message)
      if (bytes <= most) continue
      // What to do: Raise `max.message.bytes` of the topic, and `message.max.bytes` of the brokers.
      throw new FleethookError('body_too_large', `The topic does not take a message of ${bytes} bytes.`, {
        hint: `The topic takes messages of up to ${most} bytes, and this body has one of ${bytes} bytes. Raise \`max.message.bytes\` of the topic.`,
      })
    }
    const byPartition = Map.groupBy(messages, ({ lane }) =>
      partitionOf(connector.client, lane, this.#settings.partitions),
    )
    const kept = [...byPartition].map(([partition, some]) =>
      spool?.has(partition) === true
        ? spool.put(partition, some)
        : this.#appendTo(partition, some, { mayDivert: spool !== undefined }),
    )
    for (const result of await Promise.allSettled(kept)) if (result.status === 'rejected') throw result.reason
  }

  /** Appends messages to their partition. Resolves when the in-sync replicas have all of them. */
  async #appendTo(
    partition: number,
    messages: readonly InboxMessage[],
    { withinMs, mayDivert = false, inTurn = false }: AppendOptions = {},
  ): Promise<void> {
    const { writer, found } = this.#opened()
    const { topic } = this.#settings
    const appended: Promise<void>[] = []
    for (const chunk of chunksOf(messages, Math.min(mostBytes, found.mostBytes - marginBytes))) {
      const records = chunk.messages.map((message) => toRecord(message, { topic, partition, writer: this.#writerId }))
      const messages = mayDivert ? chunk.messages : undefined
      const confirmed = writer.append(records, chunk.bytes, { withinMs, messages })
      appended.push(confirmed)
      if (inTurn) await confirmed
    }
    for (const result of await Promise.allSettled(appended)) if (result.status === 'rejected') throw result.reason
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      backgroundTimer(this.#inbox.clock, ms, resolve)
    })
  }
}

interface AppendOptions {
  /** How long the brokers may take, in milliseconds. Default: the option `confirmMs`. */
  readonly withinMs?: number
  /** Whether the messages may go to the spool after that time. */
  readonly mayDivert?: boolean
  /** Each request waits for the one before: a reader drops a message that comes behind one with a higher id. */
  readonly inTurn?: boolean
}

interface Chunk {
  readonly messages: InboxMessage[]
  bytes: number
}

/** Whether a gap is the time in which one receiver was down. Others may have listened then. */
const isStop = ({ reason }: InboxGap): boolean => reason === 'stopped' || reason === 'restarted'

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

/** What the inbox assumes about the topics until the cluster answers. */
const unknownTopics: FoundTopics = { mostBytes: 1_048_588, retentionMs: undefined, isWeak: false }

const strong =
  'These machines are Kafka brokers: at least two have the message, possibly only in memory. It can be lost when all of them lose power at once.'
const weak =
  'The topics do not require two brokers, and `allowWeak` accepts that: an acknowledged message can be lost with one broker.'
