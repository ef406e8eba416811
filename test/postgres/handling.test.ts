/* Processes of one schema with different handlers: a message is handled by one process, which must have all of them. */
import { join } from 'node:path'
import { createReceiver, type Log, type Receiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { beforeEach, describe, expect, test } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { hasPostgres } from '../once/servers.ts'
import { programCommand } from '../runtimes/targets.ts'
import type { HandlingSettings } from './handling-program.ts'
import { bodyOf, post, sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('processes of one schema', () => {
  const scene = sceneOfFile()
  let number = 0
  let schema = ''
  beforeEach(async () => {
    schema = `handling${++number}`
    await scene.prepare(schema)
    await scene.pool.query(`CREATE TABLE ${schema}.written (handler text, n int)`)
  })

  interface Made extends AsyncDisposable {
    readonly receiver: Receiver
    /** Errors and warnings of the log. */
    readonly said: string[]
  }

  /** A receiver with these handlers, which leave marks. */
  function withHandlers(...handlers: readonly string[]): Made {
    const said: string[] = []
    const note = (message: string, details?: object): void => void said.push(`${message} ${JSON.stringify(details)}`)
    const log: Log = { debug: () => {}, info: () => {}, warn: note, error: note }
    const inbox = postgresInbox({ db: scene.newPool(), schema, leaseMs: 2_000 })
    const exactly = inbox.exactlyOnce(scene.newPool())
    const receiver = createReceiver({ secret: false, inbox, log })
    for (const name of handlers)
      receiver.on(
        'data',
        exactly(name, (event, _context, tx) =>
          tx.query(`INSERT INTO ${schema}.written VALUES ($1, $2)`, [name, Number(event.data.Odometer)]),
        ),
      )
    return { receiver, said, [Symbol.asyncDispose]: () => receiver[Symbol.asyncDispose]() }
  }

  const written = async (): Promise<readonly string[]> =>
    (
      await scene.pool.query<{ row: string }>(
        `SELECT handler || ' ' || n AS row FROM ${schema}.written ORDER BY handler, n`,
      )
    ).rows.map(({ row }) => row)
  const waiting = (): Promise<number> => scene.count(`${schema}.waiting`)
  /** The last sign of life of the process with this handler. */
  const sign = async (handler: string): Promise<unknown> =>
    (
      await scene.pool.query(`SELECT until::text FROM ${schema}.handling WHERE handlers LIKE '%handler ${handler}"%'`)
    ).rows
      .map(({ until }) => until)
      .join()
  const rowsOf = (handler: string, count: number, from = 0): readonly string[] =>
    Array.from({ length: count }, (_, n) => `${handler} ${from + n}`).toSorted(byNumber)
  const byNumber = (one: string, other: string): number => Number(one.split(' ')[1]) - Number(other.split(' ')[1])
  const postAll = (receiver: Receiver, count: number, from = 0): Promise<unknown> =>
    Promise.all(Array.from({ length: count }, (_, n) => post(receiver, from + n, from + n)))
  const loud = expect.stringContaining('this process handles nothing: it lacks handlers')

  test('a second service with other handlers takes nothing and says so, and no message is lost', async () => {
    await using first = withHandlers('trips')
    await first.receiver.open()
    for (const others of [[], ['billing']]) {
      await using second = withHandlers(...others)
      second.receiver.on('alerts', () => {})
      await second.receiver.open()
      expect(second.said).toContainEqual(loud)
      await expect
        .poll(() => first.said)
        .toContainEqual(expect.stringContaining('another process of this schema waits'))
      // It receives all the same.
      await postAll(second.receiver, 30, others.length * 30)
      await expect.poll(waiting).toBe(0)
    }
    expect((await written()).toSorted(byNumber)).toEqual(rowsOf('trips', 60))
  })

  test('a process without handlers beside one that has some settles nothing', async () => {
    await using idle = withHandlers()
    await idle.receiver.open()
    await using first = withHandlers('trips')
    await first.receiver.open()
    await expect.poll(() => idle.said).toContainEqual(loud)
    await postAll(idle.receiver, 30)
    await expect.poll(waiting).toBe(0)
    expect((await written()).toSorted(byNumber)).toEqual(rowsOf('trips', 30))
  })

  test('two plain handlers for the same fields count as two: a process with one of them settles nothing', async () => {
    const make = (count: number): Made => {
      const made = withHandlers()
      for (let nth = 1; nth <= count; nth += 1)
        made.receiver.on('data', ({ data: { Odometer } }) =>
          scene.pool.query(`INSERT INTO ${schema}.written VALUES ($1, $2)`, [`plain ${nth}`, Number(Odometer)]),
        )
      return made
    }
    await using both = make(2)
    await both.receiver.open()
    await using one = make(1)
    await one.receiver.open()
    await postAll(one.receiver, 20)
    await expect.poll(waiting).toBe(0)
    expect(await written()).toEqual([...rowsOf('plain 1', 20), ...rowsOf('plain 2', 20)])
    expect(one.said.join('\n')).toContain('data (handler 2)')
  })

  test('a version with one more handler takes over while the old one still runs', async () => {
    await using old = withHandlers('trips')
    await old.receiver.open()
    await using next = withHandlers('trips', 'billing')
    await next.receiver.open()
    await expect.poll(() => old.said).toContainEqual(loud)
    expect(next.said).not.toContainEqual(loud)
    await postAll(old.receiver, 20)
    await expect.poll(waiting).toBe(0)
    expect((await written()).toSorted(byNumber).filter((row) => row.startsWith('trips'))).toEqual(rowsOf('trips', 20))
    expect((await written()).filter((row) => row.startsWith('billing'))).toHaveLength(20)
  })

  test('a version with a renamed handler is ready at once, and handles when the old one has ended', async () => {
    const old = withHandlers('trips')
    await old.receiver.open()
    await using next = withHandlers('tours')
    await next.receiver.open()
    expect(next.receiver.readiness()).toEqual(expect.objectContaining({ ready: true }))
    await postAll(next.receiver, 20)
    await expect.poll(waiting).toBe(0)
    await old.receiver.drain()
    await postAll(next.receiver, 20, 20)
    await expect.poll(waiting).toBe(0)
    const rows = (await written()).toSorted(byNumber)
    expect(rows).toEqual([...rowsOf('trips', 20), ...rowsOf('tours', 20, 20)])
  })

  function start(...handlers: readonly string[]): Promise<Target> {
    const settings: HandlingSettings = { port: scene.server.port, schema, handlers }
    const program = join(import.meta.dirname, 'handling-program.ts')
    return spawnTarget(programCommand('node24', program, { SETTINGS: JSON.stringify(settings) }))
  }

  test('while the process that has the handlers is killed and comes back, another service takes nothing', async () => {
    const first = await start('trips')
    await using second = await start('billing')
    // Each sees the other live on: the first gives its next sign of life, and the second looks after it.
    for (const name of ['trips', 'billing']) {
      const before = await sign(name)
      await expect.poll(() => sign(name)).not.toBe(before)
    }
    await first.stop('SIGKILL')
    for (let n = 0; n < 20; n += 1) {
      const answer = await fetch(second.url, { method: 'POST', body: JSON.stringify(bodyOf(n, n)) })
      expect(answer.status).toBe(200)
    }
    // Longer than the leases, and than a process counts that has said that it ends.
    await scene.pool.query('SELECT pg_sleep(8)')
    expect(await waiting()).toBe(20)
    await using _again = await start('trips')
    await expect.poll(waiting).toBe(0)
    expect((await written()).toSorted(byNumber)).toEqual(rowsOf('trips', 20))
    expect(second.output.join('\n')).toContain('it lacks handlers')
  })
})
