import { createServer, type Server } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, test } from 'vitest'
import { freePort } from '../conformance/spawn.ts'
import { few } from '../form.ts'
import { command } from './command.ts'
import { byHand, conform, handledBy, secret, withResult } from './conforming.ts'

/** What the report says of each mistake. The first two are in `npm test`. */
const holes: readonly (readonly [hole: string, said: RegExp, group: string])[] = [
  ['secret-begins', /the secret and more behind it: 200, not 401 or 403/, 'secret'],
  ['batch-first', /three events, nothing between \(handled\): 2 of 3 were accepted and not handled/, 'batches'],
  ['secret-part', /no Authorization: 200.*\n.*3 of 3 were handled anyway/, 'secret'],
  ['secret-case', /capitals for small letters: 200/, 'secret'],
  ['secret-any', /another one as long: 200/, 'secret'],
  ['no-gzip', /gzip, a message \(answer\): 415 with an HTML page, not a 2xx/, 'gzip'],
  ['order', /handled in another order/, 'order'],
  ['repeats', /a message that comes again later \(handled\): it was handled 2 times/, 'repeats'],
  ['wrapped', /Gear is "ShiftStateD" in service, \{"shiftStateValue":"ShiftStateD"\} in vehicle_maker/, 'formats'],
  ['crashes', /what is no message \(answer\): no body: 500/, 'bodies'],
  ['time-key', /two messages with the same time \(handled\): 1 of 2 were handled/, 'repeats'],
  ['value-key', /the same values at another time \(handled\): 1 of 2 were handled/, 'repeats'],
  ['late', /a message from before that comes late \(handled\): 1 of 2 were handled/, 'repeats'],
  ['lone-list', /a list of one event \(answer\): 400/, 'batches'],
  ['time-number', /the time of an event as text, .*: text: 400, not a 2xx; none: 400/, 'batches'],
  ['null-zero', /Soc null is 0 in vehicle_maker/, 'formats'],
  ['falsy', /VehicleSpeed 0 is null in service; Locked false is null in service/, 'formats'],
  ['header-case', /the names of headers in capitals \(answer\): 401/, 'bodies'],
  ['small', /bodies of 64 and 512 KiB \(answer\): 512 KiB: 413/, 'bodies'],
  ['latin1', /VehicleName "Sué 🚗" is "SuÃ©/, 'formats'],
  ['burst', /200 vehicles with a message each, all at once \(answer\): \d+ of 200 got no 2xx: /, 'order'],
  ['content-type', /a Content-Type with a charset \(answer\): 415/, 'bodies'],
]

describe('fleethook conform', () => {
  test('finds nothing in a careful receiver, and names what it could not check', async () => {
    await using receiver = await byHand('')
    const report = await conform(receiver.url, '--handled', handledBy(receiver), '--patience', '5')
    expect(withResult(report, 'fail')).toEqual([])
    expect(report).toMatchObject({ status: 0, fail: 0 })
    expect(withResult(report, 'unchecked').filter((line) => !/handlers may be for other topics/.test(line))).toEqual([
      'secret, compared in constant time (answer): a network hides it: read the code',
      'relays, the paths (answer): nothing answers there as the collector protocol does, so relays of it cannot use this receiver',
      'kills, what was acknowledged (handled): no --restart',
    ])
  })

  test.each(few(holes))('names the mistake %s', async (hole, said, group) => {
    await using receiver = await byHand(hole)
    const only = ['--only', group, '--patience', '3']
    const report = await conform(receiver.url, '--handled', handledBy(receiver), ...only)
    expect(report.status).toBe(1)
    expect(withResult(report, 'fail').join('\n')).toMatch(said)
  })

  test('a list that tells no message from another is named, and nothing of it is right', async () => {
    await using receiver = await byHand('')
    const report = await conform(
      receiver.url,
      '--handled',
      `cmd:cut -c1-9 ${handledBy(receiver)} || true`,
      '--only',
      'batches',
      '--patience',
      '1',
    )
    expect(
      new Set(report.checks.filter(({ aspect }) => aspect === 'handled').map(({ result }) => result)),
    ).not.toContain('pass')
  })
})

test('a list that the receiver itself shows is read with its secret, and a time tells a message from another', async () => {
  const lines: string[] = []
  // Answers on every path, and reads data in the formats service and vehicle_maker.
  const server = createServer(async (request, response) => {
    const body = await text(request)
    if (request.headers.authorization !== secret) response.writeHead(401).end()
    else if (request.method === 'GET') response.end(lines.join('\n'))
    else {
      const { vin, createdAt } = JSON.parse(body)
      lines.push(`${vin}_${Date.parse(createdAt)}`)
      response.end('ok')
    }
  }).listen(0)
  const url = await addressOf(server)
  const report = await conform(url, '--handled', `${url}/handled`, '--only', 'values,repeats,relays', '--patience', '1')
  server.closeAllConnections()
  server.close()
  const of = (group: string): readonly string[] =>
    report.checks.filter((check) => check.group === group).map(({ aspect, result }) => `${aspect} ${result}`)
  expect(of('values')).toEqual(['answer pass', 'handled pass', 'answer pass', 'handled pass'])
  expect(of('relays')).toEqual(['answer unchecked'])
  expect(withResult(report, 'fail').join('\n')).toMatch(
    /a message that comes again at once \(handled\): it was handled 2 times/,
  )
})

describe('the report', () => {
  test('is a table with what falls short below it, and shows no secret', async () => {
    await using receiver = await byHand('repeats')
    const args = ['conform', '--url', receiver.url, '--handled', handledBy(receiver), '--only', 'repeats,gzip']
    const { status, stdout } = await command(args, { WEBHOOK_SECRET: secret })
    expect(status).toBe(1)
    expect(stdout).toMatch(/^gzip +a batch +ok +ok$/m)
    expect(stdout).toMatch(/^repeats +a message that comes again at once +ok +FALLS SHORT$/m)
    expect(stdout).toMatch(/^Falls short:\n {2}repeats, a message .*: it was handled 2 times$/m)
    expect(stdout).not.toContain(secret)
  })

  test('says with status 1 that no receiver answers', async () => {
    const { status, stderr } = await command([
      'conform',
      '--url',
      `http://127.0.0.1:${await freePort()}`,
      '--secret',
      'x',
    ])
    expect(status).toBe(1)
    expect(stderr).toContain('No receiver answers at')
  })

  test('a redirect and a page are no 2xx of a receiver', async () => {
    const server = createServer((_, response) => response.writeHead(302, { location: '/elsewhere' }).end()).listen(0)
    const report = await conform(await addressOf(server), '--only', 'formats')
    server.close()
    expect(withResult(report, 'fail').join('\n')).toContain('data, in the format service (answer): 302, not a 2xx')
  })
})

describe('bad usage ends with status 2 and says what is wrong', () => {
  const url = ['--url', 'http://127.0.0.1:9/']
  test.each(
    few<readonly [args: readonly string[], said: string]>(
      [
        [['--secret', 'x'], '--url'],
        [url, 'no secret is given'],
        [[...url, '--secret', 'x', '--only', 'all'], 'There is no group "all"'],
        [[...url, '--secret', 'x', '--sink', '4000', '--handled', 'a.log'], 'cannot be used with'],
        [[...url, '--secret', 'x', '--handled', 'http://127.0.0.1:9/handled'], 'cannot be read'],
        [[...url, '--secret', 'x', '--handled', 'cmd:exit 3'], 'cannot be read'],
        [[...url, '--secret', 'x', '--kills', '0'], 'whole number'],
      ],
      3,
    ),
  )('%j', async (args, said) => {
    const { status, stdout, stderr } = await command(['conform', '--dotenv', 'none', ...args])
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' })
    expect(stderr).toContain(said)
  })
})

async function addressOf(server: Server): Promise<string> {
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return `http://127.0.0.1:${port}`
}
