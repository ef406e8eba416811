import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import { isTextList } from '../wire/record.ts'
import { type FieldCatalogue, guessOf, isInCatalogue } from '../events/fields.ts'
import { wireTopics } from '../wire/envelope.ts'
import type { Edge, EdgeResult, EdgeTimer } from './edge.ts'
import { isTime, type Slots } from './state.ts'

/** What an edge of your own returns is checked here, where it enters: a state must not keep what no later start can read. */

/** The longest text that an edge may remember of a vehicle. */
export const longestMemory = 65_536

/** The longest name of an edge. Derived names contain the names of all conditions. */
const longestName = 10_000

/** Throws `handler_invalid` for what is no result of an edge. */
export function checkedResult(name: string, result: EdgeResult | undefined): EdgeResult | undefined {
  const given: unknown = result
  if (given === undefined) return undefined
  if (!isObject(given) || 'then' in given)
    throw wrong(
      name,
      `returned ${kindOf(given)}`,
      '`detect` returns { happened, memory, timer }, each optional, or undefined.',
    )
  const { happened, earlier, memory, timer } = given
  if (happened !== undefined) checkHappened(name, happened)
  if (earlier !== undefined && !Array.isArray(earlier))
    throw wrong(name, `returned ${kindOf(earlier)} as \`earlier\``, 'It is a list of what happened.')
  for (const each of earlier ?? []) checkHappened(name, each)
  checkMemory(name, memory)
  if (timer !== undefined && timer !== null) checkTimer(name, timer)
  return result
}

function checkHappened(name: string, happened: unknown): void {
  const at = isObject(happened) ? happened['at'] : undefined
  if (at instanceof Date && isTime(at.getTime())) return
  throw wrong(name, 'happened at no valid time', '`happened.at` is a Date.')
}

/** A record as JSON. */
function textOf(name: string, memory: object): string {
  try {
    return JSON.stringify(memory)
  } catch {
    throw wrong(
      name,
      'remembers a record that JSON cannot write',
      'It has texts, numbers, true, false, null, lists and records.',
    )
  }
}

function checkMemory(name: string, memory: unknown): void {
  if (typeof memory === 'string' && memory.length > longestMemory)
    throw wrong(name, `remembers ${memory.length} characters of a vehicle`, `At most ${longestMemory} are stored.`)
  const isStorable =
    memory === undefined || memory === null || typeof memory === 'boolean' || typeof memory === 'string'
  if (isStorable || Number.isFinite(memory)) return
  if (isObject(memory) && 'inner' in memory) return checkMemory(name, textOf(name, memory))
  throw wrong(
    name,
    `remembers ${kindOf(memory)}`,
    '`memory` is a text, a finite number, true, false, a record or null.',
  )
}

/** Throws `handler_invalid` for a timer whose times are none. */
export function checkedTimer(name: string, timer: EdgeTimer): EdgeTimer {
  checkTimer(name, timer)
  return timer
}

function checkTimer(name: string, timer: unknown): void {
  if (!isObject(timer)) throw wrong(name, `set ${kindOf(timer)} as its timer`, '`timer` is { due, since } or null.')
  const { due, since } = timer
  if (due !== null && !isTime(due))
    throw wrong(name, `set a timer that is due at ${kindOf(due)}`, '`due` is in milliseconds since the epoch, or null.')
  if (!isTime(since))
    throw wrong(name, `set a timer since ${kindOf(since)}`, '`since` is in milliseconds since the epoch.')
}

/** Throws `handler_invalid` for an object that is no edge. */
export function checkShape(edge: Edge): void {
  const given: Readonly<Record<'name' | 'fields' | 'reads' | 'topics' | 'detect', unknown>> = edge
  if (typeof given.name !== 'string' || given.name === '' || given.name.length > longestName)
    throw new FleethookError('handler_invalid', `The name of an edge is ${kindOf(given.name)}.`, {
      hint: `It is a text of 1 to ${longestName} characters.`,
    })
  for (const member of ['fields', 'reads', 'topics'] as const) {
    if (isTextList(given[member])) continue
    throw wrong(given.name, `has ${kindOf(given[member])} as \`${member}\``, 'It is a list of names. It can be empty.')
  }
  const other = edge.topics.find((topic) => !wireTopics.includes(topic))
  if (other !== undefined) throw wrong(given.name, `names the topic \`${other}\``, `Topics: ${wireTopics.join(', ')}.`)
  if (typeof given.detect !== 'function')
    throw wrong(given.name, 'has no function `detect`', 'receiver.when calls it for messages.')
}

/** A value in an error: numbers as they are, and of others only what they are, because they can be from a message. */
function kindOf(value: unknown): string {
  if (typeof value === 'number' || value === null || value === undefined) return String(value)
  return typeof value === 'object' || typeof value === 'function'
    ? `an ${Array.isArray(value) ? 'array' : typeof value}`
    : `a ${typeof value}`
}

const wrong = (name: string, problem: string, hint: string): FleethookError =>
  new FleethookError('handler_invalid', `The edge \`${name}\` ${problem}.`, { hint })

/** Throws `handler_invalid` for an edge over fields that are not kept, or that are in no catalogue. */
export function checkEdge(edge: Edge, slots: Slots, ownFields: FieldCatalogue = {}): Edge {
  checkShape(edge)
  const unknown = edge.reads.find((field) => !isInCatalogue(field, ownFields))
  if (unknown !== undefined) {
    throw new FleethookError(
      'handler_invalid',
      `The edge \`${edge.name}\` reads \`${unknown}\`, which is not in the catalogue.`,
      { hint: `${guessOf(unknown, ownFields)}Add a field of your own to the option \`fields\`.` },
    )
  }
  const missing = edge.reads.find((field) => !slots.keeps(field))
  if (missing !== undefined) {
    throw new FleethookError(
      'handler_invalid',
      `The edge \`${edge.name}\` reads \`${missing}\`, which is not among the \`fields\` of the part \`vehicles\`.`,
      { hint: `Add '${missing}' to its \`fields\`.` },
    )
  }
  for (const fact of [...(edge.facts ?? []), ...(edge.readsFacts ?? [])]) {
    const known = slots.facts.get(fact.name)
    if (known?.type === fact.type) continue
    throw new FleethookError(
      'handler_invalid',
      known === undefined
        ? `The edge \`${edge.name}\` reads the fact \`${fact.name}\`, which is not among the \`facts\` of the part \`vehicles\`.`
        : `The edge \`${edge.name}\` reads the fact \`${fact.name}\` as ${fact.type}, and the part \`vehicles\` keeps it as ${known.type}.`,
      { hint: 'Pass the same fact to both: vehicles({ fields, facts: [ … ] }).' },
    )
  }
  return edge
}
