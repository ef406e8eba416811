import zlib from 'node:zlib'
import type { Committed, Move, Refused, StoredMessage, Transaction, VehicleWrites } from './interface.ts'
import type { SpaceKeeper } from './retention.ts'
import type { SqlRow, Statements } from './schema.ts'

export interface Written extends Pick<Committed, 'moved' | 'retracted'> {
  /** The change in the number of dead letters. */
  readonly dead: number
}

/** Writes one row. Returns `undefined` when the row is refused and others go on. */
export type Each = <Result>(row: Refused['row'], key: Refused['key'], run: () => Result) => Result | undefined

export const together: Each = (_row, _key, run) => run()

export function write(statements: Statements, space: SpaceKeeper, transaction: Transaction, each: Each): Written {
  const retracted = { messages: 0, bytes: 0 }
  for (const seq of transaction.retracted) {
    const bytes = bytesOf(statements.removePending.get(seq))
    statements.removeMessage.run(seq)
    if (bytes === undefined) continue
    retracted.messages += 1
    retracted.bytes += bytes
  }
  if (transaction.puts.length > 0) {
    space.makeRoom(transaction)
    if (each === together) writePuts(statements, transaction.puts)
    else
      for (const [first, puts] of Map.groupBy(transaction.puts, (put) => put.first ?? put.seq))
        each('put', first, () => writePuts(statements, puts))
  }
  for (const { seq, deliveriesFrom, deliveries, attempts, notBefore, failure } of transaction.updates)
    each('update', seq, () => {
      if (failure === null) statements.removeFailure.run(seq)
      else if (failure !== undefined) statements.setFailure.run(seq, JSON.stringify(failure))
      if (deliveriesFrom === undefined && attempts === undefined) statements.addDeliveries.run(deliveries, seq)
      else statements.updatePending.run(deliveriesFrom ?? null, deliveries, attempts ?? 0, notBefore ?? 0, seq)
    })
  for (const seq of transaction.settled) each('settle', seq, () => statements.settle.run(seq))
  const counts = { dead: 0 }
  const moved = transaction.moves.map((move, at) => each('move', at, () => writeMove(statements, move, counts)))
  if (transaction.vehicles !== undefined) writeVehicles(statements, transaction.vehicles, each)
  return { moved, retracted, ...counts }
}

function writeVehicles(statements: Statements, { forgotten, rows, seq, upTo }: VehicleWrites, each: Each): void {
  for (const vin of forgotten) statements.removeVehicle.run(vin)
  for (const { vin, seq: place, seenMs, text } of rows)
    each('vehicle', vin, () => statements.setVehicle.run(vin, place, Math.max(0, seenMs), zlib.crc32(text), text))
  if (upTo !== undefined) statements.setVehiclesUpTo.run(upTo)
  if (seq !== undefined) statements.setVehiclesSeq.run(seq)
}

/** From this number of rows on, one statement that copies all of them is faster than one statement per row. */
const copyFromRows = 8

function writePuts(statements: Statements, puts: readonly StoredMessage[]): void {
  // A range can be copied only when it contains no older message.
  let isRange = puts.length >= copyFromRows
  let previous = isRange ? Number(statements.newestSeq.get()?.['place'] ?? -1) : 0
  for (const { seq } of puts) {
    isRange &&= seq > previous
    previous = seq
  }
  for (const { seq, id, lane, receivedAt, door, kind, bytes, text } of puts) {
    statements.addMessage.run(seq, id, lane, receivedAt, door, kind, bytes, zlib.crc32(text), text)
    if (!isRange) statements.addPending.run(seq, id, lane, kind, bytes)
  }
  if (isRange) statements.addPendingRange.run(puts[0]?.seq ?? 0, previous)
}

/** Returns the size of the moved message. Adds the change in the number of dead letters to `counts`. */
function writeMove(statements: Statements, move: Move, counts: { dead: number }): number | undefined {
  const { seq } = move
  switch (move.to) {
    case 'settled':
      return bytesOf(statements.removePending.get(seq))
    case 'deleted': {
      const bytes = bytesOf(statements.removeDead.get(seq))
      if (bytes === undefined) return undefined
      statements.removeMessage.run(seq)
      counts.dead -= 1
      return bytes
    }
    case 'pending': {
      const bytes = bytesOf(statements.revive.get(seq))
      // One that an earlier life of the message left.
      if (bytes !== undefined) statements.removeFailure.run(seq)
      if (bytes !== undefined && statements.removeDead.get(seq) !== undefined) counts.dead -= 1
      return bytes
    }
    case 'dead': {
      const row = statements.removePending.get(seq)
      const bytes = bytesOf(row)
      if (bytes === undefined) return undefined
      const run = Number(row?.['replayed'])
      statements.addDead.run(seq, bytes, move.error, move.attempts, move.diedAt, move.changed ?? null, run)
      counts.dead += 1
      return bytes
    }
  }
}

function bytesOf(row: SqlRow | undefined): number | undefined {
  return row === undefined ? undefined : Number(row['bytes'])
}
