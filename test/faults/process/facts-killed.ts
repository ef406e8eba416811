/* Facts, plans and messages of some vehicles while their processes are killed, and what must have come of them. */
import { randomInt } from 'node:crypto'
import { expect, vi } from 'vitest'
import type { Target } from '../../conformance/spawn.ts'
import type { Noted, Question } from '../../vehicles/facts-receiver.ts'

export interface FactsVictim {
  /** The processes that run. */
  readonly targets: Target[]
  readonly entries: readonly Noted[]
  /** Kills one of them, and starts another one. */
  strike(): Promise<void>
}

/** What was said of a vehicle, in its order. `isAcknowledged`: with an answer. */
interface Said {
  readonly what: 'customer' | 'message' | 'plan'
  readonly number: number
  readonly isAcknowledged: boolean
  readonly from?: number
  readonly until?: number
}

export interface FactsFound {
  readonly acknowledged: number
  readonly toldAgain: number
  readonly dead: number
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Resolves to whether it was answered with 200. */
async function post(url: string, body: object): Promise<boolean> {
  try {
    return (await fetch(url, { method: 'POST', body: JSON.stringify(body) })).status === 200
  } catch {
    return false
  }
}

/** A customer, and a message after it, over and over; and one booking after another. */
async function speak(victim: FactsVictim, vin: string, isOver: () => boolean): Promise<readonly Said[]> {
  const said: Said[] = []
  const url = (): string => victim.targets[randomInt(victim.targets.length || 1)]?.url ?? 'http://127.0.0.1:1'
  const ask = (question: Question): Promise<boolean> => post(`${url()}/ask`, question)
  let plannedUntil = 0
  for (let number = 1; !isOver(); number += 1) {
    const facts = { customer: `c-${number}` }
    const given = { what: 'set', vin, facts, from: undefined, until: undefined } as const
    said.push({ what: 'customer', number, isAcknowledged: await ask(given) })
    const body = { vin, createdAt: new Date().toISOString(), data: { Level: number } }
    said.push({ what: 'message', number, isAcknowledged: await post(`${url()}/`, body) })
    if (Date.now() > plannedUntil) {
      const from = Date.now() + randomInt(300, 1_500)
      const until = from + randomInt(200, 1_500)
      plannedUntil = until + 300
      const plan = { what: 'set', vin, facts: { booking: `b-${number}` }, from, until } as const
      said.push({ what: 'plan', number, from, until, isAcknowledged: await ask(plan) })
    }
    await pause(randomInt(60))
  }
  return said
}

/** One of each id. What is told again is the same. */
function once(noted: readonly Noted[]): readonly Noted[] {
  const known = new Map<string, Noted>()
  for (const each of noted) {
    const { id, text, at } = known.get(each.id) ?? each
    if (!known.has(each.id)) known.set(each.id, each)
    expect({ id, text, at }).toEqual({ id, text: each.text, at: each.at })
  }
  return [...known.values()]
}

const numberOf = (text: string): number => Number(/-(\d+)$/.exec(text)?.[1])

/** Each customer that was acknowledged was told, in order, from the one before it. Others may have been. */
function judgeCustomers(noted: readonly Noted[], said: readonly Said[], late: ReadonlySet<string>): void {
  const told = once(noted)
  const tos = told.map(({ text }) => numberOf(text))
  const acknowledged = said.filter((each) => each.what === 'customer' && each.isAcknowledged)
  expect(
    acknowledged.map(({ number }) => number).filter((number) => !tos.includes(number)),
    'lost',
  ).toEqual([])
  const inOrder = told.toSorted((one, other) => numberOf(one.text) - numberOf(other.text))
  for (const [nth, { text }] of inOrder.entries())
    expect(text.split(' > ')[0]).toBe(nth === 0 ? 'nobody' : inOrder[nth - 1]?.text.split(' > ')[1])
  const inTime = told.filter(({ id }) => !late.has(id)).map(({ text }) => numberOf(text))
  expect(inTime, 'in order').toEqual(inTime.toSorted((one, other) => one - other))
}

/** Each message that was acknowledged was handled, and saw the fact that was stored just before it. */
function judgeMessages(noted: readonly Noted[], said: readonly Said[]): void {
  const texts = new Set(noted.map(({ text }) => text))
  const before = new Map(said.flatMap((each, nth) => (each.what === 'message' ? [[each, said[nth - 1]] as const] : [])))
  for (const [message, customer] of before) {
    if (!message.isAcknowledged || customer?.isAcknowledged !== true) continue
    expect(texts, 'the message and its fact').toContain(`data c-${message.number} ${message.number}`)
  }
}

/** Each plan that was acknowledged began and ended once, at its own time. */
function judgePlans(noted: readonly Noted[], said: readonly Said[]): void {
  const told = new Set(once(noted).map(({ text, at }) => `${text} ${at}`))
  const plans = said.filter((each) => each.what === 'plan' && each.isAcknowledged)
  for (const { number, from, until } of plans) {
    expect(told, 'begins').toContain(`nobody > b-${number} ${from}`)
    expect(told, 'ends').toContain(`b-${number} > nobody ${until}`)
  }
}

/** Kills it `rounds` times under load, and judges all that was said. */
export async function factsWhileKilled(victim: FactsVictim, rounds: number, count: number): Promise<FactsFound> {
  const vins = Array.from({ length: count }, (_, nth) => `0FLEETV14T${String(nth).padStart(7, '0')}`)
  let isOver = false
  const speaking = vins.map((vin) => speak(victim, vin, () => isOver))
  for (let round = 0; round < rounds; round += 1) {
    const before = victim.entries.length
    await vi.waitFor(() => expect(victim.entries.length).toBeGreaterThan(before + 100), { timeout: 120_000 })
    await pause(randomInt(1_500))
    await victim.strike()
  }
  isOver = true
  const all = await Promise.all(speaking)
  const told = (vin: string, rule: string): readonly Noted[] =>
    victim.entries.filter((each) => each.vin === vin && each.rule === rule)
  const ask = async (question: Question): Promise<unknown> => {
    const answer = await fetch(`${victim.targets[0]?.url}/ask`, { method: 'POST', body: JSON.stringify(question) })
    return answer.json()
  }
  // A last fact, behind all others. What was in hand at three kills is a dead letter, which somebody replays.
  for (const vin of vins)
    await ask({ what: 'set', vin, facts: { customer: 'c-1000000' }, from: undefined, until: undefined })
  for (const vin of vins)
    await vi.waitFor(() => expect(told(vin, 'customer').at(-1)?.text).toMatch(/c-1000000$/), { timeout: 120_000 })
  await pause(4_000)
  const before = new Set(victim.entries.map(({ id }) => id))
  let dead = 0
  const judge = async (): Promise<void> => {
    for (const vin of vins) dead += Number(await ask({ what: 'replay', vin }))
    const late = new Set(victim.entries.flatMap(({ id }) => (before.has(id) ? [] : [id])))
    for (const [nth, vin] of vins.entries()) {
      const said = all[nth] ?? []
      judgeCustomers(told(vin, 'customer'), said, late)
      judgeMessages(told(vin, 'topic'), said)
      judgePlans(told(vin, 'booking'), said)
      expect(await ask({ what: 'dead', vin }), 'dead letters').toBe(0)
    }
  }
  // On a busy machine, what was replayed and the ends of the last plans take a while.
  await vi.waitFor(judge, { timeout: 120_000, interval: 500 })
  const acknowledged = all.flat().filter((each) => each.isAcknowledged).length
  const changes = victim.entries.filter(({ rule }) => rule === 'customer' || rule === 'booking')
  return { acknowledged, dead, toldAgain: changes.length - new Set(changes.map(({ id }) => id)).size }
}
