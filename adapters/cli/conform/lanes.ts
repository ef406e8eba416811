import { setTimeout } from 'node:timers/promises'
import { isJsonObject } from '../../../src/wire/record.ts'
import { formats } from './cases.ts'
import { keyOf, dataIn, type SentMessage, type Session } from './session.ts'
import { type Asked, type Check, isInOrder, listed, noList } from './checks.ts'
import type { HandledMessage } from './handled.ts'
import { values, wrapped } from './wire-cases.ts'

const vehicles = 8
const each = 24

export async function orderChecks(session: Session): Promise<readonly Check[]> {
  return [...(await burstChecks(session)), ...(await laneChecks(session))]
}

const burst = 200

/** A fleet that wakes up: one message of each vehicle, all in the same moment. */
async function burstChecks(session: Session): Promise<readonly Check[]> {
  const about = { group: 'order', name: `${burst} vehicles with a message each, all at once` } as const
  const sent = Array.from({ length: burst }, () => session.message())
  const { length } = session.answerMs
  const outcomes = await Promise.all(
    sent.map((message) => session.post({ body: JSON.stringify(dataIn('service', message, values)) })),
  )
  // They waited for each other, so their times say little about one answer.
  session.answerMs.splice(length)
  const refused = outcomes.filter(({ status }) => !isTaken(status))
  const why = new Set(refused.map(({ status, text }) => (status === 0 ? text : String(status))))
  const answer: Check = {
    ...about,
    aspect: 'answer',
    result: refused.length === 0 ? 'pass' : 'fail',
    detail: refused.length === 0 ? undefined : `${refused.length} of ${burst} got no 2xx: ${listed([...why])}`,
  }
  const accepted = sent.filter((_, index) => isTaken(outcomes[index]?.status ?? 0))
  if (session.handled === undefined) return [answer, { ...about, aspect: 'handled', ...unchecked(noList) }]
  const keys = new Set((await session.settled(accepted)).map(keyOf))
  if (session.blind !== undefined) return [answer, { ...about, aspect: 'handled', ...unchecked(session.blind) }]
  const missing = accepted.filter((message) => !keys.has(keyOf(message))).length
  if (missing === 0) return [answer, { ...about, aspect: 'handled', result: 'pass' }]
  const detail = `${missing} of ${accepted.length} were accepted and not handled`
  return [answer, { ...about, aspect: 'handled', result: 'fail', detail }]
}

/** Vehicles send one message after the other, all at once, in each format in turn. */
async function laneChecks(session: Session): Promise<readonly Check[]> {
  const about = { group: 'order', name: `${vehicles} vehicles with ${each} messages each` } as const
  const accepted: SentMessage[] = []
  const refused: number[] = []
  const drive = async (vin: string): Promise<void> => {
    for (let turn = 0; turn < each; turn++) {
      const sent = session.message(vin)
      const format = formats[turn % formats.length] ?? 'service'
      // What takes longer to read must not be overtaken.
      const note = turn % 5 === 0 ? 'x'.repeat(65_536) : ''
      const body = JSON.stringify({ ...dataIn(format, sent, values, wrapped), note })
      const { status } = await session.post({ body }, format)
      if (status >= 200 && status < 300) accepted.push(sent)
      else refused.push(status)
    }
  }
  await Promise.all(Array.from({ length: vehicles }, () => drive(session.vin())))
  const answer: Check =
    refused.length === 0
      ? { ...about, aspect: 'answer', result: 'pass' }
      : { ...about, aspect: 'answer', result: 'fail', detail: `${refused.length} got ${listed(refused.map(String))}` }
  if (session.handled === undefined)
    return [answer, { ...about, aspect: 'handled', result: 'unchecked', detail: noList }]
  const known = new Set(accepted.map(keyOf))
  const handled = (await session.settled(accepted)).filter((one) => known.has(keyOf(one)))
  if (session.blind !== undefined)
    return [answer, { ...about, aspect: 'handled', result: 'unchecked', detail: session.blind }]
  const distinct = new Set(handled.map(keyOf)).size
  const problems = [
    ...(distinct < known.size ? [`${known.size - distinct} of ${known.size} were accepted and not handled`] : []),
    ...(handled.length > distinct ? [`${handled.length - distinct} were handled again`] : []),
    ...(isInOrder(handled) ? [] : ['the messages of a vehicle were handled in another order']),
  ]
  if (known.size === 0)
    return [answer, { ...about, aspect: 'handled', result: 'unchecked', detail: 'nothing was accepted' }]
  if (problems.length === 0) return [answer, { ...about, aspect: 'handled', result: 'pass' }]
  return [answer, { ...about, aspect: 'handled', result: 'fail', detail: problems.join('; ') }]
}

/** Vehicles and networks repeat messages: the same bytes come again, in a body of their own or in the same one. */
export async function repeatChecks(session: Session, asked: Asked): Promise<readonly Check[]> {
  return [...(await sameChecks(session, asked)), ...(await distinctChecks(session, asked))]
}

/** Two messages of a vehicle that a careless comparison takes for one, or for old. */
async function distinctChecks(session: Session, { mayRepeat }: Asked): Promise<readonly Check[]> {
  const checks: Check[] = []
  const ways: readonly (readonly [
    name: string,
    pair: (one: SentMessage, next: SentMessage) => readonly SentMessage[],
  ])[] = [
    ['two messages with the same time', (one, next) => [one, { ...next, createdAt: one.createdAt }]],
    ['the same values at another time', (one, next) => [one, { ...one, createdAt: next.createdAt }]],
    ['a message from before that comes late', (one, next) => [next, one]],
  ]
  for (const [name, pair] of ways) {
    const vin = session.vin()
    const sent = pair(session.message(vin), session.message(vin))
    let accepted = true
    for (const each of sent)
      accepted = isTaken((await session.post({ body: JSON.stringify(dataIn('service', each)) })).status) && accepted
    checks.push(answered({ group: 'repeats', name }, accepted))
    checks.push({
      group: 'repeats',
      name,
      aspect: 'handled',
      ...(session.handled === undefined ? unchecked(noList) : await bothHandled(session, vin, mayRepeat)),
    })
  }
  return checks
}

async function bothHandled(
  session: Session,
  vin: string,
  mayRepeat: boolean,
): Promise<Pick<Check, 'result' | 'detail'>> {
  const count = await session.countOf(vin, 2)
  if (session.blind !== undefined) return unchecked(session.blind)
  if (count < 2) return { result: 'fail', detail: `${count} of 2 were handled` }
  return count === 2 ? { result: 'pass' } : again(count, mayRepeat)
}

const answered = (about: Pick<Check, 'group' | 'name'>, accepted: boolean): Check => ({
  ...about,
  aspect: 'answer',
  result: accepted ? 'pass' : 'fail',
  detail: accepted ? undefined : 'a 2xx did not come each time',
})

async function sameChecks(session: Session, { mayRepeat }: Asked): Promise<readonly Check[]> {
  const ways: readonly (readonly [name: string, send: (sent: SentMessage) => Promise<boolean>])[] = [
    ['a message that comes again at once', (sent) => twice(session, JSON.stringify(dataIn('service', sent)))],
    ['a message that comes again later', (sent) => twice(session, JSON.stringify(dataIn('service', sent)), 500)],
    [
      'a message twice in one body',
      async (sent) => {
        const text = JSON.stringify(dataIn('event_collector', sent))
        return isTaken((await session.post({ body: text + text }, 'event_collector')).status)
      },
    ],
  ]
  const checks: Check[] = []
  for (const [name, send] of ways) {
    const about = { group: 'repeats', name } as const
    const sent = session.message()
    const accepted = await send(sent)
    checks.push(answered(about, accepted))
    if (session.handled === undefined) {
      checks.push({ ...about, aspect: 'handled', result: 'unchecked', detail: noList })
      continue
    }
    const count = (await session.settled([sent])).filter((one) => keyOf(one) === keyOf(sent)).length
    const verdict = session.blind === undefined ? judged(count, mayRepeat) : unchecked(session.blind)
    checks.push({ ...about, aspect: 'handled', ...verdict })
  }
  return checks
}

const isTaken = (status: number): boolean => status >= 200 && status < 300

const unchecked = (detail: string): Pick<Check, 'result' | 'detail'> => ({ result: 'unchecked', detail })

function judged(count: number, mayRepeat: boolean): Pick<Check, 'result' | 'detail'> {
  if (count === 1) return { result: 'pass' }
  return count === 0 ? { result: 'fail', detail: 'it was not handled' } : again(count, mayRepeat)
}

function again(count: number, mayRepeat: boolean): Pick<Check, 'result' | 'detail'> {
  const detail = `it was handled ${count} times`
  return mayRepeat
    ? { result: 'unchecked', detail: `${detail}, and --at-least-once says that handlers know it by its id` }
    : { result: 'fail', detail }
}

async function twice(session: Session, body: string, laterMs = 0): Promise<boolean> {
  const { status: first } = await session.post({ body })
  await setTimeout(laterMs)
  const { status: second } = await session.post({ body })
  return isTaken(first) && isTaken(second)
}

/** Values that code takes for none when it asks `if (value)`. `null` becomes 0 with `?? 0`. */
const nothings = { VehicleSpeed: 0, Locked: false, Soc: null }
const nothingsWrapped = { VehicleSpeed: { doubleValue: 0 }, Locked: { booleanValue: false }, Soc: { invalid: true } }

export async function nothingValues(session: Session): Promise<Check> {
  const about = { group: 'formats', name: '0, false and no value, each as it is', aspect: 'handled' } as const
  const shown = session.message()
  await session.post({ body: JSON.stringify(dataIn('service', shown, { VehicleSpeed: 30, Locked: true, Soc: 50 })) })
  const sent = formats.map((format) => ({ format, message: session.message() }))
  for (const { format, message } of sent)
    await session.post({ body: JSON.stringify(dataIn(format, message, nothings, nothingsWrapped)) }, format)
  const all = [shown, ...sent.map(({ message }) => message)]
  const handled = await session.settled(all)
  const dataOf = (message: SentMessage): HandledMessage['data'] =>
    handled.find((one) => keyOf(one) === keyOf(message))?.data
  const usual = dataOf(shown)
  if (usual === undefined || !all.every((each) => isJsonObject(dataOf(each))))
    return { ...about, result: 'unchecked', detail: 'the list does not show the values as JSON' }
  // A receiver may keep only some fields.
  const known = Object.entries(nothings).filter(([field]) => usual[field] != null)
  const wrong = sent.flatMap(({ format, message }) =>
    known.flatMap(([field, value]) => {
      const found = dataOf(message)?.[field] ?? null
      return String(found) === String(value) ? [] : [`${field} ${value} is ${JSON.stringify(found)} in ${format}`]
    }),
  )
  if (wrong.length > 0) return { ...about, result: 'fail', detail: listed(wrong) }
  return known.length > 0
    ? { ...about, result: 'pass' }
    : { ...about, result: 'unchecked', detail: 'the list shows none of these fields' }
}

/** The same values in three formats must be the same to a handler. */
export async function sameValues(session: Session): Promise<Check> {
  const about = { group: 'formats', name: 'the same values in the three formats', aspect: 'handled' } as const
  const sent = formats.map((format) => ({ format, message: session.message() }))
  for (const { format, message } of sent)
    await session.post({ body: JSON.stringify(dataIn(format, message, values, wrapped)) }, format)
  const handled = await session.settled(sent.map(({ message }) => message))
  const seen = sent.map(({ format, message }) => ({
    format,
    data: handled.find((one) => keyOf(one) === keyOf(message))?.data,
  }))
  if (seen.some(({ data }) => !isJsonObject(data)))
    return { ...about, result: 'unchecked', detail: 'the list does not show the values as JSON' }
  const differing = Object.keys(values).flatMap((field) => {
    const texts = seen.map(({ format, data }) => `${JSON.stringify(data?.[field])} in ${format}`)
    const distinct = new Set(seen.map(({ data }) => JSON.stringify(data?.[field])))
    return distinct.size === 1 ? [] : [`${field} is ${texts.join(', ')}`]
  })
  // Equal in all formats, and yet not what was sent: cut to whole numbers, or read in another encoding.
  const changed = (['BatteryLevel', 'VehicleName'] as const).flatMap((field) => {
    const found = seen[0]?.data?.[field] ?? values[field]
    return String(found) === String(values[field])
      ? []
      : [`${field} ${JSON.stringify(values[field])} is ${JSON.stringify(found)}`]
  })
  const wrong = [...differing, ...changed]
  return wrong.length === 0 ? { ...about, result: 'pass' } : { ...about, result: 'fail', detail: listed(wrong) }
}
