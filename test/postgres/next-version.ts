// Preloaded by a process: its code is that of the next version of the tables, and refuses those of this one.
import { registerHooks } from 'node:module'

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context)
    if (!url.endsWith('/adapters/inbox/postgres/schema.ts')) return loaded
    const before = String(loaded.source)
    const source = before.replace(/(?<=export const schemaVersion = )\d+/, (version) => String(Number(version) + 1))
    if (source === before) throw new Error('The version of the tables has another name by now.')
    return { ...loaded, source }
  },
})
