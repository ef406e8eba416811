import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FleetEvent } from 'fleethook'
import { normalize } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { few } from '../form.ts'
import { createFleet } from '../../src/service/fleet/fleet.ts'
import { command } from './command.ts'
import { endpoint, success, type Posted } from './endpoint.ts'
import { resultOf } from './result.ts'

const startAt = '2026-06-01T08:00:00.000Z'
const secret = 'correct-horse-battery'
const fast = ['--rate', '2000', '--start-at', startAt]
const eventsOf = (posted: readonly Posted[]): FleetEvent[] => posted.flatMap(({ body }) => normalize(body))
const object = (body: string): object => z.record(z.string(), z.unknown()).parse(JSON.parse(body))

describe('fleethook send posts as the service does', () => {
  test('each message once, as JSON, with the secret as it is in Authorization', async () => {
    await using server = await endpoint()
    const ended = await command([
      'send',
      '--url',
      server.url,
      '--secret',
      secret,
      '-f',
      'service',
      '-c',
      '60',
      ...fast,
      '--json',
    ])

    expect(ended.status).toBe(0)
    expect(resultOf(ended)).toMatchObject({ sent: 60, accepted: 60, refused: 0, failed: 0, notSent: 0 })
    expect(server.posted).toHaveLength(60)
    for (const { method, path, headers } of server.posted) {
      expect(method).toBe('POST')
      expect(path).toBe('/telemetry')
      expect(headers).toMatchObject({ 'content-type': 'application/json', authorization: secret })
    }
  })

  const schemes = [
    ['service', secret, secret],
    ['event_collector', secret, `Splunk ${secret}`],
    ['vehicle_maker', secret, secret],
    ['event_collector', `Bearer ${secret}`, `Bearer ${secret}`],
  ] as const
  test.each(few(schemes))('%s with %j sends %j', async (format, given, sent) => {
    await using server = await endpoint()
    await command(['send', '--url', server.url, '--secret', given, '--format', format, '--count', '5', ...fast])
    expect(server.posted.map(({ headers }) => headers.authorization)).toEqual(Array.from({ length: 5 }, () => sent))
  })

  test('takes the secret from WEBHOOK_SECRET, and sends no header without one', async () => {
    await using server = await endpoint()
    const args = ['send', '--url', server.url, '-c', '1', '-f', 'service', ...fast]
    await command(args, { WEBHOOK_SECRET: 'from-the-environment' })
    await command(args)
    expect(server.posted.map(({ headers }) => headers.authorization)).toEqual(['from-the-environment', undefined])
  })

  test.each([
    ['service', (body: object) => 'vin' in body && !('event' in body)],
    ['vehicle_maker', (body: object) => 'data' in body && Array.isArray(body.data)],
    ['event_collector', (body: object) => 'event' in body && 'source' in body],
  ])('in the format %s', async (format, hasShape) => {
    await using server = await endpoint()
    await command(['send', '--url', server.url, '-f', format, '-t', 'data', '-c', '20', ...fast])
    expect(server.posted).toHaveLength(20)
    expect(server.posted.filter(({ body }) => !hasShape(object(body)))).toEqual([])
  })

  test('in all formats by turns, when none is named', async () => {
    await using server = await endpoint()
    const result = resultOf(await command(['send', '--url', server.url, '-c', '30', '-t', 'data', ...fast, '--json']))
    expect(Object.entries(result.topics['data'] ?? {}).map(([format, { sent }]) => [format, sent])).toEqual(
      expect.arrayContaining([
        ['service', 10],
        ['vehicle_maker', 10],
        ['event_collector', 10],
      ]),
    )
  })

  test('only the topics asked for', async () => {
    await using server = await endpoint()
    await command(['send', '--url', server.url, '-t', 'alerts, state', '-t', 'errors', '-c', '80', ...fast])
    expect(new Set(eventsOf(server.posted).map(({ topic }) => topic))).toEqual(new Set(['alerts', 'state', 'errors']))
  })

  test('the same bytes for the same seed and start', async () => {
    await using server = await endpoint()
    const args = ['send', '--url', server.url, '--vins', '1', '-c', '40', '--seed', '5', ...fast]
    await command(args)
    await command(args)
    const bodies = server.posted.map(({ body }) => body)
    expect(bodies.slice(40)).toEqual(bodies.slice(0, 40))
  })

  test('messages of one vehicle in order, never two in flight, however late the answers', async () => {
    const inFlight = new Set<string>()
    const overlaps: string[] = []
    let waiting: (() => void)[] = []
    await using server = await endpoint((posted, response) => {
      const [event] = eventsOf([posted])
      const vin = event?.vin ?? ''
      if (inFlight.has(vin)) overlaps.push(vin)
      inFlight.add(vin)
      waiting.push(() => {
        inFlight.delete(vin)
        success(posted, response)
      })
      // The last to come is answered first, for as long as four vehicles surely have something to say: the three that say
      // least have said it all after 94 messages at the earliest.
      const answers = waiting.length >= 4 || server.posted.length > 90 ? waiting.toReversed() : []
      if (answers.length > 0) waiting = []
      for (const answer of answers) answer()
    })
    const args = ['send', '--url', server.url, '--vins', '6', '-c', '300', '--seed', '2', '-f', 'vehicle_maker']
    expect((await command([...args, ...fast])).status).toBe(0)

    expect(overlaps).toEqual([])
    const sent = new Map<string, string[]>()
    for (const { vin = '', createdAt } of eventsOf(server.posted).filter((event) => event.topic !== 'gap')) {
      sent.set(vin, [...(sent.get(vin) ?? []), createdAt])
    }
    const said = new Map<string, string[]>()
    let taken = 0
    for (const { event } of createFleet({ vins: 6, seed: 2, startAt: Date.parse(startAt) })) {
      if (taken++ === 300) break
      said.set(event.vin, [...(said.get(event.vin) ?? []), event.createdAt])
    }
    expect(sent).toEqual(said)
  })

  test('over connections that stay open', async () => {
    await using server = await endpoint()
    await command(['send', '--url', server.url, '-c', '200', '--concurrency', '3', ...fast])
    expect(server.connections()).toBeLessThanOrEqual(3)
  })

  test('with messages from now, and none from the future but of clocks that are ahead', async () => {
    await using server = await endpoint()
    const before = Date.now()
    await command(['send', '--url', server.url, '--vins', '5', '-c', '400', '-r', '1000', '-t', 'connectivity,data'])
    const times = eventsOf(server.posted).map(({ at }) => at.getTime())
    expect(Math.max(...times)).toBeGreaterThan(before - 60_000)
    expect(Math.max(...times)).toBeLessThan(Date.now() + 300_000)
  })

  test('no faster than asked', async () => {
    await using server = await endpoint()
    const result = resultOf(await command(['send', '--url', server.url, '-c', '21', '-r', '100', '--json']))
    expect(result.elapsedMs).toBeGreaterThanOrEqual(200)
    expect(result.rate.achievedPerSecond).toBeLessThanOrEqual(100)
  })
})

test('fleethook send reads the secret from .env, and posts to port 3000 of this machine unless --url says otherwise', async () => {
  await using server = await endpoint()
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-send-'))
  writeFileSync(join(folder, '.env'), 'WEBHOOK_SECRET=of-the-file\n')
  writeFileSync(join(folder, '.dev.vars'), 'WEBHOOK_SECRET=of-the-other-file\n')
  const send = ['send', '--url', server.url, '-c', '1', '--format', 'service']
  await command(send, {}, folder)
  await command([...send, '--dotenv', '.dev.vars'], {}, folder)
  await command(send, { WEBHOOK_SECRET: 'of-the-environment' }, folder)
  await command([...send, '--secret', 'of-the-flag'], { WEBHOOK_SECRET: 'of-the-environment' }, folder)
  expect(server.posted.map(({ headers }) => headers.authorization)).toEqual([
    'of-the-file',
    'of-the-other-file',
    'of-the-environment',
    'of-the-flag',
  ])
  const help = (await command(['send', '--help'], {}, folder)).stdout.replaceAll(/\s+/g, ' ')
  expect(help).toContain('--url <url> the address of the receiver (default: "http://localhost:3000/")')
})
