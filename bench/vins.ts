/**
 * Measures the CPU time of messages from one, a thousand and a hundred thousand vehicles: through `receiver.accept`, in this
 * process, from the text of the body to its handler, without a socket.
 *
 *     npm run bench -- vins
 */
import { createReceiver, type Receiver } from '../src/index.ts'
import { corpus } from './corpus.ts'
import { median } from './median.ts'
import { table } from './table.ts'

const fleets = [1, 1000, 100_000]
const messages = 100_000
const rounds = 5
const budget = 1.2
const secret = 'bench-0f6f2a7d8c1e4b9fa35d'

const task = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0))

/** CPU time in microseconds per message. Handlers start between bursts of `burst` messages, in their own tasks. */
async function run(receiver: Receiver, bodies: readonly string[], burst: number): Promise<number> {
  const cpu = process.cpuUsage()
  for (let start = 0; start < bodies.length; start += burst) {
    const answers = bodies.slice(start, start + burst).map((body) => receiver.accept({ authorization: secret, body }))
    for (const { status } of await Promise.all(answers)) if (status !== 200) throw new Error(`An answer was ${status}.`)
    do await task()
    while (receiver.stats().pending.messages > 0)
  }
  const { user, system } = process.cpuUsage(cpu)
  return (user + system) / bodies.length
}

const bursts = [256, 5000]
const courses = fleets.map((vins) => {
  let handled = 0
  const receiver = createReceiver({ secret }).on('data', () => {
    handled += 1
  })
  const costs = new Map(bursts.map((burst) => [burst, [] as number[]]))
  return { vins, receiver, costs, bodies: corpus({ messages, vins, format: 'service' }), handled: () => handled }
})

for (let round = -1; round < rounds; round++) {
  for (const burst of bursts) {
    for (const { receiver, bodies, costs } of courses) {
      const cost = await run(receiver, bodies, burst)
      // The first round is not counted: V8 compiles code, and heaps reach their size.
      if (round >= 0) costs.get(burst)?.push(cost)
    }
  }
}
for (const { vins, handled } of courses) {
  const sent = messages * bursts.length * (rounds + 1)
  if (handled() !== sent) throw new Error(`The handler saw ${handled()} of ${sent} messages of ${vins} vehicles.`)
}

const [alone] = courses
console.log(
  `${messages} messages per round, ${rounds} rounds, medians of CPU µs per message; ratio to one VIN, budget ${budget.toFixed(2)}\n`,
)
console.log(
  table(
    ['VINs', ...bursts.flatMap((burst) => [`${burst} at once`, 'ratio'])],
    courses.map(({ vins, costs }) => [
      String(vins),
      ...bursts.flatMap((burst) => {
        const these = costs.get(burst) ?? []
        const ratio = median(these.map((cost, round) => cost / (alone?.costs.get(burst)?.[round] ?? Number.NaN)))
        return [median(these).toFixed(2), ratio.toFixed(2)]
      }),
    ]),
  ),
)
