import type { ActivityLine } from 'fleethook/sandbox'
import { describe, expect, test } from 'vitest'
import { apiKey, sceneOf, type Scene } from './scene.ts'

const secret = 'a-secret-of-the-webhook'
const url = 'http://user:pa55word@localhost:3000/telemetry?token=t0ken'

async function shown(
  post: () => Promise<number>,
  work: (scene: Scene) => Promise<unknown>,
): Promise<readonly ActivityLine[]> {
  const lines: ActivityLine[] = []
  const scene = await sceneOf({ post, allowLocal: true, show: (line) => lines.push(line) })
  await scene.ask('PUT', '/api/business/webhook', { url, format: 'service', auth: secret })
  lines.length = 0
  await work(scene)
  await scene.sandbox.close()
  return lines
}
const say = ({ ask, vin }: Scene): Promise<unknown> => ask('POST', '/sandbox/messages', { vin, data: { Soc: 5 } })
const of = (kind: ActivityLine['kind'], lines: readonly ActivityLine[]): readonly string[] =>
  lines.filter((line) => line.kind === kind).map(({ text }) => text)

describe('each delivery is one line', () => {
  test.each([
    [200, undefined],
    [403, 'wrong secret'],
    [401, 'no secret, or not of the expected scheme'],
    [404, 'no receiver at this path'],
    [503, 'the receiver is full, or stops'],
    [500, 'refused'],
  ])('with its status %i and its time', async (status, reason) => {
    const lines = await shown(async () => status, say)
    const end = reason === undefined ? '' : `  ${reason}`
    expect(of('delivery', lines)).toEqual([
      `${status} → POST http://localhost:3000/telemetry  data 0FL3EETV6T0000000  0 ms${end}`,
    ])
    expect(lines.find(({ kind }) => kind === 'delivery')?.failed).toBe(status !== 200)
  })
})

test('no line has a secret, wherever it was sent', async () => {
  const lines = await shown(
    async () => {
      throw new Error(secret)
    },
    async ({ ask, vin: own }) => {
      await ask('GET', `/${secret}`)
      await ask('GET', `/api/config/${apiKey}`)
      await ask('POST', '/sandbox/messages', { vin: own, data: { Soc: 5 } })
      await ask('GET', `/sse/${own}?topics=${secret}`)
    },
  )
  expect(lines.length).toBe(5)
  expect(lines.map(({ text }) => text).join('\n')).not.toMatch(new RegExp(`${secret}|${apiKey}|pa55word|t0ken`))
})

test('a `show` that throws breaks nothing', async () => {
  const { ask } = await sceneOf({
    show: () => {
      throw new Error('The terminal is gone.')
    },
  })
  expect((await ask('GET', '/api/business/products')).status).toBe(200)
})
