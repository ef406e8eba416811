import { describe, expect, test } from 'vitest'
import { secret, type ServerRuntime } from '../../runtimes/targets.ts'
import type { DeadLine } from './journal.ts'
import type { Settings } from './program.ts'
import { createSite } from './start.ts'

interface Outcome {
  /** The number of processes that ended before their messages were handled. */
  readonly deaths: number
  readonly dead: readonly DeadLine[]
  /** `VIN number`, of each run. */
  readonly runs: readonly string[]
}

/** Posts messages, each as `VIN number`, and starts processes on one inbox until one of them has nothing left to do. */
async function untilQuiet(
  given: Partial<Settings>,
  messages: readonly string[],
  runtime: ServerRuntime = 'node24',
): Promise<Outcome> {
  const site = createSite(runtime, { handlerMs: 0, ...given })
  const env = given.kills?.how === 'oom' ? { NODE_OPTIONS: '--max-old-space-size=64' } : {}
  const body = messages.map((text) => {
    const [vin, number] = text.split(' ')
    return { vin, createdAt: '2026-05-01T00:00:00Z', data: { Odometer: Number(number) } }
  })
  const first = await site.start({}, env)
  // It may end before its answer.
  const posted = { method: 'POST', headers: { authorization: secret }, body: JSON.stringify(body) }
  await fetch(first.url, posted).catch(() => {})
  await first.exited
  for (let deaths = 1; deaths < 20; deaths += 1) {
    // It may end before it listens.
    const target = await site.start({ listsDead: true }, env).catch(() => undefined)
    const isQuiet = target?.line(/^dead letters listed/).then(
      () => true,
      () => false,
    )
    if (target === undefined || (await isQuiet) !== true) continue
    await target.stop()
    const { dead, runs } = site.journal()
    return { deaths, dead, runs: runs.map(({ vin, number }) => `${vin} ${number}`) }
  }
  throw new Error('Each of 20 processes died.')
}

const others = Array.from({ length: 20 }, (_, vin) => [`V${vin} 1`, `V${vin} 2`]).flat()
const died = { number: 2, error: '3 processes ended while they handled it, and it may be the reason.' }

/** Each of the other messages was handled, at most once for each process, and in order. */
function expectOthersHandled({ runs, dead }: Outcome, messages: readonly string[]): void {
  const killers = dead.map(({ vin, number }) => `${vin} ${number}`)
  for (const message of messages) if (!killers.includes(message)) expect(runs).toContain(message)
}

const ways: readonly [string, Partial<Settings>][] = [
  ['uses up its memory', { kills: { how: 'oom' }, handlerMs: 5 }],
  ['ends it at once, with exit', { kills: { how: 'exit' } }],
  ['ends it while others run, with exit', { kills: { how: 'exit', afterMs: 30 }, handlerMs: 20 }],
  ['ends it at once, as if killed', { kills: { how: 'kill' }, handlerMs: 5 }],
  ['ends it, with attempts: 1', { kills: { how: 'exit' }, options: { retry: { attempts: 1 } } }],
  [
    'ends it, with attempts: 5',
    { kills: { how: 'exit', afterMs: 5 }, handlerMs: 5, options: { retry: { attempts: 5 } } },
  ],
  ['ends it, in a batch', { kills: { how: 'exit', afterMs: 5 }, batch: 8 }],
]

describe('a message whose handler ends the process three times is a dead letter, and no other message is', () => {
  test.concurrent.each(ways)('when the handler %s', { timeout: 180_000 }, async (_, settings) => {
    const messages = ['kills 2', 'kills 3', ...others]
    const outcome = await untilQuiet(settings, messages)
    expect(outcome).toMatchObject({ deaths: 3, dead: [{ ...died, vin: 'kills' }] })
    expectOthersHandled(outcome, messages)
  })

  test('when there are several', { timeout: 180_000 }, async () => {
    const messages = ['kills-1 2', 'kills-2 2', 'kills-1 3', 'kills-3 2', ...others]
    const outcome = await untilQuiet({ kills: { how: 'kill', afterMs: 2 }, handlerMs: 2 }, messages)
    expect(outcome.deaths).toBeLessThanOrEqual(9)
    expect(outcome.dead).toMatchObject(['kills-1', 'kills-2', 'kills-3'].map((vin) => ({ ...died, vin })))
    expectOthersHandled(outcome, messages)
  })

  test.each(['deno', 'bun', 'node22', 'node26'] as const)(
    'on %s, behind messages that were just handled',
    { timeout: 180_000 },
    async (runtime) => {
      const messages = ['kills 0', 'kills 1', 'kills 2', 'kills 3', ...others]
      const outcome = await untilQuiet({ kills: { how: 'exit' }, handlerMs: 2 }, messages, runtime)
      expect(outcome).toMatchObject({ deaths: 3, dead: [{ ...died, vin: 'kills' }] })
      expectOthersHandled(outcome, messages)
    },
  )
})
