/* Connections that the server cuts, in a program without a listener of its own: they must not end its process. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { expect, onTestFinished, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { programCommand } from '../runtimes/targets.ts'
import type { CutSettings } from './cut-program.ts'
import { bodyOf, post, receiverOn, startScene } from './scene.ts'

const survives =
  'connections that are cut while idle, before there is a receiver or within a transaction end no process'
test.skipIf(!hasPostgres)(survives, async () => {
  await using scene = await startScene()
  await scene.prepare('cut')
  await scene.pool.query('CREATE TABLE cut.readings (n int)')
  const settings: CutSettings = { port: scene.server.port, schema: 'cut' }
  const { command, args, env } = programCommand('node24', join(import.meta.dirname, 'cut-program.ts'), {
    SETTINGS: JSON.stringify(settings),
  })
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: 'pipe' })
  const exited = once(child, 'exit')
  onTestFinished(() => void child.kill('SIGKILL'))
  let errors = ''
  child.stderr.on('data', (data) => (errors += String(data)))
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
  const cut = async (where: string): Promise<number> =>
    (
      await scene.pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name IN ('inbox', 'handlers') AND ${where}`,
      )
    ).rowCount ?? 0
  const count = (table: string): Promise<number> => scene.count(`cut.${table}`)

  expect(await lines.next(), errors).toEqual({ done: false, value: 'ready' })
  // Each pool has two, and no receiver has them.
  expect(await cut('true')).toBe(4)
  child.stdin.write('go\n')
  const { value } = await lines.next()
  const url = /http:\S+/.exec(String(value))?.[0] ?? ''
  expect(url, errors).toMatch(/^http:/)
  const statusOf = async (n: number): Promise<number> =>
    (await fetch(url, { method: 'POST', body: JSON.stringify(bodyOf(n, n)) })).status
  const statuses = await Promise.all(Array.from({ length: 40 }, (_, n) => statusOf(n)))
  expect(statuses).toEqual(statuses.map(() => 200))
  let inTransaction = 0
  while (inTransaction < 6 && (await count('waiting')) > 0)
    inTransaction += await cut(`application_name = 'handlers' AND state <> 'idle'`)
  await expect.poll(() => count('waiting'), { timeout: 60_000 }).toBe(0)
  expect(inTransaction).toBeGreaterThan(0)
  await expect.poll(() => cut(`state = 'idle'`)).toBeGreaterThan(0)
  expect(await statusOf(40)).toBe(200)
  await expect.poll(() => count('readings')).toBe(41)
  child.kill('SIGTERM')
  expect(await exited, errors).toEqual([0, null])
  const { rows } = await scene.pool.query('SELECT n FROM cut.readings ORDER BY n')
  expect(rows.map(({ n }) => n)).toEqual(Array.from({ length: 41 }, (_, n) => n))
})

test.skipIf(!hasPostgres)('a receiver starts on a pool all of whose connections were cut meanwhile', async () => {
  await using scene = await startScene()
  await scene.prepare('stale')
  const db = scene.newPool(6)
  const connect = db.connect.bind(db)
  let cuts = 0
  const stale = Object.assign(db, {
    async connect() {
      const connection = await connect()
      // One is cut before its first statement, and another one between two.
      if ([0, 1, 3, 4, 7, 9].includes(cuts++)) {
        const { rows } = await connection.query('SELECT pg_backend_pid() AS pid')
        await scene.pool.query('SELECT pg_terminate_backend($1, 10000)', [rows[0].pid])
      }
      return connection
    },
  })
  const { receiver } = receiverOn({ db: stale, schema: 'stale' })
  const seen: unknown[] = []
  receiver.on('data', (event) => void seen.push(event.data.Odometer))
  await receiver.open()
  expect(cuts).toBeGreaterThan(7)
  expect(await post(receiver, 1, 1)).toBe(200)
  await expect.poll(() => seen).toEqual([1])
  await receiver.drain()
})
