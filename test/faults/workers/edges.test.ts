import { randomInt } from 'node:crypto'
import { afterAll, describe, test } from 'vitest'
import { spawnTarget, type Target } from '../../conformance/spawn.ts'
import { inForm } from '../../form.ts'
import { createAcknowledged, missingFrom } from '../../workers/acknowledged.ts'
import { kill, storedWorker } from '../../workers/command.ts'
import { type Entry, startLog } from '../../workers/log.ts'
import { durableSource } from '../../workers/programs/durable.ts'
import { type Row, versionsOf, writeFigures } from '../figures.ts'

const rounds = inForm({ full: 4, long: 100 })
/** A backlog is left at the end. After an end, its object comes back by its alarm, which workerd repeats after 2, 4, 8, … seconds. */
const backlogMs = inForm({ full: 60_000, long: 300_000 })
const vins = Array.from({ length: 12 }, (_, n) => `V${n}`)
const rows: Row[] = []

/** What each round does to the Worker under load. */
const ends = {
  /** As a power cut would end it. */
  killed: (target: Target) => kill(target),
  /** The platform ends single objects without notice. The Worker goes on. */
  evicted: async ({ url }: Target) => {
    for (const shard of [0, 1, 2, 3]) {
      await fetch(`${url}/evict?shard=${shard}`)
      await new Promise((resolve) => setTimeout(resolve, randomInt(100)))
    }
  },
} as const

describe.each(['killed', 'evicted'] as const)(
  'a Worker in workerd, whose objects are %s at random moments under load',
  (how) => {
    test(
      'every change of every vehicle is reported at least once, in order, and none that did not happen',
      { timeout: inForm({ full: 240_000, long: 3_600_000 }) },
      async ({ expect }) => {
        await using log = await startLog()
        using worker = await storedWorker(
          durableSource({
            edges: 'numbers',
            handlerMs: 5,
            vehicles: { fields: ['BatteryLevel'] },
          }),
          log.port,
        )
        const acknowledged = createAcknowledged()
        const handled = (): readonly Entry[] =>
          log.entries.filter(({ number, happened }) => happened === undefined && typeof number === 'number')
        let atLastEnd: Pick<typeof acknowledged, 'byVin'> = { byVin: new Map() }
        let target = await spawnTarget(worker.commands.workerd)
        for (let round = 0; round < rounds; round++) {
          const load = acknowledged.load(target.url, vins)
          const enough = acknowledged.count + 20 + randomInt(150)
          while (acknowledged.count < enough) await acknowledged.next()
          // A message in hand at three ends is a dead letter. So each is handled before: one without an answer is before the next of its vehicle.
          await expect.poll(() => missingFrom(handled(), atLastEnd), { timeout: backlogMs }).toEqual([])
          atLastEnd = { byVin: new Map(acknowledged.byVin) }
          await ends[how](target)
          await load.stop()
          if (how === 'killed') target = await spawnTarget(worker.commands.workerd)
        }
        await using _ = { [Symbol.asyncDispose]: () => kill(target) }
        await expect.poll(() => missingFrom(handled(), acknowledged), { timeout: backlogMs }).toEqual([])
        const numbersOf = (vin: string): readonly number[] =>
          [...new Set(handled().flatMap((entry) => (entry.vin === vin ? [entry.number] : [])))].toSorted(
            (a, b) => a - b,
          )
        // An object that ended after one of the two handlers comes back by its alarm, which can take a while.
        const halfHandled = (): readonly string[] => {
          const edges = new Set(
            log.entries.flatMap(({ vin, happened }) => (happened ? [`${vin} ${String(happened.to)}`] : [])),
          )
          const names = new Set(
            vins.flatMap((vin) =>
              numbersOf(vin)
                .slice(1)
                .map((number) => `${vin} ${number}`),
            ),
          )
          return [...edges, ...names].filter((name) => !(edges.has(name) && names.has(name)))
        }
        await expect.poll(halfHandled, { timeout: backlogMs }).toEqual([])
        // Nothing is sent any more, so the last handlers end.
        for (let count = -1; count !== log.entries.length; await new Promise((resolve) => setTimeout(resolve, 1_000)))
          count = log.entries.length

        const reported = new Map<string, Entry>()
        for (const entry of log.entries) {
          const { happened } = entry
          if (happened === undefined) continue
          const known = reported.get(happened.id)?.happened
          if (known === undefined) reported.set(happened.id, entry)
          // A message that is handed out again reports the same change again.
          else expect([happened.from, happened.to]).toEqual([known.from, known.to])
        }
        let changes = 0
        for (const vin of vins) {
          const found = [...reported.values()].filter((entry) => entry.vin === vin)
          const numbers = numbersOf(vin)
          // One change from each message to the next, and no other: none is missing, none is made up, and they are in order.
          const expected = numbers.slice(1).map((to, at) => [numbers[at], to])
          expect(found.map(({ happened }) => [happened?.from, happened?.to])).toEqual(expected)
          changes += expected.length
        }
        expect(changes).toBeGreaterThan(rounds * 10)
        const all = log.entries.filter(({ happened }) => happened !== undefined).length
        rows.push({ 'the objects are': how, rounds, changes, 'reported again': all - reported.size })
      },
    )
  },
)

afterAll(() =>
  writeFigures({
    piece: 'workers-edges',
    title: 'Changes of vehicles through the ends of Durable Objects',
    file: 'test/faults/workers/edges.test.ts',
    about: `A Worker with Durable Objects and the option \`vehicles\`. ${vins.length} vehicles each send their next message when the last one was answered, and each message changes a field. Each round kills workerd with SIGKILL at a random moment, or ends each of the four objects, which go on under load. Reported again: the handler of the change had run, and the object ended before that was stored. The id of the change was the same.`,
    tables: [{ title: 'Rounds', rows }],
    versions: versionsOf(['workerd']),
  }),
)
