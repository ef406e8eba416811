import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { expected } from './everywhere-expected.ts'
import { fields, gapNow, lineOf, rules, script, vins } from './everywhere.ts'
import { silent } from './scene.ts'
import { newFolder } from '../folder.ts'

const lines = script(inForm({ short: 150, full: 1_500 }), 7)
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

const folder = (): string => newFolder('rules')

const places: readonly (readonly [where: string, inbox: (path: string) => InboxFactory])[] = [
  ['in memory', () => memoryInbox()],
  ['in SQLite', (path) => sqliteInbox({ path })],
  ['in SQLite with a thread', (path) => sqliteInbox({ path, thread: true })],
]
/** Deno refuses the option `thread`. */
const here = 'deno' in process.versions ? places.slice(0, 2) : places

test.each(here)(
  'the same rules over the same messages find the same edges %s',
  { timeout: 180_000 },
  async (_, inbox) => {
    const path = folder()
    const found: Record<string, string[]> = Object.fromEntries(vins.map((vin) => [vin, []]))
    const ids = new Set<string>()
    const receiver = createReceiver({
      ...{ secret: false, log: silent, parts: [vehicles({ fields })] },
      inbox: inbox(join(path, 'inbox.db')),
    })
    for (const rule of rules)
      receiver.when(rule, (happening) => {
        found[happening.vin]?.push(lineOf(happening))
        ids.add(happening.id)
      })
    const settled = async (): Promise<void> => {
      while (receiver.stats().pending.messages > 0) await pause(1)
    }
    for (const line of lines) {
      if (!('gap' in line))
        expect((await receiver.accept({ authorization: undefined, body: line.body })).status).toBe(200)
      else {
        await settled()
        await receiver.from({ feed: async ({ tell }) => void (await tell(gapNow(line.gap))) })
        await settled()
        await pause(2)
      }
    }
    await settled()
    await receiver.drain()
    rmSync(path, { recursive: true, force: true })
    expect(found).toEqual(expected(lines))
    expect(ids.size).toBe(Object.values(found).flat().length)
  },
)

test('every rule finds something in the script, and some across gaps', () => {
  const all = Object.values(expected(script(1_500, 7))).flat()
  expect(rules.filter(({ name }) => !all.some((line) => line.startsWith(name)))).toEqual([])
  expect(all.filter((line) => line.endsWith('across a gap')).length).toBeGreaterThan(20)
})
