import zlib from 'node:zlib'
import { dueColumn } from '../../../../src/inbox/vehicle-store.ts'
import type {
  Move,
  ReaderChanges,
  Refused,
  Removed,
  StoredMessage,
  Transaction,
  VehicleWrites,
  WrittenChanges,
} from './interface.ts'
import { type Reader, type Readers, receiver } from './readers.ts'
import type { SpaceKeeper } from './retention.ts'
import type { SqlRow } from './schema.ts'
import type { ReaderStatements } from './statements.ts'

/** Writes one row of a reader. Returns `undefined` when the row is refused and others go on. */
export type Each = <Result>(
  reader: string,
  row: Refused['row'],
  key: Refused['key'],
  run: () => Result,
) => Result | undefined

export const together: Each = (_reader, _row, _key, run) => run()

/** Returns what became of the changes of each reader. */
export function write(
  readers: Readers,
  space: SpaceKeeper,
  transaction: Transaction,
  each: Each,
): ReadonlyMap<Reader, WrittenChanges> {
  const { puts, retracted } = transaction
  const removed = retract(readers, retracted)
  if (puts.length > 0) {
    space.makeRoom(transaction)
    if (each === together) writePuts(readers, puts)
    else
      for (const [first, group] of Map.groupBy(puts, (put) => put.first ?? put.seq))
        each(receiver, 'put', first, () => writePuts(readers, group))
  }
  const written = new Map<Reader, WrittenChanges>()
  const changes: readonly ReaderChanges[] = [{ reader: receiver, ...transaction }, ...(transaction.readers ?? [])]
  for (const own of changes) {
    const reader = readers.of(own.reader)
    written.set(reader, {
      moved: writeChanges(readers, reader, own, each),
      retracted: removed.get(reader) ?? nothing,
    })
  }
  return written
}

const nothing: Removed = { messages: 0, bytes: 0 }

function retract(readers: Readers, seqs: readonly number[]): ReadonlyMap<Reader, Removed> {
  const removed = new Map<Reader, Removed>()
  for (const seq of seqs) {
    for (const reader of readers.all) {
      const bytes = bytesOf(reader.statements.removePending.get(seq))
      if (bytes === undefined) continue
      const before = removed.get(reader) ?? nothing
      removed.set(reader, { messages: before.messages + 1, bytes: before.bytes + bytes })
    }
    readers.file.removeMessage.run(seq)
  }
  return removed
}

/** Returns for each move the size of the moved message. */
function writeChanges(
  readers: Readers,
  reader: Reader,
  { updates, settled, moves, vehicles }: ReaderChanges,
  each: Each,
): readonly (number | undefined)[] {
  const { name, statements } = reader
  for (const { seq, deliveriesFrom, deliveries, attempts, notBefore, failure } of updates)
    each(name, 'update', seq, () => {
      if (failure === null) statements.removeFailure.run(seq)
      else if (failure !== undefined) statements.setFailure.run(seq, JSON.stringify(failure))
      if (deliveriesFrom === undefined && attempts === undefined) statements.addDeliveries.run(deliveries, seq)
      else statements.updatePending.run(deliveriesFrom ?? null, deliveries, attempts ?? 0, notBefore ?? 0, seq)
    })
  for (const seq of settled) each(name, 'settle', seq, () => statements.settle.run(seq))
  const moved = moves.map((move, at) => each(name, 'move', at, () => writeMove(readers, reader, move)))
  if (vehicles !== undefined) writeVehicles(reader, vehicles, each)
  return moved
}

function writeVehicles({ name, statements }: Reader, writes: VehicleWrites, each: Each): void {
  const { forgotten, rows, seq, upTo } = writes
  for (const vin of forgotten) statements.removeVehicle.run(vin)
  for (const row of rows)
    each(name, 'vehicle', row.vin, () => {
      const { vin, seq: place, seenMs, rules = null, text } = row
      return statements.setVehicle.run(vin, place, Math.max(0, seenMs), dueColumn(row), rules, zlib.crc32(text), text)
    })
  if (upTo !== undefined) statements.setVehiclesUpTo.run(upTo)
  if (seq !== undefined) statements.setVehiclesSeq.run(seq)
}

/** From this number of rows on, one statement that copies all of them is faster than one statement per row. */
const copyFromRows = 8

function writePuts(readers: Readers, puts: readonly StoredMessage[]): void {
  const { file } = readers
  // A range can be copied only when it contains no older message.
  let isRange = puts.length >= copyFromRows
  let previous = isRange ? Number(file.newestSeq.get()?.['place'] ?? -1) : 0
  for (const put of puts) {
    const { seq, id, lane, receivedAt, door, kind, bytes, text, own } = put
    isRange &&= seq > previous
    previous = seq
    const reader = own === undefined ? null : readers.of(own).number
    file.addMessage.run(seq, id, lane, receivedAt, door, kind, bytes, zlib.crc32(text), text, reader)
  }
  const range = isRange ? ([puts[0]?.seq ?? 0, previous] as const) : undefined
  addPlaces(readers.receiver.statements, puts, range, ({ own = receiver }) => own === receiver)
  for (const name of new Set(puts.flatMap(({ own, readers: followers = [] }) => own ?? followers)))
    if (name !== receiver)
      addPlaces(
        readers.of(name).statements,
        puts,
        range,
        (put) => put.own === name || put.readers?.includes(name) === true,
      )
}

/** Gives the messages that are for a reader their places there. */
function addPlaces(
  { addPending, addPendingRange }: ReaderStatements,
  puts: readonly StoredMessage[],
  range: readonly [from: number, to: number] | undefined,
  isForIt: (put: StoredMessage) => boolean,
): void {
  if (range !== undefined && puts.every(isForIt)) return void addPendingRange.run(...range)
  for (const put of puts) if (isForIt(put)) addPending.run(put.seq, put.id, put.lane, put.kind, put.bytes)
}

/** Returns the size of the moved message. */
function writeMove(readers: Readers, reader: Reader, move: Move): number | undefined {
  const { statements } = reader
  const { seq } = move
  switch (move.to) {
    case 'settled':
      return bytesOf(statements.removePending.get(seq))
    case 'deleted': {
      const bytes = bytesOf(statements.removeDead.get(seq))
      if (bytes === undefined) return undefined
      // Another reader may still need it.
      readers.shared.removeUnkept.run(seq)
      reader.deadLetters -= 1
      return bytes
    }
    case 'pending': {
      const bytes = bytesOf(statements.revive.get(seq))
      // A failure from before it was a dead letter.
      if (bytes !== undefined) statements.removeFailure.run(seq)
      if (bytes !== undefined && statements.removeDead.get(seq) !== undefined) reader.deadLetters -= 1
      return bytes
    }
    case 'dead': {
      const row = statements.removePending.get(seq)
      const bytes = bytesOf(row)
      if (bytes === undefined) return undefined
      const run = Number(row?.['replayed'])
      statements.addDead.run(seq, bytes, move.error, move.attempts, move.diedAt, move.changed ?? null, run)
      reader.deadLetters += 1
      return bytes
    }
  }
}

function bytesOf(row: SqlRow | undefined): number | undefined {
  return row === undefined ? undefined : Number(row['bytes'])
}
