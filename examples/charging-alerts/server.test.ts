import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, before, test } from 'node:test'
import type { FieldValues, Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'

const secret = 'a-secret-for-this-test'
const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
const startMs = Date.now() - 60_000
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

const servers: ChildProcess[] = []
let failures = 1
const said: string[] = []
const chat = createServer(async (request, response) => {
  let body = ''
  for await (const chunk of request) body += chunk
  if (failures-- > 0) response.statusCode = 503
  else said.push(JSON.parse(body).text.replace(/ \(.*/, ''))
  response.end()
})
before(() => once(chat.listen(0), 'listening'))
after(() => {
  for (const server of servers) server.kill('SIGKILL')
  chat.close()
  rmSync(folder, { recursive: true })
})

async function start(): Promise<{ server: ChildProcess; url: string }> {
  const address = chat.address()
  const chatUrl = `http://localhost:${typeof address === 'object' ? address?.port : ''}`
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: {
      ...process.env,
      PORT: '0',
      WEBHOOK_SECRET: secret,
      FLEETHOOK_INBOX: join(folder, 'inbox.db'),
      CHAT_WEBHOOK_URL: chatUrl,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  servers.push(server)
  for await (const line of createInterface(server.stdout)) {
    const url = /listening on (http:\S+)/.exec(line)?.[1]
    if (url !== undefined) return { server, url }
  }
  throw new Error('The server ended before it listened.')
}

async function stop(server: ChildProcess): Promise<void> {
  const exited = once(server, 'exit')
  server.kill('SIGTERM')
  await exited
}

async function post(url: string, vin: string, format: Format, second: number, data: FieldValues): Promise<void> {
  const createdAt = new Date(startMs + second * 1000).toISOString()
  const answer: Response = await fetch(url, {
    method: 'POST',
    headers: { authorization: format === 'event_collector' ? `Splunk ${secret}` : secret },
    body: JSON.stringify(encode(message.data(data, { vin, createdAt }), format)),
  })
  assert.equal(answer.status, 200)
}

/** Waits until the chat has heard this of a vehicle. What it hears besides, it hears before. */
async function hears(vin: string, texts: string[]): Promise<void> {
  const until = Date.now() + 10_000
  const heard = () => said.filter((text) => text.startsWith(`${vin} `))
  while (heard().length < texts.length && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20))
  assert.deepEqual(
    heard(),
    texts.map((text) => `${vin} ${text}`),
  )
}

test('tells the chat once per charge, whatever the format, though the state flickers and messages come twice', async () => {
  const { server, url } = await start()
  const states = [
    'Disconnected',
    'Charging',
    'NoPower',
    'Charging',
    null,
    'Stopped',
    'Starting',
    'Charging',
    'Complete',
    'Charging',
    'Complete',
  ] as const
  await Promise.all(
    formats.map(async (format) => {
      for (const [index, DetailedChargeState] of states.entries()) {
        await post(url, `VIN-${format}`, format, index, { DetailedChargeState })
        await post(url, `VIN-${format}`, format, index, { DetailedChargeState })
      }
      await hears(`VIN-${format}`, ['starts charging', 'is fully charged'])
    }),
  )
  await stop(server)
})

test('tells of the charge that a vehicle begins with, over a restart, and of the next one when it was unplugged', async () => {
  const first = await start()
  await post(first.url, 'NEXT', 'service', 0, { DetailedChargeState: 'Charging' })
  await hears('NEXT', ['starts charging'])
  await stop(first.server)
  const { server, url } = await start()
  await post(url, 'NEXT', 'service', 10, { DetailedChargeState: 'NoPower' })
  await post(url, 'NEXT', 'service', 12, { DetailedChargeState: 'Charging' })
  await post(url, 'NEXT', 'service', 14, { DetailedChargeState: 'Complete' })
  await post(url, 'NEXT', 'service', 16, { DetailedChargeState: 'Disconnected' })
  await post(url, 'NEXT', 'service', 18, { DetailedChargeState: 'Charging' })
  // Its Disconnected does not come. But it drives.
  await post(url, 'NEXT', 'service', 20, { Gear: 'P' })
  await post(url, 'NEXT', 'service', 22, { Gear: 'D' })
  await post(url, 'NEXT', 'service', 24, { DetailedChargeState: 'Starting' })
  await hears('NEXT', ['starts charging', 'is fully charged', 'starts charging', 'starts charging'])
  await stop(server)
})
