import { serve } from '@hono/node-server'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createSandbox } from 'fleethook/sandbox'
import { specified } from './coverage.ts'
import { checks, type Scene, sceneOf, type ServiceUnderTest } from './rows.ts'

/**
 * `CONFORMANCE=reads` runs the checks that change nothing against the service of SERVICE_URL and SERVICE_API_KEY.
 * `CONFORMANCE=writes` runs all checks. It deletes the webhook of the business and changes the config of a vehicle.
 */
const { CONFORMANCE: mode, SERVICE_URL: baseUrl, SERVICE_API_KEY: key } = process.env

const apiKey = 'the-key-of-the-business'
const sandbox = createSandbox({ apiKey, speed: 0, allowLocal: false })
/** The methods of the requests since this list was last emptied. */
const methods: string[] = []
function noted(request: Request): Response | Promise<Response> {
  methods.push(request.method)
  return sandbox.fetch(request)
}
const server = mode === undefined ? serve({ fetch: noted, port: 0, hostname: '127.0.0.1' }) : undefined

async function service(): Promise<ServiceUnderTest> {
  if (server === undefined) {
    if (!baseUrl || !key) throw new Error('CONFORMANCE needs SERVICE_URL and SERVICE_API_KEY.')
    return { baseUrl, apiKey: key }
  }
  const address =
    server.address() ?? (await new Promise((resolve) => server.once('listening', () => resolve(server.address()))))
  return { baseUrl: `http://127.0.0.1:${Object(address).port}`, apiKey }
}

describe('client and service agree, row by row of test/interface/coverage.ts', () => {
  let scene: Scene
  beforeAll(async () => {
    scene = await sceneOf(await service())
  })
  afterAll(async () => {
    await sandbox.close()
    server?.close()
  })

  const chosen = checks.filter(({ writes }) => !writes || mode === undefined || mode === 'writes')
  test.each(chosen.map((check) => [`${check.row}: ${check.name}`, check] as const))(
    '%s',
    async (_name, { run, writes }) => {
      methods.length = 0
      await run(scene)
      // A check that can run against the real service changes nothing there.
      if (!writes) expect(methods.filter((method) => method !== 'GET')).toEqual([])
    },
  )
})

test('every row that a client can see has a check, and every check has a row', () => {
  const rows = specified
    .filter(({ module }) => module.some((path) => path.startsWith('src/service/client')))
    .map(({ section }) => section)
  expect([...new Set(checks.map(({ row }) => row))].toSorted()).toEqual(
    rows.filter((row) => row !== 'Server-Sent Events').toSorted(),
  )
})
