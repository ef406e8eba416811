import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { type Target, spawnTarget } from '../../conformance/spawn.ts'
import { programCommand } from '../../runtimes/targets.ts'
import { type Row, versionsOf, writeFigures } from '../figures.ts'
import { form, inForm } from '../../form.ts'
import { attack, mostConnections, withFiles } from './attacking.ts'
import { connections, goLive, type Latency } from './live.ts'
import type { AttackKind } from './programs/attacks.ts'
import { secret, type Seen } from './programs/seen.ts'

const runtimes = ['node24', 'bun', 'deno'] as const

const wantedIdle = inForm({ full: 300, long: 10_000 })
const idle = Math.min(wantedIdle, mostConnections)
if (idle < wantedIdle) {
  console.warn(
    `A process may have ${mostConnections} connections here: ${idle} idle ones, not ${wantedIdle}. Raise "ulimit -n".`,
  )
}

/**
 * Somebody who knows the secret can use a whole core, with bombs as well as with messages, and other messages wait.
 * The test records how long, and asserts that nothing is lost. It does not assert that nobody notices.
 */
const saturating = '4 senders of gzip bombs of 100 MB, as fast as they are answered'

/**
 * The most memory that a connection may take, in bytes, idle or with a body on its way. Bodies have a limit of 1 MiB.
 */
const costs: Readonly<Record<AttackKind, number>> = {
  idle: 65_536,
  halfBodies: 1_048_576,
  bombs: 16 * 1_048_576,
  bombsAtOnce: 16 * 1_048_576,
  hugeBodies: 16 * 1_048_576,
}
const slackBytes = 256 * 1_048_576

/** The attacks that run together, and the amount of each. */
const attacks = inForm<Readonly<Record<string, readonly (readonly [AttackKind, number])[]>>>({
  full: {
    'slow clients of every sort at once': [
      ['idle', idle],
      ['halfBodies', 30],
      ['bombs', 1],
      ['hugeBodies', 1],
    ],
  },
  long: {
    [`${idle} idle connections`]: [['idle', idle]],
    '1,000 half-sent bodies': [['halfBodies', 1_000]],
    '8 senders of gzip bombs of 100 MB': [['bombs', 8]],
    [saturating]: [['bombsAtOnce', 4]],
    '4 senders of bodies of 100 MB': [['hugeBodies', 4]],
    'all of it at once': [
      ['idle', idle],
      ['halfBodies', 500],
      ['bombs', 1],
      ['hugeBodies', 1],
    ],
  },
})

const perSecond = inForm({ full: 100, long: 200 })
const quietMs = inForm({ real: 300, full: 500, long: 5_000 })
// Longer than the ten seconds after which Node closes a connection that sent no headers.
const attackMs = inForm({ real: 700, full: 1_500, long: 15_000 })

const rows: Row[] = []

afterAll(() =>
  writeFigures({
    piece: 'slow-clients',
    title: 'Live traffic beside slow and malicious clients',
    file: 'test/faults/http',
    about:
      `${perSecond} messages a second over ${connections} connections, every tenth over its own connection. Beside ` +
      'them, another process on the same machine attacks. Latency is from the moment a message was due to its whole ' +
      'answer, as median / 99th percentile / maximum. Memory is the maximum of the receiver’s process.',
    tables: [{ title: `${quietMs / 1000} seconds without, ${attackMs / 1000} seconds with the attack`, rows }],
    versions: {
      ...versionsOf(runtimes),
      'idle connections': idle < wantedIdle ? `${idle}, for the limit of open files` : String(idle),
    },
  }),
)

const seen = async ({ url }: Target): Promise<Seen> => (await fetch(`${url}/seen`)).json() as Promise<Seen>
const megabytes = (bytes: number): number => Math.round(bytes / 1_048_576)
const times = ({ p50, p99, most }: Latency): string => [p50, p99, most].map((ms) => ms.toFixed(1)).join(' / ')

describe.each(runtimes)(
  'the live traffic of a receiver on %s does not notice',
  { concurrent: form !== 'long', timeout: inForm({ full: 300_000, long: 3_600_000 }) },
  (runtime) => {
    test.for(Object.entries(attacks))('%s', async ([name, parts], { expect }) => {
      const program = join(import.meta.dirname, 'programs/receiver.ts')
      await using target = await spawnTarget(withFiles(programCommand(runtime, program)))
      const live = goLive(target.url, secret, perSecond)
      // Warms up the compilers.
      await live.during(quietMs)
      const before = await seen(target)
      const quiet = await live.during(quietMs)
      const calm = await seen(target)

      await using attacking = new AsyncDisposableStack()
      const begun = []
      for (const [kind, amount] of parts) begun.push(attacking.use(await attack(kind, target.url, amount)))
      const attacked = await live.during(attackMs)
      const done = await Promise.all(begun.map((one) => one.stop()))
      await live.stop()
      const after = await seen(target)

      rows.push({
        runtime,
        attack: name,
        'what it did': done
          .map((counts) =>
            Object.entries(counts)
              .map(([what, count]) => `${count} ${what}`)
              .join(', '),
          )
          .join('; '),
        'live messages': attacked.messages,
        'not acknowledged': live.refused.length,
        'quiet, ms': times(quiet),
        'attacked, ms': times(attacked),
        'quiet, MB': megabytes(calm.peakBytes),
        'attacked, MB': megabytes(after.peakBytes),
      })
      expect(live.refused).toEqual([])
      const handled = [before, calm, after].flatMap((one) => one.handled)
      const all = async (): Promise<readonly number[]> => {
        handled.push(...(await seen(target)).handled)
        return handled.toSorted((a, b) => a - b)
      }
      await expect.poll(all).toEqual([...live.acknowledged].toSorted((a, b) => a - b))
      expect(after.lost).toBe(0)
      const mostBytes = parts.reduce((sum, [kind, amount]) => sum + amount * costs[kind], calm.peakBytes + slackBytes)
      expect(after.peakBytes).toBeLessThan(mostBytes)
      // In a short run, the times depend more on other work of the machine than on the receiver.
      if (form !== 'long' || name === saturating) return
      expect(attacked.p50).toBeLessThan(100)
      expect(attacked.p99).toBeLessThan(1_000)
    })
  },
)
