/**
 * Measures what an episode costs: the CPU time of a message in memory and the room of a vehicle, of forty vehicles on the road, in one process without a
 * socket, in turns.
 *
 *     node bench/episodes.ts
 */
import { parseArgs } from 'node:util'
import { createReceiver, memoryInbox, type Receiver, vehicles } from '../src/index.ts'
import type { Edge } from '../src/when.ts'
import { median } from './median.ts'
import { type Body, drives, episodeKinds, fields } from './road.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '5' }, minutes: { type: 'string', default: '60' } },
})
const log = { debug() {}, info() {}, warn() {}, error() {} }
const make = (edges: readonly Edge[]): Receiver =>
  edges.reduce<Receiver>(
    (receiver, edge) => receiver.when(edge, () => undefined),
    createReceiver({ secret: false, log, inbox: memoryInbox(), parts: [vehicles({ fields })] }),
  )

async function cpuOf(receiver: Receiver, sent: readonly Body[]): Promise<number> {
  const before = process.cpuUsage()
  for (let at = 0; at < sent.length; at += 64) {
    await Promise.all(sent.slice(at, at + 64).map((body) => receiver.accept({ authorization: undefined, body })))
    while (receiver.stats().pending.messages > 0) await new Promise((resolve) => setImmediate(resolve))
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / sent.length
}

const rows: string[][] = []
for (const [order, shuffleMs] of [
  ['in order', 0],
  ['shuffled by up to a minute', 60_000],
] as const) {
  const sent = drives(Number(values.minutes), shuffleMs)
  const laps = new Map<string, number[]>(Object.keys(episodeKinds).map((name) => [name, []]))
  for (let round = -1; round < Number(values.rounds); round += 1)
    for (const [name, edges] of Object.entries(episodeKinds)) {
      const receiver = make(edges)
      const took = await cpuOf(receiver, sent)
      if (round >= 0) laps.get(name)?.push(took)
      await receiver.drain()
    }
  for (const [name, each] of laps) rows.push([order, name, `${median(each).toFixed(1)} µs`])
}
console.log(table(['messages', 'receiver', 'CPU of a message'], rows))
