/* Rows that Postgres refuses, as it refuses a wrong value: the others of their statement are written. */
import { createReceiver, Retry, vehicles } from 'fleethook'
import { type PostgresClient, postgresInbox } from 'fleethook/inbox/postgres'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { data, logInto } from '../dispatch/scene.ts'
import { sceneOfFile } from './scene.ts'

const scene = sceneOfFile()

/** By the first letter of the VIN: refused are the message, that it waits for its next attempt, the error of its dead letter, and its state. */
type Kind = 'P' | 'U' | 'E' | 'S' | 'G' | 'R'

/**
 * What a trigger raises: its own states, those of values, and those that also mean that no such statement works, such as a missing right or table.
 */
const states = [
  ...['P0001', '45000', 'MY001', '22012', '23514', '0A000', '25006', '28000', '2F004'],
  ...['3F000', '42501', '42703', '42P01', '55000', 'F0000', 'HV000', 'P0002', 'XX000'],
]

/** Tables that refuse rows of some vehicles, with an SQLSTATE. */
async function strictTables(schema: string, state: string): Promise<void> {
  await scene.prepare(schema)
  await scene.pool.query(`
CREATE FUNCTION ${schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION 'refused for a test' USING ERRCODE = '${state}'; END $$;
CREATE FUNCTION ${schema}.refuse_try() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.attempts > 0 AND EXISTS (SELECT FROM ${schema}.message m WHERE m.id = NEW.id AND m.lane LIKE 'U%') THEN
    RAISE EXCEPTION 'refused for a test' USING ERRCODE = '${state}'; END IF;
  RETURN NEW; END $$;
CREATE TRIGGER p BEFORE INSERT ON ${schema}.message FOR EACH ROW WHEN (NEW.lane LIKE 'P%') EXECUTE FUNCTION ${schema}.refuse();
CREATE TRIGGER u BEFORE UPDATE ON ${schema}.waiting FOR EACH ROW EXECUTE FUNCTION ${schema}.refuse_try();
CREATE TRIGGER e BEFORE INSERT ON ${schema}.dead FOR EACH ROW WHEN (NEW.error LIKE '%unwritable%') EXECUTE FUNCTION ${schema}.refuse();
CREATE TRIGGER s BEFORE INSERT ON ${schema}.vehicle FOR EACH ROW WHEN (NEW.vin LIKE 'S%') EXECUTE FUNCTION ${schema}.refuse()`)
}

let schemas = 0

test('rows that Postgres refuses take no others with them: good messages are handled, and each of the others is refused alone or a dead letter', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc
        .array(fc.constantFrom<Kind>('G', 'G', 'P', 'U', 'E', 'S', 'R'), { minLength: 3, maxLength: 30 })
        // A handler that fails for five vehicles in a row rests, and its messages with it.
        .filter((kinds) => kinds.filter((kind) => kind === 'U' || kind === 'E').length < 5),
      async (kinds) => {
        schemas += 1
        const schema = `refused_${schemas}`
        await strictTables(schema, states[schemas % states.length] ?? '')
        const lines: string[] = []
        const handled = new Set<string>()
        const failed = new Set<string>()
        const receiver = createReceiver({
          secret: false,
          inbox: postgresInbox({ db: scene.newPool(), schema, leaseMs: 3_000 }),
          log: logInto(lines),
          retry: { attempts: 3, minMs: 1, maxMs: 1 },
          parts: [vehicles({ fields: ['Odometer'] })],
        })
        const handle = (vin: string): void => {
          const isFirst = !failed.has(vin)
          failed.add(vin)
          if (vin.startsWith('U')) throw new Error('again')
          if (vin.startsWith('R') && isFirst) throw Object.assign(new Retry(3), { afterMs: 3.33 })
          if (vin.startsWith('E')) throw new Error('unwritable')
          handled.add(vin)
        }
        // With one handler, its circuit breaker would open: here, most messages fail.
        for (let handler = 0; handler < 8; handler += 1)
          receiver.on('data', { vins: (vin) => Number(vin.slice(1)) % 8 === handler }, ({ vin }) => handle(vin))
        await receiver.open()
        const vins = kinds.map((kind, at) => `${kind}${at}`)
        const of = (kind: string): readonly string[] => vins.filter((vin) => vin.startsWith(kind))
        const answers = await Promise.all(
          vins.map((vin, at) => receiver.accept({ authorization: undefined, body: data(vin, at) })),
        )
        expect(vins.filter((_, at) => answers[at]?.status !== 200)).toEqual(of('P'))
        await expect
          .poll(() => receiver.stats())
          .toMatchObject({
            handled: of('G').length + of('R').length + of('S').length,
            deadLettered: of('U').length + of('E').length,
          })
        expect([...handled].toSorted()).toEqual([...of('G'), ...of('R'), ...of('S')].toSorted())
        const dead = await Array.fromAsync(receiver.deadLetters.list())
        expect(dead.map(({ event }) => String(event.topic === 'data' && event.vin)).toSorted()).toEqual(
          [...of('U'), ...of('E')].toSorted(),
        )
        const kept = (await Array.fromAsync(receiver.vehicles?.list() ?? [])).map(({ vin }) => vin)
        for (const vin of [...of('G'), ...of('R')]) expect(kept).toContain(vin)
        if (vins.some((vin) => /^[EPSU]/.test(vin))) expect(lines.join('\n')).toMatch('SQLSTATE')
        await receiver.drain()
        expect(await scene.count(`${schema}.waiting`)).toBe(0)
      },
    ),
    { numRuns: states.length },
  )
})

test.each(['42501', '42P01', '55000'])(
  'what every statement met for a moment (%s) refuses no message that it met last',
  async (code) => {
    const schema = `moment_${code.toLowerCase()}`
    await scene.prepare(schema)
    const pool = scene.newPool()
    let isOver = false
    // Whoever may use the tables again, may do so between this statement and the one that looks for the reason.
    const query: PostgresClient['query'] = (text, values) => {
      const isFirst = !isOver && text.includes('INSERT INTO') && text.includes(`${schema}.message`)
      if (!isFirst) return pool.query(text, values)
      isOver = true
      return Promise.reject(Object.assign(new Error('permission denied'), { code }))
    }
    const inbox = postgresInbox({ db: { query }, schema, leaseMs: 3_000 })
    const receiver = createReceiver({ secret: false, inbox, log: logInto([]) }).on('data', () => {})
    await receiver.open()
    expect((await receiver.accept({ authorization: undefined, body: data('V1', 1) })).status).toBe(200)
    await expect.poll(() => receiver.stats().handled).toBe(1)
    expect(isOver).toBe(true)
    await receiver.drain()
  },
)

test('a handled message whose row cannot be deleted is told, and holds up no other', async () => {
  await scene.prepare('undeletable')
  await scene.pool.query(`
CREATE FUNCTION undeletable.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF EXISTS (SELECT FROM undeletable.message m WHERE m.id = OLD.id AND m.lane = 'KEPT') THEN
    RAISE EXCEPTION 'refused for a test' USING ERRCODE = 'MY001'; END IF;
  RETURN OLD; END $$;
CREATE TRIGGER k BEFORE DELETE ON undeletable.waiting FOR EACH ROW EXECUTE FUNCTION undeletable.keep()`)
  const lines: string[] = []
  const receiver = createReceiver({
    secret: false,
    inbox: postgresInbox({ db: scene.newPool(), schema: 'undeletable', leaseMs: 3_000 }),
    log: logInto(lines),
  }).on('data', () => {})
  await receiver.open()
  const vins = ['KEPT', ...Array.from({ length: 20 }, (_, at) => `GOOD${at}`)]
  await Promise.all(vins.map((vin) => receiver.accept({ authorization: undefined, body: data(vin, 1) })))
  const left = async (): Promise<readonly unknown[]> =>
    (await scene.pool.query('SELECT lane FROM undeletable.waiting JOIN undeletable.message USING (id)')).rows
  await expect.poll(left).toEqual([{ lane: 'KEPT' }])
  // Long enough for a line about locks, which would be wrong.
  await scene.pool.query('SELECT pg_sleep(6)')
  expect(lines.join('\n')).toMatch('MY001')
  expect(lines.join('\n')).not.toMatch(/nother session has locked/)
  await scene.pool.query('DROP TRIGGER k ON undeletable.waiting')
  await expect.poll(left).toEqual([])
  await receiver.drain()
})

test('a NUL, half of a character or a million characters in a VIN, a value or an error keep no other vehicle waiting', async () => {
  await scene.prepare('odd_texts')
  const receiver = createReceiver({
    secret: false,
    inbox: postgresInbox({ db: scene.newPool(), schema: 'odd_texts', leaseMs: 3_000 }),
    log: logInto([]),
    retry: { attempts: 1 },
    parts: [vehicles({ fields: ['Odometer', 'VehicleName'] })],
  }).on('data', ({ vin, data: { VehicleName } }) => {
    if (vin.startsWith('BAD')) throw new Error(`odd ${String(VehicleName)}`)
  })
  await receiver.open()
  const texts = ['a\0b', '\uD800', 'x'.repeat(500_000)]
  const bodies = texts.flatMap((text, at) => [
    data(`GOOD${at}`, 1, { VehicleName: text }),
    data(`BAD${at}`, 1, { VehicleName: text }),
    data(`V${text.slice(0, 600)}`, 1, { VehicleName: text }),
    { vin: `W${text}`, createdAt: '2026-01-01T00:00:00Z', state: 'online' },
  ])
  const answers = await Promise.all(
    bodies.map((body) => receiver.accept({ authorization: undefined, body: JSON.stringify(body) })),
  )
  expect(answers.map(({ status }) => status)).toEqual(bodies.map(() => 200))
  await expect.poll(() => receiver.stats()).toMatchObject({ handled: 9, deadLettered: 3 })
  await receiver.drain()
  expect(await scene.count('odd_texts.waiting')).toBe(0)
})
