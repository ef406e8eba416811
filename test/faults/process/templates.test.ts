// `kill -9` under load, against the templates as they are: no session, trip or arrival is missed, and none is counted twice.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { FieldValues } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { beforeEach, describe, expect, test } from 'vitest'
import { spawnTarget, type Target } from '../../conformance/spawn.ts'
import { inForm } from '../../form.ts'
import { newFolder } from '../../folder.ts'
import { secret, templateCommand } from '../../templates/running.ts'

const { kills, vehicles, rounds } = inForm({
  full: { kills: 4, vehicles: 12, rounds: 6 },
  long: { kills: 150, vehicles: 40, rounds: 60 },
})

let folder: string
beforeEach(() => {
  folder = newFolder('template')
})

/** A template in one process after the other. */
class Killed {
  kills = 0
  url: string | undefined
  #target: Target | undefined
  readonly #template: string
  readonly #env: Readonly<Record<string, string>>

  constructor(template: string, env: Readonly<Record<string, string>> = {}) {
    this.#template = template
    this.#env = env
  }

  async start(): Promise<void> {
    const files = { DATABASE: join(folder, 'result.db'), FLEETHOOK_INBOX: join(folder, 'inbox.db') }
    this.#target = await spawnTarget(templateCommand(this.#template, { ...files, ...this.#env }, folder))
    this.url = this.#target.url
  }

  async stop(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    await this.#target?.stop(signal)
  }

  /** Kills it until enough kills have happened and the work is done. */
  async during(work: Promise<unknown>): Promise<void> {
    let isDone = false
    void work.finally(() => (isDone = true))
    await this.start()
    while (!isDone || this.kills < kills) {
      // A real time: the process must be anywhere in its work.
      await new Promise((resolve) => setTimeout(resolve, 50 + Math.random() * 400))
      if (this.kills < kills) {
        await this.stop('SIGKILL')
        this.kills += 1
        await this.start()
      }
    }
    await work
  }
}

const startMs = Date.now() - 86_400_000
/** Between two messages of a vehicle, by its clock. A trip and a charge of another round must not be part of this one. */
const everyMs = 120_000
const vinOf = (index: number): string => `0FLEETV14T${String(index).padStart(7, '0')}`

/** Posts each message until it is acknowledged, in order, as a vehicle with a patient sender would. */
async function send(receiver: Killed, vin: string, values: readonly FieldValues[]): Promise<void> {
  for (const [index, data] of values.entries()) {
    const createdAt = new Date(startMs + index * everyMs).toISOString()
    const body = JSON.stringify(encode(message.data(data, { vin, createdAt }), 'service'))
    for (;;) {
      try {
        const { url } = receiver
        if (url !== undefined) {
          const answer = await fetch(url, { method: 'POST', headers: { authorization: secret }, body })
          await answer.arrayBuffer()
          if (answer.status === 200) break
        }
      } catch {
        // It was killed. The next one listens soon.
      }
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
}

async function run(receiver: Killed, script: readonly FieldValues[], isComplete: () => boolean): Promise<void> {
  const senders = Array.from({ length: vehicles }, (_, index) => send(receiver, vinOf(index), script))
  await receiver.during(Promise.all(senders))
  // Each row that a template writes waits for the disk.
  const untilMs = Date.now() + 120_000
  while (!isComplete() && Date.now() < untilMs) await new Promise((resolve) => setTimeout(resolve, 50))
  await receiver.stop('SIGTERM')
}

/** From the second to the fifth message of a round. */
function lasted(vin: string, round: number): Record<string, unknown> {
  const started = new Date(startMs + (round * 6 + 1) * everyMs).toISOString()
  return { vin, started: started.slice(0, 19).replace('T', ' '), minutes: (3 * everyMs) / 60_000 }
}

/** All rows that a template has written. */
function rowsOf(query: string): readonly Record<string, unknown>[] {
  const db = new DatabaseSync(join(folder, 'result.db'), { readOnly: true })
  try {
    return db.prepare(query).all()
  } finally {
    db.close()
  }
}

const timeout = inForm({ full: 300_000, long: 3_000_000 })
const turns = Array.from({ length: rounds }, (_, round) => round)
const everyVin = Array.from({ length: vehicles }, (_, index) => vinOf(index))

describe('a template that is killed under load', () => {
  test('charging-sessions has each session once, with its energy', { timeout }, async () => {
    const script = turns.flatMap((round): FieldValues[] => [
      { DetailedChargeState: 'Disconnected', BatteryLevel: 20 },
      // After a kill, what the counter stood at before is not certain. The car says it when it begins. No socket gives 10 kWh in four minutes, so it is DC.
      { DetailedChargeState: 'Charging', BatteryLevel: 20, DCChargingEnergyIn: 0 },
      { DetailedChargeState: 'Charging', DCChargingEnergyIn: 5 },
      { DetailedChargeState: 'Charging', DCChargingEnergyIn: 10 + round, BatteryLevel: 60 },
      { DetailedChargeState: 'Complete' },
      { DCChargingEnergyIn: 0, DetailedChargeState: 'Complete' },
    ])
    const receiver = new Killed('charging-sessions')
    const rows = 'SELECT vin, started, minutes, kwh, percent_from, percent_to FROM finished ORDER BY vin, started'
    const expected = everyVin.flatMap((vin) =>
      turns.map((round) => ({ ...lasted(vin, round), kwh: 10 + round, percent_from: 20, percent_to: 60 })),
    )
    await run(receiver, script, () => rowsOf(rows).filter(({ kwh }) => kwh !== null).length >= vehicles * rounds)
    expect(receiver.kills).toBe(kills)
    expect(rowsOf(rows)).toEqual(expected)
  })

  test('trips has each trip once, with its miles and energy', { timeout }, async () => {
    const script = turns.flatMap((round): FieldValues[] => [
      { Gear: 'P' },
      // As above: a kill may come before it.
      { Gear: 'D', Odometer: round * 10, EnergyRemaining: 60 },
      { Gear: 'D', Odometer: round * 10 + 4, EnergyRemaining: 58 },
      { Gear: 'R', EnergyRemaining: 57 },
      { Gear: 'P' },
      { Gear: 'P', Odometer: round * 10 + 9 },
    ])
    const receiver = new Killed('trips')
    const rows = 'SELECT vin, started, minutes, miles - unseen AS miles, kwh FROM finished ORDER BY vin, started'
    const expected = everyVin.flatMap((vin) => turns.map((round) => ({ ...lasted(vin, round), miles: 9, kwh: 3 })))
    await run(receiver, script, () => rowsOf(rows).filter(({ miles }) => miles === 9).length >= vehicles * rounds)
    expect(receiver.kills).toBe(kills)
    expect(rowsOf(rows)).toEqual(expected)
  })

  test(
    'geofence-alerts posts each arrival and departure, and a repeated post has the same key',
    { timeout },
    async () => {
      const posts = new Map<string, string>()
      let repeated = 0
      const chat = createServer(async (request, response) => {
        let body = ''
        for await (const chunk of request) body += chunk
        const key = String(request.headers['idempotency-key'])
        const { text }: { text: string } = JSON.parse(body)
        if (posts.has(key)) repeated += 1
        if (posts.has(key)) expect(posts.get(key)).toBe(text)
        posts.set(key, text)
        response.end()
      }).listen(0)
      await once(chat, 'listening')
      const north = (meters: number): FieldValues => ({
        Location: { latitude: 45.1316 + meters / 111_195, longitude: 7.643 },
      })
      const script = turns.flatMap((): FieldValues[] => [-2_000, 100, 210, 190, 230, 300].map(north))
      const { port } = chat.address() as AddressInfo
      const receiver = new Killed('geofence-alerts', { CHAT_WEBHOOK_URL: `http://127.0.0.1:${port}` })
      const areas = join(import.meta.dirname, '../../../examples/geofence-alerts/areas.ts')
      const { openAreas }: { openAreas: (path: string) => DatabaseSync } = await import(areas)
      const db = openAreas(join(folder, 'inbox.db-areas'))
      db.exec("INSERT INTO areas VALUES ('c-1', 'home', 45.1316, 7.643, 200)")
      for (const vin of everyVin) db.prepare("INSERT INTO vehicles VALUES (?, 'c-1')").run(vin)
      db.close()
      const expected = everyVin.flatMap((vin) =>
        turns.flatMap((round) => [
          `c-1: ${vin} arrived at home (${new Date(startMs + (round * 6 + 1) * everyMs).toISOString()})`,
          `c-1: ${vin} left home (${new Date(startMs + (round * 6 + 5) * everyMs).toISOString()})`,
        ]),
      )
      await run(receiver, script, () => posts.size >= expected.length)
      chat.closeAllConnections()
      chat.close()
      console.log(`geofence-alerts: ${posts.size} posts, ${repeated} of them repeated, ${receiver.kills} kills`)
      expect([...posts.values()].toSorted()).toEqual(expected.toSorted())
    },
  )
})
