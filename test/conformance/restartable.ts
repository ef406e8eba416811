import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { newFolder } from '../folder.ts'
import { freePort, type TargetCommand } from './spawn.ts'

/** A server that a command of a shell kills and starts again on the same port, as `conform --restart` wants it. */
export interface Restartable extends AsyncDisposable {
  readonly url: string
  /** Kills it with SIGKILL and starts it. */
  readonly restart: string
  /** Where everything that it prints is, of all its processes. */
  readonly log: string
  readonly folder: string
}

const quoted = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`

/** `make` gets the port and a folder for files. */
export async function restartable(
  make: (port: number, folder: string) => TargetCommand | Promise<TargetCommand>,
): Promise<Restartable> {
  const folder = newFolder('restartable')
  const port = await freePort()
  const { command, args, env = {}, cwd = folder } = await make(port, folder)
  const [script, pid, log] = [join(folder, 'restart.sh'), join(folder, 'pid'), join(folder, 'log')]
  const variables = Object.entries(env).map(([name, value]) => `export ${name}=${quoted(value)}`)
  const lines = [
    ...variables,
    `[ ! -f ${pid} ] || kill -9 $(cat ${pid})`,
    `cd ${quoted(cwd)}`,
    `${[command, ...args].map(quoted).join(' ')} >> ${log} 2>&1 &`,
    `echo $! > ${pid}`,
  ]
  writeFileSync(script, lines.join('\n'))
  execFileSync('sh', [script], { stdio: 'ignore' })
  const url = `http://127.0.0.1:${port}`
  const kill = async (): Promise<void> => {
    if (existsSync(pid)) process.kill(Number(readFileSync(pid, 'utf8')), 'SIGKILL')
  }
  const answers = (): Promise<boolean> =>
    fetch(url).then(
      () => true,
      () => false,
    )
  await expect.poll(answers, { message: existsSync(log) ? readFileSync(log, 'utf8') : '' }).toBe(true)
  return { url, restart: `sh ${script}`, log, folder, [Symbol.asyncDispose]: kill }
}
