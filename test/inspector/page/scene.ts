import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { inspectorRoutes, type InspectorOptions } from 'fleethook/inspector'
import { serve } from 'fleethook/node'
import { deliver, message } from 'fleethook/testing'
import { Hono } from 'hono'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'

/* The site is tested in the same browser, from a folder that does not find these packages. */
export type { Browser, Page }

/** The script of axe, which finds what some people cannot use. */
export const axe: string = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export const secret = 'an-operator-of-the-tests'
export const webhookSecret = 'the-webhook'

/** Text that an attacker would put into every value that the page shows. */
export const hostile = '<img src=x onerror=alert(1)>'

const log = { debug() {}, info() {}, warn() {}, error() {} }

/** The browser of this machine: `CHROMIUM`, or the one in the PATH. */
function executable(): string {
  const folders = (process.env['PATH'] ?? '').split(':')
  const found = folders.map((folder) => join(folder, 'chromium')).find((path) => existsSync(path))
  const path = process.env['CHROMIUM'] ?? found
  if (path === undefined)
    throw new Error('No Chromium. Install it (apt-get install chromium), or name one in CHROMIUM.')
  return path
}

export const launch = (): Promise<Browser> =>
  chromium.launch({ executablePath: executable(), args: ['--no-sandbox', '--disable-dev-shm-usage'] })

/** A receiver on its own port, with one message of each outcome and the inspector at /inspector. */
export interface Scene {
  readonly receiver: Receiver
  readonly url: string
  close(): Promise<void>
}

export interface SceneOptions extends Partial<InspectorOptions> {
  readonly port?: number
  readonly vehicles?: boolean
  readonly isEmpty?: boolean
}

export async function openScene({
  port = 0,
  vehicles: hasVehicles = true,
  isEmpty = false,
  ...options
}: SceneOptions = {}): Promise<Scene> {
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-page-'))
  const inbox = sqliteInbox({ path: join(folder, 'inbox.db') })
  const receiver = createReceiver({
    secret: [webhookSecret, 'the-old-one'],
    inbox,
    retry: { attempts: 1 },
    log,
    parts: hasVehicles ? [vehicles({ fields: 'all' })] : [],
  })
    .on('data', function saveBattery() {})
    .on(['alerts', 'errors'], function notify(event) {
      throw new TypeError(`No address for ${event.vin}: ${hostile}`)
    })
  const app = new Hono()
    .route('/telemetry', receiver.routes())
    .route('/inspector', inspectorRoutes(receiver, { secret, ...options }))
  const server = await serve(app, { port, hostname: '127.0.0.1', announce: false, signals: false })
  if (!isEmpty) await fill(receiver)
  return {
    receiver,
    url: `${new URL(server.url).origin}/inspector/`,
    async close() {
      await server.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

async function fill(receiver: Receiver): Promise<void> {
  const post = async (
    given: Parameters<typeof deliver>[1],
    as: 'service' | 'vehicle_maker' | 'event_collector' = 'service',
  ): Promise<void> => {
    const { settled } = await deliver(receiver, given, { secret: webhookSecret, as })
    await settled
  }
  const formats = ['service', 'vehicle_maker', 'event_collector'] as const
  for (let n = 0; n < 24; n += 1) {
    const vin = `0FLEETV14T00000${String(n % 8).padStart(2, '0')}`
    // Each vehicle drives a hundred meters a message: what is not possible is not believed.
    const [place, metersNorth] = [16 + (n % 8), (Math.floor(n / 8) - 2) * 100]
    const latitude = 52.5 + Math.sin(place) / 30 + metersNorth / 111_195
    const Location = { latitude, longitude: 13.4 + Math.cos(place * 1.7) / 18 }
    const createdAt = new Date(Date.now() - 200).toISOString()
    await post(
      message.data({ BatteryLevel: 81.5 - n, Gear: 'D', VehicleSpeed: 34.8, Location }, { vin, createdAt }),
      formats[n % 3],
    )
    if (n % 6 === 0) await post(message.state('online', { vin, createdAt }))
  }
  await post(message.alerts(undefined, { vin: '0FLEETV14T0000003' }))
  await post(message.errors(undefined, { vin: '0FLEETV14T0000005' }), 'vehicle_maker')
  await post(message.alerts([{ name: hostile }], { vin: hostile }))
  await post(message.vehicleData(undefined, { vin: '0FLEETV14T0000001' }))
  await post(message.connectivity(undefined, { vin: '0FLEETV14T0000002' }))
  await post({
    ...{ topic: 'data', vin: '0FLEETV14T0000004', createdAt: '2026-11-20T08:00:00.000Z' },
    data: { BatteryLevel: null, [hostile]: 1, Note: hostile },
    undecoded: { BatteryLevel: hostile },
  })
  await deliver(receiver, message.data(), { secret: 'wrong' })
  await deliver(receiver, message.state())
}

/** A tab that is signed in, with all complaints of the browser. */
export interface Tab {
  readonly page: Page
  readonly complaints: readonly string[]
}

export async function openTab(
  browser: Browser,
  { url }: Pick<Scene, 'url'>,
  options: BrowserContextOptions = {},
): Promise<Tab> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (entry) => ['error', 'warning'].includes(entry.type()) && complaints.push(entry.text()))
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('dialog', (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', ({ violatedDirective }) => console.error(`CSP: ${violatedDirective}`))
  })
  await page.goto(`${url}#secret=${encodeURIComponent(secret)}`)
  return { page, complaints }
}
