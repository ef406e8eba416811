/**
 * Shows where the time of a message goes: samples one server under the load of `bench/pipeline.ts` with V8's profiler.
 *
 *     npm run bench -- profile --server fleethook-source --format service
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { corpus } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { loadCore, pinThis } from './pin.ts'
import { startServer } from './server-process.ts'
import { secret } from './servers/answer.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: {
    server: { type: 'string', default: 'fleethook-source' },
    format: { type: 'string', default: 'service' },
    count: { type: 'string', default: '100000' },
    functions: { type: 'string', default: '40' },
  },
})

interface Profile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: Frame }[]
  readonly samples: readonly number[]
  readonly timeDeltas: readonly number[]
}

interface Frame {
  readonly functionName: string
  readonly url: string
  readonly lineNumber: number
}

/** The part of the program that a frame belongs to. */
function partOf({ functionName, url }: Frame): string {
  if (functionName === '(garbage collector)') return 'garbage collection'
  if (functionName === '(idle)' || functionName === '(program)') return functionName
  const path = url.replace(/^file:\/\//, '')
  const dependency = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]
  if (dependency !== undefined) return dependency
  const own = /\/((?:src|adapters|bench)(?:\/[^/.]+(?=\/))?)/.exec(path)?.[1]
  if (own !== undefined) return `fleethook ${own}`
  return url.startsWith('node:') ? 'node' : 'native code and V8'
}

function nameOf({ functionName, url, lineNumber }: Frame): string {
  const place = url === '' ? '' : ` ${url.split('/').slice(-2).join('/')}:${lineNumber + 1}`
  return `${functionName === '' ? '(anonymous)' : functionName}${place}`
}

function summed(profile: Profile, keyOf: (frame: Frame) => string): [string, number][] {
  const frames = new Map(profile.nodes.map(({ id, callFrame }) => [id, callFrame]))
  const sums = new Map<string, number>()
  for (const [index, id] of profile.samples.entries()) {
    const frame = frames.get(id)
    if (frame === undefined || frame.functionName === '(idle)') continue
    const key = keyOf(frame)
    sums.set(key, (sums.get(key) ?? 0) + (profile.timeDeltas[index] ?? 0))
  }
  return [...sums].toSorted(([, a], [, b]) => b - a)
}

const scratch = mkdtempSync(join(tmpdir(), 'fleethook-profile-'))
pinThis(loadCore)
const format = values.format === 'vehicle_maker' || values.format === 'event_collector' ? values.format : 'service'
const authorization = format === 'event_collector' ? `Splunk ${secret}` : secret
const requests = corpus({ messages: 5000, vins: 1000, format }).map((body) => requestOf(body, authorization))
const server = await startServer(values.server, ['--cpu-prof', '--cpu-prof-interval=200', `--cpu-prof-dir=${scratch}`])
const count = Number(values.count)
await load({ port: server.port, requests, connections: 64, count })
await server.stop()
const [file = ''] = readdirSync(scratch)
const profile: Profile = JSON.parse(readFileSync(join(scratch, file), 'utf8'))
rmSync(scratch, { recursive: true })

const row = ([name, microseconds]: [string, number]): string[] => [name, (microseconds / count).toFixed(2)]
console.log(`${values.server}, ${format}: self time in µs per message, over ${count} messages from the first one\n`)
console.log(table(['part', 'µs'], summed(profile, partOf).map(row)))
console.log()
console.log(table(['function', 'µs'], summed(profile, nameOf).slice(0, Number(values.functions)).map(row)))
