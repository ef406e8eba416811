import { globSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, test } from 'vitest'
import { spawnTarget } from '../../conformance/spawn.ts'
import { type Acknowledged, createAcknowledged, disorderIn, missingFrom } from '../../workers/acknowledged.ts'
import { kill, type Platform, platforms, storedWorker } from '../../workers/command.ts'
import { type HandledLog, startLog } from '../../workers/log.ts'
import { durableSource, memorySource } from '../../workers/programs/durable.ts'
import { type Row, versionsOf, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'

const rounds = inForm({ real: 1, full: 4, long: 100 })
const vins = Array.from({ length: 12 }, (_, n) => `V${n}`)
const rows: Row[] = []

interface Kept {
  readonly acknowledged: Acknowledged
  readonly dead: number
  /** Neither handled nor a dead letter. */
  readonly lost: readonly string[]
}

/** Dead letters in the storage of the objects: kills can come faster than handlers end, and three of them make a message suspect. */
function deadIn(folder: string): ReadonlySet<string> {
  const found = globSync(join(folder, 'storage/**/*.sqlite')).flatMap((path) => {
    using db = new DatabaseSync(path, { readOnly: true })
    if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'fleethook_messages'").all().length === 0) return []
    return db
      .prepare(
        "SELECT text ->> 'vin' AS vin, text ->> '$.data.BatteryLevel' AS number FROM fleethook_messages WHERE state = 1",
      )
      .all()
  })
  return new Set(found.map(({ vin, number }) => `${String(vin)} ${String(number)}`))
}

/**
 * Kills a Worker at a random moment under load, over and over on the same storage. Then lets it run until everything is
 * handled, or until nothing has been handled for `patienceMs`.
 */
async function killed(platform: Platform, source: string, log: HandledLog, patienceMs: number): Promise<Kept> {
  using worker = await storedWorker(source, log.port)
  const acknowledged = createAcknowledged()
  for (let round = 0; round < rounds; round++) {
    await using target = await spawnTarget(worker.commands[platform])
    const load = acknowledged.load(target.url, vins)
    const enough = acknowledged.count + 20 + Math.floor(Math.random() * 150)
    while (acknowledged.count < enough) await acknowledged.next()
    await kill(target)
    await load.stop()
  }
  await using target = await spawnTarget(worker.commands[platform])
  await using _ = { [Symbol.asyncDispose]: () => kill(target) }
  // Nobody sends anything any more: the alarms of the objects have to bring it back.
  let handled = log.entries.length
  for (let until = Date.now() + patienceMs; Date.now() < until;) {
    if (missingFrom(log.entries, acknowledged).length === 0) break
    await new Promise((resolve) => {
      setTimeout(resolve, 100)
    })
    if (log.entries.length > handled) until = Date.now() + patienceMs
    handled = log.entries.length
  }
  const dead = deadIn(worker.folder)
  const lost = missingFrom(log.entries, acknowledged).filter((one) => !dead.has(one))
  return { acknowledged, dead: dead.size, lost }
}

const distinctIn = ({ entries }: HandledLog): number =>
  new Set(entries.map(({ vin, number }) => `${vin} ${number}`)).size

async function note(
  inbox: string,
  platform: Platform,
  log: HandledLog,
  { acknowledged, dead, lost }: Kept,
  disorder: number | string,
): Promise<void> {
  const distinct = distinctIn(log)
  const missing = missingFrom(log.entries, acknowledged).length
  rows.push({
    ...{ inbox, platform, rounds, acknowledged: acknowledged.count, lost: lost.length, 'dead letters': dead },
    'handled, not acknowledged': distinct - (acknowledged.count - missing),
    'handled again': log.entries.length - distinct,
    'out of order': disorder,
  })
  await writeFigures({
    piece: 'workers-kill',
    title: 'Workers killed under load',
    file: 'test/faults/workers/kill.test.ts',
    about: `A Worker takes messages of ${vins.length} vehicles at once. Handlers take 20 ms. The test kills the Worker with SIGKILL at a random moment, again and again on the same storage. Then it starts the Worker once more and sends nothing. Dead letters: messages that three kills in a row met before their handler had ended ([why](../delivery.md#a-message-that-ends-its-process)). The test counts acknowledgments and handled messages outside the process.`,
    tables: [{ title: 'Messages', rows }],
    versions: versionsOf(['workerd']),
  })
}

describe.each(inForm<readonly Platform[]>({ real: ['workerd'], full: platforms }))(
  'a Worker in %s, killed at random moments under load',
  (platform) => {
    test(
      'every acknowledged message is handled in order per VIN or a dead letter, and only those whose handler was running are handled again',
      { timeout: inForm({ full: 90_000, long: 3_600_000 }) },
      async ({ expect }) => {
        await using log = await startLog()
        const kept = await killed(platform, durableSource({ handlerMs: 20 }), log, 20_000)
        expect(kept.lost).toEqual([])
        expect(disorderIn(log.entries)).toEqual([])
        // At most one message of each vehicle is under way when the process is killed.
        expect(log.entries.length - distinctIn(log)).toBeLessThanOrEqual(rounds * vins.length)
        await note('durableObjectInbox', platform, log, kept, 0)
      },
    )
  },
)

test(
  'control: with the inbox in memory the same kills lose acknowledged messages',
  { timeout: inForm({ full: 60_000, long: 3_600_000 }) },
  async ({ expect }) => {
    await using log = await startLog()
    const kept = await killed('workerd', memorySource({ handlerMs: 20 }), log, 1_000)
    expect(kept.lost).not.toEqual([])
    await note('memoryInbox, the control', 'workerd', log, kept, disorderIn(log.entries).length)
  },
)
