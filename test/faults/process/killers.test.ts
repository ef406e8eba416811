import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'

import { programCommand, type ServerRuntime } from '../../runtimes/targets.ts'
import type { KillerSettings } from './killer.ts'
import { newFolder } from '../../folder.ts'

const folder = newFolder('killers')
let sites = 0

interface Outcome {
  /** The number of processes that ended before their messages were handled. */
  readonly deaths: number
  readonly dead: readonly { readonly vin: string; readonly number: number; readonly error: string }[]
  /** `VIN number`, of each run. */
  readonly runs: readonly string[]
}

/** Starts processes on one inbox until one of them has nothing left to do. */
async function untilQuiet(
  given: Omit<KillerSettings, 'path' | 'journal'>,
  runtime: ServerRuntime = 'node24',
): Promise<Outcome> {
  sites += 1
  const settings = { ...given, path: join(folder, `${sites}`, 'inbox.db'), journal: join(folder, `${sites}.journal`) }
  for (let deaths = 0; deaths < 20; deaths += 1) {
    const { command, args, env } = programCommand(runtime, join(import.meta.dirname, 'killer.ts'), {
      SETTINGS: JSON.stringify(settings),
      ...(given.how === 'oom' ? { NODE_OPTIONS: '--max-old-space-size=64' } : {}),
    })
    const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'ignore'] })
    let output = ''
    child.stdout.on('data', (data) => (output += String(data)))
    const [code] = await once(child, 'close')
    if (code !== 0) continue
    const letters: { event: { vin: string; data: { Odometer: number } }; error: string }[] = JSON.parse(output)
    return {
      deaths,
      dead: letters.map(({ event, error }) => ({ vin: event.vin, number: event.data.Odometer, error })),
      runs: readFileSync(settings.journal, 'utf8').trim().split('\n'),
    }
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

const ways: readonly [string, Omit<KillerSettings, 'path' | 'journal' | 'messages'>][] = [
  ['uses up its memory', { how: 'oom', takesMs: 5 }],
  ['ends it at once, with exit', { how: 'exit' }],
  ['ends it while others run, with exit', { how: 'exit', afterMs: 30, takesMs: 20 }],
  ['ends it at once, as if killed', { how: 'kill', takesMs: 5 }],
  ['ends it, with attempts: 1', { how: 'exit', options: { retry: { attempts: 1 } } }],
  ['ends it, with attempts: 5', { how: 'exit', afterMs: 5, takesMs: 5, options: { retry: { attempts: 5 } } }],
  ['ends it, in a batch', { how: 'exit', afterMs: 5, batch: 8 }],
]

describe('a message whose handler ends the process three times is a dead letter, and no other message is', () => {
  test.concurrent.each(ways)('when the handler %s', { timeout: 120_000 }, async (_, settings) => {
    const messages = ['K 2', 'K 3', ...others]
    const outcome = await untilQuiet({ ...settings, messages })
    expect(outcome).toMatchObject({ deaths: 3, dead: [{ ...died, vin: 'K' }] })
    expectOthersHandled(outcome, messages)
  })

  test('when it comes behind messages that were just handled', { timeout: 60_000 }, async () => {
    const messages = ['K 0', 'K 1', 'K 2', 'K 3', ...others]
    const outcome = await untilQuiet({ how: 'exit', messages })
    expect(outcome).toMatchObject({ deaths: 3, dead: [{ ...died, vin: 'K' }] })
    expectOthersHandled(outcome, messages)
  })

  test('when there are several', { timeout: 60_000 }, async () => {
    const messages = ['K1 2', 'K2 2', 'K1 3', 'K3 2', ...others]
    const outcome = await untilQuiet({ how: 'kill', afterMs: 2, takesMs: 2, messages })
    expect(outcome.deaths).toBeLessThanOrEqual(9)
    expect(outcome.dead).toMatchObject(['K1', 'K2', 'K3'].map((vin) => ({ ...died, vin })))
    expectOthersHandled(outcome, messages)
  })

  test.each(['deno', 'bun', 'node22', 'node26'] as const)('on %s', { timeout: 120_000 }, async (runtime) => {
    const messages = ['K 1', 'K 2', 'K 3', ...others]
    const outcome = await untilQuiet({ how: 'exit', takesMs: 2, messages }, runtime)
    expect(outcome).toMatchObject({ deaths: 3, dead: [{ ...died, vin: 'K' }] })
    expectOthersHandled(outcome, messages)
  })
})
