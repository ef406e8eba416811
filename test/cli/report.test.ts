import { describe, expect, test } from 'vitest'
import { command, start } from './command.ts'
import { endpoint, success, type Posted } from './endpoint.ts'
import { resultOf } from './result.ts'

const startAt = '2026-06-01T08:00:00.000Z'
const secret = 'correct-horse-battery'
const fast = ['--rate', '2000', '--start-at', startAt]

describe('fleethook send tells the truth', () => {
  const refusing = (posted: Posted, response: Parameters<typeof success>[1]): void => {
    response.statusCode = 403
    response.end(
      JSON.stringify({ text: 'Invalid token', code: 4, error: 'secret_wrong', hint: 'Compare\u001b[2J the values.' }),
    )
  }

  test('about refusals: by status and code, with the hint of the answer, and status 1', async () => {
    await using server = await endpoint(refusing)
    const ended = await command(['send', '--url', server.url, '--secret', secret, '-c', '12', ...fast])
    expect(ended.status).toBe(1)
    expect(ended.stdout).toContain('12 sent: 0 accepted, 12 refused.')
    expect(ended.stdout).toContain('12 × 403 secret_wrong (code 4)')
    expect(ended.stdout).toContain('the values.')
  })

  test('without a secret or a control character on the screen', async () => {
    await using server = await endpoint(refusing)
    const { stdout, stderr } = await command(['send', '--url', server.url, '--secret', secret, '-c', '12', ...fast])
    expect(stdout + stderr).not.toContain(secret)
    expect(stdout + stderr).not.toContain('\u001b')
  })

  test('about refusals of one message among others', async () => {
    await using server = await endpoint((posted, response) =>
      server.posted.length === 7 ? refusing(posted, response) : success(posted, response),
    )
    const ended = await command(['send', '--url', server.url, '-c', '20', ...fast, '--json'])
    expect(ended.status).toBe(1)
    expect(resultOf(ended)).toMatchObject({
      sent: 20,
      accepted: 19,
      refused: 1,
      refusals: [{ status: 403, error: 'secret_wrong', count: 1 }],
    })
  })

  test('about answers that are no JSON, and redirects', async () => {
    await using server = await endpoint((_posted, response) => {
      response.writeHead(307, { location: 'https://example.com/there' }).end('Moved')
    })
    const { refusals } = resultOf(await command(['send', '--url', server.url, '-c', '3', ...fast, '--json']))
    expect(refusals).toMatchObject([
      { status: 307, count: 3, text: 'Moved', hint: expect.stringContaining('https://example.com/there') },
    ])
  })

  test('about a host that does not answer: it gives up after twenty', async () => {
    const server = await endpoint()
    await server[Symbol.asyncDispose]()
    const ended = await command(['send', '--url', server.url, '-c', '500', ...fast])
    expect(ended.status).toBe(1)
    expect(ended.stdout).toContain('Stopped: the receiver cannot be reached.')
    expect(ended.stdout).toMatch(/\d+ × ECONNREFUSED\n +Nothing listens there/)
  })

  test('about connections that are cut and answers that never come', async () => {
    await using server = await endpoint((posted, response) => {
      if (server.posted.length === 1) success(posted, response)
      else if (server.posted.length % 2 === 0) response.destroy()
    })
    const ended = await command(['send', '--url', server.url, '-c', '5', '--timeout', '1500', ...fast, '--json'])
    expect(ended.status).toBe(1)
    const { accepted, failed, failures } = resultOf(ended)
    expect({ accepted, failed }).toEqual({ accepted: 1, failed: 4 })
    expect(failures.map(({ code, count }) => `${count} ${code}`).toSorted()).toEqual(['2 ECONNRESET', '2 TIMEOUT'])
  })

  test('about a rate that one vehicle cannot have, because its messages wait for each other', async () => {
    const waiting: (() => void)[] = []
    await using server = await endpoint((posted, response) => {
      waiting.push(() => success(posted, response))
      setTimeout(() => waiting.shift()?.(), 10)
    })
    const ended = await command(['send', '--url', server.url, '--vins', '1', '-r', '1000', '-c', '60'])
    expect(ended.status).toBe(0)
    expect(ended.stdout).toMatch(/\/s of the 1,000\/s asked for/)
    expect(ended.stdout).toContain('Use more --vins')
  })

  test('about a receiver that is slower than the connections allow', async () => {
    await using server = await endpoint((posted, response) => {
      setTimeout(() => success(posted, response), 20)
    })
    const args = [
      'send',
      '--url',
      server.url,
      '--vins',
      '500',
      '-r',
      '2000',
      '-c',
      '100',
      '--concurrency',
      '2',
      '--json',
    ]
    expect(resultOf(await command(args)).rate).toMatchObject({ keptUp: false, bottleneck: 'concurrency' })
  })

  test('about what it had sent when Ctrl+C ended it', async () => {
    await using server = await endpoint()
    const { child, ended } = start(['send', '--url', server.url, '-c', '0', '-r', '500'])
    await server.received(50)
    child.kill('SIGINT')
    const { status, stdout } = await ended
    expect(status).toBe(0)
    expect(stdout).toMatch(/Stopped\. All [\d,]+ messages were accepted\./)
    expect(stdout).toContain(`All ${server.posted.length.toLocaleString('en-US')} messages`)
  })
})

describe('the output of fleethook send', () => {
  test('is plain lines when it goes to no terminal', async () => {
    await using server = await endpoint()
    const { stdout, stderr } = await command(['send', '--url', `${server.url}?key=hidden`, '-c', '50', ...fast])
    expect(stderr.split('\n').slice(0, 2)).toEqual([
      `fleethook send → ${server.url}`,
      '25 vehicles · all formats · all topics · 2,000/s · seed 1 · no secret given',
    ])
    expect(stdout).toContain('All 50 messages were accepted.')
    expect(stdout).toMatch(/ack {3}p50 \S+ms · p95 \S+ms · p99 \S+ms · max \S+ms/)
    expect(stdout).toMatch(/accepted +service +vehicle_maker +event_collector\n/)
  })

  test('has a line of progress every two seconds', async () => {
    await using server = await endpoint()
    const { stderr } = await command(['send', '--url', server.url, '-c', '125', '-r', '50'])
    expect(stderr).toMatch(
      /^\S+s: \d+ of 125 sent, \d+ accepted, 0 refused, 0 failed, \S+\/s, ack p50 \S+ms, p99 \S+ms$/m,
    )
  })

  test.each([['--quiet'], ['--json']])('has no progress with %s', async (option) => {
    await using server = await endpoint()
    const { stdout, stderr } = await command(['send', '--url', server.url, '-c', '5', ...fast, option])
    expect(stderr).toBe('')
    expect(stdout).not.toBe('')
  })

  test('says how to send the same again', async () => {
    await using server = await endpoint()
    const { stdout } = await command(['send', '--url', server.url, '-c', '5', '--vins', '2', '--seed', '9', ...fast])
    expect(stdout).toContain(`--seed 9 --vins 2 --start-at ${startAt}`)
  })
})
