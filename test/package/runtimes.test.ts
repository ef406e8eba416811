import { execFileSync } from 'node:child_process'
import { expect, inject, test } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'

const runs: readonly (readonly [Runtime, adapter: string, ...flags: readonly string[]])[] = [
  ['node20', 'node'],
  ['node22', 'node'],
  ['node24', 'node'],
  ['node26', 'node'],
  ['bun', 'bun', 'run'],
  ['deno', 'deno', 'run', '--allow-net', '--allow-env', '--allow-read', '--allow-sys'],
]

test.each(runs)('the installed package receives all three formats on %s', (runtime, adapter, ...flags) => {
  const printed = execFileSync(runtimePath(runtime), [...flags, 'receive.js', adapter], {
    cwd: inject('consumer'),
    encoding: 'utf8',
  })
  expect(JSON.parse(printed.trim().split('\n').at(-1) ?? '')).toEqual({
    statuses: [200, 200, 200, 403],
    handled: ['service', 'vehicle_maker', 'event_collector'].map((format) => `${format} 5YJ3E1EA7KF000316 81.5`),
  })
})
