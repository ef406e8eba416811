import type { Sign, Signs, Trace } from '../signs-of-life.ts'
import { codesOf, type Connector } from './client.ts'
import type { KafkaSettings } from './options.ts'
import { tombstone } from './records.ts'
import { earliest, latest, TopicReader } from './topic-reader.ts'
import type { Writer } from './writer.ts'

interface TopicSignsOptions {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly writer: Writer
  /** Names this receiver. */
  readonly me: string
}

/** The value of a record: a sign. Compaction may have deleted the first sign of its receiver, so each sign repeats when that was. */
type Value = Sign & { readonly sinceMs?: number | undefined }

/** Signs of life in a compacted topic, whose brokers set the times. */
export class TopicSigns implements Signs {
  readonly me: string
  readonly #options: TopicSignsOptions
  readonly #traces = new Map<string, Trace>()
  /** The first offset that was not read yet. */
  #next = 0

  constructor(options: TopicSignsOptions) {
    this.#options = options
    this.me = options.me
  }

  async write(sign: Sign, withinMs: number): Promise<void> {
    const sinceMs = this.#traces.get(this.me)?.since
    const value: Value = { ...sign, sinceMs }
    const { writer, settings } = this.#options
    const key = Buffer.from(this.me)
    const text = Buffer.from(JSON.stringify(value))
    const timestamp = BigInt(Date.now())
    const record = { topic: settings.lifeTopic, partition: 0, key, value: text, headers: new Map(), timestamp }
    await writer.append([record], text.length + 100, { withinMs })
  }

  async read(): Promise<readonly Trace[]> {
    const { connector, settings } = this.#options
    const reader = new TopicReader(connector, settings.lifeTopic)
    try {
      await reader.leaders(true)
      const [first, end] = await Promise.all([reader.offsets([0], earliest), reader.offsets([0], latest)])
      const from = Math.max(this.#next, first.get(0) ?? 0)
      for await (const page of reader.scan(new Map([[0, from]]), end))
        for (const { record, timestampMs } of page) this.#note(record.key?.toString() ?? '', record.value, timestampMs)
      this.#next = end.get(0) ?? this.#next
    } finally {
      await reader.close()
    }
    return [...this.#traces.values()]
  }

  async forget(ids: readonly string[]): Promise<void> {
    const { writer, settings } = this.#options
    for (const id of ids) await writer.append([tombstone(id, settings.lifeTopic, 0)], 100)
  }

  reasonOf(error: unknown): string {
    return [...codesOf(error)].join(' ')
  }

  #note(id: string, value: Buffer | null, atMs: number): void {
    const sign = value === null ? undefined : readValue(value)
    if (sign === undefined) {
      this.#traces.delete(id)
      return
    }
    const { isClosed, isAccounted, gaps, agoMs, listeningMs, sinceMs = atMs - agoMs - listeningMs } = sign
    const since = Math.min(this.#traces.get(id)?.since ?? sinceMs, sinceMs)
    this.#traces.set(id, { id, since, until: atMs - agoMs, isClosed, isAccounted, gaps })
  }
}

function readValue(value: Buffer): Value | undefined {
  try {
    return JSON.parse(value.toString())
  } catch {
    return undefined
  }
}
