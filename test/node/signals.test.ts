import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Target } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import { certificate, privateKey } from '../runtimes/certificate.ts'
import { message, post } from '../runtimes/client.ts'
import { secret } from '../runtimes/targets.ts'
import { closed, start } from './server.ts'

/** A grace so long that a test that waits for it fails. */
const longer = 600_000

/** Posts on one connection until the server is gone, and counts what was acknowledged. */
async function pour(url: string, vin: string, acknowledged: () => void): Promise<void> {
  for (let number = 0; ; number++) {
    const status = await post(url, vin, number).catch(() => 0)
    if (status === 0) return
    if (status === 200) acknowledged()
  }
}

async function signalled(target: Target, signal: NodeJS.Signals): Promise<void> {
  target.kill(signal)
  await target.line(new RegExp(`${signal}: taking no more messages`))
}

describe.concurrent.each(inForm<readonly NodeJS.Signals[]>({ short: ['SIGTERM'], full: ['SIGTERM', 'SIGINT'] }))(
  '%s',
  (signal) => {
    test('under load, every acknowledged message is handled, and the process ends by itself', async () => {
      await using target = await start('receiver', { graceMs: longer }, { handlerMs: 8 })
      let acknowledged = 0
      let enough = (): void => {}
      const loaded = new Promise<void>((resolve) => {
        enough = resolve
      })
      const over = Array.from({ length: 24 }, (_, index) =>
        pour(target.url, `V${index % 4}`, () => {
          acknowledged += 1
          if (acknowledged === 400) enough()
        }),
      )
      await loaded
      target.kill(signal)
      await Promise.all(over)
      expect(await target.exited).toEqual({ status: 0, signal: null })
      const [, handled, received] = /handled (\d+) of (\d+)/.exec(await target.line(/^handled/)) ?? []
      expect(handled).toBe(received)
      expect(Number(received)).toBeGreaterThanOrEqual(acknowledged)
      expect(await closed(target)).toMatchObject({ left: 0, lost: 0 })
    })

    test('ends the server although clients keep idle connections open', async ({ onTestFinished: finished }) => {
      await using target = await start('receiver', { graceMs: longer })
      const agent = new Agent({ keepAlive: true })
      finished(() => agent.destroy())
      for (const vin of ['V1', 'V2']) {
        await new Promise<void>((resolve, reject) => {
          request(target.url, { agent, method: 'POST', headers: { authorization: secret } }, (response) =>
            response.resume().once('end', resolve),
          )
            .once('error', reject)
            .end(message(vin))
        })
      }
      target.kill(signal)
      expect(await target.exited).toEqual({ status: 0, signal: null })
      expect(await target.line(/^handled/)).toBe('handled 2 of 2')
    })
  },
)

test('a request that waits for its handlers is answered while the server stops', async () => {
  await using target = await start('receiver', { graceMs: longer }, { handlerMs: 300, ack: 'handled' })
  const answered = post(target.url, 'V1')
  // This answer comes over another connection. By then the server knows the first one.
  await fetch(`${target.url}/services/collector/health`)
  await signalled(target, 'SIGTERM')
  expect(await answered).toBe(200)
  expect((await target.exited).status).toBe(0)
  expect(await target.line(/^handled/)).toBe('handled 1 of 1')
})

test('a connection that hangs in its TLS handshake does not delay the stop beyond its grace', async () => {
  await using target = await start('receiver', { graceMs: 400, tls: { cert: certificate, key: privateKey } })
  const socket = connect(Number(new URL(target.url).port), '127.0.0.1')
  onTestFinished(() => void socket.destroy())
  // The first bytes of a ClientHello that never comes whole.
  await new Promise<void>((resolve) => socket.write(new Uint8Array([22, 3, 1, 2, 0, 1]), () => resolve()))
  await signalled(target, 'SIGTERM')
  expect(await target.exited).toEqual({ status: 0, signal: null })
})

test('signals: false leaves signals to the host', async () => {
  await using target = await start('receiver', { signals: false })
  target.kill('SIGTERM')
  expect(await target.exited).toEqual({ status: null, signal: 'SIGTERM' })
})

test('every receiver that an app mounts is drained, also in nested apps', async () => {
  await using target = await start('apps', { graceMs: longer })
  const to = (path: string, authorization: string, vin: string): Promise<Response> =>
    fetch(target.url + path, { method: 'POST', headers: { authorization }, body: message(vin) })
  expect((await to('/plain/telemetry', 'one', 'V1')).status).toBe(200)
  const answer = await to('/deep/guarded/telemetry', 'two', 'V2')
  expect([answer.status, answer.headers.get('x-host')]).toEqual([200, 'guarded'])
  expect((await to('/plain/telemetry', 'two', 'V3')).status).toBe(403)
  target.kill('SIGTERM')
  expect(await closed(target)).toMatchObject({ left: 0, lost: 0 })
  expect(target.output.filter((line) => /^(handled|closed) /.test(line)).map((line) => line.slice(0, 10))).toEqual([
    'handled V1',
    'handled V2',
    'closed {"h',
  ])
})
