import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { FleetEvent } from 'fleethook'
import { normalize } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { few } from '../form.ts'
import { createFleet } from '../../src/service/fleet/fleet.ts'
import { command, start } from './command.ts'
import { endpoint, success, type Posted } from './endpoint.ts'
import { resultOf } from './result.ts'
import { newFolder } from '../folder.ts'

const secret = 'correct-horse-battery'
const fast = ['--rate', '2000']
const eventsOf = (posted: readonly Posted[]): FleetEvent[] => posted.flatMap(({ body }) => normalize(body))
const object = (body: string): object => z.record(z.string(), z.unknown()).parse(JSON.parse(body))

describe('fleethook send posts as the service does', () => {
  test('each message once, as JSON, with the secret as it is in Authorization', async () => {
    await using server = await endpoint()
    const ended = await command(['send', '--url', server.url, '-f', 'service', '-c', '60', ...fast, '--json'], {
      WEBHOOK_SECRET: secret,
    })

    expect(ended.status).toBe(0)
    expect(resultOf(ended)).toMatchObject({ sent: 60, accepted: 60, refused: 0, failed: 0 })
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
    const send = ['send', '--url', server.url, '--format', format, '--count', '5', ...fast]
    await command(send, { WEBHOOK_SECRET: given })
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
    await command(['send', '--url', server.url, '-c', '30', '-t', 'data', ...fast])
    const formats = eventsOf(server.posted).map(({ format }) => format)
    for (const format of ['service', 'vehicle_maker', 'event_collector'])
      expect(formats.filter((one) => one === format)).toHaveLength(10)
  })

  test('only the topics asked for', async () => {
    await using server = await endpoint()
    await command(['send', '--url', server.url, '-t', 'alerts, state', '-t', 'errors', '-c', '80', ...fast])
    expect(new Set(eventsOf(server.posted).map(({ topic }) => topic))).toEqual(new Set(['alerts', 'state', 'errors']))
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
      // The last to come is answered first, for as long as three vehicles surely have something to say.
      const answers = waiting.length >= 3 || server.posted.length > 60 ? waiting.toReversed() : []
      if (answers.length > 0) waiting = []
      for (const answer of answers) answer()
    })
    const args = ['send', '--url', server.url, '--vins', '6', '-c', '300', '--seed', '2', '-f', 'vehicle_maker']
    const { sent: count, accepted, startAt } = resultOf(await command([...args, ...fast, '--json']))
    expect([count, accepted, overlaps]).toEqual([300, 300, []])
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
    await command(['send', '--url', server.url, '-c', '200', '--vins', '3', ...fast])
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
    expect(result.perSecond).toBeLessThanOrEqual(100)
  })
})

describe('fleethook send reports', () => {
  const refusing = (posted: Posted, response: Parameters<typeof success>[1]): void => {
    response.statusCode = 403
    success(posted, response)
  }

  test('refusals of one message among others, as JSON, with status 1', async () => {
    await using server = await endpoint((posted, response) =>
      server.posted.length === 7 ? refusing(posted, response) : success(posted, response),
    )
    const ended = await command(['send', '--url', server.url, '-c', '20', ...fast, '--json'])
    expect(ended.status).toBe(1)
    expect(resultOf(ended)).toMatchObject({
      ...{ sent: 20, accepted: 19, refused: 1 },
      problems: [{ what: '403 Success (code 0)', count: 1 }],
    })
  })

  test('redirects and answers of other servers: it says which address to try', async () => {
    await using moved = await endpoint((_posted, response) => {
      response.writeHead(307, { location: 'https://example.com/there' }).end('Moved\u001b')
    })
    const { problems } = resultOf(await command(['send', '--url', moved.url, '-c', '3', ...fast, '--json']))
    expect(problems).toMatchObject([{ count: 3, hint: expect.stringContaining('https://example.com/there') }])
    expect(JSON.stringify(problems)).not.toContain('\u001b')

    await using page = await endpoint((_posted, response) => void response.end('<!DOCTYPE html>\n<html></html>'))
    const { stdout } = await command(['send', '--url', new URL('/', page.url).href, '-c', '3', ...fast])
    expect(stdout).toContain('3 × 200 an HTML page')
    expect(stdout).toContain(`no receiver is at /. Give the path at which it is mounted, for instance --url`)
  })

  test('a host that does not answer: it gives up after twenty', async () => {
    const server = await endpoint()
    await server[Symbol.asyncDispose]()
    const { status, stdout } = await command(['send', '--url', server.url, '-c', '500', ...fast])
    expect(status).toBe(1)
    expect(stdout).toContain('Stopped: the receiver cannot be reached.')
    expect(stdout).toMatch(/\d+ × ECONNREFUSED\n +Does the receiver or its proxy run/)
  })

  test('connections that are cut', async () => {
    await using server = await endpoint((posted, response) => {
      if (server.posted.length === 1) success(posted, response)
      else response.destroy()
    })
    const { accepted, failed, problems } = resultOf(
      await command(['send', '--url', server.url, '-c', '5', ...fast, '--json']),
    )
    expect({ accepted, failed }).toEqual({ accepted: 1, failed: 4 })
    expect(problems).toMatchObject([{ what: 'ECONNRESET', count: 4 }])
  })

  test('a rate that one vehicle cannot have, because its messages wait for each other', async () => {
    await using server = await endpoint((posted, response) => void setTimeout(() => success(posted, response), 10))
    const { status, stdout } = await command(['send', '--url', server.url, '--vins', '1', '-r', '1000', '-c', '60'])
    expect(status).toBe(0)
    expect(stdout).toMatch(/\/s of the 1,000\/s asked for/)
    expect(stdout).toContain('Try more --vins')
  })

  test('what it had sent when Ctrl+C ended it', async () => {
    await using server = await endpoint()
    const { child, ended } = start(['send', '--url', server.url, '-c', '0', '-r', '500'])
    await server.received(50)
    child.kill('SIGINT')
    const { status, stdout } = await ended
    expect(status).toBe(0)
    expect(stdout).toContain(`Stopped. All ${server.posted.length.toLocaleString('en-US')} messages were accepted.`)
  })

  test('the speed, without what the URL hides or a control character', async () => {
    await using server = await endpoint()
    const send = ['send', '--url', `${server.url}?key=hidden`, '-c', '50', '--vins', '2', ...fast]
    const { stdout, stderr } = await command(send, { WEBHOOK_SECRET: secret })
    expect(stderr).toBe('')
    expect(stdout).toContain('All 50 messages were accepted.')
    expect(stdout).toMatch(/ack {3}p50 \S+ms · p95 \S+ms · p99 \S+ms · max \S+ms/)
    for (const hidden of ['hidden', '\u001b', secret]) expect(stdout).not.toContain(hidden)
  })
})

test('fleethook send reads the secret from .env, posts to port 3000 of this machine unless --url says otherwise, and has the defaults that the README shows', async () => {
  await using server = await endpoint()
  const folder = newFolder('send')
  writeFileSync(join(folder, '.env'), 'WEBHOOK_SECRET=of-the-file\n')
  writeFileSync(join(folder, '.dev.vars'), 'WEBHOOK_SECRET=of-the-other-file\n')
  const send = ['send', '--url', server.url, '-c', '1', '--format', 'service']
  await command(send, {}, folder)
  await command([...send, '--dotenv', '.dev.vars'], {}, folder)
  await command(send, { WEBHOOK_SECRET: 'of-the-environment' }, folder)
  expect(server.posted.map(({ headers }) => headers.authorization)).toEqual([
    'of-the-file',
    'of-the-other-file',
    'of-the-environment',
  ])
  const help = (await command(['send', '--help'], {}, folder)).stdout.replaceAll(/\s+/g, ' ')
  expect(help).toContain('--url <url> the address of the receiver (default: "http://localhost:3000/")')
  const count = /number of messages; .*? \(default: (\d+)\)/.exec(help)?.[1]
  expect(readFileSync('README.md', 'utf8')).toContain(
    `All ${Number(count).toLocaleString('en-US')} messages were accepted.`,
  )
})
