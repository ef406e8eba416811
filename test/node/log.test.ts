import { createReceiver, type Receiver } from 'fleethook'
import { afterEach, expect, onTestFinished, test, vi } from 'vitest'

const body = { vin: '0FLEETV14T0000004', createdAt: '2026-11-21T10:00:00Z', state: 'online' }

afterEach(() => void vi.restoreAllMocks())

/** What a receiver with the default log prints about a handler that fails, one text for each call. */
async function printed(isTerminal: boolean): Promise<readonly string[]> {
  const before = Object.getOwnPropertyDescriptor(process.stderr, 'isTTY')
  Object.defineProperty(process.stderr, 'isTTY', { value: isTerminal, configurable: true })
  onTestFinished(() => {
    if (before === undefined) Reflect.deleteProperty(process.stderr, 'isTTY')
    else Object.defineProperty(process.stderr, 'isTTY', before)
  })
  const calls: unknown[][] = []
  for (const level of ['warn', 'error'] as const)
    vi.spyOn(console, level).mockImplementation((...given: unknown[]) => void calls.push(given))
  const receiver: Receiver = createReceiver({ secret: false, retry: { attempts: 1 } })
  receiver.on('state', function save() {
    throw new Error('the database is gone')
  })
  await receiver.accept({ authorization: undefined, body })
  await expect.poll(() => receiver.stats().deadLettered).toBe(1)
  await receiver.drain()
  for (const given of calls) expect(given).toHaveLength(1)
  return calls.map(([line]) => String(line))
}

test('a line of the log is one line of JSON where nobody reads it in a terminal', async () => {
  const lines = (await printed(false)).map((line) => JSON.parse(line) as Record<string, unknown>)
  expect(lines).toMatchObject([
    {
      level: 'warn',
      message: 'fleethook: a handler for state failed',
      handler: 'save',
      error: 'Error',
      text: 'the database is gone',
    },
    { level: 'error', message: expect.stringContaining('is a dead letter after 1 attempt') },
  ])
  expect(Date.parse(String(lines[0]?.['time']))).toBeGreaterThan(Date.now() - 60_000)
})

test('a line of the log is one line in a terminal, with its text first', async () => {
  const lines = await printed(true)
  expect(lines).toHaveLength(2)
  expect(lines[0]).toMatch(/^fleethook: a handler for state failed \{"handler":"save",.*\}$/)
  expect(lines.join('')).not.toContain('\n')
})
