/**
 * Measures the memory of waiting messages: an idle receiver, one with 10,000 messages that its handlers have not started,
 * and one that has handled them.
 *
 *     npm run bench -- memory
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { createReceiver } from '../src/index.ts'
import { corpus } from './corpus.ts'
import { table } from './table.ts'

setFlagsFromString('--expose-gc')
const collect: () => void = runInNewContext('gc')
const pending = 10_000
const secret = 'bench-0f6f2a7d8c1e4b9fa35d'
const bodies = corpus({ messages: pending, vins: 1000, format: 'service' })

interface Weight {
  readonly name: string
  readonly heapBytes: number
  readonly residentBytes: number
}

async function weigh(name: string): Promise<Weight> {
  // A second collection frees what the callbacks of the first one released.
  for (let pass = 0; pass < 3; pass++) {
    collect()
    await sleep(20)
  }
  const { heapUsed, external, rss } = process.memoryUsage()
  return { name, heapBytes: heapUsed + external, residentBytes: rss }
}

const gate = Promise.withResolvers<void>()
const receiver = createReceiver({ secret }).on('data', () => gate.promise)

// As over a socket: each body is its own text, which nothing else references.
const bodyOf = (text: string): string => Buffer.from(text).toString()
const post = async (body: string): Promise<void> => {
  const { status } = await receiver.accept({ authorization: secret, body })
  if (status !== 200) throw new Error(`An answer was ${status}.`)
}

const weights = [await weigh('idle')]
for (const body of bodies) await post(bodyOf(body))
if (receiver.stats().pending.messages !== pending) throw new Error('Not all messages wait.')
weights.push(await weigh(`${pending} waiting`))
gate.resolve()
while (receiver.stats().pending.messages > 0) await sleep(1)
weights.push(await weigh('all handled'))

const [idle, full] = weights
const meanBytes = bodies.reduce((sum, body) => sum + body.length, 0) / pending
const each = ((full?.heapBytes ?? 0) - (idle?.heapBytes ?? 0)) / pending
console.log(
  table(
    ['receiver', 'heap MB', 'resident MB'],
    weights.map(({ name, heapBytes, residentBytes }) => [
      name,
      (heapBytes / 1e6).toFixed(2),
      (residentBytes / 1e6).toFixed(1),
    ]),
  ),
)
console.log(
  `\n${each.toFixed(0)} bytes of heap for a waiting message whose body has ${meanBytes.toFixed(0)} on average`,
)
