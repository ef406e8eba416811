import { Agent } from 'node:http'
import { afterAll, expect, test } from 'vitest'
import { percentile } from '../../../bench/median.ts'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { judge } from '../accounting.ts'
import { createSite, idle, lastLine, weigh } from './start.ts'
import { createTraffic, messageOf, statusOf } from './traffic.ts'

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
const overloadRows: Row[] = []
const uploadRows: Row[] = []

test(
  'at twice the load that handlers can take or more, acknowledgments stay fast, memory stays flat, and everything is handled in order afterwards',
  async () => {
    // Eight at once that take 10 to 20 ms: about 530 a second. Beside other tests a sender is slow, so one at a time there.
    const { concurrency, ratePerSecond } = inForm({
      full: { concurrency: 1, ratePerSecond: 300 },
      long: { concurrency: 8, ratePerSecond: 1060 },
    })
    const site = createSite('node24', { handlerMs: 10, options: { concurrency } })
    await using target = await site.start()
    const seconds = inForm({ real: 1.5, full: 3, long: 180 })
    const traffic = createTraffic({ vins: Array.from({ length: 100 }, (_, n) => `V${n}`), ratePerSecond })
    const startedAt = performance.now()
    const over = (): boolean => performance.now() - startedAt > seconds * 1000
    const weights: number[] = []
    const pouring = traffic.pour(target.url, over)
    for (let n = 1; n <= 4; n++) {
      await pause(startedAt + (n * seconds * 1000) / 4 - performance.now())
      weights.push(await weigh(target))
    }
    await pouring
    const [waiting = 0] = lastLine(target, /^pending/)
    expect([...traffic.answers.keys()]).toEqual([200])
    // It was an overload: about half of the messages still wait.
    expect(waiting).toBeGreaterThan(traffic.acknowledged.size / 4)

    const quarter = (from: number, to: number): Float64Array =>
      Float64Array.from(
        traffic.ackMs
          .filter(({ sentAtMs }) => sentAtMs - startedAt >= from * seconds * 1000)
          .filter(({ sentAtMs }) => sentAtMs - startedAt < to * seconds * 1000)
          .map(({ ms }) => ms),
      )
    const quarters = weights.map((weight, n) => ({ acks: quarter(n / 4, (n + 1) / 4), weight }))
    for (const [n, { acks, weight }] of quarters.entries()) {
      overloadRows.push({
        quarter: n + 1,
        acknowledged: acks.length,
        'ack p50 ms': percentile(acks, 0.5).toFixed(2),
        'ack p99 ms': percentile(acks, 0.99).toFixed(2),
        'alive in memory, MB': (weight / 1e6).toFixed(1),
      })
    }
    const drainedFrom = performance.now()
    await idle(target, 600_000)
    overloadRows.push({
      quarter: 'afterwards',
      acknowledged: `${waiting} waiting, handled in ${((performance.now() - drainedFrom) / 1000).toFixed(0)} s`,
    })
    const { lost, outOfOrder, duplicates } = judge(traffic.acknowledged, site.journal().runs)
    expect({ lost, outOfOrder, duplicates }).toEqual({ lost: [], outOfOrder: [], duplicates: [] })
    const [first, , , last] = quarters
    // An acknowledgment that waited for its handler would take as long as half of the messages take the handlers. The 200 ms are for
    // other work of the machine.
    expect(percentile(last?.acks ?? new Float64Array(), 0.5)).toBeLessThan(
      percentile(first?.acks ?? new Float64Array(), 0.5) * 3 + inForm({ full: 200, long: 10 }),
    )
    // Memory that grew with the waiting messages would be several times larger at the end.
    expect(last?.weight).toBeLessThan((first?.weight ?? 0) * 1.5)
  },
  inForm({ full: 180_000, long: 1_200_000 }),
)

test(
  'vehicles that upload thousands of old messages do not delay live ones, and no message is lost or out of order',
  async () => {
    const [vehicles, each] = inForm({ real: [20, 100], full: [20, 250], long: [100, 5000] })
    const site = createSite('node24', { handlerMs: 0, options: { concurrency: 16 } })
    await using target = await site.start()
    const live = createTraffic({ vins: Array.from({ length: 20 }, (_, n) => `V${n}`), ratePerSecond: 100 })
    let uploading = true
    const living = live.pour(target.url, () => !uploading)
    const agent = new Agent({ keepAlive: true, maxSockets: 64 })
    const uploaded = new Set<string>()
    const startedAt = performance.now()
    await Promise.all(
      Array.from({ length: vehicles }, async (_, n) => {
        for (let number = 1; number <= each; number++) {
          const status = await statusOf(target.url, agent, messageOf(`upload-${n}`, number))
          expect(status).toBe(200)
          uploaded.add(`upload-${n} ${number}`)
        }
      }),
    )
    const seconds = (performance.now() - startedAt) / 1000
    uploading = false
    await living
    agent.destroy()
    await idle(target, 120_000)
    const journal = site.journal().runs
    const { lost, outOfOrder, duplicates } = judge(new Set([...uploaded, ...live.acknowledged]), journal)
    expect({ lost, outOfOrder, duplicates }).toEqual({ lost: [], outOfOrder: [], duplicates: [] })
    const handledAt = new Map(
      journal.map(({ vin, number, atMs }) => [`${vin} ${number}`, atMs - performance.timeOrigin]),
    )
    const names = [...live.acknowledged]
    const handledMs = Float64Array.from(
      live.ackMs.map(({ sentAtMs }, at) => (handledAt.get(names[at] ?? '') ?? Infinity) - sentAtMs),
    )
    uploadRows.push({
      vehicles,
      'messages each': each,
      'uploaded in s': seconds.toFixed(1),
      'live messages': live.acknowledged.size,
      'live handled p50 ms': percentile(handledMs, 0.5).toFixed(1),
      'live handled p99 ms': percentile(handledMs, 0.99).toFixed(1),
    })
    expect(live.acknowledged.size).toBeGreaterThan(20)
    // Behind all of the uploads, a live message would wait for their whole duration.
    expect(percentile(handledMs, 0.5)).toBeLessThan(Math.max(250, seconds * 100))
  },
  inForm({ full: 180_000, long: 1_200_000 }),
)

afterAll(() =>
  writeFigures({
    piece: 'overload',
    title: 'Overload and uploads',
    file: 'test/faults/process/overload.test.ts',
    about:
      'One receiver with the SQLite inbox; the sender counts. Overload: 100 vehicles send twice as many messages as the handlers can take. Uploads: vehicles send old messages one after another, as fast as they get answers, beside 20 live vehicles with 100 messages a second. The figures are milliseconds from sending a live message to the end of its handler.',
    tables: [
      { title: 'Overload, by quarters of the time', rows: overloadRows },
      { title: 'Uploads', rows: uploadRows },
    ],
  }),
)
