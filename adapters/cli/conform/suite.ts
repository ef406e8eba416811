import { escapeControls } from '../../../src/events/summarize.ts'
import { isPage } from '../send.ts'
import { batchCases, gzipCases, needsCode, relayCases, relayProbe } from './batch-cases.ts'
import { type Case, type Expected, type Group, allGroups } from './cases.ts'
import { type Asked, type Check, isInOrder, listed, noList } from './checks.ts'
import type { HandledMessage } from './handled.ts'
import { killChecks } from './kills.ts'
import { nothingValues, orderChecks, repeatChecks, sameValues } from './lanes.ts'
import { type HandledEvent, receiverConformance } from './receiver-conformance.ts'
import { secretCases } from './secret-cases.ts'
import { keyOf, type Outcome, type SentMessage, type Session } from './session.ts'
import { bodyCases, formatCases, valueCases } from './wire-cases.ts'

const casesOf: Readonly<Partial<Record<Group, (session: Session) => Iterable<Case>>>> = {
  formats: formatCases,
  values: valueCases,
  secret: secretCases,
  bodies: bodyCases,
  batches: batchCases,
  gzip: gzipCases,
  relays: relayCases,
}

/** Runs the checks of each group. `onGroup` is told before one begins. */
export async function conform(
  session: Session,
  asked: Asked,
  onGroup: (group: Group) => void,
): Promise<readonly Check[]> {
  const checks: Check[] = []
  const posted: { readonly known: Case; readonly outcomes: readonly Outcome[] }[] = []
  const isAsked = (group: Group): boolean => asked.only.length === 0 || asked.only.includes(group)
  for (const group of allGroups) {
    const cases = casesOf[group]
    if (cases === undefined || !isAsked(group)) continue
    onGroup(group)
    if (group === 'relays' && !(await hasRelayPaths(session))) {
      const detail = 'nothing answers there as the collector protocol does, so relays of it cannot use this receiver'
      checks.push({ group, name: 'the paths', aspect: 'answer', result: 'unchecked', detail })
      continue
    }
    for (const known of cases(session)) {
      const outcomes: Outcome[] = []
      for (const { posted: each, format } of known.requests) outcomes.push(await session.post(each, format))
      posted.push({ known, outcomes })
    }
  }
  const expected = posted.flatMap(({ known, outcomes }) => required(known, outcomes))
  const handled = session.handled === undefined ? undefined : await session.settled(expected)
  for (const { known, outcomes } of posted) {
    checks.push(answerCheck(known, outcomes))
    checks.push(...handledChecks(known, outcomes, handled, session.blind))
  }
  if (isAsked('formats') && handled !== undefined) checks.push(await sameValues(session), await nothingValues(session))
  if (isAsked('secret')) checks.push(secrecyCheck(session))
  if (isAsked('secret')) checks.push(timingCheck)
  for (const [group, run] of [
    ['order', orderChecks],
    ['repeats', repeatChecks],
    ['kills', killChecks],
  ] as const) {
    if (!isAsked(group)) continue
    onGroup(group)
    checks.push(...(await run(session, asked)))
  }
  if (asked.isStrict) {
    onGroup('answers')
    checks.push(...(await strictChecks(session, asked.url)))
  }
  return checks.toSorted((one, other) => allGroups.indexOf(one.group) - allGroups.indexOf(other.group))
}

/** A server can answer 200 on every path. Only a server that knows the protocol answers with its codes. */
async function hasRelayPaths(session: Session): Promise<boolean> {
  for (const { posted, format } of relayProbe(session).requests) {
    const { status, text } = await session.post(posted, format)
    if (status === 404 || status === 405 || needsCode(text) !== undefined) return false
  }
  return true
}

const isAccepted = ({ status, text }: Outcome): boolean => status >= 200 && status < 300 && !isPage(text)
const isRefused = ({ status }: Outcome): boolean => status >= 400 && status < 500

const isAsExpected: Readonly<Record<Expected, (outcome: Outcome) => boolean>> = {
  accepted: isAccepted,
  unauthorized: ({ status }) => status === 401 || status === 403,
  refused: isRefused,
  survived: (outcome) => isAccepted(outcome) || isRefused(outcome),
}

const wanted: Readonly<Record<Expected, string>> = {
  accepted: 'a 2xx',
  unauthorized: '401 or 403',
  refused: 'a 4xx',
  survived: 'a 2xx or 4xx',
}

function answerCheck({ group, name, expected, requests, problemWith }: Case, outcomes: readonly Outcome[]): Check {
  const problems = outcomes.flatMap((outcome, index) => {
    const label = requests[index]?.label
    const said = label === undefined ? '' : `${label}: `
    if (!isAsExpected[expected](outcome)) return [`${said}${describedAs(outcome)}, not ${wanted[expected]}`]
    const problem = problemWith?.(outcome.text)
    return problem === undefined ? [] : [said + problem]
  })
  if (problems.length === 0) return { group, name, aspect: 'answer', result: 'pass' }
  return { group, name, aspect: 'answer', result: 'fail', detail: listed(problems) }
}

function describedAs({ status, text }: Outcome): string {
  if (status === 0) return escapeControls(text)
  return isPage(text) ? `${status} with an HTML page` : String(status)
}

/** The messages that must be handled. */
function required({ requests, isKept, isOptional }: Case, outcomes: readonly Outcome[]): readonly SentMessage[] {
  if (isOptional) return []
  return requests.flatMap(({ messages }, index) => {
    const outcome = outcomes[index]
    return outcome !== undefined && (isKept || isAccepted(outcome)) ? messages : []
  })
}

function* handledChecks(
  known: Case,
  outcomes: readonly Outcome[],
  handled: readonly HandledMessage[] | undefined,
  blind: string | undefined,
): Generator<Check> {
  const { group, name, expected, requests, isOptional } = known
  const about = { group, name, aspect: 'handled' } as const
  const messages = requests.flatMap((request) => request.messages)
  if (messages.length === 0) return
  if (handled === undefined) return yield { ...about, result: 'unchecked', detail: noList }
  if (blind !== undefined) return yield { ...about, result: 'unchecked', detail: blind }
  const counts = Map.groupBy(handled, keyOf)
  const count = (message: SentMessage): number => counts.get(keyOf(message))?.length ?? 0
  if (expected === 'unauthorized') {
    const done = messages.filter((message) => count(message) > 0)
    if (done.length === 0) return yield { ...about, result: 'pass' }
    return yield { ...about, result: 'fail', detail: `${done.length} of ${messages.length} were handled anyway` }
  }
  if (isOptional) {
    const done = messages.filter((message) => count(message) > 0)
    if (done.length === messages.length) return yield { ...about, result: 'pass' }
    const detail = 'not listed: its handlers may be for other topics'
    return yield { ...about, result: 'unchecked', detail }
  }
  const due = required(known, outcomes)
  const missing = due.filter((message) => count(message) === 0)
  const twice = due.filter((message) => count(message) > 1)
  const all = due.length
  if (due.length === 0) return yield { ...about, result: 'unchecked', detail: 'nothing was accepted' }
  const labels = missing.map((each) => requests.find((request) => request.messages.includes(each))?.label ?? '')
  const which = labels.some((label) => label !== '') ? ` (${listed(labels)})` : ''
  if (missing.length > 0)
    return yield {
      ...about,
      result: 'fail',
      detail: `${missing.length} of ${all} were accepted and not handled${which}`,
    }
  if (twice.length > 0)
    return yield { ...about, result: 'fail', detail: `${twice.length} of ${all} were handled more than once` }
  const ordered = handled.filter((each) => due.some((message) => message.vin === each.vin))
  if (isInOrder(ordered)) return yield { ...about, result: 'pass' }
  yield { ...about, result: 'fail', detail: 'the messages of a vehicle were handled in another order' }
}

/** A shorter secret can be a part of any text. */
const leastChars = 8

function secrecyCheck({ showsSecret, secret }: Session): Check {
  const about = { group: 'secret', name: 'no answer shows the secret', aspect: 'answer' } as const
  if (showsSecret && secret.length < leastChars)
    return { ...about, result: 'unchecked', detail: 'the secret is too short to be told from other text' }
  return showsSecret ? { ...about, result: 'fail', detail: 'one did' } : { ...about, result: 'pass' }
}

const timingCheck: Check = {
  group: 'secret',
  name: 'compared in constant time',
  aspect: 'answer',
  result: 'unchecked',
  detail: 'a network hides it: read the code',
}

const isOfEvents = (entry: unknown): entry is HandledEvent => typeof Object(entry).topic === 'string'

/** The table of answers and the events of fleethook itself, which its own runtimes and mounts are held to. */
async function strictChecks({ secret, handled, patienceMs }: Session, url: string): Promise<readonly Check[]> {
  const entries = (await handled?.read()) ?? []
  const events = async (): Promise<readonly HandledEvent[]> => (await handled?.read())?.filter(isOfEvents) ?? []
  const subject = { url, secret, patienceMs }
  const hasEvents = entries.some(isOfEvents)
  const checks: Check[] = []
  for (const { name, run } of receiverConformance(hasEvents ? { ...subject, events } : subject)) {
    const about = { group: 'answers', name, aspect: 'answer' } as const
    try {
      await run()
      checks.push({ ...about, result: 'pass' })
    } catch (error) {
      const detail = escapeControls(error instanceof Error ? error.message : String(error)).slice(0, 300)
      checks.push({ ...about, result: 'fail', detail })
    }
  }
  if (hasEvents) return checks
  const detail = 'the list has no whole events of fleethook, in JSON'
  return [...checks, { group: 'answers', name: 'its events', aspect: 'handled', result: 'unchecked', detail }]
}
