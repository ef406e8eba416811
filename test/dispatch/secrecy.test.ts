import * as fc from 'fast-check'
import { createReceiver } from 'fleethook'
import { expect, test } from 'vitest'
import { fakeClock, turn } from './fake-clock.ts'
import { logInto } from './scene.ts'

const throwing = (error: unknown): never => {
  throw error
}

/** Ways in which a user's code puts a payload into an error. */
const failing: readonly ((payload: string) => unknown)[] = [
  (payload) => throwing(new Error(payload)),
  (payload) => Promise.reject(new TypeError(`cannot save ${payload}`)),
  (payload) => throwing(payload),
  (payload) => throwing(Object.assign(new Error('no'), { name: payload, payload })),
  (payload) => throwing(new Error('no', { cause: new Error(payload) })),
  (payload) => throwing(new Error(`first line\n    at ${payload} (/${payload}:1:1)\n    at /${payload}:1:1`)),
  (payload) => throwing(Object.assign(new Error(`x\n    at /${payload}:1:1`), { message: 'changed afterwards' })),
  (payload) => throwing(Object.assign(new Error('no'), { stack: payload })),
]

test('no log line contains a payload or the secret', async () => {
  const secret = `s3cret${'x'.repeat(20)}`
  const text = fc.stringMatching(/^[a-z]{12,20}$/)
  await fc.assert(
    fc.asyncProperty(text, text, fc.nat(failing.length - 1), fc.boolean(), async (payload, vin, kind, wellFormed) => {
      const lines: string[] = []
      const clock = fakeClock()
      const receiver = createReceiver({
        ...{ secret, clock, log: logInto(lines), limits: { bodyBytes: 400 } },
        retry: { attempts: 2, minMs: 0, maxMs: 0 },
        observe: { dead: () => failing[kind]?.(payload) },
      })
      receiver.observe({ failed: () => failing[kind]?.(payload) })
      receiver.on(['*', 'malformed'], () => failing[kind]?.(payload))
      const body = JSON.stringify({ vin, createdAt: payload, data: { [payload]: payload, Odometer: payload } })
      for (const authorization of [secret, `Splunk ${secret}`, payload, `Bearer ${payload}`, undefined]) {
        await receiver.accept({ authorization, body: wellFormed ? body : `${body}${payload}` })
        await receiver.accept({ authorization, body: payload.repeat(50) })
        await receiver.accept({ authorization, body, path: `/${payload}` })
      }
      await clock.advance(20_000)
      await turn()
      expect(lines.length).toBeGreaterThan(0)
      for (const told of [payload, vin, secret]) expect(lines.join('\n')).not.toContain(told)
    }),
    { numRuns: 60 },
  )
})
