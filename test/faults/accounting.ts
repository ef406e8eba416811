/*
 * The checker for one sentence: each message is handled, or is a dead letter, or lies inside a gap event, or was refused with a 4xx
 * that the log counted. It knows only what the sender saw, what the handlers saw, and what the receiver's log says.
 */
import type { GapLine, Journal, RunLine } from './process/journal.ts'
import type { Sent } from './process/traffic.ts'

/** What is known about a receiver and its successors. */
export interface Evidence {
  readonly sent: readonly Sent[]
  readonly journal: Journal
  /** The refused requests that the log counts, by the `error` of the answer. */
  readonly refusals: ReadonlyMap<string, number>
  /** How far the receiver's clocks were from the sender's, in milliseconds. Default: one clock, and it was right. */
  readonly clockOffsetsMs?: readonly number[]
  /** What happened to the processes, for the stories. */
  readonly incidents?: readonly Incident[]
}

export interface Incident {
  /** Milliseconds since the epoch, by the sender's clock. */
  readonly atMs: number
  readonly what: string
}

/** What happened to the messages. */
export type Fate = 'handled' | 'dead' | 'gap' | 'refused' | 'unaccounted'

/** The broken promises. All lists of a receiver that keeps its promises are empty. */
export interface Violations extends Omit<Verdict, 'lost' | 'duplicates'> {
  /** The story of each message to which the sentence does not apply. */
  readonly unaccounted: readonly string[]
  /** Handled more than once, without a mark that says so. */
  readonly handledTwice: readonly string[]
}

export interface Account {
  readonly violations: Violations
  readonly fates: Readonly<Record<Fate, number>>
  /** Messages that were refused and handled: a disk can write what it reports as failed. */
  readonly refusedAndHandled: readonly string[]
}

const nameOf = ({ vin, number }: { readonly vin: string; readonly number: number }): string => `${vin} ${number}`

/** Decides the fate of each message, and checks the order of each vehicle and what was handled twice. */
export function account(evidence: Evidence): Account {
  const { sent, journal, refusals, clockOffsetsMs = [0] } = evidence
  const handled = new Set(journal.runs.map(nameOf))
  const dead = new Set(journal.dead.map(nameOf))
  const isInGap = (message: Sent): boolean => journal.gaps.some((gap) => liesInside(message, gap, clockOffsetsMs))
  const fates: Record<Fate, number> = { handled: 0, dead: 0, gap: 0, refused: 0, unaccounted: 0 }
  const unaccounted: Sent[] = []

  const missing = sent.filter((message) => {
    const isHandled = handled.has(nameOf(message))
    const isDead = !isHandled && dead.has(nameOf(message))
    if (isHandled) fates.handled += 1
    if (isDead) fates.dead += 1
    return !isHandled && !isDead
  })
  const refused = missing.filter(({ status }) => status >= 400 && status < 500)
  for (const [error, messages] of Map.groupBy(refused, (message) => message.error ?? '')) {
    // Lines of the log have no names, so one that is also in a gap needs no line.
    const [inGap, outside] = partition(messages, isInGap)
    const counted = Math.min(refusals.get(error) ?? 0, messages.length)
    const countedOutside = Math.min(counted, outside.length)
    fates.refused += counted
    fates.gap += Math.min(inGap.length, messages.length - counted)
    unaccounted.push(...outside.slice(countedOutside))
  }
  for (const message of missing.filter(({ status }) => status < 400 || status >= 500)) {
    // An acknowledged message must be handled: a gap is no excuse.
    if (message.status !== 200 && isInGap(message)) fates.gap += 1
    else unaccounted.push(message)
  }
  fates.unaccounted = unaccounted.length

  const acknowledged = new Set(sent.filter(({ status }) => status === 200).map(nameOf))
  // A message without an answer may still be under way when the next one of its vehicle arrives, so it has no order.
  const { outOfOrder, settledAgain } = judge(
    acknowledged,
    journal.runs.filter((run) => acknowledged.has(nameOf(run))),
  )
  return {
    fates,
    violations: {
      unaccounted: unaccounted.map((message) => storyOf(message, evidence)),
      outOfOrder,
      settledAgain,
      handledTwice: judge(acknowledged, journal.runs)
        .duplicates.filter(({ redelivered, attempt }) => !redelivered && attempt === 1)
        .map(nameOf),
    },
    refusedAndHandled: sent
      .filter(({ status }) => status >= 400)
      .map(nameOf)
      .filter((name) => handled.has(name)),
  }
}

/** Whether the message was on its way at a time of the gap, by one of the receiver's clocks. */
function liesInside({ vin, sentAtMs, endedAtMs }: Sent, gap: GapLine, offsetsMs: readonly number[]): boolean {
  if (gap.vin !== undefined && gap.vin !== vin) return false
  return offsetsMs.some((offset) => sentAtMs + offset <= gap.toMs && endedAtMs + offset >= gap.fromMs)
}

function partition<T>(items: readonly T[], isFirst: (item: T) => boolean): readonly [readonly T[], readonly T[]] {
  const { first = [], second = [] } = Object.groupBy(items, (item) => (isFirst(item) ? 'first' : 'second'))
  return [first, second]
}

const timeOf = (ms: number): string => new Date(ms).toISOString().slice(11, 23)

/** What a person needs to find the cause: the answer, the gaps nearby, and what happened to the process around that time. */
function storyOf(message: Sent, { journal, refusals, incidents = [] }: Evidence): string {
  const { status, error, sentAtMs, endedAtMs } = message
  const answer =
    status === 0 ? `no answer (${error ?? 'unknown'})` : `${status}${error === undefined ? '' : ` ${error}`}`
  const counted = status >= 400 && status < 500 ? `; the log counts ${refusals.get(error ?? '') ?? 0} of these` : ''
  const distance = (gap: GapLine): number => Math.max(gap.fromMs - endedAtMs, sentAtMs - gap.toMs, 0)
  const gaps = journal.gaps
    .filter(({ vin }) => vin === undefined || vin === message.vin)
    .toSorted((a, b) => distance(a) - distance(b))
    .slice(0, 2)
    .map(({ vin, reason, fromMs, toMs }) => `${reason} ${timeOf(fromMs)} to ${timeOf(toMs)}${vin ? ` of ${vin}` : ''}`)
  const around = [
    ...incidents.filter(({ atMs }) => atMs <= sentAtMs).slice(-2),
    ...incidents.filter(({ atMs }) => atMs > sentAtMs).slice(0, 2),
  ].map(({ atMs, what }) => `${timeOf(atMs)} ${what}`)
  return [
    `${nameOf(message)}: sent at ${timeOf(sentAtMs)}, ${answer} at ${timeOf(endedAtMs)}${counted}`,
    `gaps nearby: ${gaps.join(', ') || 'none'}`,
    `processes: ${around.join(', ') || 'nothing noted'}`,
  ].join('; ')
}

/**
 * The refused requests that the log counts, by the `error` of the answer. It reads what each process printed. The first request
 * has a line of its own, and the next line counts it again: `3 requests refused in 10 s: secret_wrong 2, path_unknown 1.`
 */
export function refusalsIn(outputs: readonly (readonly string[])[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>()
  const add = (error: string, count: number): void => void counts.set(error, (counts.get(error) ?? 0) + count)
  for (const lines of outputs) {
    let first: string | undefined
    for (const line of lines) {
      const {
        total = '',
        seconds,
        list = '',
      } = /(?<total>\d+) requests? refused(?: in (?<seconds>\d+) s)?: (?<list>[\w, ]+)\./.exec(line)?.groups ?? {}
      if (list === '') continue
      if (seconds !== undefined && first !== undefined) add(first, -1)
      first = seconds === undefined ? list : undefined
      for (const [, error = '', count = total] of list.matchAll(/(\w+)(?: (\d+))?/g)) add(error, Number(count))
    }
  }
  return counts
}

/** What {@link judge} finds. */
export interface Verdict {
  /** Acknowledged and not handled. */
  readonly lost: readonly string[]
  /** Handled before one of the same vehicle that was sent earlier. */
  readonly outOfOrder: readonly string[]
  /** Handled more than once. */
  readonly duplicates: readonly RunLine[]
  /** Handled again although a later message was settled. */
  readonly settledAgain: readonly string[]
}

/** Compares the acknowledgments, counted outside the process, with the runs of handlers. */
export function judge(acknowledged: ReadonlySet<string>, handlerRuns: readonly RunLine[]): Verdict {
  const seen = new Set<string>()
  const duplicates: RunLine[] = []
  const outOfOrder: string[] = []
  const settledAgain: string[] = []
  const byVin = Map.groupBy(handlerRuns, ({ vin }) => vin)
  for (const lines of byVin.values()) {
    let highest = -1
    /** The vehicle's messages in the order in which they were first handled. They settle in this order. */
    const order: number[] = []
    /** Every message before this place in the order was settled when the last process ended. */
    let floor = 0
    for (const run of byProcess(lines)) {
      const numbers = run.map(({ number }) => number)
      if (numbers.some((number, at) => at > 0 && number <= (numbers[at - 1] ?? -1))) outOfOrder.push(...run.map(nameOf))
      const again = run.filter((line) => seen.has(nameOf(line)))
      duplicates.push(...again)
      const first = again[0] === undefined ? order.length : order.indexOf(again[0].number)
      // A process that ends early handles only some of them again. One that goes on to new messages has handled all of them.
      const isComplete = again.length === run.length || first + again.length === order.length
      if (first < floor || !isComplete || again.some(({ number }, at) => number !== order[first + at]))
        settledAgain.push(...again.map(nameOf))
      floor = first
      for (const line of run) {
        if (seen.has(nameOf(line))) continue
        if (line.number < highest) outOfOrder.push(nameOf(line))
        highest = Math.max(highest, line.number)
        seen.add(nameOf(line))
        order.push(line.number)
      }
    }
  }
  return { lost: [...acknowledged].filter((name) => !seen.has(name)), outOfOrder, duplicates, settledAgain }
}

function byProcess(lines: readonly RunLine[]): readonly (readonly RunLine[])[] {
  const runs: RunLine[][] = []
  for (const line of lines) {
    const run = runs.at(-1)
    if (run?.[0]?.pid === line.pid) run.push(line)
    else runs.push([line])
  }
  return runs
}
