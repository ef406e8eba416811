import { afterAll, describe, expect, test } from 'vitest'
import { inForm } from '../../form.ts'
import { type Row, versionsOf, writeFigures } from '../figures.ts'
import { type Connections, pour, refused } from './load.ts'
import {
  behind,
  delayed,
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
const restarts = inForm({ short: 1, full: 2, long: 6 })
const ratePerSecond = inForm({ short: 100, full: 200 })
const rows: Row[] = []

interface Case {
  readonly way: string
  readonly deploy: () => Promise<Deployment>
  readonly connections: readonly Connections[]
  /** Zero messages are refused. Else the test only counts. */
  readonly promised: boolean
  readonly rate?: number
  /** The time that bytes take to the receiver and back, in milliseconds. */
  readonly delayMs?: number
}

const both: readonly Connections[] = ['new', 'kept']
const busy = { settings: { burnMs: 20, handlerMs: 0 } }
const proxies = (['nginx', 'haproxy', 'caddy'] as const).filter((proxy) => proxyVersion(proxy) !== undefined)
const proxied = (proxy: Proxy): Case => ({
  way: proxy,
  deploy: () => behind(proxy),
  connections: both,
  promised: proxy !== 'caddy',
})

const short: readonly Case[] = [
  { way: 'systemd', deploy: () => systemdStyle(), connections: both, promised: true },
  { way: 'fleethook run', deploy: () => fleethookRun(), connections: both, promised: true },
]
const full: readonly Case[] = [
  ...short,
  { way: 'reusePort, Node', deploy: () => reusedPort(), connections: both, promised: false },
  { way: 'reusePort, Bun', deploy: () => reusedPort({ runtime: 'bun' }), connections: both, promised: false },
  { way: 'reusePort, Deno', deploy: () => reusedPort({ runtime: 'deno' }), connections: both, promised: false },
  ...proxies.map(proxied),
]
const long: readonly Case[] = [
  ...full,
  { way: 'systemd, busy event loop', deploy: () => systemdStyle(busy), connections: both, promised: true, rate: 40 },
  { way: 'systemd, 50 ms of delay', deploy: () => systemdStyle(), connections: ['kept'], promised: true, delayMs: 50 },
  { way: 'systemd', deploy: () => systemdStyle(), connections: ['pipelined'], promised: false },
  ...(proxies.includes('nginx')
    ? [
        {
          way: 'nginx, defaults',
          deploy: () =>
            behind('nginx', (config) => config.replace(/ max_fails=0|proxy_next_upstream .*|proxy_connect.*/g, '')),
          connections: both,
          promised: false,
        },
      ]
    : []),
  { way: 'a supervisor without a socket', deploy: () => plain(), connections: both, promised: false },
]

const cases = inForm({ short, full, long }).flatMap((one) =>
  one.connections.map((connections) => ({
    ...one,
    connections,
    says: one.promised ? 'refuses no message' : 'is counted',
  })),
)

const together = inForm({ short: describe.concurrent, full: describe })
together('under load, a restart', () => {
  test.each(cases)('with $way over $connections connections $says', measure, 600_000)
})

async function measure({
  way,
  deploy,
  connections,
  promised,
  rate = ratePerSecond,
  delayMs = 0,
}: (typeof cases)[number]): Promise<void> {
  await using deployment = await deploy()
  const slow = delayMs === 0 ? undefined : await delayed(deployment.port, delayMs / 2)
  const load = pour(slow?.port ?? deployment.port, connections, rate)
  await new Promise((resolve) => setTimeout(resolve, 500))
  for (let restart = 0; restart < restarts; restart++) {
    await deployment.restart()
    await new Promise((resolve) => setTimeout(resolve, 500))
  }
  const count = await load.stop()
  slow?.close()
  const lost = refused(count)
  rows.push({
    way,
    connections,
    restarts,
    sent: count.sent,
    'not acknowledged': lost,
    why: [...count.failures].map(([why, times]) => `${why} ${times}`).join(', '),
    'slowest answer ms': Math.round(count.slowestMs),
  })
  expect(count.sent).toBeGreaterThan(20)
  if (promised) expect([...count.failures]).toEqual([])
}

afterAll(() =>
  writeFigures({
    piece: 'deploys',
    title: 'Messages that are not acknowledged during deploys',
    file: 'test/faults/deploy/restarts.test.ts',
    about:
      'A sender posts 200 messages a second of 50 vehicles, each once, while the receiver is restarted six times. Handlers take 200 ms. The inbox is a SQLite file. With a busy event loop, every handler burns 20 ms of CPU and 40 messages a second are sent. Behind a proxy there are two receivers with a file each, and each of them is restarted six times, one after the other. A relay in the sender adds the delay to bytes, and none to the connecting. The configurations are in `examples/deploy`.',
    tables: [{ title: 'Restarts', rows }],
    versions: {
      ...versionsOf(['bun', 'deno']),
      ...Object.fromEntries(proxies.map((proxy) => [proxy, proxyVersion(proxy) ?? ''])),
    },
  }),
)
