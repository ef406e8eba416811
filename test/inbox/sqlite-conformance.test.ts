import { describe, test } from 'vitest'
import { inboxConformance } from '../../src/testing/inbox-conformance.ts'
import { createFiles } from './sqlite-files.ts'

describe.each([
  ['beside the receiver', false],
  ['in a thread of its own', true],
] as const)('sqliteInbox, %s', (_name, thread) => {
  const files = createFiles({ thread })
  const checks = inboxConformance({
    create: (settings) => files.create(settings),
    reopen: (inbox, settings) => files.reopen(inbox, settings),
  })
  test.each(checks.map((check) => [check.name, check] as const))('%s', (_, { run }) => run())
})
