/* Tables of a newer version, and processes of the code before it: replaced one by one, and nothing is refused. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { oldestVersion, schemaStatements, schemaVersion } from '../../adapters/inbox/postgres/schema.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { hasPostgres } from '../once/servers.ts'
import { programCommand } from '../runtimes/targets.ts'
import { createLedger } from './ledger.ts'
import { bodyOf, type Scene, startScene } from './scene.ts'

const fileOf = (version: number): string => join(import.meta.dirname, `schemas/${version}.sql`)
const first = 3

describe('the tables', () => {
  test('are those of the file of their version: whoever changes them gives them a new version', async () => {
    const now = `${schemaStatements('inbox').join(';\n')};\n`
    await expect(now).toMatchFileSnapshot(fileOf(schemaVersion))
  })

  test('work with the code of the version before', () => {
    expect(oldestVersion).toBeLessThanOrEqual(Math.max(first, schemaVersion - 1))
    for (let version = first; version <= schemaVersion; version += 1)
      expect(existsSync(fileOf(version)), `test/postgres/schemas/${version}.sql`).toBe(true)
  })
})

/** What a newer version may not take away or ask for. */
interface Shape {
  readonly columns: ReadonlyMap<string, { readonly type: string; readonly isNeeded: boolean }>
  readonly rules: ReadonlySet<string>
}

async function shapeOf({ pool }: Scene, schema: string): Promise<Shape> {
  const { rows } = await pool.query<{ name: string; type: string; needed: boolean }>(
    `SELECT table_name || '.' || column_name AS name, data_type AS type,
  is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO' AS needed
FROM information_schema.columns WHERE table_schema = $1`,
    [schema],
  )
  const rules = await pool.query<{ rule: string }>(
    `SELECT c.conrelid::regclass::text || ' ' || pg_get_constraintdef(c.oid) AS rule FROM pg_constraint c
WHERE c.connamespace = $1::regnamespace AND c.contype <> 'n'
UNION SELECT indexrelid::regclass::text || ' is unique' FROM pg_index WHERE indisunique AND indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = $1::regnamespace)`,
    [schema],
  )
  return {
    columns: new Map(rows.map(({ name, type, needed }) => [name, { type, isNeeded: needed }])),
    rules: new Set(rules.rows.map(({ rule }) => rule)),
  }
}

/** Why code that knows `before` does not work with `after`. */
function problemsOf(before: Shape, after: Shape): readonly string[] {
  const tables = new Set([...before.columns.keys()].map((name) => name.split('.')[0]))
  const gone = [...before.columns].flatMap(([name, { type }]) =>
    after.columns.get(name)?.type === type ? [] : [`${name} is gone, or has another type`],
  )
  const needed = [...after.columns].flatMap(([name, { isNeeded }]) =>
    isNeeded && before.columns.get(name)?.isNeeded !== true && tables.has(name.split('.')[0])
      ? [`${name} is needed in each new row`]
      : [],
  )
  const rules = [...after.rules].filter(
    (rule) => !before.rules.has(rule) && tables.has(/\.(\w+?)(_| )/.exec(rule)?.[1]),
  )
  return [...gone, ...needed, ...rules.map((rule) => `a new rule: ${rule}`)]
}

describe.skipIf(!hasPostgres)('on a server', () => {
  let scene: Scene
  beforeAll(async () => void (scene = await startScene()))
  afterAll(() => scene[Symbol.asyncDispose]())

  const inTransaction = (sql: string): Promise<unknown> => scene.pool.query(`BEGIN;\n${sql}\nCOMMIT`)

  test('each version since the third keeps what the code before it uses, and asks for no more', async () => {
    await inTransaction(readFileSync(fileOf(first), 'utf8'))
    for (let version = first + 1; version <= schemaVersion; version += 1) {
      const before = await shapeOf(scene, 'inbox')
      await inTransaction(readFileSync(fileOf(version), 'utf8'))
      expect(problemsOf(before, await shapeOf(scene, 'inbox')), `version ${version}`).toEqual([])
    }
    expect((await shapeOf(scene, 'inbox')).columns.size).toBeGreaterThan(40)
  })

  test.each([
    ['ALTER TABLE control.waiting DROP COLUMN done', 'waiting.done is gone, or has another type'],
    ['ALTER TABLE control.message ADD COLUMN size int NOT NULL', 'message.size is needed in each new row'],
    ['ALTER TABLE control.dead ADD CHECK (attempts > 0)', 'a new rule: control.dead CHECK ((attempts > 0))'],
  ])('control: finds %s', async (change, problem) => {
    await scene.prepare('control')
    const before = await shapeOf(scene, 'control')
    await scene.pool.query(change)
    expect(problemsOf(before, await shapeOf(scene, 'control'))).toEqual([problem])
    await scene.pool.query('DROP SCHEMA control CASCADE')
  })

  test('under load, processes are replaced one by one after the tables were updated, and none refuses', async () => {
    const schema = 'rolling'
    await scene.prepare(schema)
    const { pool, server } = scene
    await using ledger = await createLedger({ pool, schema, port: server.port, leaseMs: 1_500 })
    const started = async (isNext: boolean, mode: 'receive' | 'single'): Promise<Target> => {
      const SETTINGS = JSON.stringify({ port: server.port, schema, leaseMs: 1_500, mode })
      const NODE_OPTIONS = isNext ? `--import ${join(import.meta.dirname, 'next-version.ts')}` : ''
      return spawnTarget(programCommand('node24', join(import.meta.dirname, 'program.ts'), { SETTINGS, NODE_OPTIONS }))
    }
    const running = await Promise.all([
      ...[started(false, 'receive'), started(false, 'receive')],
      ...[started(false, 'single'), started(false, 'single')],
    ])
    const statuses = new Map<number, number>()
    const over = new AbortController()
    let posted = 0
    const load = (async () => {
      while (!over.signal.aborted) {
        posted += 1
        const to = running[posted % 2]
        const body = JSON.stringify(bodyOf(posted % 20, posted))
        const { status } = await fetch(to?.url ?? '', { method: 'POST', body })
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
    })()
    await ledger.grows(200)
    // What the next version adds, while all processes are of the code before it.
    await inTransaction(
      `SET LOCAL lock_timeout = '5s'; ALTER TABLE ${schema}.message ADD COLUMN next text; ALTER TABLE ${schema}.waiting ADD COLUMN next text;
UPDATE ${schema}.meta SET version = ${schemaVersion + 1}, oldest = ${schemaVersion};`,
    )
    await ledger.grows(200)
    // One of the old code that has to start again in the meantime does.
    for (const [place, isNext, mode] of [
      ...([
        [0, false, 'receive'],
        [2, false, 'single'],
      ] as const),
      ...([
        [0, true, 'receive'],
        [1, true, 'receive'],
        [2, true, 'single'],
        [3, true, 'single'],
      ] as const),
    ]) {
      const old = running[place]
      running[place] = await started(isNext, mode)
      expect(await old?.stop()).toEqual({ status: 0, signal: null })
      await ledger.grows(100)
    }
    over.abort()
    await load
    await ledger.isDone()
    await Promise.all(running.map((target) => target.stop()))
    expect(Object.fromEntries(statuses)).toEqual({ 200: posted })
    const rows = await ledger.rows()
    expect(rows.length).toBe(posted)
    expect(new Set(rows.map(({ n }) => n)).size).toBe(posted)
  })
})
