import * as fc from 'fast-check'
import { test } from 'vitest'
import { inForm } from '../form.ts'
import { createFiles } from './sqlite-files.ts'
import { machine, steps } from './sqlite-machine.ts'

const files = createFiles()

const step = fc.record({ does: fc.constantFrom(...steps), which: fc.nat(30), awaited: fc.boolean() })

test.each([
  ['beside the receiver', false],
  ['in a thread', true],
])(
  'with a file %s, failed writes and syncs, a full disk and crashes: every kept message is there, in order, counted once',
  { timeout: 300_000 },
  async (_name, slow) => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60, size: 'max' }), async (given) => {
        const { act, finish } = await machine(files.path, slow)
        for (const next of given) await act(next)
        await finish()
      }),
      { numRuns: Number(process.env['FLEETHOOK_RUNS'] ?? inForm({ short: 8, full: 40 })), endOnFailure: true },
    )
  },
)
