import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { measuredCore, onEveryCore, pinned } from './pin.ts'
import type { Report, Taken } from './servers/measured.ts'

/** A server in a process of its own. */
export interface ServerProcess {
  readonly port: number
  /** Starts counting its CPU time. */
  begin(): Promise<void>
  /** What it used since `begin`. */
  end(): Promise<Taken>
  stop(): Promise<void>
}

/** Starts one of `bench/servers`, on the measured core where processes can be pinned, or on every core. */
export async function startServer(
  name: string,
  nodeOptions: readonly string[] = [],
  variables: Readonly<Record<string, string>> = {},
  isPinned = true,
): Promise<ServerProcess> {
  if (!existsSync(new URL('../dist', import.meta.url))) throw new Error('Run "npm run build" first.')
  const script = fileURLToPath(new URL(`servers/${name}.ts`, import.meta.url))
  const plain = [process.execPath, ...nodeOptions, script]
  const [command = process.execPath, ...args] = isPinned ? pinned(measuredCore, plain) : onEveryCore(plain)
  const child = spawn(command, args, {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: { ...process.env, ...variables },
  })
  const first = await nextReport(child)
  if (!('port' in first)) throw new Error(`The server ${name} did not report where it listens.`)
  return {
    port: first.port,
    async begin() {
      child.send('begin')
      await nextReport(child)
    },
    async end() {
      child.send('end')
      const report = await nextReport(child)
      if (!('cpuMicroseconds' in report)) throw new Error(`The server ${name} did not report what it used.`)
      return report
    },
    async stop() {
      child.disconnect()
      if (child.exitCode === null) await once(child, 'exit')
    },
  }
}

function nextReport(child: ChildProcess): Promise<Report> {
  return new Promise((resolve, reject) => {
    const ended = (code: number | null): void => reject(new Error(`A server ended with exit code ${code}.`))
    child.once('exit', ended)
    child.once('message', (report) => {
      child.off('exit', ended)
      resolve(report as Report)
    })
  })
}
