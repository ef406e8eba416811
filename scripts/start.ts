// `npm start`: the whole story on one screen. A sandbox in place of the service, the receiver of examples/node, its webhook set
// through the client, simulated vehicles that stream what their configs say, and their events as they are handled.
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, symlinkSync } from 'node:fs'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { stripVTControlCharacters } from 'node:util'
import { createClient } from '../src/client.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const secret = randomBytes(24).toString('hex')
const apiKey = randomBytes(24).toString('hex')
// The receiver's output passes through here, so it cannot see that it ends on a terminal.
const colours = process.stdout.isTTY ? { FORCE_COLOR: '1' } : {}
const env = {
  ...colours,
  ...process.env,
  WEBHOOK_SECRET: secret,
  SERVICE_API_KEY: apiKey,
  PORT: process.env['PORT'] ?? '0',
}
/** Long enough to watch, and an end in case nobody does. */
const longestMs = 600_000

// Examples import the package by its name, as whoever copies them does.
const self = `${root}node_modules/fleethook`
if (!existsSync(self)) symlinkSync('..', self, 'junction')

interface Program {
  readonly child: ChildProcess
  readonly ended: Promise<unknown[]>
}

/** In a process group of its own, so that Ctrl+C reaches them in the right order: first who sends, then who receives. */
function run(script: string, ...args: readonly string[]): Program {
  const child = spawn(process.execPath, [`${root}${script}`, ...args], {
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return { child, ended: once(child, 'exit') }
}

/** Passes on what a program prints. Resolves to the address on which it says that it listens. */
async function listening({ child, ended }: Program, isShown: boolean): Promise<string> {
  const { stdout } = child
  if (stdout === null) throw new Error('The program has no output to read.')
  return new Promise((resolve, reject) => {
    createInterface(stdout).on('line', (line) => {
      if (isShown) console.log(line)
      const url = /listening on (http\S+)/.exec(stripVTControlCharacters(line))?.[1]
      if (url !== undefined) resolve(url)
    })
    void ended.then(() => reject(new Error('It ended before it listened.')))
  })
}

const receiver = run('examples/node/server.ts')
const sandbox = run(
  'adapters/cli/main.ts',
  'sandbox',
  '--allow-local',
  '--port',
  '0',
  '--vehicles',
  '8',
  '--speed',
  '5',
)

let stopping = false
function stop(): void {
  if (stopping) process.exit(130)
  stopping = true
  sandbox.child.kill('SIGINT')
  void sandbox.ended.then(() => receiver.child.kill('SIGINT'))
}
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, stop)
// Whoever read along is gone.
process.stdout.on('error', stop)
// Nothing is left running, however this ends.
process.on('exit', () => {
  for (const { child } of [sandbox, receiver]) child.kill('SIGINT')
})
void receiver.ended.then(() => sandbox.child.kill('SIGINT'))
setTimeout(stop, longestMs).unref()

try {
  const [webhookUrl, baseUrl] = await Promise.all([listening(receiver, true), listening(sandbox, false)])
  const client = createClient({ baseUrl, apiKey })
  const { format } = await client.webhook.set(
    { url: webhookUrl, format: 'service', auth: secret },
    { allowLocal: true },
  )
  console.log(`sandbox on ${baseUrl}: its webhook is set to the receiver, in the format ${format}`)
  const vehicles = (await client.products()).filter((product) => product.product_type === 'vehicle')
  const fields = {
    VehicleSpeed: { interval_seconds: 5, minimum_delta: 2 },
    Location: { interval_seconds: 10, minimum_delta: 20 },
    BatteryLevel: { interval_seconds: 30 },
    Gear: { interval_seconds: 1 },
    DetailedChargeState: { interval_seconds: 1 },
    ACChargingPower: { interval_seconds: 20 },
    Locked: { interval_seconds: 1 },
  }
  await Promise.all(vehicles.map(({ product_id: vin }) => client.config(vin).replace({ fields })))
  console.log(
    `${vehicles.length} simulated vehicles stream ${Object.keys(fields).length} fields, five times as fast as life. Ctrl+C stops.\n`,
  )
} catch (error) {
  if (!stopping) console.error(error)
  stop()
}
const [code] = await receiver.ended
process.exitCode = typeof code === 'number' ? code : 1
