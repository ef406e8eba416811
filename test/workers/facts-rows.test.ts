/* Each row of the semantics of facts, in Durable Objects on workerd. */
import { spawnTarget } from '../conformance/spawn.ts'
import { placeElsewhere } from '../vehicles/facts-elsewhere.ts'
import type { FactsSettings, Noted } from '../vehicles/facts-receiver.ts'
import { factRows, type FactsPlace } from '../vehicles/facts-rows.ts'
import { kill, storedWorker } from './command.ts'
import { startLog } from './log.ts'
import { factsSource } from './programs/facts.ts'

async function open(settings: FactsSettings, startMs: number): Promise<FactsPlace> {
  const log = await startLog<Noted>()
  const worker = await storedWorker(factsSource(settings), log.port)
  const targets = [await spawnTarget(worker.commands.workerd)]
  const end = async (): Promise<void> => {
    for (const target of targets.splice(0)) await kill(target)
  }
  return placeElsewhere(startMs, log, {
    targets,
    async crash() {
      await end()
      targets.push(await spawnTarget(worker.commands.workerd))
    },
    async end() {
      await end()
      worker[Symbol.dispose]()
    },
  })
}

factRows('facts in Durable Objects', {
  ...{ unitMs: 2_000, now: Date.now, open },
  ...{ survives: true, isShared: true },
})
