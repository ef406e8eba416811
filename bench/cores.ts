/**
 * Measures the CPU time of a message on one core and on two, with and without V8's helper threads for garbage collection, for the
 * first 50,000 messages of a process and for later ones. The load generator shares the second core. Every round starts each server
 * once.
 *
 *     npm run bench -- cores
 */
import { parseArgs } from 'node:util'
import { corpus } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { median } from './median.ts'
import { loadCore, pinThis } from './pin.ts'
import { startServer } from './server-process.ts'
import { secret } from './servers/answer.ts'
import { table } from './table.ts'

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '3' } } })
const rounds = Number(values.rounds)
const firstMessages = 50_000
const laterMessages = 50_000

const variants = [1, 2].flatMap((cores) =>
  [false, true].flatMap((isSingle) =>
    ['bare', 'fleethook'].map((server) => ({
      ...{ cores, isSingle, server },
      first: [] as number[],
      later: [] as number[],
    })),
  ),
)
const requests = corpus({ messages: 5000, vins: 1000, format: 'service' }).map((body) => requestOf(body, secret))

pinThis(loadCore)
for (let round = 0; round < rounds; round += 1)
  for (const { cores, isSingle, server, first, later } of variants) {
    const process = await startServer(server, isSingle ? ['--single-threaded-gc'] : [], {}, cores === 1)
    for (const [costs, count] of [
      [first, firstMessages],
      [later, laterMessages],
    ] as const) {
      await process.begin()
      const { refused } = await load({ port: process.port, requests, connections: 64, count })
      const { cpuMicroseconds } = await process.end()
      if (refused > 0) throw new Error(`${server} refused ${refused} of ${count} messages.`)
      costs.push(cpuMicroseconds / count)
    }
    await process.stop()
  }

const ratio = (own: readonly number[], bare: readonly number[] = []): string =>
  median(own.map((cost, round) => cost / (bare[round] ?? Number.NaN))).toFixed(2)
console.log(`CPU µs per message, medians of ${rounds} rounds. Ratio: to bare with the same cores and threads.\n`)
console.log(
  table(
    ['server', 'cores', 'GC threads', 'first 50,000', 'ratio', 'next 50,000', 'ratio'],
    variants.map(({ cores, isSingle, server, first, later }) => {
      const bare = variants.find((each) => each.cores === cores && each.isSingle === isSingle && each.server === 'bare')
      const ratios = server === 'bare' ? ['', ''] : [ratio(first, bare?.first), ratio(later, bare?.later)]
      return [
        ...[server === 'bare' ? 'node:http + JSON.parse' : server, String(cores), isSingle ? 'off' : 'on'],
        ...[median(first).toFixed(1), ratios[0] ?? '', median(later).toFixed(1), ratios[1] ?? ''],
      ]
    }),
  ),
)
