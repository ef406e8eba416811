import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Target } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import { certificate, privateKey } from '../runtimes/certificate.ts'
import { message, post } from '../runtimes/client.ts'
import { secret } from '../runtimes/targets.ts'
import { start } from './server.ts'

/** A grace so long that a test that waits for it fails. */
const longer = 600_000

async function signalled(target: Target, signal: NodeJS.Signals): Promise<void> {
  target.kill(signal)
  await target.line(new RegExp(`${signal}: taking no more messages`))
}

describe.concurrent.each(inForm<readonly NodeJS.Signals[]>({ short: ['SIGTERM'], full: ['SIGTERM', 'SIGINT'] }))(
  '%s',
  (signal) => {
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
