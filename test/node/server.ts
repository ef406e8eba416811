import { fileURLToPath } from 'node:url'
import type { NodeServeOptions } from '../../adapters/node.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'

const programs = fileURLToPath(new URL('programs/', import.meta.url))

/** Starts `programs/<name>.ts` in a process of its own, on the Node that runs the tests. */
export function start(program: string, serve: NodeServeOptions = {}, settings: object = {}): Promise<Target> {
  return spawnTarget({
    runtime: `node ${process.versions.node}`,
    command: process.execPath,
    args: [`${programs}${program}.ts`],
    env: {
      SERVE: JSON.stringify({ port: 0, hostname: '127.0.0.1', ...serve }),
      SETTINGS: JSON.stringify(settings),
    },
  })
}

/** The result of `closed`, as the program prints it. */
export async function closed(target: Target): Promise<unknown> {
  return JSON.parse((await target.line(/^closed /)).slice('closed '.length))
}
