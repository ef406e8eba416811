import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, before, test } from 'node:test'
import type { FieldValues } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { openAreas } from './areas.ts'

const secret = 'a-secret-for-this-test'
const folder = mkdtempSync(join(tmpdir(), 'fleethook-'))
const db = openAreas(join(folder, 'inbox.db-areas'))
const metersNorth = (meters: number): FieldValues => ({
  Location: { latitude: 45.1316 + meters / 111_195, longitude: 7.643 },
})

const said: string[] = []
let failures = 1
const chat = createServer(async (request, response) => {
  let body = ''
  for await (const chunk of request) body += chunk
  if (failures-- > 0) response.statusCode = 503
  else said.push(JSON.parse(body).text)
  response.end()
})
before(() => once(chat.listen(0), 'listening'))
const servers: ChildProcess[] = []
after(() => {
  for (const server of servers) server.kill('SIGKILL')
  db.close()
  chat.close()
  rmSync(folder, { recursive: true })
})

async function start(): Promise<{ server: ChildProcess; url: string }> {
  const address = chat.address()
  const server = spawn(process.execPath, ['server.ts'], {
    cwd: import.meta.dirname,
    env: {
      ...process.env,
      PORT: '0',
      WEBHOOK_SECRET: secret,
      READ_SECONDS: '0.2',
      FLEETHOOK_INBOX: join(folder, 'inbox.db'),
      CHAT_WEBHOOK_URL: `http://localhost:${typeof address === 'object' ? address?.port : ''}`,
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

async function send(url: string, vin: string, minute: number, data: FieldValues): Promise<void> {
  const createdAt = new Date(Date.UTC(2026, 0, 1, 8) + minute * 60_000).toISOString()
  const answer: Response = await fetch(url, {
    method: 'POST',
    headers: { authorization: secret },
    body: JSON.stringify(encode(message.data(data, { vin, createdAt }), 'service')),
  })
  assert.equal(answer.status, 200)
}

/** Waits until the chat has heard this. What it hears besides, it hears before. */
async function hears(texts: string[]): Promise<void> {
  const until = Date.now() + 15_000
  while (said.length < texts.length && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 20))
  assert.deepEqual(
    said.splice(0).map((text) => text.replace(/ \(.*/, '')),
    texts,
  )
}

/** Each field has its own message. */
const script: [minute: number, data: FieldValues][] = [
  [0, metersNorth(900)],
  [0.5, { Gear: 'D' }],
  [0.6, { BatteryLevel: 19 }],
  [1, metersNorth(100)],
  [2, metersNorth(220)], // a jump of the position, within the margin
  [3, metersNorth(100)],
  [4, { Gear: 'P' }],
  [5, { BatteryLevel: 20.02 }], // and one of the level
  [6, { BatteryLevel: 19.98 }],
  [7, metersNorth(210)],
  [8, metersNorth(190)],
  [9, { Gear: null }],
  [10, { BatteryLevel: 20.01 }],
  [11, { BatteryLevel: 19.97 }],
  [12, { Gear: 'D' }],
  [13, metersNorth(300)],
]

test('tells the chat once of an arrival, a low battery and a departure, over a restart, though the chat fails at first and messages come twice', async () => {
  db.exec(`
    INSERT INTO vehicles VALUES ('VIN', 'c-12');
    INSERT INTO areas VALUES ('c-12', 'home', 45.1316, 7.643, 200);
  `)
  const first = await start()
  for (const [minute, data] of script.slice(0, 8).flatMap((each) => [each, each]))
    await send(first.url, 'VIN', minute, data)
  await hears(['c-12: VIN arrived at home', 'c-12: VIN is parked at home with 19 %'])
  await stop(first.server)
  const second = await start()
  for (const [minute, data] of script.slice(8).flatMap((each) => [each, each]))
    await send(second.url, 'VIN', minute, data)
  await hears(['c-12: VIN left home'])
  await stop(second.server)
})

test('a new area, a smaller one and the area of the next customer count at once around a parked vehicle, and a deleted area is not left', async () => {
  const { server, url } = await start()
  await send(url, 'PARKED', 0, metersNorth(180))
  db.exec(`
    INSERT INTO vehicles VALUES ('PARKED', 'c-20');
    INSERT INTO areas VALUES ('c-20', 'work', 45.1316, 7.643, 200), ('c-21', 'work', 45.1316, 7.643, 200);
  `)
  await hears(['c-20: PARKED arrived at work'])
  db.exec("UPDATE areas SET radius_m = 150 WHERE customer = 'c-20'")
  await hears(['c-20: PARKED left work'])
  db.exec("UPDATE vehicles SET customer = 'c-21' WHERE vin = 'PARKED'")
  await hears(['c-21: PARKED arrived at work'])
  db.exec("DELETE FROM areas WHERE customer = 'c-21'; INSERT INTO areas VALUES ('c-21', 'home', 45.1316, 7.643, 500)")
  await hears(['c-21: PARKED arrived at home'])
  await stop(server)
})

test('an area that cannot be right is refused where it is written', () => {
  const refuses = (sql: string, why: RegExp) => assert.throws(() => db.exec(sql), why)
  refuses("INSERT INTO areas VALUES ('c-1', 'hme', 45, 7, 200)", /There is no such area. The names are: home, work/)
  refuses("UPDATE areas SET name = 'depot'", /There is no such area/)
  refuses("INSERT INTO areas VALUES ('c-1', 'home', 145, 7, 200)", /latitude must be from -90 to 90/)
  refuses("INSERT INTO areas VALUES ('c-1', 'home', 45, 7, 0)", /radius_m must be from 10 to 1000000 meters/)
  refuses("INSERT INTO areas VALUES ('c-1', 'home', 'north', 7, 200)", /cannot store TEXT value in REAL column/)
})
