import { randomInt } from 'node:crypto'
import { expect, test } from 'vitest'
import { spawnTarget } from '../../conformance/spawn.ts'
import { inForm } from '../../form.ts'
import { secret } from '../../runtimes/targets.ts'
import { kill, storedWorker } from '../../workers/command.ts'
import { startLog } from '../../workers/log.ts'
import { durableSource } from '../../workers/programs/durable.ts'

const rounds = inForm({ full: 4, long: 50 })
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

test(
  'no time that is up is missing, early or under another id, when workerd is killed at random moments',
  { timeout: inForm({ full: 240_000, long: 3_600_000 }) },
  async () => {
    await using log = await startLog()
    using worker = await storedWorker(
      durableSource({ edges: 'times', vehicles: { fields: ['BatteryLevel'] } }),
      log.port,
    )
    let target = await spawnTarget(worker.commands.workerd)
    const since = new Map<string, number>()
    const acknowledged: string[] = []
    for (let round = 0; round < rounds; round++) {
      for (let n = 0; n < 20; n++) {
        const vin = `R${round}V${n}`
        const atMs = Date.now()
        since.set(vin, atMs)
        for (const [level, ms] of [
          [1, atMs - 1_000],
          [2, atMs],
        ] as const) {
          const body = JSON.stringify({ vin, createdAt: new Date(ms).toISOString(), data: { BatteryLevel: level } })
          const answer = await fetch(target.url, { method: 'POST', headers: { authorization: secret }, body })
          expect(answer.status).toBe(200)
        }
        acknowledged.push(vin)
      }
      await pause(randomInt(100, 5_000))
      await kill(target)
      target = await spawnTarget(worker.commands.workerd)
    }
    await using _ = { [Symbol.asyncDispose]: () => kill(target) }
    const told = () =>
      log.entries.flatMap(({ vin, happened }) => (happened === undefined ? [] : [{ vin, ...happened }]))
    await expect
      .poll(() => acknowledged.filter((vin) => !told().some((each) => each.vin === vin)), { timeout: 60_000 })
      .toEqual([])
    const ids = new Map<string, string>()
    for (const { vin, id, from, to } of told()) {
      expect(from).toBe(since.get(vin))
      expect(Number(to)).toBeGreaterThanOrEqual(Number(from) + 3_000)
      expect(ids.get(vin) ?? id).toBe(id)
      ids.set(vin, id)
    }
  },
)
