/* `fleethook move`: an inbox file goes into the tables. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { type Clock, createReceiver, type GapEvent, type Receiver, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import type { InboxFactory } from 'fleethook/extend'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock } from 'fleethook/testing'
import { becomes, is, starts } from 'fleethook/when'
import { beforeEach, describe, expect, test } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { endWithFile } from '../conformance/spawn.ts'
import { logInto } from '../dispatch/scene.ts'
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

  /** A receiver on the file that handles everything, beside a branch that gives up messages of vehicle 0 and never ends others. */
  async function branchesOnFile(...names: readonly string[]): Promise<Receiver> {
    const receiver = createReceiver({ secret: false, log: quiet, inbox: sqliteInbox({ path, waitMs: 0 }) })
    receiver.on('data', () => {})
    for (const name of names)
      branch(receiver, { name, retry: { attempts: 1 } }).on('data', ({ vin }) => {
        if (vin === vinOf(0)) throw new Error('It is broken.')
        return new Promise(() => {})
      })
    await receiver.open()
    return receiver
  }

  /** The numbers that wait in a table, in its order. */
  async function waitingIn(table: string): Promise<readonly number[]> {
    const { rows: kept } = await scene.pool.query<{ text: string }>(
      `SELECT m.text FROM ${schema}.${table} w JOIN ${schema}.message m USING (id) WHERE m.kind = 'wire' ORDER BY w.seq`,
    )
    return kept.map(({ text }) => Number(/"Odometer":(\d+)/.exec(text)?.[1]))
  }

  test('what waits for branches moves in order, with its dead letters, also of a branch that nobody has there', async () => {
    const before = await branchesOnFile('crm', 'old')
    for (let n = 0; n < 40; n += 1) expect(await post(before, n % 4, n)).toBe(200)
    const dead = () => Object.values(before.stats().branches ?? {}).map(({ deadLettered }) => deadLettered)
    await expect.poll(dead).toEqual([10, 10])
    await expect.poll(() => before.stats().pending.messages).toBe(0)
    await before.drain({ handlerGraceMs: 0 })

    const each = { messages: 30, deadLetters: 10, vehicles: 0 }
    const branches = [
      { branch: 'crm', ...each },
      { branch: 'old', ...each },
    ]
    expect(await moved()).toMatchObject({ status: 0, said: { messages: 0, deadLetters: 0, branches } })
    expect(await moved()).toMatchObject({ status: 0, said: { messages: 0, deadLetters: 0, branches: [] } })
    expect([await rows('message'), await rows('waiting'), await rows('dead')]).toEqual([40, 0, 0])

    const lines: string[] = []
    const numbers: number[] = []
    const seenByReceiver: unknown[] = []
    const inbox = postgresInbox({ db: scene.newPool(), schema, leaseMs: 3_000 })
    const receiver = createReceiver({ secret: false, inbox, log: logInto(lines) }).on(
      'data',
      (event) => void seenByReceiver.push(event),
    )
    const crm = branch(receiver, { name: 'crm' }).on('data', ({ data }) => void numbers.push(Number(data.Odometer)))
    await receiver.open()
    await expect.poll(() => numbers.length).toBe(30)
    for (let vehicle = 1; vehicle < 4; vehicle += 1)
      expect(numbers.filter((n) => n % 4 === vehicle)).toEqual(Array.from({ length: 10 }, (_, at) => vehicle + 4 * at))
    expect(await crm.deadLetters.replay({})).toBe(10)
    await expect.poll(() => numbers.slice(30)).toEqual(Array.from({ length: 10 }, (_, at) => 4 * at))
    expect(lines.join('\n')).toContain('30 messages and 10 dead letters wait for the branch old')
    await receiver.drain()
    expect([seenByReceiver, await waitingIn('branch_2_waiting')]).toEqual([
      [],
      Array.from({ length: 40 }, (_, n) => n).filter((n) => n % 4 > 0),
    ])
  })

  test('tries and the last failure of a message move, and a gap of a branch is only for that branch', async () => {
    const before = createReceiver({
      secret: false,
      log: quiet,
      inbox: sqliteInbox({ path, waitMs: 0 }),
      retry: { minMs: 3_600_000, maxMs: 3_600_000 },
    }).on('data', () => Promise.reject(new Error('No, of the receiver.')))
    branch(before, {
      name: 'crm',
      limits: { pendingMessages: 1 },
      retry: { minMs: 3_600_000, maxMs: 3_600_000 },
    })
      .on('data', () => Promise.reject(new Error('No, of crm.')))
      .on('gap', () => Promise.reject(new Error('No.')))
    await before.open()
    for (let n = 1; n < 3; n += 1) expect(await post(before, n, n)).toBe(200)
    const failing = () =>
      [before.stats().failing, before.stats().branches?.['crm']?.failing].map((each) => each?.messages)
    await expect.poll(failing).toEqual([2, 1])
    await before.drain({ handlerGraceMs: 0 })
    expect(await moved()).toMatchObject({
      status: 0,
      said: { messages: 2, branches: [{ branch: 'crm', messages: 1 }] },
    })
    const tried = await scene.pool.query(
      `SELECT attempts, not_before > 0 AS waits, error FROM ${schema}.waiting WHERE attempts > 0
UNION ALL SELECT attempts, not_before > 0, error FROM ${schema}.branch_1_waiting WHERE attempts > 0`,
    )
    const failed = { attempts: 1, waits: true }
    expect(tried.rows).toMatchObject([failed, failed, failed])
    expect(tried.rows.map(({ error }) => String(error))).toEqual([
      expect.stringContaining('No, of the receiver.'),
      expect.stringContaining('No, of the receiver.'),
      expect.stringContaining('No, of crm.'),
    ])

    // One that lacks the branch takes over what the file left.
    const lacking = receiverOn({ db: scene.newPool(), schema }).receiver
    await lacking.open()
    await expect.poll(() => rows('receiver')).toBe(1)
    await lacking.drain()
    const gaps: string[] = []
    const inbox = postgresInbox({ db: scene.newPool(), schema, leaseMs: 3_000 })
    const after = createReceiver({ secret: false, log: quiet, inbox }).on('gap', ({ reason }) => void gaps.push(reason))
    branch(after, { name: 'crm' }).on('gap', ({ reason }) => void gaps.push(`crm ${reason}`))
    await after.open()
    await expect.poll(() => gaps).toContain('crm inbox_full')
    expect(gaps).not.toContain('inbox_full')
    await after.drain()
  })

  test('what the file dropped is told there, and no more by the file', async () => {
    const before = await branchesOnFile('crm')
    await before.drain({ handlerGraceMs: 0 })
    const holes = (sql: string): readonly unknown[] => {
      using file = new DatabaseSync(path)
      return file.prepare(sql).all()
    }
    holes(
      "INSERT INTO holes (reason, from_ms, to_ms, missed, reader) VALUES ('inbox_expired', 1, 2, 3, 0), ('inbox_expired', 1, 2, 4, 1)",
    )
    expect(await moved()).toMatchObject({ status: 0 })
    const { rows: signs } = await scene.pool.query<{ gaps: string }>(`SELECT gaps FROM ${schema}.receiver`)
    const gaps: unknown[] = signs.flatMap((sign) => JSON.parse(sign.gaps))
    expect(gaps).toContainEqual(expect.objectContaining({ reason: 'inbox_expired', missed: 3 }))
    expect(gaps).toContainEqual(expect.objectContaining({ reason: 'inbox_expired', missed: 4, branch: 'crm' }))
    expect(holes("SELECT * FROM holes WHERE reason = 'inbox_expired'")).toEqual([])
  })

  test('what a branch made for itself stays its own', async () => {
    const started = async (...names: readonly string[]): Promise<Receiver> => {
      const receiver = createReceiver({ secret: false, log: quiet, inbox: sqliteInbox({ path, waitMs: 0 }) })
      for (const name of names) branch(receiver, { name }).on('gap', () => new Promise(() => {}))
      await receiver.open()
      return receiver
    }
    for (const names of [['crm'], [], ['crm']]) {
      const receiver = await started(...names)
      expect(await post(receiver, 1, 1)).toBe(200)
      await expect.poll(() => receiver.stats().pending.messages).toBe(0)
      await receiver.drain({ handlerGraceMs: 0 })
    }
    expect(await moved()).toMatchObject({ status: 0 })
    const own = `SELECT m.kind FROM ${schema}.branch_1_waiting w JOIN ${schema}.message m USING (id) WHERE m.branch = 1`
    expect((await scene.pool.query(own)).rows).toEqual([{ kind: 'gap' }])
  })

  test('a branch that the file does not know gets what waits for the receiver, as of any new message', async () => {
    const before = await receiverOnFile()
    for (let n = 0; n < 8; n += 1) expect(await post(before, n % 4, n)).toBe(200)
    await expect.poll(() => before.stats().deadLettered).toBe(2)
    await before.drain({ handlerGraceMs: 0 })
    await scene.pool.query(`INSERT INTO ${schema}.branch VALUES (3, 'crm', 1, NULL), (4, 'gone', 1, 2)`)
    expect(await moved()).toMatchObject({ status: 0, said: { messages: 6, deadLetters: 2, branches: [] } })
    expect(await waitingIn('branch_3_waiting')).toEqual(await waitingIn('waiting'))
    expect([await rows('branch_3_waiting'), await rows('branch_4_waiting')]).toEqual([6, 0])
  })

  test('nothing moves when the tables have no room for the branches of the file', async () => {
    const before = await branchesOnFile('crm', 'old')
    expect(await post(before, 1, 1)).toBe(200)
    await before.drain({ handlerGraceMs: 0 })
    await scene.pool.query(`INSERT INTO ${schema}.branch SELECT n, 'b' || n, 1, NULL FROM generate_series(1, 6) n`)
    expect(await moved()).toMatchObject({ status: 1, said: { error: { code: 'inbox_unsupported' } } })
    expect([await rows('branch'), await rows('message')]).toEqual([6, 0])
    await scene.pool.query(`DELETE FROM ${schema}.branch WHERE number = 6`)
    expect(await moved()).toMatchObject({ status: 0, said: { branches: [{ branch: 'crm' }, { branch: 'old' }] } })
    expect(await rows('message')).toBe(1)
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

  test.each([
    ['of the receiver', 'waiting'],
    ['of a branch too', 'branch_1_waiting'],
  ])('a move that is killed moves the rest the next time, and nothing twice: %s', async (_what, table) => {
    const before = await receiverOnFile()
    const isOfBranch = table !== 'waiting'
    // It has handled every second vehicle.
    if (isOfBranch)
      branch(before, { name: 'crm' }).on('data', ({ data }) =>
        Number(data.Odometer) % 2 === 0 ? undefined : new Promise(() => {}),
      )
    const count = 6_000
    const vehicles = 20
    await Promise.all(
      Array.from({ length: count }, (_, n) =>
        before.accept({ authorization: undefined, body: bodyOf(1 + (n % vehicles), n) }),
      ),
    )
    if (isOfBranch) await expect.poll(() => before.stats().branches?.['crm']?.handled).toBe(count / 2)
    await before.drain({ handlerGraceMs: 0 })
    await stopAt()
    for (let round = 1; round <= inForm({ short: 2, full: 4 }); round += 1) {
      await killedAfter(1_000 * round)
    }
    await scene.pool.query(`DROP TRIGGER wait ON ${schema}.waiting`)
    expect(await moved()).toMatchObject({ status: 0 })
    const { rows: signs } = await scene.pool.query<{ gaps: string }>(`SELECT gaps FROM ${schema}.receiver`)
    expect(signs.filter(({ gaps }) => gaps.includes('crm'))).toEqual([])
    for (const [at, share] of isOfBranch ? [['waiting', 1] as const, [table, 2] as const] : [[table, 1] as const]) {
      const numbers = await waitingIn(at)
      expect(new Set(numbers).size).toBe(count / share)
      expect(numbers.length).toBe(count / share)
      for (let vehicle = 0; vehicle < vehicles; vehicle += 1) {
        const own = numbers.filter((n) => n % vehicles === vehicle)
        expect(own).toEqual(own.toSorted((one, other) => one - other))
      }
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

  test.each(['the receiver', 'a branch'])('rules of %s go on with its states and timers of the file', async (by) => {
    const [from, to]: [unknown[], unknown[]] = [[], []]
    const ruled = (inbox: InboxFactory, told: unknown[], clock: Clock) => {
      const parts = [vehicles({ fields: ['Gear', 'Locked'] })]
      const receiver = createReceiver({ secret: false, log: quiet, inbox, clock, parts })
      const parked = (from: unknown): void => void told.push(`${String(from)}>P`)
      const unlocked = (acrossGap: unknown): void => void told.push(`unlocked, ${String(acrossGap)}`)
      const stays = starts(is('Locked', false)).after({ seconds: 1 })
      if (by === 'the receiver') {
        receiver
          .when(becomes('Gear', 'P'), ({ change }) => parked(change.from))
          .when(stays, ({ change }) => unlocked(change.acrossGap))
        return { receiver, own: receiver }
      }
      const crm = branch(receiver, { name: 'crm', parts })
        .when(becomes('Gear', 'P'), ({ change }) => parked(change.from))
        .when(stays, ({ change }) => unlocked(change.acrossGap))
      return { receiver, own: crm }
    }
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
    await before.receiver.open()
    await accept(before.receiver, { ...gear('D', still), data: { Gear: 'D', Locked: true } })
    await accept(before.receiver, gear('D', still))
    await expect.poll(() => before.own.stats().pending.messages, { interval: 5 }).toBe(0)
    await before.receiver.drain()
    const movedVehicles = async (): Promise<unknown> => {
      const { said } = await moved()
      const { branches = [], ...own }: { readonly branches?: readonly unknown[] } = Object(said)
      return by === 'a branch' ? branches : [own]
    }
    expect(await movedVehicles()).toMatchObject([{ vehicles: 1 }])
    expect(await movedVehicles()).toMatchObject(by === 'a branch' ? [] : [{ vehicles: 0 }])
    const after = ruled(postgresInbox({ db: scene.newPool(), schema, leaseMs: 3_000 }), to, systemClock)
    await after.receiver.open()
    const { rows: states } = await scene.pool.query(
      `SELECT vin, text, seen_at > 0 AS seen FROM ${schema}.${by === 'a branch' ? 'branch_1_' : ''}vehicle`,
    )
    expect(states).toMatchObject([{ vin: vinOf(1), text: expect.stringContaining('"Gear":["D"'), seen: true }])
    await expect.poll(() => to).toEqual(['unlocked, true'])
    await accept(after.receiver, gear('P', systemClock))
    await expect.poll(() => to).toEqual(['unlocked, true', 'D>P'])
    expect(from).toEqual([])
    await after.receiver.drain()
  })

  test('a path without an inbox is one clear error, and no file', async () => {
    path = join(folder, 'nothing.db')
    expect(await moved()).toMatchObject({ status: 1, said: { error: { code: 'inbox_unavailable' } } })
    expect(await rows('waiting')).toBe(0)
  })
})
