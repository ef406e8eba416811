import { randomUUID } from 'node:crypto'
import { type Backend, type BackendParts, type BackendState, statsOf } from '../../../src/backend/backend.ts'
import { LocalBackend } from '../../../src/backend/local.ts'
import { type Relay, RelayBackend } from '../../../src/backend/relay.ts'
import { watchForStalls } from '../../../src/backend/stalls.ts'
import { backgroundTimer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { guardedLog, type Log } from '../../../src/base/log.ts'
import type { Lifecycle } from '../../../src/dispatch/running.ts'
import type { RequestScope } from '../../../src/dispatch/work.ts'
import type { Ack, DrainOptions, DrainResult, Durability, OpenOptions } from '../../../src/hosting/drainable.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { DeadLetters, Messages, ReplaySelection } from '../../../src/inbox/dead-letters.ts'
import type { Observer } from '../../../src/inbox/observer.ts'
import type { InboxStats, Stats } from '../../../src/inbox/stats.ts'
import type { InboxGap, InboxMessage } from '../../../src/inbox/inbox.ts'
import { vinOf } from '../../../src/inbox/receipts.ts'
import { clusterError, closeClient, codesOf, Connector, loadClient } from './client.ts'
import { DeadTopic } from './dead-topic.ts'
import type { KafkaSettings } from './options.ts'
import { Reader } from './reader.ts'
import { partitionOf, recordBytes, toRecord } from './records.ts'
import { Replays } from './replays.ts'
import { checkTopics, type FoundTopics } from './topics.ts'
import { Life } from './life.ts'
import { Spool } from './spool.ts'
import { mostBytes, mostMessages, Writer } from './writer.ts'

/** What this process holds once it has connected to the cluster. */
interface Connected {
  readonly connector: Connector
  readonly found: FoundTopics
  readonly writer: Writer
  readonly dead: DeadTopic
  readonly replays: Replays
  readonly life: Life | undefined
  readonly spool: Spool | undefined
}

/** The timeout of a request to the cluster at startup, in milliseconds. */
const startRequestMs = 4_000

/** The timeout of forwarding spooled messages to the brokers, in milliseconds. It is long because they are already on disk. */
const forwardMs = 30_000

/** The bytes that a record may gain when it is written to the topic. */
const marginBytes = 1_024

/**
 * A receiver on a Kafka cluster. The half in front is a relay that writes messages to the topic. The half behind is an inbox that
 * reads the partitions assigned to this process. A process has one of the halves, or both. Even with both, each message goes
 * through the topic, and another process may handle it.
 */
export class KafkaBackend implements Backend {
  readonly ack: Ack
  readonly durability: Durability = 'replicated'
  readonly vehicles = undefined
  readonly lifecycle: Lifecycle
  readonly #parts: BackendParts
  readonly #settings: KafkaSettings
  readonly #log: Log
  /** Identifies this process in its records. Its message ids rise within a partition, so a reader can tell when a record is there twice. */
  readonly #writerId = Buffer.from(randomUUID().replaceAll('-', '').slice(0, 16))
  readonly #front: RelayBackend | undefined
  readonly #back: LocalBackend | undefined
  #reader: Reader | undefined
  #connected: Connected | undefined
  #opening: Promise<void> | undefined
  #readiness: Promise<boolean> | undefined
  #draining: Promise<DrainResult> | undefined
  #isOpen = false
  #isDraining = false
  #stopWatching = (): void => {}

  constructor(settings: KafkaSettings, parts: BackendParts) {
    this.#settings = settings
    this.#parts = parts
    this.#log = guardedLog(parts.settings.log)
    if (settings.role !== 'handle') this.#front = new RelayBackend(this.#relay(), parts)
    if (settings.role !== 'receive') this.#back = this.#handling()
    const one = this.#front ?? this.#back
    if (one === undefined) throw new Error('A role has a front or a back.')
    this.ack = one.ack
    this.lifecycle = one.lifecycle
  }

  get isReady(): boolean {
    return this.#isOpen
  }

  get isDraining(): boolean {
    return this.#isDraining || this.#front?.isDraining === true
  }

  /** An operator may call these before the first message arrives, so each call connects first. */
  readonly deadLetters: DeadLetters = {
    list: async (which) => (await this.#connection()).replays.deadLetters.list(which),
    get: async (id) => (await this.#connection()).replays.deadLetters.get(id),
    replay: async (which) => (await this.#connection()).replays.deadLetters.replay(which),
    discard: async (which) => (await this.#connection()).replays.deadLetters.discard(which),
  }

  /** Messages are in the topic, and Kafka's own tools read it. */
  readonly messages: Messages = { list: inTopic, get: inTopic }

  readonly stats = (): Stats => statsOf(this, this.#parts.reports)

  readonly observe = (observer: Observer): (() => void) => this.#parts.reports.observers.add(observer)

  async replay(which: ReplaySelection): Promise<number> {
    return (await this.#connection()).replays.replay(which)
  }

  open(options?: OpenOptions): Promise<void> {
    return (this.#opening ??= this.#open(options).catch((error: unknown) => {
      this.#opening = undefined
      throw error
    }))
  }

  becomeReady(): Promise<boolean> {
    return (this.#readiness ??= this.open().then(
      () => true,
      (error: unknown) => {
        this.#readiness = undefined
        this.#parts.reports.dispatch.inboxFailed(error)
        return false
      },
    ))
  }

  async put(messages: readonly InboxMessage[], from: RequestScope): Promise<Refusal | undefined> {
    if (this.#front !== undefined) return this.#front.put(messages, from)
    // A balancer that posts here loses messages.
    for (const { lane, receivedAt } of messages) {
      const vin = vinOf(lane)
      const gap = { reason: 'inbox_unavailable', fromMs: receivedAt, missed: 1 } as const
      this.#back?.noteGap(vin === undefined ? gap : { ...gap, vin })
    }
    return handlesOnly
  }

  noteGap(gap: InboxGap, from?: RequestScope): void {
    if (this.#front === undefined) this.#back?.noteGap(gap)
    else this.#front.noteGap(gap, from)
  }

  async putInternal(message: InboxMessage, from: RequestScope): Promise<boolean> {
    return this.#front === undefined ? false : this.#front.putInternal(message, from)
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    if (this.#front === undefined) return this.#reader?.refusing()
    const isFailing = this.#connected?.writer.failure !== undefined && this.#connected.spool === undefined
    return isFailing ? 'inbox_unavailable' : this.#front.refusing()
  }

  facts(): readonly string[] {
    const { role, spool } = this.#settings
    const { found, spool: opened } = this.#connected ?? {}
    return [
      ...(role === 'handle' ? ['This process only runs handlers: it takes no messages.'] : []),
      ...(role === 'receive' ? ['This process only receives: handlers run in others.'] : []),
      ...(role === 'handle' ? [] : [found?.isWeak === true ? weak : strong]),
      ...(spool === undefined || opened === undefined
        ? []
        : ['While brokers do not confirm, a 2xx means that the message is on the disk of this machine.']),
    ]
  }

  drain(options: DrainOptions): Promise<DrainResult> {
    return (this.#draining ??= this.#drain(options))
  }

  state(): BackendState {
    const front = this.#front?.state()
    const back = this.#back?.state()
    const state = back ?? front
    if (state === undefined) throw new Error('A role has a front or a back.')
    return {
      ...state,
      inbox: this.#figures(),
      openGaps: (front?.openGaps ?? 0) + (back?.openGaps ?? 0),
    }
  }

  #figures(): InboxStats {
    const oldestWaitingMs = this.#reader?.oldestMs()
    return {
      ...(oldestWaitingMs === undefined ? {} : { oldestWaitingMs }),
      ...this.#reader?.figures(),
      ...(this.#connected?.spool === undefined ? {} : { spooled: this.#connected.spool.size }),
    }
  }

  #relay(): Relay {
    return {
      durability: 'replicated',
      deadLetters: this.deadLetters,
      messages: this.messages,
      replay: (which) => this.replay(which),
      put: (messages) => this.#append(messages),
    }
  }

  #handling(): LocalBackend {
    return new LocalBackend({
      ...this.#parts,
      settings: { ...this.#parts.settings, ack: 'stored' },
      // A stall of this half is no gap: others receive meanwhile.
      watchesTime: false,
      inbox: (inbox) => {
        let reader: Reader | undefined
        const opened = (): Reader => {
          if (reader === undefined) throw new FleethookError('inbox_unavailable', 'The inbox is not open.')
          return reader
        }
        const make = async (): Promise<Reader> => {
          const { connector, dead, found } = await this.#connection()
          return new Reader({
            ...{ connector, dead, inbox, settings: this.#settings, retentionMs: found.retentionMs },
            put: async (messages) => {
              const refusal = await this.#append(messages)
              if (refusal !== undefined) throw new FleethookError('inbox_unavailable', 'The topic does not take it.')
            },
          })
        }
        return {
          durability: 'replicated',
          open: async () => {
            reader = await make()
            this.#reader = reader
            return reader.open()
          },
          put: (messages) => opened().put(messages),
          claim: (id) => opened().claim(id),
          isStillHeld: (id) => opened().isStillHeld(id),
          settle: (id) => opened().settle(id),
          reschedule: (id, next) => opened().reschedule(id, next),
          deadLetter: (id, reason) => opened().deadLetter(id, reason),
          deadLetters: (which) => opened().deadLetters(which),
          findDeadLetter: (id) => opened().findDeadLetter(id),
          settled: () => opened().settled(),
          revive: () => opened().revive(),
          discard: () => opened().discard(),
          usage: () => reader?.usage() ?? { messages: 0, bytes: 0 },
          refusing: () => reader?.refusing(),
          close: async () => reader?.close(),
        }
      },
    })
  }

  async #open({ listeningWasKept = false }: OpenOptions = {}): Promise<void> {
    const { life } = await this.#connection()
    await this.#back?.open()
    life?.start(listeningWasKept)
    const { clock } = this.#parts.settings
    this.#stopWatching = watchForStalls(clock, (fromMs, toMs) => {
      if (this.#front === undefined) return
      this.#log.warn('the process stood still, and messages may be missing', { ms: toMs - fromMs })
      this.#front.noteGap({ reason: 'stalled', fromMs, toMs })
    })
    this.#isOpen = true
  }

  #connecting: Promise<Connected> | undefined

  #connection(): Promise<Connected> {
    return (this.#connecting ??= this.#connect().catch((error: unknown) => {
      this.#connecting = undefined
      throw error
    }))
  }

  /** Connects to the cluster and checks its topics. With a spool, an unreachable cluster does not delay the start. */
  async #connect(): Promise<Connected> {
    const { clock } = this.#parts.settings
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
      this.#log.error('the cluster cannot be reached at the start: messages wait on the disk of this machine', {
        reason: error.message,
      })
      void this.#findLater(connector)
      return unknownTopics
    })
    const { topic, deadTopic, lifeTopic } = settings
    const writer = new Writer({
      ...{ connector, settings, clock, topics: [topic, deadTopic, lifeTopic] },
      ...(spool === undefined ? {} : { divert: (partition, entries) => spool.divert(partition, entries) }),
    })
    if (found !== unknownTopics) await writer.open()
    const shared = { connector, settings, clock, writer, writerId: this.#writerId }
    const dead = new DeadTopic(shared)
    const replays = new Replays({ ...shared, dead, receipts: this.#parts.receipts })
    const front = this.#front
    const gaps = opened?.gaps ?? []
    const life =
      front &&
      new Life({
        ...shared,
        log: this.#log,
        openGaps: () => front.openGaps(),
        onGap: (gap) => front.noteGap(gap),
        earlier: gaps.filter(isStop),
        onSigned: () => front.reportGaps(),
      })
    this.#connected = { connector, found, writer, dead, replays, life, spool }
    for (const gap of gaps) if (!isStop(gap)) front?.noteGap(gap)
    return this.#connected
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
        await new Promise<void>((resolve) => {
          clock.after(500, resolve)
        })
      } finally {
        await closeClient(admin)
      }
    }
  }

  /** The cluster could not be reached at the start, so its topics are checked when it answers. */
  async #findLater(connector: Connector): Promise<void> {
    while (!this.#isDraining) {
      await this.#pause(5_000)
      try {
        const found = await this.#find(connector, 0)
        if (this.#connected !== undefined) this.#connected = { ...this.#connected, found }
        return
      } catch (error) {
        if (error instanceof FleethookError && error.code === 'inbox_unavailable') continue
        this.#log.error('the topics cannot keep what this inbox promises', {
          reason: error instanceof Error ? error.message : 'unknown',
        })
        return
      }
    }
  }

  /** Opens the spool. `gaps`: where messages may be missing that were to go into its file. */
  async #openSpool(
    connector: Connector,
  ): Promise<{ readonly spool: Spool; readonly gaps: readonly InboxGap[] } | undefined> {
    const { spool: createSpool, partitions } = this.#settings
    const front = this.#front
    if (createSpool === undefined || front === undefined) return undefined
    const { settings, reports, receipts } = this.#parts
    const inbox = createSpool({
      ...{
        pendingMessages: undefined,
        pendingBytes: undefined,
        overflow: 'refuse',
        clock: settings.clock,
        log: this.#log,
      },
      ...{ onConflated: () => {}, onCapacity: () => {}, onFailure: (error) => reports.dispatch.inboxFailed(error) },
      onGap: (gap) => {
        if (!isStop(gap)) front.noteGap(gap)
      },
      openGaps: () => front.openGaps(),
    })
    if (inbox.durability === 'memory') {
      throw new FleethookError('option_invalid', 'Option `spool` of kafkaInbox keeps messages in memory only.', {
        hint: "Pass an inbox that keeps messages on disk: sqliteInbox({ path: 'data/spool.db' }).",
      })
    }
    const spool = new Spool({
      ...{ inbox, clock: settings.clock, log: this.#log },
      partitionOf: (lane) => partitionOf(connector.client, lane, partitions),
      append: (partition, messages) => this.#appendTo(partition, messages, { withinMs: forwardMs, inTurn: true }),
      failed: (error) =>
        this.#log.debug('the messages of the spool could not be sent to the brokers yet', {
          error: [...codesOf(error)].join(' '),
        }),
    })
    const { lastId, gaps = [] } = await spool.open()
    if (lastId !== undefined) receipts.follow(lastId)
    if (spool.size > 0)
      this.#log.warn('an earlier process left messages on the disk of this machine: they go to the brokers first', {
        messages: spool.size,
      })
    return { spool, gaps }
  }

  async #append(messages: readonly InboxMessage[]): Promise<Refusal | undefined> {
    // No await once the inbox is open, so messages keep the order of these calls.
    const { found, connector, spool } = this.#connected ?? (await this.#connection())
    const most = found.mostBytes - marginBytes
    for (const message of messages) {
      const bytes = recordBytes(message)
      if (bytes <= most) continue
      return {
        error: 'body_too_large',
        hint: `The topic takes messages of up to ${most} bytes, and this body has one of ${bytes} bytes. Raise \`max.message.bytes\` of the topic.`,
      }
    }
    const byPartition = new Map<number, InboxMessage[]>()
    for (const message of messages) {
      const partition = partitionOf(connector.client, message.lane, this.#settings.partitions)
      const some = byPartition.get(partition)
      if (some === undefined) byPartition.set(partition, [message])
      else some.push(message)
    }
    const kept = [...byPartition].map(([partition, some]) =>
      spool?.has(partition) === true
        ? spool.put(partition, some)
        : this.#appendTo(partition, some, { mayDivert: spool !== undefined }),
    )
    for (const result of await Promise.allSettled(kept)) if (result.status === 'rejected') throw result.reason
    return undefined
  }

  /** Appends messages to their partition. Resolves when the in-sync replicas have all of them. */
  async #appendTo(
    partition: number,
    messages: readonly InboxMessage[],
    { withinMs, mayDivert = false, inTurn = false }: AppendOptions = {},
  ): Promise<void> {
    const { writer, found } = this.#connected ?? (await this.#connection())
    const { topic } = this.#settings
    const appended: Promise<void>[] = []
    for (const chunk of chunksOf(messages, Math.min(mostBytes, found.mostBytes - marginBytes))) {
      const records = chunk.messages.map((message) => toRecord(message, { topic, partition, writer: this.#writerId }))
      const confirmed = writer.append(records, chunk.bytes, {
        ...(withinMs === undefined ? {} : { withinMs }),
        ...(mayDivert ? { messages: chunk.messages } : {}),
      })
      appended.push(confirmed)
      if (inTurn) await confirmed
    }
    for (const result of await Promise.allSettled(appended)) if (result.status === 'rejected') throw result.reason
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      backgroundTimer(this.#parts.settings.clock, ms, resolve)
    })
  }

  async #drain(options: DrainOptions): Promise<DrainResult> {
    const { handlerGraceMs = 2_000, deadlineMs = 25_000 } = options
    this.#stopWatching()
    const [front, back] = await Promise.all([
      this.#front?.drain(options),
      this.#stopHandling(handlerGraceMs, deadlineMs),
    ])
    this.#isDraining = true
    const { writer, life, dead, spool } = this.#connected ?? {}
    await life?.close(Date.now() - Math.ceil(options.notListeningMs?.() ?? 0))
    await Promise.all([writer?.close(), dead?.close()])
    await spool?.close()
    return back ?? front ?? { handled: 0, left: 0, lost: 0 }
  }

  /** Running handlers finish first. Then the group learns at once that this process leaves, so another one can take over. */
  async #stopHandling(handlerGraceMs: number, deadlineMs: number): Promise<DrainResult | undefined> {
    const graceMs = Math.min(handlerGraceMs, deadlineMs)
    await this.#reader?.finish(graceMs)
    const drained = this.#back?.drain({ deadlineMs: Math.max(0, deadlineMs - graceMs), handlerGraceMs: 0 })
    // Only after the drain has begun: from then on, a message that is not handed out counts as left.
    this.#reader?.stop()
    return drained
  }
}

interface AppendOptions {
  /** How long the brokers may take, in milliseconds. Default: the option `confirmMs`. */
  readonly withinMs?: number
  /** Whether the messages may go to the spool after that time. */
  readonly mayDivert?: boolean
  /**
   * Whether each request waits for the one before it. The spool sends again what failed. A reader drops a message that comes
   * behind one with a higher id, so no later message may be in the log before that.
   */
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

async function inTopic(): Promise<never> {
  throw new FleethookError('inbox_unavailable', 'A Kafka inbox cannot list its messages.', {
    hint: "Read the topic with Kafka's tools. `receiver.replay` handles the messages of a time range again.",
  })
}

const strong =
  'These machines are Kafka brokers: at least two have the message, possibly only in memory. It can be lost when all of them lose power at once.'
const weak =
  'The topics do not require two brokers, and `allowWeak` accepts that: an acknowledged message can be lost with one broker.'

const handlesOnly: Refusal = {
  error: 'inbox_unavailable',
  hint: "This process has the role 'handle': post to one with the role 'receive' or 'both'.",
}
