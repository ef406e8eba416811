import { storable } from '../../src/base/errors.ts'
import { seqOf } from '../../src/inbox/delivery-id.ts'
import type { DeadLetter, InboxMessage, Waiting } from '../../src/inbox/inbox.ts'
import type { Database } from '../inbox/postgres/client.ts'
import { partitionOf } from '../inbox/postgres/schema.ts'
import type { Tables } from '../inbox/postgres/tables.ts'
import { gapsOfAll, messageValues } from '../inbox/postgres/writer.ts'
import type { InboxFile, Move, Page, ReaderChanges, Transaction } from '../inbox/sqlite/file/interface.ts'
import { receiver } from '../inbox/sqlite/file/readers.ts'

/** A reader of the file, and its tables. */
export interface MovedReader {
  /** Empty: the receiver. */
  readonly name: string
  readonly tables: Tables
}

interface PlacesParts {
  readonly file: InboxFile
  readonly db: Database
  /** The receiver comes first. */
  readonly readers: readonly MovedReader[]
  /** Branches that the file does not know: to them, what waits for the receiver is new. */
  readonly others: readonly Tables[]
  /** Names the file in the table `moved`. */
  readonly name: string
  /** A process that crashed may have handed out what waits. */
  readonly isUnclean: boolean
}

/** What was moved of a reader. */
export interface MovedPlaces {
  messages: number
  deadLetters: number
}

/** What a reader of the file has of a message. */
interface Found {
  readonly reader: MovedReader
  readonly seq: number
  /** Left out: it has given the message up. */
  readonly waiting?: Waiting
  readonly letter?: DeadLetter
}

/** A row of `waiting`, without what its message has. */
interface WaitingRow {
  readonly tables: Tables
  readonly message: InboxMessage
  readonly attempts: number
  readonly notBefore: number
  readonly failure: Waiting['failure'] | undefined
  readonly deliveries: number
  readonly replayed: boolean
  readonly replay: string | undefined
  readonly changed: string | undefined
}

interface LetterRow {
  readonly tables: Tables
  readonly letter: DeadLetter
}

/** The most that one transaction moves, unless a single message has more. */
export const mostMessages = 500
const mostBytes = 1_048_576

/** The part of the file that the next transaction moves: each message with the places of all readers. */
class Batch {
  readonly messages: InboxMessage[] = []
  /** The number of the branch that made a message for itself. */
  readonly makers: (number | undefined)[] = []
  readonly waiting: WaitingRow[] = []
  readonly letters: LetterRow[] = []
  /** What leaves the file, by reader. */
  readonly over = new Map<string, { readonly settled: number[]; readonly moves: Move[] }>()
  bytes = 0
  places = 0

  get isFull(): boolean {
    return this.places >= mostMessages || this.bytes >= mostBytes
  }

  add(message: InboxMessage, maker: number | undefined): void {
    this.messages.push(message)
    this.makers.push(maker)
    this.bytes += message.bytes
  }

  leaves({ reader, seq, letter }: Found): void {
    const over = this.over.get(reader.name) ?? { settled: [], moves: [] }
    this.over.set(reader.name, over)
    if (letter === undefined) over.settled.push(seq)
    else over.moves.push({ to: 'deleted', seq })
    this.places += 1
  }
}

/**
 * Moves what waits for readers of the file, and their dead letters. One transaction has a message with all of its places, in the order of the file, and
 * notes how far it came. So a reader keeps its order, and who begins again knows what is there: that may be handled and deleted already.
 */
export async function movePlaces(parts: PlacesParts): Promise<ReadonlyMap<string, MovedPlaces>> {
  const { file, db, readers, name } = parts
  const [mark] = await db.run(`SELECT seq FROM ${db.schema}.moved WHERE file = $1`, [name])
  const before = Number(mark?.['seq'] ?? -1)
  const moved = new Map(readers.map((reader) => [reader.name, { messages: 0, deadLetters: 0 }]))
  let batch = new Batch()
  const flush = async (): Promise<void> => {
    if (batch.messages.length > 0) await write(parts, batch)
    const { settled = [], moves = [] } = batch.over.get(receiver) ?? {}
    const branches = [...batch.over].flatMap(([reader, over]): ReaderChanges[] =>
      reader === receiver ? [] : [{ reader, updates: [], ...over }],
    )
    await file.commit({ ...nothing(), settled, moves, readers: branches })
    batch = new Batch()
  }
  for await (const places of placesIn(file, readers)) {
    if (seqOfAll(places) > before) await take(parts, batch, places, moved)
    else for (const found of places) batch.leaves(found)
    if (batch.isFull) await flush()
  }
  await flush()
  return moved
}

/** Timers stay: they are in the states. */
async function take(
  { file, readers, others, isUnclean }: PlacesParts,
  batch: Batch,
  places: readonly Found[],
  moved: ReadonlyMap<string, MovedPlaces>,
): Promise<void> {
  let message: InboxMessage | undefined
  for (const found of places) {
    const { reader, seq, letter, waiting } = found
    const { tables } = reader
    const count = moved.get(reader.name) ?? { messages: 0, deadLetters: 0 }
    if (letter !== undefined) {
      message ??= letter.message
      batch.letters.push({ tables, letter })
      count.deadLetters += 1
    } else if (waiting !== undefined && waiting.kind !== 'timer') {
      const claim = await file.find(seq, reader.name)
      if (claim === undefined) continue
      const { attempts = 0, notBefore = 0, failure } = waiting
      const { replayed, replay, changed } = claim
      message ??= claim.message
      const deliveries = Math.max(claim.deliveries, isUnclean ? 1 : 0)
      const row = { message, attempts, notBefore, failure, deliveries, replayed, replay, changed }
      batch.waiting.push({ tables, ...row })
      if (reader === readers[0] && !replayed)
        for (const other of others) batch.waiting.push({ ...row, ...untouched, tables: other })
      count.messages += 1
    }
    batch.leaves(found)
  }
  const [first] = places
  if (message === undefined || first === undefined) return
  // The receiver knows no message that a branch made for itself.
  const isShared = first.reader === readers[0] || (await file.message(first.seq)) !== undefined
  batch.add(message, isShared ? undefined : first.reader.tables.number)
}

/** Nobody has handled it for this branch. */
const untouched = { attempts: 0, notBefore: 0, failure: undefined, deliveries: 0, changed: undefined } as const

/** What all readers have, message by message. */
async function* placesIn(file: InboxFile, readers: readonly MovedReader[]): AsyncGenerator<readonly Found[]> {
  const lists = readers.flatMap((reader) => [waitingOf(file, reader), lettersOf(file, reader)])
  const heads = await Promise.all(lists.map(async (list) => [list, await list.next()] as const))
  for (;;) {
    const seq = seqOfAll(heads.flatMap(([, { value }]) => value ?? []))
    if (seq === Infinity) return
    const found: Found[] = []
    for (const [at, [list, { value }]] of heads.entries()) {
      if (value?.seq !== seq) continue
      found.push(value)
      heads[at] = [list, await list.next()]
    }
    yield found
  }
}

const seqOfAll = (places: readonly Found[]): number => Math.min(...places.map(({ seq }) => seq))

async function* waitingOf(file: InboxFile, reader: MovedReader): AsyncGenerator<Found, undefined> {
  for (let after: number | undefined = 0; after !== undefined;) {
    const page: Page<Waiting> = await file.waiting(after, reader.name)
    for (const waiting of page.items) yield { reader, seq: seqOf(waiting.id), waiting }
    after = page.next
  }
}

async function* lettersOf(file: InboxFile, reader: MovedReader): AsyncGenerator<Found, undefined> {
  for (let after: number | undefined = 0; after !== undefined;) {
    const page: Page<DeadLetter> = await file.deadLetters({ limit: mostMessages }, after, reader.name)
    for (const letter of page.items) yield { reader, seq: seqOf(letter.id), letter }
    after = page.next
  }
}

async function write({ db, readers, others, name }: PlacesParts, batch: Batch): Promise<void> {
  const { messages, makers, waiting, letters } = batch
  const all = [...readers.map(({ tables }) => tables), ...others]
  await db.run(
    `WITH added AS (INSERT INTO ${db.schema}.message (id, lane, received_at, door, kind, bytes, text, branch)
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::int[], $7::text[], $8::smallint[])
  ON CONFLICT (id) DO NOTHING RETURNING id),
mark AS (INSERT INTO ${db.schema}.moved VALUES ($9, $10) ON CONFLICT (file) DO UPDATE SET seq = excluded.seq),
w AS (SELECT w.* FROM unnest($12::smallint[], $13::uuid[], $14::smallint[], $15::int[], $16::bigint[], $17::int[], $18::boolean[], $19::text[],
  $20::text[], $21::bigint[], $22::text[], $23::text[])
  WITH ORDINALITY w(reader, id, part, attempts, not_before, deliveries, replayed, changed, replay, failing_since, failed_by, error, place)
  JOIN added ON added.id = w.id),
d AS (SELECT d.* FROM unnest($24::smallint[], $25::uuid[], $26::text[], $27::int[], $28::bigint[], $29::text[], $30::text[])
  d(reader, id, error, attempts, died_at, changed, replay) JOIN added ON added.id = d.id),
${all.map(placedSql).join(',\n')}
SELECT`,
    [
      ...[...messageValues(messages), makers.map((number) => number ?? null), name, seqOf(messages.at(-1)?.id ?? '')],
      ...[gapsOfAll(messages), ...waitingValues(waiting), ...letterValues(letters)],
    ],
  )
}

/** The places of one reader. The gaps of all vehicles concern all processes. */
const placedSql = ({ number, waiting, dead, notice }: Tables): string =>
  `waits_${number} AS (INSERT INTO ${waiting} (part, id, attempts, not_before, deliveries, replayed, changed, replay, failing_since, failed_by, error)
  SELECT part, id, attempts, not_before, deliveries, replayed, changed, replay, failing_since, failed_by, error
  FROM w WHERE reader = ${number} ORDER BY place RETURNING seq, id),
noticed_${number} AS (INSERT INTO ${notice} (vin, seq) SELECT '', seq FROM waits_${number} WHERE id = ANY ($11::uuid[])),
died_${number} AS (INSERT INTO ${dead} (id, error, attempts, died_at, changed, replay)
  SELECT id, error, attempts, died_at, changed, replay FROM d WHERE reader = ${number})`

const waitingValues = (rows: readonly WaitingRow[]): readonly unknown[] => [
  ...[rows.map(({ tables }) => tables.number), rows.map(({ message }) => message.id)],
  rows.map(({ message }) => partitionOf(storable(message.lane))),
  ...[rows.map(({ attempts }) => attempts), rows.map(({ notBefore }) => notBefore)],
  ...[rows.map(({ deliveries }) => deliveries), rows.map(({ replayed }) => replayed)],
  ...[rows.map(({ changed }) => orNull(changed)), rows.map(({ replay }) => orNull(replay))],
  rows.map(({ failure }) => failure?.sinceMs ?? null),
  ...[rows.map(({ failure }) => orNull(failure?.handler)), rows.map(({ failure }) => orNull(failure?.error))],
]

const letterValues = (rows: readonly LetterRow[]): readonly unknown[] => [
  ...[rows.map(({ tables }) => tables.number), rows.map(({ letter }) => letter.id)],
  ...[rows.map(({ letter }) => storable(letter.error)), rows.map(({ letter }) => letter.attempts)],
  rows.map(({ letter }) => letter.diedAt),
  ...[rows.map(({ letter }) => orNull(letter.changed)), rows.map(({ letter }) => orNull(letter.replay))],
]

const orNull = (text: string | undefined): string | null => (text === undefined ? null : storable(text))

export const nothing = (): Transaction => ({
  retracted: [],
  puts: [],
  updates: [],
  settled: [],
  moves: [],
  nowMs: Date.now(),
  pendingBytes: 0,
})
