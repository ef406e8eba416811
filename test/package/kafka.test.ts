import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, inject, test } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'
import { servers } from '../runtimes/targets.ts'

const script = `
import { createReceiver, FleethookError } from 'fleethook'
import { kafkaInbox } from 'fleethook/inbox/kafka'

const receiver = createReceiver({ secret: 'a-long-random-value', inbox: kafkaInbox({ brokers: ['127.0.0.1:1'] }) })
try {
  await receiver.open()
} catch (error) {
  if (!(error instanceof FleethookError)) throw error
  console.log(JSON.stringify({ code: error.code, message: error.message, hint: error.hint }))
}
`

const message = 'kafkaInbox needs the package @platformatic/kafka, and it is not installed.'
const hint = expect.stringMatching(/^Install it: npm install @platformatic\/kafka@\d+\.\d+\.\d+\. /)

test.each(servers)('without the client, the installed package says on %s what to install', (runtime) => {
  expect(existsSync(join(inject('consumer'), 'node_modules/@platformatic'))).toBe(false)
  const file = join(inject('consumer'), 'kafka-inbox.js')
  writeFileSync(file, script)
  const flags = runtime === 'deno' ? ['run', '--allow-all'] : []
  const printed = execFileSync(runtimePath(runtime), [...flags, file], {
    cwd: inject('consumer'),
    encoding: 'utf8',
    stdio: 'pipe',
  })
  expect(JSON.parse(printed)).toEqual({ code: 'inbox_unsupported', message, hint })
})

test('without the client, `fleethook kafka topics` prints the topics, and `--apply` says what to install', () => {
  const main = join(inject('consumer'), 'node_modules/fleethook/dist/adapters/cli/main.js')
  const topics = (...args: readonly string[]): ReturnType<typeof spawnSync> =>
    spawnSync(process.execPath, [main, 'kafka', 'topics', '--brokers', '127.0.0.1:1', ...args], {
      cwd: inject('consumer'),
      encoding: 'utf8',
    })
  expect(topics()).toMatchObject({ status: 0, stdout: expect.stringContaining('min.insync.replicas'), stderr: '' })
  expect(topics('--apply')).toMatchObject({ status: 1, stdout: '', stderr: expect.stringContaining(message) })
})
