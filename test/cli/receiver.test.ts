import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, type FleetEvent } from 'fleethook'
import { serve } from 'fleethook/node'
import { describe, expect, test } from 'vitest'
import { command } from './command.ts'
import { resultOf } from './result.ts'
import { newFolder } from '../folder.ts'

const secret = 'correct-horse-battery'

describe('fleethook send and a real receiver', () => {
  test('every topic in every format is accepted and handled', async () => {
    const events: FleetEvent[] = []
    const receiver = createReceiver({ secret }).on('*', (event) => {
      events.push(event)
    })
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: [] })
    const fleet = ['-c', '900', '-r', '900']
    const ended = await command(['send', '--url', server.url, ...fleet, '--json'], { WEBHOOK_SECRET: secret })
    await server.close()

    expect(resultOf(ended)).toMatchObject({ sent: 900, accepted: 900 })
    expect(ended.status).toBe(0)
    expect(events).toHaveLength(900)
    expect(new Set(events.map(({ topic }) => topic))).toEqual(
      new Set(['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity']),
    )
    expect(events.filter((event) => event.topic === 'data' && Object.keys(event.undecoded).length > 0)).toEqual([])
  })

  test('a wrong secret is refused, with the receiver’s own hint', async () => {
    const server = await serve(createReceiver({ secret }), { port: 0, hostname: '127.0.0.1', signals: [] })
    const folder = newFolder('receiver')
    writeFileSync(join(folder, '.env'), `WEBHOOK_SECRET=${secret}\n`)
    const send = ['send', '--url', server.url, '-c', '9', '-r', '2000']
    const ended = await command(send, { WEBHOOK_SECRET: 'another' }, folder)
    await server.close()
    expect(ended.status).toBe(1)
    expect(ended.stdout).toContain('9 × 403 secret_wrong (code 4)')
    expect(ended.stdout).toContain('Set `auth` of the webhook')
    const said = ended.stdout.replaceAll(/\s+/g, ' ')
    expect(said).toContain('The secret that was sent is from the environment, and .env has another one.')
  })
})
