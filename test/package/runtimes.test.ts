import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, inject, test } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { spawnTarget } from '../conformance/spawn.ts'
import { inThisForm, workerCommand } from '../runtimes/targets.ts'

const runs: readonly { readonly runtime: Runtime; readonly adapter: string; readonly flags: readonly string[] }[] = [
  { runtime: 'node22.13', adapter: 'node', flags: [] },
  { runtime: 'node22', adapter: 'node', flags: [] },
  { runtime: 'node24', adapter: 'node', flags: [] },
  { runtime: 'node26', adapter: 'node', flags: [] },
  { runtime: 'bun', adapter: 'bun', flags: ['run'] },
  { runtime: 'deno', adapter: 'deno', flags: ['run', '--allow-net', '--allow-env', '--allow-read', '--allow-sys'] },
]

const received = {
  statuses: [200, 200, 200, 403],
  handled: ['service', 'vehicle_maker', 'event_collector'].map((format) => `${format} 0FLEETV14T0000004 81.5`),
}

test.each(runs.filter(({ runtime }) => inThisForm(runtime)))(
  'the installed package receives all three formats on $runtime',
  ({ runtime, adapter, flags }) => {
    const printed = execFileSync(runtimePath(runtime), [...flags, 'receive.js', adapter], {
      cwd: inject('consumer'),
      encoding: 'utf8',
      stdio: 'pipe',
    })
    expect(JSON.parse(printed.trim().split('\n').at(-1) ?? '')).toEqual(received)
  },
)

test('the installed package receives all three formats on workerd', async () => {
  const source = readFileSync(join(inject('consumer'), 'worker.js'), 'utf8')
  await using target = await spawnTarget(await workerCommand(source, { resolveFrom: inject('consumer') }))
  expect(await (await fetch(target.url)).json()).toEqual(received)
})
