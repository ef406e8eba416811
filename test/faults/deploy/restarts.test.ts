import { afterAll, describe, expect, test } from 'vitest'
import { inForm } from '../../form.ts'
import { account, refusalsIn } from '../accounting.ts'
import type { Journal } from '../process/journal.ts'
import { createTraffic } from '../process/traffic.ts'
import { type Row, versionsOf, writeFigures } from '../figures.ts'
import {
  behind,
  type Deployment,
  fleethookRun,
  plain,
  type Proxy,
  proxyVersion,
  reusedPort,
  systemdStyle,
} from './ways.ts'

/*
 * A sender posts each message once and counts what is not acknowledged, while the receiver is restarted again and again.
 */
const restarts = inForm({ full: 2, long: 6 })
const ratePerSecond = 200

interface Measured {
  readonly table: string
  readonly row: Row
}
const measured: Measured[] = []

/** Whether each message gets a connection of its own. */
type Connections = 'new' | 'kept'

interface Case {
  readonly way: string
  readonly deploy: () => Promise<Deployment>
  readonly connections: readonly Connections[]
  /** True when no message may be refused. Otherwise the test only counts them. */
  readonly promised: boolean
  /**
   * A receiver knows only about messages that reach it. So a message that a proxy refuses while a receiver listens, or that
   * is sent after the last answer of a connection, is in no gap. Default `false`: every message is accounted for.
   */
  readonly isUnseen?: boolean
  readonly table?: string
  readonly rate?: number
}

const both: readonly Connections[] = ['new', 'kept']
const busy = { settings: { burnMs: 20, handlerMs: 0 } }
const all = ['nginx', 'haproxy', 'caddy'] as const
const proxies = all.filter((proxy) => proxyVersion(proxy) !== undefined)
const proxied = (proxy: Proxy): Case => ({
  way: proxy,
  deploy: () => behind(proxy),
  connections: both,
  promised: true,
})

/** How long a receiver takes messages after the signal where no other process can listen, in milliseconds. */
const delays = [0, 100, 500, 1_500, 5_000] as const
const delayTable = 'The delay before a port closes that no other process holds'

const full: readonly Case[] = [
  { way: 'systemd', deploy: () => systemdStyle(), connections: both, promised: true },
  { way: 'fleethook run', deploy: () => fleethookRun(), connections: both, promised: true },
  { way: 'reusePort, Node', deploy: () => reusedPort(), connections: both, promised: false },
  { way: 'reusePort, Bun', deploy: () => reusedPort({ runtime: 'bun' }), connections: both, promised: false },
  { way: 'reusePort, Deno', deploy: () => reusedPort({ runtime: 'deno' }), connections: both, promised: false },
  ...proxies.map(proxied),
]
const long: readonly Case[] = [
  ...full,
  { way: 'systemd, busy event loop', deploy: () => systemdStyle(busy), connections: both, promised: true, rate: 40 },
  ...(proxies.includes('nginx')
    ? [
        {
          way: 'nginx, defaults',
          deploy: () =>
            behind('nginx', (config) => config.replace(/ max_fails=0|proxy_next_upstream .*|proxy_connect.*/g, '')),
          connections: both,
          promised: false,
          isUnseen: true,
        },
      ]
    : []),
  { way: 'a supervisor without a socket', deploy: () => plain(), connections: both, promised: false },
  ...delays.map((delayBeforeCloseMs) => ({
    way: `delayBeforeCloseMs ${delayBeforeCloseMs}`,
    deploy: () => plain({ serve: { delayBeforeCloseMs } }),
    connections: both,
    promised: false,
    table: delayTable,
  })),
]

const cases = inForm({ full, long }).flatMap((one) =>
  one.connections.map((connections) => ({
    ...one,
    connections,
    says: one.promised ? 'refuses no message' : 'is counted',
  })),
)

describe('under load, a restart', () => {
  // A report says so when one is not: its file is not tried then.
  for (const proxy of all)
    test.skipIf(!proxies.includes(proxy))(`behind ${proxy} can be tried, because it is installed`, () => {
      expect(cases.map(({ way }) => way)).toContain(proxy)
    })

  test.each(cases)('with $way over $connections connections $says', measure, 600_000)
})

async function measure({
  way,
  deploy,
  connections,
  promised,
  isUnseen = false,
  rate = ratePerSecond,
  table = 'Restarts',
}: (typeof cases)[number]): Promise<void> {
  await using deployment = await deploy()
  const vins = Array.from({ length: 50 }, (_, n) => `V${n}`)
  const opensConnections = connections === 'new' ? 'all' : 'none'
  const traffic = createTraffic({ vins, ratePerSecond: rate, goesOn: true, timeoutMs: 30_000, opensConnections })
  let isOver = false
  const pouring = traffic.pour(`http://127.0.0.1:${deployment.port}`, () => isOver)
  await new Promise((resolve) => setTimeout(resolve, 500))
  for (let restart = 0; restart < restarts; restart++) {
    await deployment.restart()
    await new Promise((resolve) => setTimeout(resolve, 500))
  }
  isOver = true
  await pouring
  const { sent } = traffic
  const failures = Map.groupBy(
    sent.filter(({ status }) => status !== 200),
    ({ status, error }) => error ?? String(status),
  )
  const acknowledged = [...traffic.acknowledged]
  const unhandled = ({ runs }: Journal): readonly string[] => {
    const handled = new Set(runs.map(({ vin, number }) => `${vin} ${number}`))
    return acknowledged.filter((name) => !handled.has(name))
  }
  let journal = await deployment.journal()
  // The process with nothing left to do may be the one before the last.
  for (let tries = 0; tries < 50 && unhandled(journal).length > 0; tries += 1) journal = await deployment.journal()
  const { fates, violations } = account({ sent, journal, refusals: refusalsIn([deployment.output()]) })
  const row: Row = {
    way,
    connections,
    restarts,
    sent: sent.length,
    'not acknowledged': sent.length - acknowledged.length,
    'inside a gap': fates.gap,
    'in no gap': fates.unaccounted,
    why: [...failures].map(([why, { length }]) => `${why} ${length}`).join(', '),
    'slowest answer ms': Math.round(Math.max(...traffic.ackMs.map(({ ms }) => ms))),
  }
  measured.push({ table, row })
  expect(sent.length).toBeGreaterThan(20)
  if (promised) expect([...failures.keys()]).toEqual([])
  // The first stories are enough to find a cause.
  if (!isUnseen) expect(violations.unaccounted.slice(0, 5), `${fates.unaccounted} unaccounted for`).toEqual([])
  // Acknowledged messages are never lost.
  expect(unhandled(journal)).toEqual([])
}

afterAll(() => {
  const tables = [...Map.groupBy(measured, ({ table }) => table)].map(([title, of]) => ({
    title,
    rows: of.map(({ row }) => row),
  }))
  return writeFigures({
    piece: 'deploys',
    title: 'Messages that are not acknowledged during deploys',
    file: 'test/faults/deploy/restarts.test.ts',
    about:
      'A sender posts 200 messages a second of 50 vehicles, each once, while the receiver is restarted six times. Handlers take 100 to 200 ms. The inbox is a SQLite file. With a busy event loop, every handler burns 20 ms of CPU and 40 messages a second are sent. Behind a proxy there are two receivers with a file each, and each of them is restarted six times, one after the other. The configurations are in `examples/deploy`. The checker of `test/faults/accounting.ts` says for each message that was not acknowledged whether it lies inside a gap event. Every acknowledged message was handled.',
    tables,
    versions: {
      ...versionsOf(['bun', 'deno']),
      ...Object.fromEntries(proxies.map((proxy) => [proxy, proxyVersion(proxy) ?? ''])),
    },
  })
})
