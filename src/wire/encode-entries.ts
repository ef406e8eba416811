import { named, type Named } from './named.ts'
import type { JsonObject } from './record.ts'

interface Entry {
  readonly name: string
  readonly [key: string]: unknown
}

function withoutName(entry: Entry): JsonObject {
  const rest = named<unknown>()
  for (const key of Object.keys(entry)) if (key !== 'name') rest[key] = entry[key]
  return rest
}

/**
 * Alerts or errors keyed by name, as the service sends them: the value is one entry, or a list of those with that name.
 * A list of all when their order would not survive the keys.
 */
export function encodeEntries(entries: readonly Entry[]): unknown {
  const byName: Named<JsonObject[]> = named()
  for (const entry of entries) (byName[entry.name] ??= []).push(withoutName(entry))
  const names = Object.keys(byName)
  const order = names.flatMap((name) => (byName[name] ?? []).map(() => name))
  if (entries.some((entry, index) => entry.name !== order[index])) return entries
  const keyed = named<unknown>()
  for (const name of names) {
    const list = byName[name] ?? []
    keyed[name] = list.length === 1 ? list[0] : list
  }
  return keyed
}
