/* Facts on a file, of processes that are killed: the rows of their semantics that end one, and many kills under load. */
import { join } from 'node:path'
import { test } from 'vitest'
import { spawnTarget, type TargetCommand } from '../../conformance/spawn.ts'
import { newFolder } from '../../folder.ts'
import { inForm } from '../../form.ts'
import { programCommand } from '../../runtimes/targets.ts'
import { placeElsewhere } from '../../vehicles/facts-elsewhere.ts'
import type { FactsProgramSettings } from '../../vehicles/facts-program.ts'
import type { FactsSettings, Noted } from '../../vehicles/facts-receiver.ts'
import { factRows, type FactsPlace } from '../../vehicles/facts-rows.ts'
import { startLog } from '../../workers/log.ts'
import { factsWhileKilled } from './facts-killed.ts'

function commandOn(path: string, facts: FactsSettings, logPort: number): TargetCommand {
  const settings: FactsProgramSettings = { facts, logPort, inbox: { sqlite: path } }
  const program = join(import.meta.dirname, '../../vehicles/facts-program.ts')
  return programCommand('node24', program, { SETTINGS: JSON.stringify(settings) })
}

async function begun(facts: FactsSettings) {
  const log = await startLog<Noted>()
  const command = commandOn(join(newFolder('facts'), 'inbox.db'), facts, log.port)
  const targets = [await spawnTarget(command)]
  const end = async (): Promise<void> => {
    await Promise.all(targets.splice(0).map((target) => target.stop('SIGKILL')))
  }
  const crash = async (): Promise<void> => {
    await end()
    targets.push(await spawnTarget(command))
  }
  return { log, targets, crash, end }
}

const open = async (facts: FactsSettings, startMs: number): Promise<FactsPlace> => {
  const { log, ...elsewhere } = await begun(facts)
  return placeElsewhere(startMs, log, elsewhere)
}

factRows('facts in SQLite, of a process that is killed', {
  ...{ unitMs: 2_000, now: Date.now, open },
  ...{ survives: true, onlyCrashes: true },
})

test('facts, plans and messages that were acknowledged outlive kills under load, in order, each once or with the same id', async () => {
  const { log, targets, crash, end } = await begun({ unitSeconds: 60, zone: 'UTC', night: ['22:00', '06:00'] })
  const rounds = inForm({ real: 4, full: 10, long: 60 })
  const found = await factsWhileKilled({ targets, entries: log.entries, strike: crash }, rounds, 12)
  console.log(`facts in SQLite, ${rounds} kills: ${JSON.stringify(found)}`)
  await end()
  await log[Symbol.asyncDispose]()
})
