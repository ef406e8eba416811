/* The rows of the semantics of facts that end a process, on a file. */
import { join } from 'node:path'
import { spawnTarget } from '../../conformance/spawn.ts'
import { newFolder } from '../../folder.ts'
import { programCommand } from '../../runtimes/targets.ts'
import { placeElsewhere } from '../../vehicles/facts-elsewhere.ts'
import type { FactsProgramSettings } from '../../vehicles/facts-program.ts'
import type { FactsSettings, Noted } from '../../vehicles/facts-receiver.ts'
import { factRows, type FactsPlace } from '../../vehicles/facts-rows.ts'
import { startLog } from '../../workers/log.ts'

async function open(facts: FactsSettings, startMs: number): Promise<FactsPlace> {
  const log = await startLog<Noted>()
  const settings: FactsProgramSettings = {
    facts,
    logPort: log.port,
    inbox: { sqlite: join(newFolder('facts'), 'inbox.db') },
  }
  const program = join(import.meta.dirname, '../../vehicles/facts-program.ts')
  const command = programCommand('node24', program, { SETTINGS: JSON.stringify(settings) })
  const targets = [await spawnTarget(command)]
  const end = async (): Promise<void> => {
    for (const target of targets.splice(0)) await target.stop('SIGKILL')
  }
  return placeElsewhere(startMs, log, {
    targets,
    async crash() {
      await end()
      targets.push(await spawnTarget(command))
    },
    end,
  })
}

factRows('facts in SQLite, of a process that is killed', {
  ...{ unitMs: 2_000, now: Date.now, open },
  ...{ survives: true, onlyCrashes: true },
})
