/* All brokers are away, and a receiver is killed and started again meanwhile. */
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { kafkaVersion } from '../../scripts/kafka.ts'
import { freePort } from '../conformance/spawn.ts'
import { type Row, writeFigures } from '../faults/figures.ts'
import { type OpenLoad, pourOpenly, runsEmpty, unansweredInTime } from '../faults/process/open-load.ts'
import { inForm } from '../form.ts'
import { ofFile } from '../of-file.ts'
import { startBrokers } from './brokers.ts'
import { createFleet, type Fleet, type Found, judge, type Member, nameOf, pause } from './fleet.ts'
import { inSync } from './topics.ts'

const rounds = inForm({ full: 1, long: Number(process.env['AWAY_ROUNDS'] ?? 3) })
/** How long the brokers are away at least, in milliseconds, beside the time in which each receiver acknowledges messages. */
const awayMs = inForm({ full: 0, long: Number(process.env['AWAY_SECONDS'] ?? 60) * 1_000 })
/** How long the load runs before the first outage and after the last one, in milliseconds. The figures compare them. */
const calmMs = inForm({ full: 0, long: 20_000 })
const ratePerSecond = inForm({ full: 60, long: 200 })
/** Each vehicle sends every four seconds, to one of two receivers. */
const vins = Array.from({ length: 4 * ratePerSecond }, (_, n) => `V${n}`)
/** A test gives up after this time, in milliseconds. What it waits for are conditions. */
const longestMs = inForm({ full: 600_000, long: 3_600_000 })
/** What each receiver acknowledges in each part of an outage. */
const some = inForm({ full: 50, long: 200 })

const brokers = ofFile(() => startBrokers())
const rows: Row[] = []

afterAll(async () => {
  if (rows.length === 0) return
  await writeFigures({
    piece: 'kafka-meanwhile',
    title: 'All brokers of Kafka are away, and nothing is refused',
    file: 'test/kafka/meanwhile.test.ts',
    about: `Three brokers, two receivers, two processes with handlers, ${ratePerSecond} messages a second from ${vins.length} vehicles that do not wait for answers, each vehicle at one receiver. All brokers are killed for ${awayMs / 1_000} s, and a receiver is killed and started again while they are away. A connection ends when its receiver is killed, or is not there yet. Handled again: with \`redelivered\`, because the brokers had lost the position of the group.`,
    tables: [{ title: 'What came of the messages', rows }],
    versions: {
      'load average at the end': loadavg().map(Math.round).join(', '),
      environment: `\`AWAY_ROUNDS=${rounds} AWAY_SECONDS=${awayMs / 1_000}\``,
      Kafka: kafkaVersion,
    },
  })
})

interface Site extends AsyncDisposable {
  readonly fleet: Fleet
  readonly urls: readonly string[]
  /** Kills a receiver, and starts it again. */
  restart(place: number): Promise<void>
}

/** Two receivers, and two processes with handlers. */
async function startSite(hasFile: boolean): Promise<Site> {
  await inSync(brokers.addresses)
  const fleet = await createFleet({ brokers })
  const ports = [await freePort(), await freePort()]
  const begin = (place: number): Promise<Member> =>
    fleet.start('receive', {
      settings: {
        serve: { port: ports[place] ?? 0, delayBeforeCloseMs: 0 },
        ...(hasFile && { path: join(fleet.folder, `${place}.db`) }),
      },
    })
  const receivers = await Promise.all([0, 1].map(begin))
  await Promise.all([fleet.start('handle'), fleet.start('handle')])
  return {
    fleet,
    urls: receivers.map(({ url }) => url),
    async restart(place) {
      await receivers[place]?.stop('SIGKILL')
      receivers[place] = await begin(place)
    },
    [Symbol.asyncDispose]: () => fleet[Symbol.asyncDispose](),
  }
}

/** A load that stops by itself, also when no receiver ever answers. */
const pour = ({ urls }: Site, timeoutMs: number): OpenLoad =>
  pourOpenly(urls, { vins, ratePerSecond, timeoutMs, mostMessages: inForm({ full: 30_000, long: 200_000 }) })

/** Kills all brokers, and brings them back when this is done. */
async function away(meanwhile: () => Promise<unknown>): Promise<void> {
  await Promise.all(brokers.all.map((broker) => broker.kill('SIGKILL')))
  try {
    await meanwhile()
  } finally {
    await Promise.all(brokers.all.map((broker) => broker.start()))
  }
}

/** Resolves when handlers have done all that was acknowledged until now. */
async function isHandled({ fleet }: Site, load: OpenLoad): Promise<void> {
  const target = [...load.acknowledged()]
  await runsEmpty('acknowledged and not handled', async () => {
    const handled = new Set(fleet.journal().runs.map(nameOf))
    return target.filter((name) => !handled.has(name)).length
  })
}

async function verdict(site: Site, load: OpenLoad): Promise<Found> {
  await load.stop()
  await isHandled(site, load)
  return judge(load.sent(), site.fleet.journal())
}

const sum = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0)

function note(what: string, found: Found, late: number, acks: Row): void {
  rows.push({
    what,
    sent: found.sent,
    acknowledged: found.acknowledged,
    refused: sum(found.refused),
    'no answer in 15 s': late,
    'connection ended': sum(found.unanswered) - late,
    lost: found.lost.length,
    'twice, unmarked': found.unmarked.length,
    'handled again': found.again,
    'out of order': found.outOfOrder.length,
    ...acks,
  })
  console.info(rows.at(-1))
}

test(
  'with the option `meanwhile`, nothing is refused, lost, doubled or out of order while all brokers are down',
  { timeout: longestMs },
  async () => {
    await using site = await startSite(true)
    await using load = pour(site, inForm({ full: 60_000, long: 15_000 }))
    await Promise.all([load.takesMore(some), pause(calmMs)])
    const awayFrom = performance.now()
    for (let round = 0; round < rounds; round += 1) {
      await away(async () => {
        await Promise.all([load.takesMore(some), pause(awayMs / 2)])
        await site.restart(round % 2)
        await Promise.all([load.takesMore(some), pause(awayMs / 2)])
      })
      await isHandled(site, load)
    }
    const awayTo = performance.now()
    await Promise.all([load.takesMore(some), pause(calmMs)])
    const found = await verdict(site, load)
    const late = unansweredInTime(load.sent())
    note(`with \`meanwhile\`, ${rounds} outages of ${awayMs / 1_000} s`, found, late, {
      'ack p99 before, ms': load.p99(0, awayFrom),
      'in outages, ms': load.p99(awayFrom, awayTo),
      'after, ms': load.p99(awayTo, Infinity),
    })
    expect({ ...found, late }).toMatchObject({ refused: {}, late: 0, lost: [], unmarked: [], outOfOrder: [] })
  },
)

test('control: without the file, messages are refused', { timeout: longestMs }, async () => {
  await using site = await startSite(false)
  await using load = pour(site, 15_000)
  await Promise.all([load.takesMore(some), pause(calmMs)])
  const awayFrom = performance.now()
  for (let round = 0; round < rounds; round += 1) {
    await away(() => Promise.all([load.refusesMore(some), pause(awayMs)]))
    await load.takesMore(some)
  }
  const found = await verdict(site, load)
  note('control: without it, as many outages, nobody killed', found, unansweredInTime(load.sent()), {
    'ack p99 before, ms': load.p99(0, awayFrom),
    'in outages, ms': load.p99(awayFrom, Infinity),
    'after, ms': '',
  })
  expect(found).toMatchObject({ lost: [], unmarked: [], outOfOrder: [] })
})
