import type { Believed } from '../../../../src/base/believed-time.ts'
import type { OpenOptions } from '../../../../src/hosting/drainable.ts'
import { msOfSeq } from '../../../../src/inbox/delivery-id.ts'
import type { GapReason } from '../../../../src/events/event.ts'
import type { InboxGap, KeptGap } from '../../../../src/inbox/inbox.ts'
import type { OpenedVehicles, SignOfLife, StoredMessage } from './interface.ts'
import type { Reader, Readers } from './readers.ts'
import type { SqlRow } from './schema.ts'

/** Connections can wait this long in the kernel before their sender may give up. */
const heldMs = 5_000

/** The value of `state.closed` in a file that was closed properly, but has waiting messages from before a crash. */
export const closedWithSuspects = 3

/** Writes the sign of life. `on.holdsGaps`: whether the file has gaps that no stored event reports. */
export function noteLife(
  on: { readonly readers: Readers; holdsGaps: boolean },
  closed: number,
  sign: SignOfLife,
): void {
  const { gaps, readers: branches = [] } = sign
  const all = [gaps, ...branches.map((branch) => branch.gaps)]
  // Most signs say that there is no gap, as before.
  const isNew = on.holdsGaps || all.some((each) => each !== undefined && each.length > 0)
  const same = branches.map(({ reader }) => ({ reader }))
  noteSign(on.readers, closed, isNew ? sign : { ...sign, gaps: undefined, readers: same })
  // Gaps that are left out stay in the file.
  if (isNew) on.holdsGaps = all.some((each) => each === undefined || each.length > 0)
}

/** Writes the sign of life and the gaps together: the gap of a crash begins there and does not cover earlier refusals. */
function noteSign(readers: Readers, closed: number, sign: SignOfLife): void {
  const { nowMs, uptimeMs, gaps, believed, readers: branches = [] } = sign
  const { file, receiver } = readers
  noteGaps(receiver, gaps)
  for (const branch of branches) noteGaps(readers.of(branch.reader), branch.gaps)
  for (const { number, isUsed } of readers.all) if (isUsed) file.useReader.run(nowMs, number)
  const left = believed ?? believedIn(file.state.get() ?? {})
  file.setState.run(closed, nowMs, uptimeMs ?? null, left?.knownMs ?? nowMs, left?.doubtedMs ?? 0)
}

/**
 * Without `gaps`, the gaps in the file stay. What the file dropped is its own to say, in the commit that drops it, and only the event of such a
 * gap takes it away: this process may not know of the newest yet.
 */
function noteGaps({ statements }: Reader, gaps: readonly KeptGap[] | undefined): void {
  if (gaps === undefined) return
  statements.removeGaps.run()
  for (const { reason, fromMs, toMs, vin, missed } of gaps)
    if (reason !== 'inbox_expired') statements.addGap.run(reason, fromMs, toMs, vin ?? null, missed)
}

/** What an earlier process believed. */
export function believedIn(state: SqlRow): Believed | undefined {
  const seenMs = Number(state['alive_at'] ?? 0)
  if (seenMs === 0) return undefined
  return { knownMs: Number(state['known_ms']), doubtedMs: Number(state['doubted_ms']), seenMs }
}

/** Writes that a receiver has started, and the time since the last one in which nobody listened. */
export function noteStart(readers: Readers, state: SqlRow, sign: SignOfLife, options: OpenOptions): void {
  const {
    file,
    receiver: { statements },
  } = readers
  const aliveMs = Number(state['alive_at'] ?? 0)
  const isUsed = aliveMs > 0
  statements.removeGapOfStop.run(aliveMs)
  for (const { reader } of sign.readers ?? []) noteReturn(readers, readers.of(reader), aliveMs, sign.nowMs)
  const { fromMs, toMs } = downtimeOf(state, sign)
  const wasHeld = options.listeningWasKept === true && toMs - fromMs <= heldMs
  if (state['closed'] === 0) statements.addGap.run('restarted', fromMs, toMs, null, 0)
  else if (isUsed && toMs > fromMs && !wasHeld) statements.addGap.run('stopped', fromMs, toMs, null, 0)
  // This process has not compared its clock yet.
  const believed = believedIn(state)
  file.setState.run(0, sign.nowMs, sign.uptimeMs ?? null, believed?.knownMs ?? sign.nowMs, believed?.doubtedMs ?? 0)
}

/** A branch that the last process did not have lacks what came since: a gap of its own says so, once. */
function noteReturn({ file }: Readers, reader: Reader, aliveMs: number, nowMs: number): void {
  const { usedMs, statements, number } = reader
  if (usedMs > 0 && usedMs < aliveMs) statements.addGap.run('stopped', usedMs, nowMs, null, 0)
  file.useReader.run(nowMs, number)
}

/**
 * The time since the last sign of life. If the clock was set back since, the machine's running time shows how long that
 * was: the gap then has that length and ends now, by the clock as it is now. After a restart of the machine only a lower
 * limit is known, so the gap covers the time by both clocks.
 */
export function downtimeOf(state: SqlRow, { nowMs, uptimeMs }: SignOfLife): { fromMs: number; toMs: number } {
  const aliveAt = Number(state['alive_at'])
  const uptimeThen = state['uptime_ms'] == null ? undefined : Number(state['uptime_ms'])
  const hasRunOn = uptimeMs !== undefined && uptimeThen !== undefined && uptimeMs >= uptimeThen
  const ranMs = hasRunOn ? uptimeMs - uptimeThen : 0
  // Some systems know the running time only to the second.
  const isSetBack = nowMs - ranMs < aliveAt - 2_000
  return {
    fromMs: Math.floor(isSetBack ? nowMs - ranMs : Math.min(aliveAt, nowMs)),
    toMs: isSetBack && hasRunOn ? nowMs : Math.max(aliveAt, nowMs),
  }
}

/** What the file says about vehicles while a reader keeps their states in it. */
export function heldVehicles({ statements }: Reader): OpenedVehicles | undefined {
  const row = statements.held.get() ?? {}
  if (row['vehicles_held'] !== 1) return undefined
  return { seq: Number(row['vehicles_seq']), upTo: Number(row['vehicles_up_to']) }
}

/** Writes whether this reader keeps states of vehicles. If not, retention may drop messages that are not in the states. */
export function beginVehicles(
  { file }: Readers,
  reader: Reader,
  keepsVehicles: boolean | undefined,
): OpenedVehicles | undefined {
  const { statements } = reader
  if (keepsVehicles !== true) {
    statements.releaseVehicles.run()
    return undefined
  }
  const held = heldVehicles(reader)
  if (held !== undefined) return held
  const before = statements.held.get()?.['vehicles_seq']
  const seq = Number(file.newestSeq.get()?.['place'] ?? -1)
  statements.holdVehicles.run(seq, seq)
  return { seq, upTo: seq, staleFromMs: before == null ? undefined : msOfSeq(Number(before)) }
}

/** The event of a gap is in the inbox, so the gap is deleted from the file. */
export function removeReported({ statements }: Reader, { text }: StoredMessage): void {
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

/** An object, so that a reason that is missing here is a type error. */
const gapReasons: Readonly<Record<GapReason, true>> = {
  inbox_full: true,
  inbox_unavailable: true,
  inbox_damaged: true,
  inbox_expired: true,
  body_too_large: true,
  body_unreadable: true,
  stopped: true,
  restarted: true,
  stalled: true,
  deadline: true,
  not_handled: true,
  stream_interrupted: true,
}

const isGapReason = (name: unknown): name is GapReason => typeof name === 'string' && Object.hasOwn(gapReasons, name)

export function gapOf({ reason: name, from_ms: fromMs, to_ms: toMs, vin, missed }: SqlRow): InboxGap {
  return {
    reason: isGapReason(name) ? name : 'restarted',
    fromMs: Number(fromMs),
    toMs: toMs == null ? undefined : Number(toMs),
    vin: typeof vin === 'string' ? vin : undefined,
    missed: Number(missed) || undefined,
  }
}
