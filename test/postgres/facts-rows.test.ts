/* Each row of the semantics of facts on Postgres: one process receives, two others receive and handle, and each question goes to the next of them. */
import { join } from 'node:path'
import { describe } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
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

  async function open(facts: FactsSettings, startMs: number): Promise<FactsPlace> {
    const log = await startLog<Noted>()
    const schema = `facts${(schemas += 1)}`
    await scene.prepare(schema)
    if (facts.branch === true) await scene.prepare(`${schema}_own`)
    const begin = (role: 'receive' | 'both'): Promise<Target> => {
      const inbox = { postgres: scene.server.port, schema, role }
      const settings: FactsProgramSettings = { facts, logPort: log.port, inbox }
      const program = join(import.meta.dirname, '../vehicles/facts-program.ts')
      return spawnTarget(programCommand('node24', program, { SETTINGS: JSON.stringify(settings) }))
    }
    const targets = await Promise.all([begin('receive'), begin('both'), begin('both')])
    return placeElsewhere(startMs, log, {
      targets,
      async crash() {
        await Promise.all(targets.splice(1).map((target) => target.stop('SIGKILL')))
        targets.push(...(await Promise.all([begin('both'), begin('both')])))
      },
      async end() {
        await Promise.all(targets.map((target) => target.stop('SIGKILL')))
      },
    })
  }

  factRows('facts in Postgres, with three processes', {
    ...{ unitMs: 2_000, now: Date.now, open },
    ...{ survives: true, isShared: true },
  })
})
