import { createReceiver, type RefusedRequest } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { fakeClock } from './fake-clock.ts'
import { logInto, scene, state } from './scene.ts'

const secret = 'a-long-random-value'

function guarded(): {
  readonly lines: string[]
  readonly clock: ReturnType<typeof fakeClock>
  readonly receiver: ReturnType<typeof createReceiver>
  post(authorization: string | undefined, body: unknown, path?: string): Promise<number>
} {
  const lines: string[] = []
  const clock = fakeClock()
  const receiver = createReceiver({ secret, clock, log: logInto(lines), limits: { pendingMessages: 2 } })
  return {
    lines,
    clock,
    receiver,
    async post(authorization, body, path = '/') {
      return (await receiver.accept({ authorization, body, path })).status
    },
  }
}

describe('the log', () => {
  test('has one line in ten seconds with the number of refused requests of each kind, strangers included', async () => {
    const { lines, clock, post } = guarded()
    for (let i = 0; i < 300; i += 1) await post('wrong', {})
    for (let i = 0; i < 12; i += 1) await post(undefined, {}, '/somewhere')
    expect(lines).toEqual([])
    await clock.advance(10_000)
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatch(/^warn: 312 requests refused in 10 s: secret_wrong 300, path_unknown 12\. .*just rotated/)
    expect(lines[0]).toContain('{"refused":{"secret_wrong":300,"path_unknown":12}}')
    for (let i = 0; i < 7; i += 1) await post('wrong', {})
    await clock.advance(10_000)
    expect(lines[1]).toMatch(/^warn: 7 requests refused in 10 s: secret_wrong\. /)
    await clock.advance(100_000)
    expect(lines).toHaveLength(2)
    expect(clock.timers()).toEqual([])
  })

  test('reports the first lost message at once, with the hint of the answer', async () => {
    const { lines, clock, post } = guarded()
    for (let i = 0; i < 5; i += 1) await post(secret, 'no json')
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatch(
      /^warn: 1 request refused: body_not_json\. The service sends each message once, .* Send one JSON object/,
    )
    await clock.advance(10_000)
    expect(lines[1]).toMatch(/^warn: 5 requests refused in 10 s: body_not_json\. /)
    await post(secret, 'no json')
    expect(lines).toHaveLength(2)
    await clock.advance(10_000)
    expect(lines[2]).toMatch(/^warn: 1 request refused in 10 s: body_not_json\. /)
  })

  test('counts refused requests of fleethook doctor apart, and never reports them as lost messages', async () => {
    const { lines, clock, receiver, post } = guarded()
    const isTest: boolean[] = []
    receiver.observe({ refused: (request) => void isTest.push(request.isTest) })
    const probe = async (authorization: string, path: string): Promise<void> => {
      const headers = { authorization, 'fleethook-test': '1' }
      await receiver.fetch(new Request(`http://localhost${path}`, { method: 'POST', headers, body: 'no json' }))
    }
    await probe('wrong', '/')
    await probe(secret, '/')
    await probe(secret, '/somewhere')
    expect(lines).toEqual([])
    await clock.advance(10_000)
    expect(lines).toEqual([
      'warn: 3 requests refused in 10 s: test. They have the header `fleethook-test`, as the requests of `fleethook doctor` have. {"refused":{"test":3}}',
    ])
    await probe('wrong', '/')
    await probe('wrong', '/')
    await post('wrong', {})
    await clock.advance(10_000)
    expect(lines[1]).toMatch(/^warn: 3 requests refused in 10 s: secret_wrong 1, test 2\. The Authorization header/)
    expect(receiver.stats()).toMatchObject({ refused: { test: 5, secret_wrong: 1 }, openGaps: 0 })
    expect(isTest).toEqual([true, true, true, true, true, false])
  })

  test('has the same hint as the answer when other code read the body', async () => {
    const lines: string[] = []
    const receiver = createReceiver({ secret, log: logInto(lines), clock: fakeClock() })
    const request = new Request('http://localhost/', { method: 'POST', headers: { authorization: secret }, body: '{}' })
    await request.text()
    const { hint } = (await (await receiver.fetch(request)).json()) as { hint: string }
    expect(hint).toMatch(/Mount the receiver before any body parser/)
    expect(lines[0]).toContain(hint)
  })

  test('gets the last numbers when the receiver drains, and no timer stays', async () => {
    const { lines, clock, receiver, post } = guarded()
    for (let i = 0; i < 3; i += 1) await post('wrong', {})
    await receiver.drain()
    await post(secret, state('A', 'online'))
    expect(lines).toEqual([
      expect.stringContaining('3 requests refused in 1 s: secret_wrong'),
      expect.stringContaining('1 request refused: draining'),
    ])
    expect(clock.timers()).toEqual([])
  })
})

describe('an observer of refusals', () => {
  test('is called for each refused request, with the vehicles of the messages that were not kept', async () => {
    const { receiver, post } = guarded()
    const seen: RefusedRequest[] = []
    receiver.observe({ refused: (request) => void seen.push(request) })
    receiver.on('state', () => new Promise(() => {}))
    await post('wrong', {})
    await post('wrong', {})
    await post(secret, [state('A', 'x'), state('B', 'x'), state('*B', 'x'), state('A', 'y')].slice(0, 2))
    await post(secret, [state('A', 'x'), state('*B', 'x')])
    expect(seen).toMatchObject([
      { error: 'secret_wrong', status: 403, isAuthentic: false, door: 'root', vins: [], messages: 0, count: 1 },
      { error: 'secret_wrong', count: 2 },
      { error: 'inbox_full', status: 503, isAuthentic: true, door: 'root', vins: ['A', '*B'], messages: 2, count: 1 },
    ])
    expect(seen[0]?.hint).toContain('Set `auth` of the webhook')
  })

  test('takes a function', () => {
    expect(() => scene().receiver.observe({ refused: 'no' as never })).toThrow('members are functions')
  })
})
