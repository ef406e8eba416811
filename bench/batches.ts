/**
 * Measures the CPU time of a message when a relay posts a hundred of them in one collector body: through `receiver.accept`,
 * in this process, from the text of the body to the handlers. Compares it with `JSON.parse` of the same messages.
 *
 *     npm run bench -- batches
 */
import { createReceiver } from '../src/index.ts'
import { corpus } from './corpus.ts'
import { median } from './median.ts'
import { table } from './table.ts'

const perBody = 100
const bodies = 200
const rounds = 15
const warmUp = 5
const budget = 5
const secret = 'bench-0f6f2a7d8c1e4b9fa35d'

let handled = 0
const receiver = createReceiver({ secret }).on('data', () => {
  handled += 1
})
const task = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0))

async function accepted(texts: readonly string[]): Promise<void> {
  const sent = handled + texts.length * perBody
  for (const body of texts) {
    const { status } = await receiver.accept({ authorization: `Splunk ${secret}`, body, path: '/services/collector' })
    if (status !== 200) throw new Error(`An answer was ${status}.`)
    do await task()
    while (receiver.stats().pending.messages > 0)
  }
  if (handled !== sent) throw new Error(`The handler saw ${handled} messages, not ${sent}.`)
}

/** CPU time in microseconds per message. */
async function cost(run: () => void | Promise<void>): Promise<number> {
  const cpu = process.cpuUsage()
  await run()
  const { user, system } = process.cpuUsage(cpu)
  return (user + system) / (bodies * perBody)
}

const messages = corpus({ messages: bodies * perBody, vins: 1000, format: 'event_collector' })
const groups = Array.from({ length: bodies }, (_, at) => messages.slice(at * perBody, (at + 1) * perBody))
const lists = groups.map((group) => `[${group.join(',')}]`)
const courses = [
  { name: 'JSON.parse of a list', run: () => lists.forEach((text) => void JSON.parse(text)) },
  { name: 'fleethook, a list', run: () => accepted(lists) },
  { name: 'fleethook, one after another', run: () => accepted(groups.map((group) => group.join('\n'))) },
].map((course) => ({ ...course, costs: [] as number[] }))

for (let round = -warmUp; round < rounds; round += 1) {
  for (const { run, costs } of courses) {
    const each = await cost(run)
    // The first rounds are not counted: V8 compiles code, and heaps reach their size.
    if (round >= 0) costs.push(each)
  }
}
await receiver.drain()

const [parse] = courses
console.log(
  `${bodies} bodies of ${perBody} messages per round, ${rounds} rounds, medians of CPU µs per message; goal ${budget.toFixed(2)} times JSON.parse\n`,
)
console.log(
  table(
    ['what', 'CPU µs', 'ratio'],
    courses.map(({ name, costs }) => [
      name,
      median(costs).toFixed(2),
      median(costs.map((each, round) => each / (parse?.costs[round] ?? Number.NaN))).toFixed(2),
    ]),
  ),
)
