/* Each template that keeps rows of a vehicle says how to export and to erase them, and its statements do. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { newFolder } from '../folder.ts'

const examples = fileURLToPath(new URL('../../examples', import.meta.url))
const [gone, stays] = ['0FLEETV14T0000GON', '0FLEETV14T0000STY']

/** The tables of a template with a column for the vehicle. */
function tablesOf(template: string): readonly string[] {
  const files = readdirSync(join(examples, template)).filter((name) => /(?<!\.test|\.d)\.(ts|sql)$/.test(name))
  return files.flatMap((name) => {
    const source = readFileSync(join(examples, template, name), 'utf8')
    const columns = /const columns =\s*'([^']+)'/.exec(source)?.[1] ?? ''
    const found = source.replaceAll('${columns}', columns).matchAll(/CREATE TABLE IF NOT EXISTS (\w+) \(([^;`]*)/g)
    return Array.from(found).flatMap(([, table = '', body = '']) => (/\bvin\b/.test(body) ? [table] : []))
  })
}

/** What its page says to run, in this order. */
function commandsOf(template: string): readonly string[] {
  const page = readFileSync(join(examples, template, 'README.md'), 'utf8')
  return /\n## Erase a customer\n[^]*?```sh\n([^]*?)\n```/.exec(page)?.[1]?.split('\n') ?? []
}

/** The statements of a command for `sqlite3`, `psql` or `wrangler`. */
const sqlOf = (command: string): readonly string[] =>
  Array.from(command.matchAll(/"((?:SELECT|DELETE|VACUUM|PRAGMA)[^"]*)"/g), ([, sql = '']) =>
    sql.replaceAll('<vin>', gone),
  )

const templates = readdirSync(examples).filter((name) => existsSync(join(examples, name, 'package.json')))
const keeping = templates.filter((name) => tablesOf(name).length > 0)

test('the templates that keep rows of a vehicle are these', () => {
  expect(keeping).toEqual([
    ...['charging-alerts', 'charging-sessions', 'customer-rules', 'geofence-alerts', 'logbook', 'nextjs'],
    ...['own-server', 'postgres', 'sqlite', 'trips', 'workers-storage'],
  ])
})

describe.each(keeping)('the page of %s', (template) => {
  const tables = tablesOf(template)
  const commands = commandsOf(template)
  const firstWith = (text: string): number => commands.findIndex((command) => command.includes(text))

  test('exports and then erases each of its tables, and what the inbox keeps, in between', () => {
    const forget = firstWith('npx fleethook forget --vin <vin>')
    // The inbox of this one is in memory.
    if (template !== 'workers-storage') expect(forget).toBeGreaterThan(0)
    for (const table of tables) {
      const [exported, erased] = [firstWith(`SELECT * FROM ${table} WHERE`), firstWith(`DELETE FROM ${table} WHERE`)]
      expect(exported, table).toBeGreaterThanOrEqual(0)
      expect(erased, table).toBeGreaterThan(Math.max(exported, forget))
    }
  })

  test.skipIf(!commands.some((command) => command.startsWith('sqlite3')))(
    'leaves no byte of the vehicle in its file while the server has it open, and each row of another vehicle',
    () => {
      const path = join(newFolder('erase'), 'rows.db')
      const server = new DatabaseSync(path)
      server.exec('PRAGMA journal_mode = WAL')
      for (const table of tables) {
        server.exec(`CREATE TABLE ${table} (key INTEGER PRIMARY KEY, vin TEXT, rest TEXT)`)
        const add = server.prepare(`INSERT INTO ${table} (vin, rest) VALUES (?, ?)`)
        for (let n = 0; n < 400; n += 1)
          for (const vin of [gone, stays]) add.run(vin, `${vin} `.repeat(1 + ((n * 37) % 61)))
        server.exec(`DELETE FROM ${table} WHERE key % 7 = 0`)
      }
      const other = new DatabaseSync(path)
      const exported: unknown[] = []
      for (const sql of commands.flatMap(sqlOf))
        if (sql.startsWith('SELECT')) exported.push(...other.prepare(sql).all())
        else other.exec(sql)
      expect(exported.length).toBeGreaterThan(300 * tables.length)
      expect(JSON.stringify(exported)).not.toContain(stays)
      for (const file of [path, `${path}-wal`]) expect(readFileSync(file, 'latin1')).not.toContain(gone)
      for (const table of tables)
        expect(server.prepare(`SELECT count(*) AS rows FROM ${table}`).get()?.['rows']).toBeGreaterThan(300)
      other.close()
      server.close()
    },
  )
})
