import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { runtimePath } from '../../../scripts/runtimes.ts'
import { newFolder } from '../../folder.ts'
import { native } from './native.ts'

const program = join(import.meta.dirname, 'slow-branch-program.ts')

/** How long three of four answers of the receiver take at most, in milliseconds, where each sync of the branch takes 400. */
function answered(thread: 'own' | 'same'): number {
  if (typeof native === 'string') throw new Error(native)
  const [fast, slow] = [newFolder('fast'), newFolder('slow')]
  const env = { ...process.env, LD_PRELOAD: native.slowDisk, SLOW_DISK: slow }
  return Number(execFileSync(runtimePath('node24'), [program, fast, slow, thread], { encoding: 'utf8', env }))
}

test.skipIf(typeof native === 'string')(
  'a slow disk of a branch does not delay the answers of its receiver, and in the thread of the receiver it would',
  () => {
    expect(answered('own')).toBeLessThan(200)
    expect(answered('same')).toBeGreaterThan(200)
  },
)
