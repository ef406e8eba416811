import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { filesUnder, root, sourceFile, withProject, withSource } from './project.ts'
import { runtimeTies } from './runtime-free.ts'

/** The one place that has to ask for a runtime's global: the comparing library's file for bundles takes nothing else. */
const known = ["src/http/compare.ts names 'Buffer'", "src/http/compare.ts names 'globalThis'"]

describe('what is in src/ runs anywhere', () => {
  test('no file imports a runtime, an adapter or a package of one, and none names a global of a runtime', () => {
    const ties = withProject('scripts/tsconfig.src.json', (project) =>
      filesUnder('src')
        .filter((path) => path.endsWith('.ts'))
        .flatMap((path) => runtimeTies(path, sourceFile(project, `${root}${path}`)).map((tie) => `${path} ${tie}`)),
    )
    expect([...new Set(ties)]).toEqual(known)
  })

  test.each([
    ["import { readFile } from 'node:fs/promises'", "imports 'node:fs/promises'"],
    ["import type { Socket } from 'node:net'", "imports 'node:net'"],
    ["export { serve } from '../../adapters/node.ts'", "imports '../../adapters/node.ts'"],
    ["export const late = async () => import('bun:sqlite')", "imports 'bun:sqlite'"],
    ["import { env } from 'cloudflare:workers'", "imports 'cloudflare:workers'"],
    ["export type Server = import('@hono/node-server').ServerType", "imports '@hono/node-server'"],
    ["import { serve } from 'fleethook/node'", "imports 'fleethook/node'"],
    ['export const secret = process.env.SECRET', "names 'process'"],
    ['export const version = globalThis.Bun?.version', "names 'globalThis'"],
    ['export const { Deno: host } = globalThis as never', "names 'globalThis'"],
    ['export const here = `${__dirname}/data`', "names '__dirname'"],
    ["export const zlib = require('zlib')", "names 'require'"],
    ['export const size = (bytes: Buffer) => bytes.length', "names 'Buffer'"],
    ['export const agent = navigator.userAgent', "names 'navigator'"],
  ])('control: `%s` is caught', (text, tie) => {
    expect(withSource('src/http/face.ts', text, (file) => runtimeTies('src/http/face.ts', file))).toContain(tie)
  })

  test('control: comments, texts, names of our own and neighbours in src/ are not caught', () => {
    const text = `
      // process.env, Bun and require('node:fs') are for adapters
      import { body } from '../wire/body.ts'
      export const text = 'process.env.SECRET and import("node:fs")'
      export const job = { process: () => body, Buffer: 1 }
      export const run = () => job.process()
    `
    expect(withSource('src/http/face.ts', text, (file) => runtimeTies('src/http/face.ts', file))).toEqual([])
  })
})

test('src/ has a folder per stage, and the receiver that shows the whole way', () => {
  const places = ['src/http', 'src/wire', 'src/events', 'src/inbox', 'src/dispatch', 'src/receiver.ts']
  expect(places.filter((place) => !existsSync(`${root}${place}`))).toEqual([])
})
