import { createReceiver, FleethookError } from 'fleethook'
import type { InboxMessage } from 'fleethook/extend'
import { expect, test } from 'vitest'
import type { AttachableInbox } from '../../src/backend/backend.ts'
import { RelayBackend } from '../../src/backend/relay.ts'
import { data, logInto } from '../dispatch/scene.ts'
import { turn } from '../dispatch/fake-clock.ts'

test('a gap does not wait for the next message when a relay reports that messages can be kept again', async () => {
  let isAway = true
  const kept: InboxMessage[] = []
  let backend: RelayBackend | undefined
  const none = async (): Promise<never> => {
    throw new Error('Not in this test.')
  }
  const noList = (): never => {
    throw new Error('Not in this test.')
  }
  const inbox: AttachableInbox = {
    kind: 'relay',
    attach(parts) {
      backend = new RelayBackend(
        {
          durability: 'replicated',
          deadLetters: { list: noList, get: none, replay: none, discard: none },
          messages: { list: noList, get: none },
          replay: none,
          async put(messages) {
            if (isAway) throw new FleethookError('inbox_unavailable', 'The brokers do not answer.')
            kept.push(...messages)
            return undefined
          },
        },
        parts,
      )
      return backend
    },
  }
  const receiver = createReceiver({ secret: false, inbox, log: logInto([]) })
  const { status } = await receiver.accept({ authorization: undefined, body: data('A', 1) })
  expect(status).toBe(503)
  isAway = false
  backend?.reportGaps()
  await turn()
  expect(kept.map(({ kind, lane }) => [kind, lane])).toEqual([['gap', 'A']])
  expect(receiver.stats().openGaps).toBe(0)
  // Nothing is left to report.
  backend?.reportGaps()
  await turn()
  expect(kept.length).toBe(1)
})
