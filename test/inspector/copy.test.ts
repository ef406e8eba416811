import { spawnSync } from 'node:child_process'
import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Format } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { expect, test } from 'vitest'
import { curlOf, testOf } from '../../src/inspector/page/copy.ts'
import { newFolder } from '../folder.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const kafka = join(root, 'examples/kafka')
const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']
const low = message.data({ BatteryLevel: 11, Location: { latitude: 40.4594, longitude: -3.6491 } })
const messages = [low, message.state('asleep'), message.vehicleData(), message.alerts(), message.errors()]

/** Puts copied tests into a folder with the handlers of the Kafka template, and runs its `npm test` on the sources. */
function run(tests: readonly string[], handlers: string = join(kafka, 'handlers.ts')): ReturnType<typeof spawnSync> {
  const folder = newFolder('copied')
  copyFileSync(join(kafka, 'package.json'), join(folder, 'package.json'))
  copyFileSync(handlers, join(folder, 'handlers.ts'))
  for (const [index, text] of tests.entries()) writeFileSync(join(folder, `${index}.test.ts`), text)
  const args = ['--import', join(root, 'test/docs/resolve-sources.ts'), '--test', '--test-isolation=none']
  return spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' })
}

test('a copied test runs as it is in the Kafka template, with a message of each topic and format', () => {
  const copies = messages.flatMap((each) =>
    formats.map((format) => testOf({ topic: each.topic, format, raw: encode(each, format) })),
  )
  const { status, stdout } = run(copies)
  expect(stdout).toContain(`pass ${copies.length}`)
  expect(stdout).toContain('needs a charge: 11 %')
  expect(status).toBe(0)
})

test('a copied test fails when a handler fails', () => {
  const handlers = join(newFolder('handlers'), 'handlers.ts')
  writeFileSync(
    handlers,
    `export const addHandlers = (receiver) => receiver.on('data', () => { throw new Error('No.') })`,
  )
  const { status, stdout } = run([testOf({ topic: 'data', raw: encode(low, 'service') })], handlers)
  expect(stdout).toContain('fail 1')
  expect(status).toBe(1)
})

test('what is copied is the message as it came, also where the page would write it in another way', () => {
  const text = `{"vin":"IT'S","createdAt":"2026-01-01T00:00:00Z","data":{"id":9007199254740993,"BatteryLevel":1e400}}`
  const copied = { topic: 'data', format: 'service', raw: JSON.parse(text), text }
  const { stdout } = spawnSync('sh', ['-c', curlOf(copied).replace(/^curl/, 'echo')], { encoding: 'utf8' })
  expect(stdout).toContain(text)
  expect(testOf(copied)).toContain(`body: ${JSON.stringify(text)}`)
})
