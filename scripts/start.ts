// `npm start`: the receiver of examples/node, and a simulated fleet that posts to it.
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, symlinkSync } from 'node:fs'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const secret = randomBytes(24).toString('hex')
// The receiver's output passes through here, so it cannot see that it ends on a terminal.
const colours = process.stdout.isTTY ? { FORCE_COLOR: '1' } : {}
const env = { ...colours, ...process.env, WEBHOOK_SECRET: secret, PORT: process.env['PORT'] ?? '0' }

// Examples import the package by its name, as whoever copies them does.
const self = `${root}node_modules/fleethook`
if (!existsSync(self)) symlinkSync('..', self, 'junction')

/** In a process group of its own, so that Ctrl+C reaches them in the right order: first who sends, then who receives. */
function run(script: string, args: readonly string[], stdio: 'inherit' | 'pipe'): ChildProcess {
  return spawn(process.execPath, [`${root}${script}`, ...args], {
    env,
    detached: true,
    stdio: ['ignore', stdio, 'inherit'],
  })
}

const receiver = run('examples/node/server.ts', [], 'pipe')
const ended = once(receiver, 'exit')
let fleet: ChildProcess | undefined
let stopping = false

function stop(): void {
  if (stopping) process.exit(130)
  stopping = true
  fleet?.kill('SIGINT')
  receiver.kill('SIGINT')
}
process.on('SIGINT', stop)
process.on('SIGTERM', stop)

if (receiver.stdout === null) throw new Error('The receiver has no output to read.')
for await (const line of createInterface(receiver.stdout)) {
  console.log(line)
  const url = fleet === undefined ? /listening on (\S+)/.exec(line)?.[1] : undefined
  if (url === undefined) continue
  console.log('A simulated fleet of 12 vehicles posts to it, all topics in all three formats. Ctrl+C stops.\n')
  // Long enough to watch, and an end in case nobody does.
  fleet = run(
    'adapters/cli/main.ts',
    ['send', '--url', url, '--vins', '12', '--rate', '8', '--count', '4800', '--quiet'],
    'pipe',
  )
  fleet.once('exit', () => {
    if (!stopping) stop()
  })
}
const [code] = await ended
process.exitCode = typeof code === 'number' ? code : 1
