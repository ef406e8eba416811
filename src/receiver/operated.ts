import { FleethookError } from '../base/errors.ts'
import type { Core } from '../core/core.ts'
import type { FleetEvent, WireTopic } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { originOf } from '../events/origin.ts'
import { readinessOf } from '../http/answers.ts'
import type { Erased } from '../inbox/inbox.ts'
import { laneOf, vinOf } from '../inbox/receipts.ts'
import type { Forgotten, KeptMessages, Messages } from '../observe/dead-letters.ts'
import type { Operated } from '../observe/observer.ts'
import { type FailingMessage, failingOf, type Stats } from '../observe/stats.ts'
import type { Intake } from './intake.ts'
import { createReplays } from '../inbox/archive.ts'

/** What operators ask of a receiver or a branch that runs. */
export function operatedBy(intake: Intake): Intake['operator'] {
  const { core, inbox, window, parts, vehicles } = intake
  const { reports, registry, receipts, behind } = parts
  const { archive } = inbox
  const { deadLetters, messages, replay, replaySome, failing } =
    archive && 'replay' in archive
      ? archive
      : createReplays({
          archive,
          open: () => intake.readiness.whenRecovered(),
          read: receipts.reread,
          isDraining: () => intake.isDraining,
          revived: async (message, from) => {
            if (message.kind === 'wire') reports.counts.replayed += 1
            if (window?.includes(message.id) === false) return
            const request = core.add([message], from)
            core.start(request)
            await request.settled()
          },
        })
  const operated: Operated = {
    deadLetters,
    messages: withEvents(messages),
    replay,
    replaySome,
    // An inbox that does not know it of all processes: what this one knows.
    failing: async () => failing?.() ?? failingOf(failingIn(core), true),
    stats: () => statsOf(intake),
    readiness() {
      reports.readinessAsked = true
      return readinessOf(intake.busy())
    },
    observe: (observer) => reports.observers.add(observer),
    handlersOf: (event) => registry.handlersFor(event, undefined, undefined).map(({ name }) => name),
    forget: async (vin, { dryRun = false } = {}) => {
      await intake.readiness.whenRecovered()
      return forgotten(await erase(intake, vin, dryRun))
    },
    branches: behind.byName,
  }
  // There only with its part.
  return vehicles === undefined ? operated : Object.assign(operated, { vehicles })
}

/** Erases what the inbox keeps of a vehicle. Rejects with `inbox_unsupported` where that is not possible. */
async function erase(intake: Intake, vin: string, dryRun: boolean): Promise<Erased> {
  const { inbox, parts } = intake
  // Before anything is erased: messages that stay in the inbox must have their turns.
  if (inbox.forget === undefined)
    throw new FleethookError('inbox_unsupported', 'This inbox cannot erase a vehicle.', {
      hint: 'docs/operating.md says what each inbox keeps, and for how long.',
    })
  if (dryRun) return inbox.forget(vin, true)
  // First all of them let go: a message that one of them settles while it is erased must not count twice.
  const noteOfReaders = await parts.behind.branches?.letGo(vin)
  const note = await letGo(intake, vin)
  const erased = await inbox.forget(vin, false)
  noteOfReaders?.(erased)
  note(erased.waitingHere ?? erased.waiting)
  return erased
}

/** Ends the work on messages of a vehicle, whose handlers never run. Resolves to what notes how many waited, once they are erased. */
export async function letGo(intake: Intake, vin: string): Promise<(waiting: number) => void> {
  const { core, gaps, vehicles, isHere, parts } = intake
  const { counts } = core
  const before = counts.forgotten
  const lane = laneOf(vin)
  const reason = new FleethookError('vehicle_forgotten', 'The vehicle of the message was erased.')
  core.drop((message) => message.lane === lane, 'forgotten', reason)
  gaps.forget(vin)
  await vehicles?.forget(vin)
  return (waiting) => {
    // Not all that wait have a place in memory.
    if (isHere) counts.forgotten = Math.max(counts.forgotten, before + waiting)
    parts.reports.clocksBehind.delete(vin)
    parts.reports.observers.tell.forgotten?.(vin)
  }
}

function forgotten({ messages, waiting, deadLetters, notErased }: Erased): Forgotten {
  const erased = { messages, waiting, deadLetters }
  return notErased === undefined ? erased : { ...erased, notErased }
}

function statsOf({ parts, core, inbox, gaps, isHere, isDraining }: Intake): Stats {
  const { reports, behind } = parts
  const { backlog, failing, ...figures } = inbox.stats?.() ?? {}
  const pending = inbox.usage()
  const own = { messages: pending.messages, oldestMs: figures.oldestWaitingMs, processes: 1 }
  return {
    ...reports.counts,
    ...core.counts,
    lastReceivedAtMs: reports.lastReceivedAtMs,
    lost: core.counts.lost + reports.counts.unkept,
    pending,
    backlog: isHere ? own : backlog,
    failing: failing ?? (inbox.shared?.handsOut === 'elsewhere' ? undefined : failingOf(failingIn(core), false)),
    inbox: isHere ? figures : { ...figures, isShared: true },
    running: core.lifecycle.running,
    lanes: core.lanes.size,
    paused: [...core.breakers].flatMap(([{ name }, { sinceMs, nextTryMs }]) =>
      sinceMs === undefined ? [] : [{ handler: name, since: new Date(sinceMs), nextTryAt: new Date(nextTryMs) }],
    ),
    openGaps: gaps.open.size,
    topics: { ...reports.topics },
    secrets: [...reports.secrets],
    refused: { ...reports.refusals.counts },
    drift: reports.drift.list(),
    drifted: reports.drift.total(),
    unbelieved: reports.drift.unbelieved(),
    clocksBehind: reports.clocksBehind.size,
    fieldsMissing: reports.fieldsMissing,
    certificateUntilMs: reports.certificateUntilMs,
    draining: isDraining,
    branches: behind.branches?.stats(),
  }
}

const failingIn = ({ troubled }: Core): readonly FailingMessage[] =>
  [...troubled].flatMap(({ lane, trouble }) =>
    trouble?.failure === undefined ? [] : [{ vin: vinOf(lane), failure: trouble.failure }],
  )

function withEvents(messages: Messages): KeptMessages {
  return {
    list: (which) => messages.list(which),
    get: (id) => messages.get(id),
    async events({ vin, from, to }) {
      const found: Extract<FleetEvent, { readonly topic: WireTopic }>[] = []
      for await (const { event } of messages.list({ vin, from, to })) if (isOfWire(event)) found.push(event)
      return found.toReversed()
    },
  }
}

const isOfWire = (event: FleetEvent | MalformedBody): event is Extract<FleetEvent, { readonly topic: WireTopic }> =>
  originOf(event) === 'vehicle' && event.topic !== 'unknown' && event.topic !== 'malformed'
