import { afterAll, beforeAll, expect } from 'vitest'

/** What the tests of a file or of a `describe` share: it is opened before the first of them, and disposed of after the last. */
export function ofFile<Opened extends object>(open: () => Promise<Opened & AsyncDisposable>): Opened {
  let opened: (Opened & AsyncDisposable) | undefined
  beforeAll(async () => {
    opened = await open()
  }, 120_000)
  afterAll(() => opened?.[Symbol.asyncDispose]())
  const get = (_: object, name: string | symbol): unknown => Reflect.get(opened ?? expect.fail('It is not open.'), name)
  return new Proxy({}, { get }) as Opened
}
