import type { Believed } from '../../../../src/base/believed-time.ts'
import type { OpenOptions } from '../../../../src/hosting/drainable.ts'
import { msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import type { OwedBranch } from '../../../../src/inbox/inbox.ts'
import type { OpenedVehicles, SignOfLife, StoredMessage } from './interface.ts'
import { downtimeOf, type SqlRow, type Statements } from './schema.ts'

/** Connections can wait this long in the kernel before their sender may give up. */
const heldMs = 5_000

/** The value of `state.closed` in a file that was closed properly, but has waiting messages from before a crash. */
export const closedWithSuspects = 3

/** Writes the sign of life and the gaps together: the gap of a crash begins there and does not cover earlier refusals. */
export function noteSign(statements: Statements, closed: number, sign: SignOfLife): void {
  const { nowMs, uptimeMs, gaps, owed, believed } = sign
  if (owed !== undefined) {
    statements.removeOwed.run()
    noteOwed(statements, sign)
  }
  if (gaps !== undefined) {
    statements.removeGaps.run()
    for (const { reason, fromMs, toMs, vin, missed } of gaps)
      statements.addGap.run(reason, fromMs, toMs, vin ?? null, missed)
  }
  const left = believed ?? believedIn(statements.state.get() ?? {})
  statements.setState.run(closed, nowMs, uptimeMs ?? null, left?.knownMs ?? nowMs, left?.doubtedMs ?? 0)
}

/** A branch that is there already is owed messages for longer. */
function noteOwed(statements: Statements, { owed = [] }: SignOfLife): void {
  for (const { branch, sinceMs } of owed) statements.addOwed.run(branch, sinceMs)
}

/** The branches that lacked messages when the last process ended. */
export const owedIn = (statements: Statements): readonly OwedBranch[] =>
  statements.owed.all().map(({ branch, from_ms: fromMs }) => ({ branch: String(branch), sinceMs: Number(fromMs) }))

/** What an earlier process believed. */
export function believedIn(state: SqlRow): Believed | undefined {
  const seenMs = Number(state['alive_at'] ?? 0)
  if (seenMs === 0) return undefined
  return { knownMs: Number(state['known_ms']), doubtedMs: Number(state['doubted_ms']), seenMs }
}

/** Writes that a receiver has started, and the time since the last one in which nobody listened. */
export function noteStart(statements: Statements, state: SqlRow, sign: SignOfLife, options: OpenOptions): void {
  const aliveMs = Number(state['alive_at'] ?? 0)
  const isUsed = aliveMs > 0
  statements.removeGapOfStop.run(aliveMs)
  noteOwed(statements, sign)
  const { fromMs, toMs } = downtimeOf(state, sign)
  const wasHeld = options.listeningWasKept === true && toMs - fromMs <= heldMs
  if (state['closed'] === 0) statements.addGap.run('restarted', fromMs, toMs, null, 0)
  else if (isUsed && toMs > fromMs && !wasHeld) statements.addGap.run('stopped', fromMs, toMs, null, 0)
  // This process has not compared its clock yet.
  const believed = believedIn(state)
  statements.setState.run(
    0,
    sign.nowMs,
    sign.uptimeMs ?? null,
    believed?.knownMs ?? sign.nowMs,
    believed?.doubtedMs ?? 0,
  )
}

/** What the file says about vehicles while a receiver keeps their states in it. */
export function heldVehicles(statements: Statements): OpenedVehicles | undefined {
  const state = statements.state.get() ?? {}
  if (state['vehicles_held'] !== 1) return undefined
  return { seq: Number(state['vehicles_seq']), upTo: Number(state['vehicles_up_to']) }
}

/** Writes whether this receiver keeps states of vehicles. If not, retention may drop messages that are not in the states. */
export function beginVehicles(statements: Statements, { keepsVehicles }: SignOfLife): OpenedVehicles | undefined {
  if (keepsVehicles !== true) {
    statements.releaseVehicles.run()
    return undefined
  }
  const held = heldVehicles(statements)
  if (held !== undefined) return held
  const before = statements.state.get()?.['vehicles_seq']
  const seq = Number(statements.newestSeq.get()?.['place'] ?? -1)
  statements.holdVehicles.run(seq, seq)
  return { seq, upTo: seq, staleFromMs: before == null ? undefined : msOfSeq(Number(before)) }
}

/** The event of a gap is in the inbox, so the gap is deleted from the file. */
export function removeReported(statements: Statements, { text }: StoredMessage): void {
  const event: unknown = JSON.parse(text)
  if (typeof event !== 'object' || event === null) return
  const read = (name: string): string => String(Reflect.get(event, name) ?? '')
  const vin = read('vin')
  statements.removeGap.run(
    read('reason'),
    vin === '' ? null : vin,
    Date.parse(read('from')) || 0,
    Date.parse(read('to')) || 0,
  )
}
