import { cpSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { message as kept } from '../../src/testing/kept-message.ts'
import { createFiles } from './sqlite-files.ts'
import { rowOf, storeAt, transaction } from './sqlite-store.ts'

const files = createFiles()
const messages = 2_000

/** What a process would leave behind if it were killed now. */
function leftOf(path: string): string {
  const copy = files.path()
  mkdirSync(dirname(copy), { recursive: true })
  cpSync(dirname(path), dirname(copy), { recursive: true })
  return copy
}

/** A file with waiting messages and a destroyed header. */
async function damaged(): Promise<string> {
  const path = files.path()
  const store = storeAt(path)
  await store.open({ nowMs: 1 })
  const puts = Array.from({ length: messages }, (_, n) =>
    rowOf({ ...kept(n), text: `${kept(n).text}${' '.repeat(400)}` }),
  )
  await store.commit(transaction(1, { puts }))
  await store.close({ nowMs: 1 })
  writeFileSync(path, readFileSync(path).fill(0, 0, 100))
  return path
}

test('when a process ends while it replaces a damaged file, the next one continues and loses nothing', async () => {
  const path = await damaged()
  const store = storeAt(path)
  let isOpen = false
  const opening = store.open({ nowMs: 2 }).then((found) => {
    isOpen = true
    return found
  })
  const left: string[] = [leftOf(path)]
  while (!isOpen) {
    await setImmediate()
    left.push(leftOf(path))
  }
  expect((await opening).messages).toBe(messages)
  await store.close({ nowMs: 3 })
  expect(left.length).toBeGreaterThan(5)
  for (const copy of left) {
    const next = storeAt(copy)
    expect((await next.open({ nowMs: 4 })).messages).toBe(messages)
    await next.close({ nowMs: 5 })
  }
})

test('the same holds when only the last rename is missing', async () => {
  const path = await damaged()
  const store = storeAt(path)
  await store.open({ nowMs: 2 })
  await store.close({ nowMs: 3 })
  renameSync(path, `${path}-replacement`)
  const next = storeAt(path)
  expect((await next.open({ nowMs: 4 })).messages).toBe(messages)
  await next.close({ nowMs: 5 })
})
