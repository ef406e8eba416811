/* Handling processes that are killed and frozen, and a server that crashes, under load: with an own ledger that no part of the product reads. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { few, inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { type Account, clean, createLedger, type Ledger, load, type Mode, oneOf } from './ledger.ts'
import { post, receiverOn, type Scene, startScene } from './scene.ts'

const vehicles = 40
const leaseMs = 1_500

describe.skipIf(!hasPostgres)('handling processes that end at any moment', () => {
  let scene: Scene
  let schema = ''
  let number = 0
  let ledger: Ledger

  beforeAll(async () => {
    scene = await startScene()
  }, 120_000)
  afterAll(() => scene?.[Symbol.asyncDispose]())
  beforeEach(async () => {
    schema = `kill${++number}`
    await scene.prepare(schema)
    ledger = await createLedger({ pool: scene.pool, schema, port: scene.server.port, leaseMs })
  })
  afterEach(() => ledger?.[Symbol.asyncDispose]())

  /** Runs faults under load with two handling processes, and returns what the ledger shows when all is handled. */
  async function underLoad(mode: Mode, rounds: number, fault: () => Promise<void>): Promise<Account> {
    const { receiver } = receiverOn({ db: scene.newPool(), schema, role: 'receive' })
    await receiver.open()
    await ledger.begin(mode)
    await ledger.begin(mode)
    const running = load(vehicles, (vehicle, n) => post(receiver, vehicle, n))
    for (let round = 0; round < rounds; round += 1) {
      await ledger.grows(50)
      await fault()
    }
    const acked = await running.stop()
    await ledger.isDone()
    await receiver.drain()
    return ledger.account(acked)
  }

  const kill = (mode: Mode) => async (): Promise<void> => {
    await oneOf(ledger.processes).stop('SIGKILL')
    await ledger.begin(mode)
  }

  test.each(few(['single', 'batch'] as const, 1))(
    '%s: `kill -9` loses nothing, doubles nothing and keeps the order of each vehicle',
    { timeout: 180_000 },
    async (mode) => {
      expect(await underLoad(mode, inForm({ short: 2, full: 6, long: 20 }), kill(mode))).toEqual(clean)
    },
  )

  test('processes that are frozen for longer than their lease commit nothing twice', { timeout: 180_000 }, async () => {
    const freeze = async (): Promise<void> => {
      const child = oneOf(ledger.processes)
      child.kill('SIGSTOP')
      await new Promise((resolve) => setTimeout(resolve, 1.5 * leaseMs))
      child.kill('SIGCONT')
    }
    expect(await underLoad('single', inForm({ short: 1, full: 4, long: 12 }), freeze)).toEqual(clean)
  })

  test('a server that crashes loses nothing that was acknowledged', { timeout: 180_000 }, async () => {
    expect(await underLoad('single', inForm({ short: 1, full: 4, long: 8 }), () => scene.server.crash())).toEqual(clean)
  })

  test('control: without the mark, some messages are written twice', { timeout: 180_000 }, async () => {
    const { lost, doubled } = await underLoad('unmarked', inForm({ short: 2, full: 6 }), kill('unmarked'))
    expect({ lost, isDoubled: doubled > 0 }).toEqual({ lost: 0, isDoubled: true })
  })
})
