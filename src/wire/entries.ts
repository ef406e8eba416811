import type { Alert, VehicleError } from '../events/event.ts'
import { named, type Named } from './named.ts'
import { isJsonObject, type JsonObject } from './record.ts'

type ReadEntry<Entry> = (sent: JsonObject, name: string) => Entry

/**
 * Reads a list of entries, or an object of name to one entry or a list of them; `undefined` when it is neither, or an
 * entry is no object or has no name.
 */
function readEntries<Entry>(sent: unknown, readEntry: ReadEntry<Entry>): readonly Entry[] | undefined {
  const entries: Entry[] = []
  const add = (entry: unknown, key: string | undefined): boolean => {
    if (!isJsonObject(entry)) return false
    const name = typeof entry['name'] === 'string' ? entry['name'] : key
    if (name === undefined) return false
    entries.push(readEntry(entry, name))
    return true
  }
  if (Array.isArray(sent)) return sent.every((entry) => add(entry, undefined)) ? entries : undefined
  if (!isJsonObject(sent)) return undefined
  for (const key of Object.keys(sent)) {
    const value = sent[key]
    if (!(Array.isArray(value) ? value.every((entry) => add(entry, key)) : add(value, key))) return undefined
  }
  return entries
}

function rest(sent: JsonObject, known: readonly string[]): Named<unknown> {
  const kept = named<unknown>()
  for (const key of Object.keys(sent)) if (!known.includes(key)) kept[key] = sent[key]
  return kept
}

function texts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : []
}

function textMap(value: unknown): Readonly<Named<string>> {
  const map = named<string>()
  if (!isJsonObject(value)) return map
  for (const key of Object.keys(value)) {
    const text = value[key]
    if (typeof text === 'string') map[key] = text
    else if (typeof text === 'number' || typeof text === 'boolean') map[key] = String(text)
  }
  return map
}

const alertKeys = ['name', 'startedAt', 'endedAt', 'audiences']
const errorKeys = ['name', 'createdAt', 'tags', 'body']

function readAlert(sent: JsonObject, name: string): Alert {
  const { startedAt, endedAt } = sent
  return Object.assign(named<unknown>(), {
    name,
    ...(typeof startedAt === 'string' && { startedAt }),
    ...(typeof endedAt === 'string' && { endedAt }),
    audiences: texts(sent['audiences']),
    ...rest(sent, alertKeys),
  })
}

function readError(sent: JsonObject, name: string): VehicleError {
  const { createdAt, body } = sent
  return Object.assign(named<unknown>(), {
    name,
    ...(typeof createdAt === 'string' && { createdAt }),
    tags: textMap(sent['tags']),
    ...(typeof body === 'string' && { body }),
    ...rest(sent, errorKeys),
  })
}

/** Reads the payload of `alerts`, as a list or keyed by name. */
export function readAlerts(sent: unknown): readonly Alert[] | undefined {
  return readEntries(sent, readAlert)
}

/** Reads the payload of `errors`, as a list or keyed by name. */
export function readErrors(sent: unknown): readonly VehicleError[] | undefined {
  return readEntries(sent, readError)
}
