// Five receivers that get no messages, or lose them, each for one reason. By hand:
//
//   node test/cli/doctor/setups.ts wrong-secret
//
// prints the folder in which to run fleethook doctor, tail and inspect, and runs until Ctrl+C.
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createClient } from '../../../src/client.ts'
import { spawnTarget } from '../../conformance/spawn.ts'
import { proxy } from './proxies.ts'

export const setups = [
  'wrong-secret',
  'proxy-strips-the-header',
  'handler-throws-on-one-field',
  'disk-full',
  'vehicle-without-a-config',
] as const

/** What is broken. */
export type Broken = (typeof setups)[number]

/** A receiver, the service, and vehicles that post to it. */
export interface Setup extends AsyncDisposable {
  /** The folder with `.env`, in which to run commands. */
  readonly folder: string
  /** The address of the webhook. */
  readonly url: string
  /** The vehicles of the business. */
  readonly vins: readonly string[]
}

const root = new URL('../../../', import.meta.url)
const [secret, other, apiKey] = ['5f2b', '9c41', '77d0'].map((part) => part.repeat(12))

const program = (isBroken: boolean): string => `
import { createReceiver } from ${JSON.stringify(new URL('src/index.ts', root).href)}
import { sqliteInbox } from ${JSON.stringify(new URL('adapters/inbox/sqlite.ts', root).href)}
import { serve } from ${JSON.stringify(new URL('adapters/node.ts', root).href)}
const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET, inbox: sqliteInbox({ path: 'data/inbox.db' }) })
receiver.on('data', function saveBattery(event) { void event.data.BatteryLevel })
receiver.on('data', function savePosition(event) {
  const { Location: place } = event.data
  if (place !== undefined) void ${isBroken ? 'place.lat.toFixed(4)' : 'place?.latitude.toFixed(4)'}
})
await serve(receiver, { port: 0, hostname: '127.0.0.1' })
`

/** Whether this machine can make a disk of a few megabytes. */
export const hasVolumes: boolean = process.platform === 'linux' && process.getuid?.() === 0

/** Starts one of the setups. Resolves when its vehicles send. */
export async function prepare(broken: Broken): Promise<Setup> {
  const folder = mkdtempSync(join(tmpdir(), `fleethook-${broken}-`))
  const stack = new AsyncDisposableStack()
  stack.defer(() => rmSync(folder, { recursive: true, force: true }))
  mkdirSync(join(folder, 'data'))
  if (broken === 'disk-full') {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', join(folder, 'data')])
    stack.defer(() => void execFileSync('umount', ['--lazy', join(folder, 'data')]))
  }
  writeFileSync(join(folder, 'server.ts'), program(broken === 'handler-throws-on-one-field'))
  const receiver = stack.use(
    await spawnTarget({
      ...{ runtime: broken, command: process.execPath, args: ['server.ts'], cwd: folder },
      env: { WEBHOOK_SECRET: secret ?? '' },
    }),
  )
  const strips = broken === 'proxy-strips-the-header'
  const front = stack.use(await proxy(receiver.url, strips ? { headers: ({ authorization: _, ...rest }) => rest } : {}))
  const url = new URL('/', front.url).href
  const sandbox = stack.use(
    await spawnTarget({
      ...{ runtime: 'sandbox', command: process.execPath, cwd: folder },
      args: [
        fileURLToPath(new URL('adapters/cli/main.ts', root)),
        ...['sandbox', '--allow-local', '--port', '0', '--vehicles', '3'],
      ],
      env: { SERVICE_API_KEY: apiKey ?? '' },
    }),
  )
  const env = [`WEBHOOK_SECRET=${secret}`, `SERVICE_URL=${sandbox.url}`, `SERVICE_API_KEY=${apiKey}`]
  writeFileSync(join(folder, '.env'), `${env.join('\n')}\n`, { mode: 0o600 })

  const client = createClient({ baseUrl: sandbox.url, apiKey })
  const auth = broken === 'wrong-secret' ? other : secret
  await client.webhook.set({ url, format: 'service', auth }, { allowLocal: true })
  const vins = (await client.products()).flatMap(({ product_type: type, product_id: id }) =>
    type === 'vehicle' ? [id] : [],
  )
  if (broken === 'disk-full') fill(join(folder, 'data', 'filler'))
  const streaming = broken === 'vehicle-without-a-config' ? vins.slice(1) : vins
  const fields = {
    BatteryLevel: { interval_seconds: 1 },
    Location: { interval_seconds: 1 },
    Gear: { interval_seconds: 1 },
  }
  await Promise.all(streaming.map((vin) => client.config(vin).replace({ fields })))
  return { folder, url, vins, [Symbol.asyncDispose]: () => stack.disposeAsync() }
}

/** Takes the rest of the disk. */
function fill(path: string): void {
  for (let bytes = 1_048_576; bytes >= 4_096; bytes /= 2) {
    try {
      for (;;) writeFileSync(path, new Uint8Array(bytes), { flag: 'a' })
    } catch {
      // No room for this much: try less.
    }
  }
}

if (import.meta.main) {
  const broken = setups.find((each) => each === process.argv[2])
  if (broken === undefined) throw new Error(`Which one? ${setups.join(', ')}`)
  const setup = await prepare(broken)
  console.log(`cd ${setup.folder}\nfleethook doctor --url ${setup.url} --only secret,webhook,proxy,inbox,receiver`)
  const held = setInterval(() => {}, 60_000)
  process.once('SIGINT', () => {
    clearInterval(held)
    void setup[Symbol.asyncDispose]()
  })
}
