import { once } from 'node:events'
import { serve } from '@hono/node-server'
import { createSandbox } from 'fleethook/sandbox'
import { expect, test } from 'vitest'
import type { Runtime } from '../../scripts/runtimes.ts'
import { inForm } from '../form.ts'
import { faulty } from './faulty-service.ts'
import type { FailureMode } from './programs/journey.ts'
import { everywhere, inThisForm } from '../runtimes/targets.ts'
import { type Program, seenOn } from './running.ts'

const apiKey = 'the-key-of-the-business'
const failureModes = inForm<readonly FailureMode[]>({
  real: ['none', '502', 'cut', 'silent'],
  full: ['none', '500', '502', '429', 'slow', 'cut', 'drop', 'silent', 'garbage'],
})
const program: Program = {
  file: 'run.ts',
  imports: "import { everyMode } from './journey.ts'",
  call: `everyMode(service, key, ${JSON.stringify(failureModes)})`,
  env: { MODES: JSON.stringify(failureModes) },
}

/** What the journey sees, whatever fails. */
const seen = {
  regions: true,
  replaced: ['number', {}],
  patched: ['number', {}],
  config: ['BatteryLevel', 'Gear'],
  webhook: 'service',
  paused: true,
  none: ['webhook_not_found', 404],
  woken: true,
  limited: true,
  incomplete: ['invalid_command', 400],
  unknown: ['invalid_command', 400],
  summary: true,
  data: true,
  history: 'object',
  image: true,
  site: true,
  live: true,
  handled: [900_001, 900_002, 900_003, 900_004],
  gaps: [],
  ended: 'ended',
  refilled: ['vehicle_data'],
  aborted: 'state',
  moved: ['refused', 301],
  gone: ['unreachable', null],
  local: ['invalid_webhook_url', null],
  elsewhere: ['business_product_not_consented', 403],
  asleep: ['vehicle_unavailable', 408],
  stopped: ['config_not_found', 404],
}

test.concurrent.each<Runtime>((['node22.13', ...everywhere] as const).filter(inThisForm))(
  'the client survives every failure of a sandbox on %s, whose streams end every two seconds',
  { timeout: 240_000 },
  async (runtime) => {
    const sandbox = createSandbox({
      apiKey,
      speed: 0,
      vehicles: failureModes.length,
      energySites: 1,
      streamMinutes: 0.03,
    })
    const server = serve({ fetch: faulty(sandbox.fetch), port: 0, hostname: '127.0.0.1' })
    try {
      await once(server, 'listening')
      const url = `http://127.0.0.1:${Object(server.address()).port}`
      const modes = Object.fromEntries(failureModes.map((mode) => [mode, seen]))
      expect(await seenOn(runtime, program, url, apiKey)).toEqual(modes)
    } finally {
      await sandbox.close()
      if ('closeAllConnections' in server) server.closeAllConnections()
      server.close()
    }
  },
)
