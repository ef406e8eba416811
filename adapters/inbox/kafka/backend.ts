import { randomUUID } from 'node:crypto'
import type { Backend, BackendParts, BackendState } from '../../../src/backend/backend.ts'
import { LocalBackend } from '../../../src/backend/local.ts'
import { type Relay, RelayBackend } from '../../../src/backend/relay.ts'
import { watchForStalls } from '../../../src/backend/stalls.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { guardedLog, type Log } from '../../../src/base/log.ts'
import type { Lifecycle } from '../../../src/dispatch/lifecycle.ts'
import { nowhere, type Surroundings } from '../../../src/dispatch/work.ts'
import type { Ack, DrainOptions, DrainResult, Durability } from '../../../src/hosting/drainable.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { DeadLetters, ReplaySelection } from '../../../src/inbox/dead-letters.ts'
import type { InboxMessage, InboxStats } from '../../../src/inbox/inbox.ts'
import { clusterError, closeClient, Connector, loadClient } from './client.ts'
import { DeadTopic } from './dead-topic.ts'
import type { KafkaSettings } from './options.ts'
import { Reader } from './reader.ts'
import { type Outgoing, partitionOf, recordBytes, toRecord } from './records.ts'
import { Replays } from './replays.ts'
import { checkTopics, type FoundTopics } from './topics.ts'
import { mostBytes, mostMessages, Writer } from './writer.ts'

/** What exists once the cluster was found. */
interface Connected {
  readonly connector: Connector
  readonly found: FoundTopics
  readonly writer: Writer
  readonly dead: DeadTopic
  readonly replays: Replays
}

/** How long one question to the cluster may take at the start, in milliseconds. */
const questionMs = 4_000

/** What the size of a record may grow by on its way into the topic, in bytes. */
const marginBytes = 1_024

/**
 * A receiver on a Kafka cluster. In front a relay writes messages into the topic; behind, an inbox of this process reads the
 * partitions that are its own. A process does one of the two, or both: what it received itself comes back to it, or to another
 * process, through the topic.
 */
export class KafkaBackend implements Backend {
  readonly ack: Ack
  readonly durability: Durability = 'replicated'
  readonly lifecycle: Lifecycle
  readonly #parts: BackendParts
  readonly #settings: KafkaSettings
  readonly #log: Log
  /** The process, as the reader knows it: its ids rise within a partition. */
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

  /** What operators ask may come before the first message. */
  readonly deadLetters: DeadLetters = {
    list: async (which) => (await this.#connection()).replays.deadLetters.list(which),
    get: async (id) => (await this.#connection()).replays.deadLetters.get(id),
    replay: async (which) => (await this.#connection()).replays.deadLetters.replay(which),
    discard: async (which) => (await this.#connection()).replays.deadLetters.discard(which),
  }

  async replay(which: ReplaySelection): Promise<number> {
    return (await this.#connection()).replays.replay(which)
  }

  open(): Promise<void> {
    return (this.#opening ??= this.#open().catch((error: unknown) => {
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

  async put(messages: readonly InboxMessage[], from: Surroundings): Promise<Refusal | undefined> {
    return this.#front === undefined ? handlesOnly : this.#front.put(messages, from)
  }

  async putInternal(message: InboxMessage, from: Surroundings): Promise<boolean> {
    return this.#front === undefined ? false : this.#front.putInternal(message, from)
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    if (this.#front === undefined) return this.#reader?.refusing()
    return this.#connected?.writer.failure === undefined ? this.#front.refusing() : 'inbox_unavailable'
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
    }
  }

  #relay(): Relay {
    return {
      durability: 'replicated',
      deadLetters: this.deadLetters,
      replay: (which) => this.replay(which),
      put: (messages) => this.#append(messages),
    }
  }

  #handling(): LocalBackend {
    return new LocalBackend({
      ...this.#parts,
      settings: { ...this.#parts.settings, ack: 'stored' },
      // Not `nowhere` itself: that this process stood still says nothing about those that receive.
      surroundings: { ...nowhere },
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
            put: (messages) => this.#keep(messages),
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

  async #open(): Promise<void> {
    await this.#connection()
    await this.#back?.open()
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

  /** Finds the cluster and looks at its topics. A broker may be starting, so it is asked until the time of one put is over. */
  async #connect(): Promise<Connected> {
    const { clock } = this.#parts.settings
    const settings = this.#settings
    const connector = new Connector(await loadClient(), settings)
    const found = await this.#find(connector)
    const { topic, deadTopic, lifeTopic } = settings
    const writer = new Writer({ connector, settings, clock, topics: [topic, deadTopic, lifeTopic] })
    await writer.open().catch(async (error: unknown) => {
      await writer.close()
      throw clusterError(error, settings)
    })
    const shared = { connector, settings, clock, writer, writerId: this.#writerId }
    const dead = new DeadTopic(shared)
    const replays = new Replays({ ...shared, dead, receipts: this.#parts.receipts })
    this.#connected = { connector, found, writer, dead, replays }
    return this.#connected
  }

  async #find(connector: Connector): Promise<FoundTopics> {
    const { clock } = this.#parts.settings
    const untilMs = clock.now() + this.#settings.confirmMs
    for (;;) {
      const admin = connector.admin(questionMs)
      try {
        return await checkTopics(admin, this.#settings, this.#log)
      } catch (error) {
        const failure = clusterError(error, this.#settings)
        if (failure.code === 'option_invalid' || clock.now() >= untilMs) throw failure
        await new Promise<void>((resolve) => {
          clock.after(500, resolve)
        })
      } finally {
        await closeClient(admin)
      }
    }
  }

  async #append(messages: readonly InboxMessage[]): Promise<Refusal | undefined> {
    const { found } = await this.#connectedNow()
    const most = found.mostBytes - marginBytes
    const largest = Math.max(...messages.map(recordBytes))
    if (largest > most) {
      return {
        error: 'body_too_large',
        hint: `The topic takes messages of up to ${most} bytes, and one of these has ${largest}: raise its \`max.message.bytes\`.`,
      }
    }
    await this.#keep(messages)
    return undefined
  }

  /** What is open answers in the same task: the order of messages is that of these calls. */
  #connectedNow(): Connected | Promise<Connected> {
    return this.#connected ?? this.#connection()
  }

  /** Appends messages to their partitions. Resolves when the in-sync replicas have all of them. */
  async #keep(messages: readonly InboxMessage[]): Promise<void> {
    const { connector, writer } = this.#connected ?? (await this.#connection())
    const { topic, partitions } = this.#settings
    const byPartition = new Map<number, Chunk[]>()
    for (const message of messages) {
      const partition = partitionOf(connector.client, message.lane, partitions)
      const chunks = byPartition.get(partition) ?? []
      byPartition.set(partition, chunks)
      const bytes = recordBytes(message)
      let chunk = chunks.at(-1)
      if (chunk === undefined || chunk.records.length >= mostMessages || chunk.bytes + bytes > mostBytes) {
        chunk = { records: [], bytes: 0 }
        chunks.push(chunk)
      }
      chunk.records.push(toRecord(message, { topic, partition, writer: this.#writerId }))
      chunk.bytes += bytes
    }
    const appended: Promise<void>[] = []
    for (const chunks of byPartition.values())
      for (const { records, bytes } of chunks) appended.push(writer.append(records, bytes))
    const results = await Promise.allSettled(appended)
    for (const result of results) if (result.status === 'rejected') throw result.reason
  }

  async #drain(options: DrainOptions): Promise<DrainResult> {
    const { handlerGraceMs = 2_000, deadlineMs = 25_000 } = options
    this.#stopWatching()
    const [front, back] = await Promise.all([
      this.#front?.drain(options),
      this.#stopHandling(handlerGraceMs, deadlineMs),
    ])
    this.#isDraining = true
    await this.#connected?.writer.close()
    await this.#connected?.dead.close()
    return back ?? front ?? { handled: 0, left: 0, lost: 0 }
  }

  /** Another process goes on: so what runs ends first, and the group hears at once. */
  async #stopHandling(handlerGraceMs: number, deadlineMs: number): Promise<DrainResult | undefined> {
    const graceMs = Math.min(handlerGraceMs, deadlineMs)
    await this.#reader?.finish(graceMs)
    return this.#back?.drain({ deadlineMs: Math.max(0, deadlineMs - graceMs), handlerGraceMs: 0 })
  }
}

interface Chunk {
  readonly records: Outgoing[]
  bytes: number
}

const handlesOnly: Refusal = {
  error: 'inbox_unavailable',
  hint: "This process has the role 'handle': post to one with the role 'receive' or 'both'.",
}
