import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { describe, expect, test } from 'vitest'
import { inboxConformance, type InboxUnderTest } from '../../src/testing/inbox-conformance.ts'
import { readersConformance } from '../conformance/readers-conformance.ts'
import { vehiclesConformance } from '../conformance/vehicles-conformance.ts'
import { createFiles } from './sqlite-files.ts'
import { settingsOf } from './sqlite-settings.ts'

const hasThreads = !('deno' in process.versions)

describe.each([['beside the receiver', false], ...(hasThreads ? [['in a thread', true] as const] : [])] as const)(
  'sqliteInbox, %s',
  (_name, thread) => {
    const files = createFiles({ thread })
    const subject: InboxUnderTest = {
      create: (settings) => files.create(settings),
      reopen: (inbox, settings) => files.reopen(inbox, settings),
    }
    const checks = [...inboxConformance(subject), ...vehiclesConformance(subject), ...readersConformance(subject)]
    test.each(checks.map((check) => [check.name, check] as const))('%s', (_, { run }) => run())
  },
)

test.each(hasThreads ? [] : ['deno'])('option thread is refused on %s, where it would be slower', () => {
  expect(() => sqliteInbox({ path: 'inbox.db', thread: true })(settingsOf().settings)).toThrow(/Node and Bun/)
})
