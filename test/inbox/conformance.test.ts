import { memoryInbox } from 'fleethook'
import { describe, expect, test } from 'vitest'
import type { Conformance } from '../../src/testing/expectations.ts'
import { inboxConformance } from '../../src/testing/inbox-conformance.ts'
import { readersConformance } from '../conformance/readers-conformance.ts'
import { vehiclesConformance } from '../conformance/vehicles-conformance.ts'
import { disk, storedInbox } from './stored-inbox.ts'

const noArchive = { revive: async () => undefined, discard: async () => false }

const named = (checks: readonly Conformance[]): readonly (readonly [string, Conformance])[] =>
  checks.map((check) => [check.name, check])

describe('memoryInbox', () => {
  const subject = { create: memoryInbox() }
  const checks = [...inboxConformance(subject), ...vehiclesConformance(subject), ...readersConformance(subject)]
  test.each(named(checks))('%s', (_, { run }) => run())
})

describe('an inbox that keeps text only', () => {
  const disks = new WeakMap<object, ReturnType<typeof disk>>()
  const checks = inboxConformance({
    create(settings) {
      const on = disk()
      const inbox = storedInbox(on)(settings)
      disks.set(inbox, on)
      return inbox
    },
    reopen: (inbox, settings) => storedInbox(disks.get(inbox) ?? disk())(settings),
  })
  test.each(named(checks))('%s', (_, { run }) => run())
})

describe('control: the suite finds an inbox that', () => {
  const broken: readonly (readonly [string, Parameters<typeof inboxConformance>[0]])[] = [
    ['forgets what it was given', { create: (s) => ({ ...memoryInbox()(s), put: async () => {} }) }],
    ['never forgets', { create: (s) => ({ ...memoryInbox()(s), settle: async () => {} }) }],
    ['is never full', { create: (s) => memoryInbox()({ ...s, limits: { pendingMessages: 1e9, pendingBytes: 1e9 } }) }],
    [
      'loses dead letters',
      {
        create(s) {
          const inbox = memoryInbox()(s)
          return { ...inbox, archive: { ...(inbox.archive ?? noArchive), list: async () => [] } }
        },
      },
    ],
    ['says that nothing waits', { create: (s) => ({ ...memoryInbox()(s), usage: () => ({ messages: 0, bytes: 0 }) }) }],
    ['starts empty', { create: memoryInbox(), reopen: (_, s) => memoryInbox()(s) }],
  ]
  test.each(broken)('%s', async (_, subject) => {
    const outcomes = await Promise.allSettled(inboxConformance(subject).map(({ run }) => run()))
    expect(outcomes.some(({ status }) => status === 'rejected')).toBe(true)
  })
})
