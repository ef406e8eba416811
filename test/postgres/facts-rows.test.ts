/* Each row of the semantics of facts on Postgres: one process receives, two others receive and handle, and each question goes to the next of them. */
import { randomInt } from 'node:crypto'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { factsWhileKilled } from '../faults/process/facts-killed.ts'
import { inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { programCommand } from '../runtimes/targets.ts'
import { placeElsewhere } from '../vehicles/facts-elsewhere.ts'
import type { FactsProgramSettings } from '../vehicles/facts-program.ts'
import type { FactsSettings, Noted } from '../vehicles/facts-receiver.ts'
import { factRows, type FactsPlace } from '../vehicles/facts-rows.ts'
import { startLog } from '../workers/log.ts'
import { sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('on a server', () => {
  const scene = sceneOfFile()
  let schemas = 0

  /** The first process receives, and the others handle, too. */
  async function begun(facts: FactsSettings) {
    const log = await startLog<Noted>()
    const schema = `facts${(schemas += 1)}`
    await scene.prepare(schema)
    const begin = (nth: number): Promise<Target> => {
      const inbox = { postgres: scene.server.port, schema, role: nth === 0 ? 'receive' : 'both' } as const
      const settings: FactsProgramSettings = { facts, logPort: log.port, inbox }
      const program = join(import.meta.dirname, '../vehicles/facts-program.ts')
      return spawnTarget(programCommand('node24', program, { SETTINGS: JSON.stringify(settings) }))
    }
    const targets = await Promise.all([0, 1, 2].map(begin))
    const replace = async (nth: number): Promise<void> => {
      await targets[nth]?.stop('SIGKILL')
      targets[nth] = await begin(nth)
    }
    const end = async (): Promise<void> => {
      await Promise.all(targets.map((target) => target.stop('SIGKILL')))
    }
    return { log, targets, replace, end }
  }

  async function open(facts: FactsSettings, startMs: number): Promise<FactsPlace> {
    const { log, targets, replace, end } = await begun(facts)
    const crash = async (): Promise<void> => void (await Promise.all([replace(1), replace(2)]))
    return placeElsewhere(startMs, log, { targets, crash, end })
  }

  factRows('facts in Postgres, with three processes', {
    ...{ unitMs: 2_000, now: Date.now, open },
    ...{ survives: true, isShared: true, keepsHandled: true },
  })

  test('facts, plans and messages that were acknowledged outlive kills of any process under load, in order, each once or with the same id', async () => {
    const { log, targets, replace, end } = await begun({ unitSeconds: 60, zone: 'UTC', night: ['22:00', '06:00'] })
    const rounds = inForm({ full: 5, long: 60 })
    const strike = (): Promise<void> => replace(randomInt(3))
    const found = await factsWhileKilled({ targets, entries: log.entries, strike }, rounds, 8)
    console.log(`facts in Postgres, ${rounds} kills: ${JSON.stringify(found)}`)
    await end()
    await log[Symbol.asyncDispose]()
  })
})
