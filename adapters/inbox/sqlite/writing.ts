import type { Retention } from './retention.ts'
import { keep, type Row } from './rows.ts'
import type { Statements } from './statements.ts'
import type { Batch, Committed, Move, Row as Put } from './store.ts'

/** Writes what a batch holds, within a transaction. */
export function writeBatch(statements: Statements, retention: Retention, batch: Batch): Omit<Committed, 'onCapacity'> {
  const retracted = { messages: 0, bytes: 0 }
  for (const place of batch.retracted) {
    const bytes = bytesOf(statements.take.get(place))
    statements.forget.run(place)
    if (bytes === undefined) continue
    retracted.messages += 1
    retracted.bytes += bytes
  }
  if (batch.puts.length > 0) retention.makeRoom(batch)
  putAll(statements, batch.puts)
  for (const { place, from, deliveries, attempts, notBefore } of batch.changes) {
    if (from === undefined && attempts === undefined) statements.deliver.run(deliveries, place)
    else statements.change.run(from ?? null, deliveries, attempts ?? 0, notBefore ?? 0, place)
  }
  for (const place of batch.settled) statements.settle.run(place)
  return { moved: batch.moves.map((move) => make(statements, move)), retracted }
}

/** From so many rows on, one statement that copies them costs less than one for each. */
const fewRows = 8

function putAll(statements: Statements, puts: readonly Put[]): void {
  const first = puts[0]
  const last = puts.at(-1)
  if (first === undefined || last === undefined) return
  // Only where nothing else can stand between the first and the last of them.
  const isNewest =
    puts.length >= fewRows &&
    first.place > lastPlace(statements) &&
    puts.every(({ place }, at) => at === 0 || place > (puts[at - 1]?.place ?? place))
  for (const row of puts) {
    keep(statements.keep, row)
    if (!isNewest) statements.wait.run(row.place, row.id, row.lane, row.kind, row.bytes)
  }
  if (isNewest) statements.waitAll.run(first.place, last.place)
}

/** Of all messages that are there. */
function lastPlace(statements: Statements): number {
  return Number(statements.lastPlace.get()?.['place'] ?? -1)
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
