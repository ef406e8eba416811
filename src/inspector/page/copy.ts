import type { Event } from './answers.ts'

/** Text as one word of a shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** A command that posts the message as it came. The secret and the address are shell variables. */
export function curlOf({ raw, format }: Event): string {
  // In the collector's format, the scheme word of the collector comes before a secret of one word.
  const scheme = format === 'event_collector' ? 'Splunk ' : ''
  return [
    'curl "$WEBHOOK_URL" \\',
    `  -H "Authorization: ${scheme}$WEBHOOK_SECRET" \\`,
    "  -H 'Content-Type: application/json' \\",
    `  --data-raw ${quoted(JSON.stringify(raw))}`,
  ].join('\n')
}

/** The members of an event that `encode` of `fleethook/normalize` needs, by topic. */
const members: Readonly<Record<string, readonly string[]>> = {
  data: ['data', 'undecoded'],
  state: ['state'],
  vehicle_data: ['vehicleData'],
  alerts: ['alerts'],
  errors: ['errors'],
  connectivity: ['status', 'networkInterface', 'connectionId'],
}

const isEmpty = (value: unknown): boolean =>
  value === undefined || (typeof value === 'object' && value !== null && Object.keys(value).length === 0)

/** A test that delivers the same message to your receiver, in the format in which it came. */
export function testOf(event: Event): string {
  const { topic, format } = event
  const payload = members[topic]
  const names = payload === undefined ? ['topic', 'raw'] : ['topic', 'vin', 'createdAt', ...payload, 'meta']
  const kept = names.flatMap((name) => {
    const value = event[name]
    return value === undefined || (['undecoded', 'meta'].includes(name) && isEmpty(value)) ? [] : [[name, value]]
  })
  const written = JSON.stringify(Object.fromEntries(kept), undefined, 2).replaceAll('\n', '\n  ')
  return `import { deliver } from 'fleethook/testing'
import { expect, test } from 'vitest'
import { receiver } from './receiver.ts'

test(${JSON.stringify(`handles a ${topic} message`)}, async () => {
  const { status, settled } = await deliver(receiver, ${written}, {
    as: ${JSON.stringify(format ?? 'service')},
    secret: process.env.WEBHOOK_SECRET ?? '',
  })
  await settled
  expect(status).toBe(200)
})
`
}

/** Whether the message came over the wire and its payload is shown. */
export const isCopyable = ({ raw }: Event): boolean => typeof raw === 'object' && raw !== null
