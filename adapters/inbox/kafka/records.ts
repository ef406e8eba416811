import type { KafkaRecord } from '@platformatic/kafka'
import type { DeadLetter, InboxMessage } from '../../../src/inbox/inbox.ts'
import { doorOf } from '../stored-row.ts'
import type { Client } from './client.ts'

/** A record on its way to a partition. */
export interface Outgoing {
  readonly topic: string
  readonly partition: number
  readonly key: Buffer
  /** Left out: the record is a tombstone, which deletes the records with the same key. */
  readonly value?: Buffer
  readonly headers: Map<Buffer, Buffer>
  readonly timestamp: bigint
}

/** A message in a record, as the reader finds it. */
export interface Incoming {
  readonly message: InboxMessage
  readonly replayed: boolean
  /** See `Claim.replay`. */
  readonly replay?: string | undefined
}

/** As Kafka's default partitioner chooses it, so records of others with the VIN as key are in the same partition. */
export function partitionOf(client: Client, lane: string, partitions: number): number {
  return (client.murmur2(Buffer.from(lane)) & 0x7fff_ffff) % partitions
}

/** The most bytes that a record needs beside its key and its value. */
const overheadBytes = 300

/** The size of a message as a record, in bytes. It may be too large, but never too small. */
export function recordBytes({ lane, text }: InboxMessage): number {
  return Buffer.byteLength(text) + Buffer.byteLength(lane) + overheadBytes
}

const version = '1'
const names = {
  version: Buffer.from('fh'),
  id: Buffer.from('id'),
  at: Buffer.from('at'),
  door: Buffer.from('door'),
  kind: Buffer.from('kind'),
  replayed: Buffer.from('replayed'),
  error: Buffer.from('error'),
  attempts: Buffer.from('attempts'),
  diedAt: Buffer.from('died-at'),
  lane: Buffer.from('lane'),
}
const versionValue = Buffer.from(version)

/** A message as a record: the key is the lane, and the value is the message's text. So any consumer can read messages by VIN. */
export function toRecord(
  message: InboxMessage,
  to: { readonly topic: string; readonly partition: number; readonly replayed?: string | undefined },
): Outgoing {
  const { id, lane, receivedAt, door, kind, text } = message
  const headers = new Map([
    [names.version, versionValue],
    [names.id, Buffer.from(id)],
    [names.at, Buffer.from(String(receivedAt))],
  ])
  if (door !== 'root') headers.set(names.door, Buffer.from(door))
  if (kind !== 'wire') headers.set(names.kind, Buffer.from(kind))
  if (to.replayed !== undefined) headers.set(names.replayed, Buffer.from(to.replayed))
  // A replayed copy gets the current time. In a topic that keeps the producer's time, retention could delete an old time at once.
  const timestamp = BigInt(to.replayed !== undefined ? Date.now() : receivedAt)
  return {
    topic: to.topic,
    partition: to.partition,
    key: Buffer.from(lane),
    value: Buffer.from(text),
    headers,
    timestamp,
  }
}

/** A dead letter as a record. Its key is the id with the time of death, so that a tombstone deletes this one alone. */
export function toDeadRecord(letter: DeadLetter, to: { readonly topic: string; readonly partition: number }): Outgoing {
  const { id, message, error, attempts, diedAt, replay } = letter
  const record = toRecord(message, to)
  if (replay !== undefined) record.headers.set(names.replayed, Buffer.from(replay))
  record.headers.set(names.lane, record.key)
  record.headers.set(names.error, Buffer.from(error.slice(0, 4_000)))
  record.headers.set(names.attempts, Buffer.from(String(attempts)))
  record.headers.set(names.diedAt, Buffer.from(String(diedAt)))
  return { ...record, key: Buffer.from(`${id}.${diedAt}`), timestamp: BigInt(diedAt) }
}

/** The id of the message in the key of a dead letter or of its tombstone. */
export function deadIdOf(key: string): string {
  return key.split('.', 1)[0] ?? ''
}

/** Deletes the dead letter with this key. */
export function tombstone(key: string, topic: string, partition: number): Outgoing {
  return { topic, partition, key: Buffer.from(key), headers: new Map(), timestamp: BigInt(Date.now()) }
}

type Headers = KafkaRecord['headers']

/** A record has a handful of headers. Comparing their names is faster than making text of all of them. */
function header(headers: Headers, name: Buffer): Buffer | undefined {
  for (const [key, value] of headers)
    if (key !== null && key.length === name.length && key[0] === name[0] && key.equals(name)) return value ?? undefined
  return undefined
}

/** Reads a message of any version of fleethook. `undefined` for a foreign record. */
export function fromRecord({
  key,
  value,
  headers,
}: Pick<KafkaRecord, 'key' | 'value' | 'headers'>): Incoming | undefined {
  const message = messageOf(value, headers, key?.toString())
  if (message === undefined) return undefined
  return { message, replayed: header(headers, names.replayed) !== undefined, replay: replayOf(headers) }
}

/** Reads a dead letter. `undefined` for a tombstone and a foreign record. */
export function fromDeadRecord({
  value,
  headers,
}: Pick<KafkaRecord, 'key' | 'value' | 'headers'>): DeadLetter | undefined {
  const message = messageOf(value, headers, header(headers, names.lane)?.toString())
  const attempts = Number(header(headers, names.attempts))
  const diedAt = Number(header(headers, names.diedAt))
  if (message === undefined || !Number.isSafeInteger(attempts) || !Number.isSafeInteger(diedAt)) return undefined
  const error = header(headers, names.error)?.toString() ?? ''
  return { id: message.id, message, error, attempts, diedAt, replay: replayOf(headers) }
}

/** The value of the header for a dead letter of the first run. */
export const sameRun = '1'

function replayOf(headers: Headers): string | undefined {
  const replay = header(headers, names.replayed)?.toString()
  return replay === sameRun ? undefined : replay
}

const uuid = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/

function messageOf(value: Buffer | null, headers: Headers, lane: string | undefined): InboxMessage | undefined {
  const id = header(headers, names.id)?.toString()
  const receivedAt = Number(header(headers, names.at))
  if (value === null || lane === undefined || lane === '' || header(headers, names.version) === undefined)
    return undefined
  if (id === undefined || !uuid.test(id) || !Number.isSafeInteger(receivedAt)) return undefined
  const kind = header(headers, names.kind)?.toString()
  return {
    id,
    lane,
    receivedAt,
    door: doorOf(header(headers, names.door)?.toString()),
    kind: kind === 'gap' || kind === 'malformed' ? kind : 'wire',
    text: value.toString(),
    bytes: value.length,
  }
}
