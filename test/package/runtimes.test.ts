import { execFileSync } from 'node:child_process'
import { expect, inject, test } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'

const runs: readonly { readonly runtime: Runtime; readonly adapter: string; readonly flags: readonly string[] }[] = [
  { runtime: 'node20', adapter: 'node', flags: [] },
  { runtime: 'node22', adapter: 'node', flags: [] },
  { runtime: 'node24', adapter: 'node', flags: [] },
  { runtime: 'node26', adapter: 'node', flags: [] },
  { runtime: 'bun', adapter: 'bun', flags: ['run'] },
  { runtime: 'deno', adapter: 'deno', flags: ['run', '--allow-net', '--allow-env', '--allow-read', '--allow-sys'] },
]

test.each(runs)('the installed package receives all three formats on $runtime', ({ runtime, adapter, flags }) => {
  const printed = execFileSync(runtimePath(runtime), [...flags, 'receive.js', adapter], {
    cwd: inject('consumer'),
    encoding: 'utf8',
  })
  expect(JSON.parse(printed.trim().split('\n').at(-1) ?? '')).toEqual({
    statuses: [200, 200, 200, 403],
    handled: ['service', 'vehicle_maker', 'event_collector'].map((format) => `${format} 5YJ3E1EA7KF000316 81.5`),
  })
})
