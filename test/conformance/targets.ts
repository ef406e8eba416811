import { fileURLToPath } from 'node:url'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { form } from '../form.ts'
import { inThisForm, workerCommand } from '../runtimes/targets.ts'
import type { TargetCommand } from './spawn.ts'

const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

interface RuntimeCommand {
  readonly runtime: Runtime
  /** What is special about it. */
  readonly how?: string
  readonly command: () => Promise<TargetCommand>
}

const run = (runtime: Runtime, ...args: readonly string[]): RuntimeCommand => ({
  runtime,
  command: async () => ({ runtime, command: runtimePath(runtime), args }),
})

/** The runtimes that run the sources as they are. `test/package` tests Node 22.13, with the built package. */
export const targetCommands: readonly RuntimeCommand[] = (
  [
    run('node22', here('node.ts')),
    run('node24', here('node.ts')),
    run('node26', here('node.ts')),
    { ...run('node24', here('node-own.ts')), how: "with Node's own requests" },
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
  ] satisfies readonly RuntimeCommand[]
).filter(({ runtime }) => (form === 'real' ? ['node22', 'node26'].includes(runtime) : inThisForm(runtime)))
