import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { FleetEvent } from 'fleethook'
import { normalize } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'
import { createFleet } from '../../src/service/fleet/fleet.ts'
import { command, start } from './command.ts'
import { endpoint, success, type Posted } from './endpoint.ts'
import { resultOf } from './result.ts'
import { newFolder } from '../folder.ts'

const secret = 'correct-horse-battery'
const fast = ['--rate', '2000']
const eventsOf = (posted: readonly Posted[]): FleetEvent[] => posted.flatMap(({ body }) => normalize(body))

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

  test('to the port of .env, or of the environment, which wins', async () => {
    await using server = await endpoint()
    await using other = await endpoint()
    const folder = newFolder('send')
    const dotenv = join(folder, '.env')
    writeFileSync(dotenv, `PORT=${new URL(server.url).port}\n`)
    const args = ['send', '-c', '3', ...fast, '--json', '--dotenv', dotenv]
    const sent = await command(args, { PORT: '' })
    expect(resultOf(sent)).toMatchObject({
      accepted: 3,
      url: new URL('/', server.url).href.replace('127.0.0.1', 'localhost'),
    })
    expect(server.posted).toHaveLength(3)
    await command(args, { PORT: new URL(other.url).port })
    expect([server.posted.length, other.posted.length]).toEqual([3, 3])
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

  test('no faster than asked', async () => {
    await using server = await endpoint()
    const result = resultOf(await command(['send', '--url', server.url, '-c', '21', '-r', '100', '--json']))
    expect(result.elapsedMs).toBeGreaterThanOrEqual(200)
    expect(result.perSecond).toBeLessThanOrEqual(100)
  })
})

describe('fleethook send reports', () => {
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
    expect(stdout).toContain(`Stopped: ${server.url} cannot be reached. `)
    expect(stdout).toMatch(/\d+ × ECONNREFUSED\n +Does the receiver or its proxy run/)
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
  expect(help).toContain('--url <url> the address of the receiver (default: http://localhost and PORT, or 3000)')
  const count = /number of messages; .*? \(default: (\d+)\)/.exec(help)?.[1]
  expect(readFileSync('README.md', 'utf8')).toContain(
    `All ${Number(count).toLocaleString('en-US')} messages were accepted.`,
  )
})
