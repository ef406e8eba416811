/* Handling processes that are killed and frozen, and a server that crashes, under load: with a ledger that no part of the product reads. */
import { randomInt } from 'node:crypto'
import { describe, expect, test, vi } from 'vitest'
import { writeFigures } from '../faults/figures.ts'
import { type Found, underLoad } from '../faults/kills/kills.ts'
import { onPostgres, pause, type PostgresOptions } from '../faults/kills/victims.ts'
import { few, form, inForm } from '../form.ts'
import { type DatabaseServer, hasPgBouncer, hasPostgres, startPgBouncer } from '../once/servers.ts'
import { type Proxy, startProxy } from './proxy.ts'
import { sceneOfFile, vinOf } from './scene.ts'

const leaseMs = 1_500
const vins = Array.from({ length: 40 }, (_, n) => vinOf(n))

type Kill = Pick<PostgresOptions, 'fault' | 'modes'> &
  Partial<Pick<PostgresOptions, 'port' | 'runtime'>> & { readonly rounds: number }

describe.skipIf(!hasPostgres)('handling processes that end at any moment', () => {
  const scene = sceneOfFile()
  let number = 0
  let proxy: Proxy | undefined

  async function killed({ rounds, ...options }: Kill): Promise<Found> {
    const schema = `kill${++number}`
    await scene.prepare(schema)
    const { pool, server } = scene
    await using victim = await onPostgres({ pool, schema, port: server.port, leaseMs, ...options })
    // Awaited here, because the processes end with this function.
    return await underLoad(victim, { vins, ratePerSecond: 400, rounds })
  }

  const kill: PostgresOptions['fault'] = (_handlers, end) => end()
  const crash: PostgresOptions['fault'] = () => scene.server.crash()
  const killThenCrash: PostgresOptions['fault'] = (handlers, end, round) =>
    (round === 0 ? kill : crash)(handlers, end, round)
  const freeze: PostgresOptions['fault'] = async (handlers) => {
    const child = handlers[Math.floor(Math.random() * handlers.length)]
    child?.kill('SIGSTOP')
    await pause(1.5 * leaseMs)
    child?.kill('SIGCONT')
  }
  const crashes = ['SIGQUIT', 'SIGKILL'] as const
  const pausedMs = (): number => randomInt(200, 2.5 * leaseMs)
  /** Everything that can end, stand still or get cut off. */
  const anything: readonly PostgresOptions['fault'][] = [
    kill,
    freeze,
    (_handlers, end) => end('receives'),
    () => scene.server.crash(crashes[randomInt(2)]),
    async () => {
      const thaw = scene.server.freeze()
      await pause(pausedMs())
      thaw()
    },
    async () => {
      proxy?.cut()
      await pause(pausedMs())
      proxy?.heal()
    },
    async () => {
      proxy?.freeze()
      await pause(pausedMs())
      if (randomInt(2) === 0) proxy?.forget()
      else proxy?.heal()
    },
  ]
  const both = ['single', 'batch'] as const

  const kills: readonly (readonly [what: string, kill: Kill])[] = [
    ...few(both, 1).map(
      (mode) =>
        [
          `${mode}: killed`,
          { modes: [mode, mode], fault: kill, rounds: inForm({ short: 2, full: 6, long: 20 }) },
        ] as const,
    ),
    [
      'frozen for longer than their lease',
      { modes: ['single', 'single'], fault: freeze, rounds: inForm({ short: 1, full: 4, long: 12 }) },
    ],
    [
      'a server that crashes',
      { modes: ['single', 'single'], fault: crash, rounds: inForm({ short: 1, full: 4, long: 8 }) },
    ],
    ['on Bun: killed, and then the server crashes', { modes: both, fault: killThenCrash, rounds: 2, runtime: 'bun' }],
    ['on Deno: killed, and then the server crashes', { modes: both, fault: killThenCrash, rounds: 2, runtime: 'deno' }],
  ]

  /** `POSTGRES_SOAK_ROUNDS=100 npm run test:faults -- test/postgres/kill.test.ts`. A thousand take about an hour. */
  test.runIf(form === 'long')('nothing is lost, written twice or out of order: all of it at random', async () => {
    proxy = await startProxy(scene.server.port)
    const rounds = Number(process.env['POSTGRES_SOAK_ROUNDS'] ?? 1_000)
    const fault: PostgresOptions['fault'] = (...given) =>
      anything[randomInt(anything.length)]?.(...given) ?? kill(...given)
    const found = await killed({ modes: ['single', 'single', 'batch'], fault, rounds, port: proxy.port })
    await proxy[Symbol.asyncDispose]()
    await writeFigures({
      piece: 'postgres-soak',
      title: 'Postgres: everything is killed, frozen and cut off at random',
      file: 'test/postgres/kill.test.ts',
      about: `One server, one receiver, three processes with handlers in \`exactlyOnce\` (one with batches), ${vins.length} vehicles that send one message after the other, a lease of ${leaseMs / 1_000} s. In each round one of these is killed, frozen, or cut off by its network: a process, the server.`,
      tables: [
        {
          title: 'The ledger',
          rows: [
            {
              rounds,
              acknowledged: found.acknowledged,
              lost: found.lost.length,
              'written twice': found.duplicates.length,
              'out of order': found.outOfOrder.length,
            },
          ],
        },
      ],
    })
    expectClean(found)
  })

  function expectClean({ lost, duplicates, outOfOrder, acknowledged }: Found): void {
    expect({ lost, duplicates, outOfOrder }).toEqual({ lost: [], duplicates: [], outOfOrder: [] })
    expect(acknowledged).toBeGreaterThan(100)
  }

  test.each(kills)('nothing is lost, written twice or out of order: %s', async (_, kill) => {
    expectClean(await killed(kill))
  })

  test.skipIf(!hasPgBouncer)(
    'nothing is lost, written twice or out of order: killed, and then the server crashes, behind PgBouncer in transaction mode',
    async () => {
      await using bouncer: DatabaseServer = await startPgBouncer(scene.server)
      await vi.waitFor(() => scene.newPool(1, bouncer.port).query('SELECT 1'), { timeout: 60_000, interval: 100 })
      expectClean(await killed({ modes: both, fault: killThenCrash, rounds: 2, port: bouncer.port }))
    },
  )

  test('control: without the mark, some messages are written twice', async () => {
    const { lost, duplicates } = await killed({
      modes: ['unmarked', 'unmarked'],
      fault: kill,
      rounds: inForm({ short: 2, full: 6 }),
    })
    expect({ lost, isDoubled: duplicates.length > 0 }).toEqual({ lost: [], isDoubled: true })
  })
})
