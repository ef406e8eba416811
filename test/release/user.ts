import { execFile } from 'node:child_process'
import { delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { inject } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'

/** The environment of a new user, whose only registry has the package. Nothing of it is in a cache. */
export const environment: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      value === undefined || /^(npm_|NODE_OPTIONS$|NODE_ENV$|NODE_COMPILE_CACHE$|VITEST|FORCE_COLOR$)/i.test(name)
        ? []
        : [[name, value]],
    ),
  ),
  PATH: [dirname(process.execPath), dirname(runtimePath('bun')), process.env['PATH']].join(delimiter),
  NPM_CONFIG_REGISTRY: inject('registry'),
  NPM_CONFIG_CACHE: inject('npmCache'),
  NPM_CONFIG_YES: 'true',
  BUN_INSTALL_CACHE_DIR: join(inject('npmCache'), 'bun'),
  DENO_DIR: join(inject('npmCache'), 'deno'),
  NO_COLOR: '1',
  NEXT_TELEMETRY_DISABLED: '1',
  WRANGLER_SEND_METRICS: 'false',
}

/** Runs a line of a README to its end and resolves to what it printed. Rejects with that when the line fails. */
export async function type(folder: string, line: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  const options = {
    cwd: folder,
    env: { ...environment, ...env },
    maxBuffer: 64 * 1024 * 1024,
    encoding: 'utf8',
  } as const
  try {
    const { stdout, stderr } = await promisify(execFile)('bash', ['-c', line], options)
    return stdout + stderr
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string }
    throw new Error(`"${line}" failed in ${folder}:\n${stdout}\n${stderr}`, { cause: error })
  }
}
