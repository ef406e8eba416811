import type { Retention } from './retention.ts'
import { keep, type Row } from './rows.ts'
import type { Statements } from './statements.ts'
import type { Batch, Move } from './store.ts'

/** Writes what a batch holds, within a transaction. Returns for each move the size of the message that it moved. */
export function writeBatch(
  statements: Statements,
  retention: Retention,
  batch: Batch,
): readonly (number | undefined)[] {
  for (const place of batch.retracted) {
    statements.settle.run(place)
    statements.forget.run(place)
  }
  if (batch.puts.length > 0) retention.makeRoom(batch)
  for (const row of batch.puts) {
    keep(statements.keep, row)
    statements.wait.run(row.place, row.id, row.lane, row.kind, row.bytes)
  }
  for (const { place, from, deliveries, attempts, notBefore } of batch.changes) {
    if (from === undefined && attempts === undefined) statements.deliver.run(deliveries, place)
    else statements.change.run(from ?? null, deliveries, attempts ?? 0, notBefore ?? 0, place)
  }
  for (const place of batch.settled) statements.settle.run(place)
  return batch.moves.map((move) => make(statements, move))
}

function make(statements: Statements, move: Move): number | undefined {
  const { place } = move
  switch (move.to) {
    case 'settled':
      return bytesOf(statements.take.get(place))
    case 'nowhere': {
      const bytes = bytesOf(statements.unearth.get(place))
      if (bytes !== undefined) statements.forget.run(place)
      return bytes
    }
    case 'pending': {
      const bytes = bytesOf(statements.revive.get(place))
      if (bytes !== undefined) statements.unearth.get(place)
      return bytes
    }
    case 'dead': {
      const bytes = bytesOf(statements.take.get(place))
      if (bytes !== undefined) statements.bury.run(place, bytes, move.error, move.attempts, move.diedAt)
      return bytes
    }
  }
}

function bytesOf(row: Row | undefined): number | undefined {
  return row === undefined ? undefined : Number(row['bytes'])
}
