import type { Event } from './answers.ts'

/** A message to copy. `text`: as it came, where `raw` is written in another way. */
export type Copied = Pick<Event, 'topic' | 'raw' | 'format'> & { readonly text?: string | undefined }

/** Text as one word of a shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** A command that posts the message as it came. The secret and the address are shell variables. */
export function curlOf({ raw, format, text = JSON.stringify(raw) }: Copied): string {
  // In the collector's format, the scheme word of the collector comes before a secret of one word.
  const scheme = format === 'event_collector' ? 'Splunk ' : ''
  return [
    'curl "$WEBHOOK_URL" \\',
    `  -H "Authorization: ${scheme}$WEBHOOK_SECRET" \\`,
    "  -H 'Content-Type: application/json' \\",
    `  --data-raw ${quoted(text)}`,
  ].join('\n')
}

/** A test that hands the same message to your handlers. It runs as it is where `handlers.ts` exports `addHandlers`. */
export function testOf({ topic, raw, text }: Copied): string {
  const readable = JSON.stringify(raw, undefined, 2).replaceAll('\n', '\n    ')
  const body = text === undefined ? readable : JSON.stringify(text)
  return `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createReceiver } from 'fleethook'
import { addHandlers } from './handlers.ts'

test(${JSON.stringify(`handles a ${topic} message`)}, async () => {
  const receiver = addHandlers(createReceiver({ secret: false, retry: { attempts: 1 } }))
  const { status } = await receiver.accept({
    authorization: undefined,
    body: ${body},
  })
  await receiver.drain()
  assert.equal(status, 200)
  assert.equal(receiver.stats().deadLettered, 0)
})
`
}

/** Whether the message came over the wire and its payload is shown. */
export const isCopyable = ({ raw }: Copied): boolean => typeof raw === 'object' && raw !== null
