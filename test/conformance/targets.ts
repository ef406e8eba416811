import { fileURLToPath } from 'node:url'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { workerCommand } from '../runtimes/targets.ts'
import type { TargetCommand } from './spawn.ts'

const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

const run = (
  runtime: Runtime,
  ...args: readonly string[]
): { readonly runtime: Runtime; readonly command: () => Promise<TargetCommand> } => ({
  runtime,
  command: async () => ({ runtime, command: runtimePath(runtime), args }),
})

/** Every runtime on which the sources run as they are. Node 20 is tested with the built package, in `test/package`. */
export const targetCommands: readonly { readonly runtime: Runtime; readonly command: () => Promise<TargetCommand> }[] =
  [
    run('node22', here('node.ts')),
    run('node24', here('node.ts')),
    run('node26', here('node.ts')),
    run('bun', 'run', here('bun.ts')),
    run('deno', 'run', '--allow-all', here('deno.ts')),
    {
      runtime: 'workerd',
      command: () =>
        workerCommand(`
      import { createTarget } from '../../conformance/target.ts'
      import { worker } from '../../../adapters/workers.ts'
      export default worker(createTarget())`),
    },
  ]
