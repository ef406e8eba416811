/* `fleethook move`: an inbox file goes into the tables. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { type Clock, createReceiver, type GapEvent, type Receiver, type Vehicles, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import type { InboxFactory } from 'fleethook/extend'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock } from 'fleethook/testing'
import { becomes, is, starts } from 'fleethook/when'
import { beforeEach, describe, expect, test } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { endWithFile } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { bodyOf, post, receiverOn, sceneOfFile, vinOf } from './scene.ts'
import { newFolder } from '../folder.ts'

describe.skipIf(!hasPostgres)('an inbox file that is moved into Postgres', () => {
  const scene = sceneOfFile()
  let folder = ''
  let path = ''
  let schema = ''
  let number = 0
  beforeEach(async () => {
    folder = newFolder('move')
    path = join(folder, 'inbox.db')
    schema = `move${++number}`
    await scene.prepare(schema)
  })

  /** A receiver on the file, whose handlers give up messages of vehicle 0 and never end those of others. */
  async function receiverOnFile(): Promise<Receiver> {
    const receiver = createReceiver({
      secret: false,
      log: quiet,
      inbox: sqliteInbox({ path, waitMs: 0 }),
      retry: { attempts: 1 },
    }).on('data', ({ vin }) => {
      if (vin === vinOf(0)) throw new Error('It is broken.')
      return new Promise(() => {})
    })
    await receiver.open()
    return receiver
  }

  function move(): ChildProcess {
    const database = `postgres://test@127.0.0.1:${scene.server.port}/postgres`
    const args = ['--no-warnings', 'adapters/cli/main.ts', 'move', path, '--schema', schema]
    const child = spawn(process.execPath, [...args, '--database', database, '--json'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    endWithFile(child)
    return child
  }

  async function moved(): Promise<{ readonly status: unknown; readonly said: unknown }> {
    const child = move()
    const parts: string[] = []
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (part) => void parts.push(String(part)))
    const [status]: unknown[] = await once(child, 'close')
    return { status, said: JSON.parse(parts.join('')) }
  }

  const rows = (table: string): Promise<number> => scene.count(`${schema}.${table}`)

  /** From now on, a part of a move waits for a lock when enough rows are there. */
  async function stopAt(): Promise<void> {
    await scene.pool.query(`CREATE TABLE ${schema}.stop (rows int)`)
    await scene.pool.query(`CREATE FUNCTION ${schema}.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF (SELECT count(*) FROM ${schema}.waiting) >= (SELECT rows FROM ${schema}.stop) THEN PERFORM pg_advisory_xact_lock_shared(7); END IF;
  RETURN NULL; END $$`)
    await scene.pool.query(
      `CREATE TRIGGER wait BEFORE INSERT ON ${schema}.waiting FOR EACH STATEMENT EXECUTE FUNCTION ${schema}.wait()`,
    )
  }

  /** Kills a move when this number of rows has waited. */
  async function killedAfter(count: number): Promise<void> {
    await scene.pool.query(`TRUNCATE ${schema}.stop`)
    await scene.pool.query(`INSERT INTO ${schema}.stop VALUES ($1)`, [count])
    const locker = await scene.pool.connect()
    await locker.query('SELECT pg_advisory_lock(7)')
    const child = move()
    const ended = once(child, 'close')
    const stands = `SELECT FROM pg_stat_activity WHERE wait_event = 'advisory'`
    await expect.poll(async () => (await locker.query(stands)).rowCount, { timeout: 60_000 }).toBe(1)
    child.kill('SIGKILL')
    await ended
    // Postgres commits this part, and the file does not know it.
    const before = await rows('waiting')
    await locker.query('SELECT pg_advisory_unlock(7)')
    locker.release()
    await expect.poll(() => rows('waiting')).toBeGreaterThan(before)
  }

  test('what waits for a branch stays in the file, and the command says so', async () => {
    const before = createReceiver({ secret: false, log: quiet, inbox: sqliteInbox({ path, waitMs: 0 }) }).on(
      'data',
      () => {},
    )
    branch(before, { name: 'crm' }).on('data', () => new Promise(() => {}))
    await before.open()
    for (let n = 0; n < 3; n += 1) expect(await post(before, n, n)).toBe(200)
    await expect.poll(() => before.stats().handled).toBe(3)
    await before.drain({ handlerGraceMs: 0 })
    const left = [{ branch: 'crm', messages: 3, deadLetters: 0 }]
    for (let times = 0; times < 2; times += 1)
      expect(await moved()).toMatchObject({ status: 0, said: { messages: 0, left } })
  })

  test('waiting messages in order, dead letters and gaps are handled from there', async () => {
    const before = await receiverOnFile()
    for (let n = 0; n < 40; n += 1) expect(await post(before, n % 4, n)).toBe(200)
    await expect.poll(() => before.stats().deadLettered).toBe(10)
    expect(await moved()).toMatchObject({ status: 1, said: { error: { code: 'inbox_locked' } } })
    await before.drain({ handlerGraceMs: 0 })

    expect(await moved()).toMatchObject({ status: 0, said: { messages: 30, deadLetters: 10, vehicles: 0 } })
    expect(await moved()).toMatchObject({ status: 0, said: { messages: 0, deadLetters: 0 } })
    expect([await rows('waiting'), await rows('dead')]).toEqual([30, 10])

    const numbers: number[] = []
    const gaps: GapEvent[] = []
    const { receiver } = receiverOn({ db: scene.newPool(), schema })
    receiver.on('data', ({ data }) => void numbers.push(Number(data.Odometer))).on('gap', (gap) => void gaps.push(gap))
    await receiver.open()
    await expect.poll(() => numbers.length).toBe(30)
    for (let vehicle = 1; vehicle < 4; vehicle += 1)
      expect(numbers.filter((n) => n % 4 === vehicle)).toEqual(Array.from({ length: 10 }, (_, at) => vehicle + 4 * at))
    expect(await receiver.deadLetters.replay({})).toBe(10)
    await expect.poll(() => numbers.slice(30)).toEqual(Array.from({ length: 10 }, (_, at) => 4 * at))
    // One of the time without a receiver before the move, and one of the time after it.
    await expect.poll(() => new Set(gaps.map(({ reason }) => reason))).toContain('stopped')
    await receiver.drain()
  })

  test('a move that is killed moves the rest the next time, and nothing twice', async () => {
    const before = await receiverOnFile()
    const count = 6_000
    const vehicles = 20
    await Promise.all(
      Array.from({ length: count }, (_, n) =>
        before.accept({ authorization: undefined, body: bodyOf(1 + (n % vehicles), n) }),
      ),
    )
    await before.drain({ handlerGraceMs: 0 })
    await stopAt()
    for (let round = 1; round <= inForm({ short: 2, full: 4 }); round += 1) {
      await killedAfter(1_000 * round)
    }
    await scene.pool.query(`DROP TRIGGER wait ON ${schema}.waiting`)
    expect(await moved()).toMatchObject({ status: 0 })
    const { rows: kept } = await scene.pool.query<{ text: string }>(
      `SELECT m.text FROM ${schema}.waiting w JOIN ${schema}.message m USING (id) ORDER BY w.seq`,
    )
    const numbers = kept.map(({ text }) => Number(/"Odometer":(\d+)/.exec(text)?.[1]))
    expect(new Set(numbers).size).toBe(count)
    expect(numbers.length).toBe(count)
    for (let vehicle = 0; vehicle < vehicles; vehicle += 1) {
      const own = numbers.filter((n) => n % vehicles === vehicle)
      expect(own).toEqual(own.toSorted((one, other) => one - other))
    }
  })

  test('what a killed move has moved does not come back when it was handled and deleted meanwhile', async () => {
    const before = await receiverOnFile()
    await Promise.all(
      Array.from({ length: 1_200 }, (_, n) =>
        before.accept({ authorization: undefined, body: bodyOf(1 + (n % 20), n) }),
      ),
    )
    await before.drain({ handlerGraceMs: 0 })
    await stopAt()
    await killedAfter(500)
    const there = await rows('waiting')
    await scene.pool.query(`DELETE FROM ${schema}.waiting`)
    await scene.pool.query(`DELETE FROM ${schema}.message`)
    await scene.pool.query(`DROP TRIGGER wait ON ${schema}.waiting`)
    expect(await moved()).toMatchObject({ status: 0, said: { messages: 1_200 - there } })
    expect([await rows('waiting'), await rows('moved')]).toEqual([1_200 - there, 0])
  })

  test('rules go on with the states and the timers of the file', async () => {
    const [from, to]: [unknown[], unknown[]] = [[], []]
    const ruled = (inbox: InboxFactory, told: unknown[], clock: Clock): Receiver & { readonly vehicles: Vehicles } =>
      createReceiver({ secret: false, log: quiet, inbox, clock, parts: [vehicles({ fields: ['Gear', 'Locked'] })] })
        .when(becomes('Gear', 'P'), ({ change }) => void told.push(`${String(change.from)}>P`))
        .when(
          starts(is('Locked', false)).after({ seconds: 1 }),
          ({ change }) => void told.push(`unlocked, ${change.acrossGap}`),
        )
    const gear = (Gear: string, clock: Clock): object => ({
      vin: vinOf(1),
      createdAt: new Date(clock.now()).toISOString(),
      data: { Gear, Locked: false },
    })
    const accept = async (receiver: Receiver, body: object): Promise<void> => {
      expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
    }
    // Nothing is due before the move, however long it takes.
    const still = fakeClock(Date.now())
    const before = ruled(sqliteInbox({ path, waitMs: 0 }), from, still)
    await before.open()
    await accept(before, { ...gear('D', still), data: { Gear: 'D', Locked: true } })
    await accept(before, gear('D', still))
    await expect.poll(() => before.stats().pending.messages, { interval: 5 }).toBe(0)
    await before.drain()
    expect(await moved()).toMatchObject({ status: 0, said: { vehicles: 1 } })
    expect(await moved()).toMatchObject({ status: 0, said: { vehicles: 0 } })
    const after = ruled(postgresInbox({ db: scene.newPool(), schema, leaseMs: 3_000 }), to, systemClock)
    await after.open()
    const car = await after.vehicles.get(vinOf(1))
    expect([car?.value('Gear'), car?.seenAt instanceof Date]).toEqual(['D', true])
    await expect.poll(() => to).toEqual(['unlocked, true'])
    await accept(after, gear('P', systemClock))
    await expect.poll(() => to).toEqual(['unlocked, true', 'D>P'])
    expect(from).toEqual([])
    await after.drain()
  })

  test('a path without an inbox is one clear error, and no file', async () => {
    path = join(folder, 'nothing.db')
    expect(await moved()).toMatchObject({ status: 1, said: { error: { code: 'inbox_unavailable' } } })
    expect(await rows('waiting')).toBe(0)
  })
})
