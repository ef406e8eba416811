import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { expect, inject, test } from 'vitest'

/** What importing an entry of the installed package loads: modules of ours, by their sources, and packages that they name. */
async function loadedBy(
  entry: string,
): Promise<{ readonly files: readonly string[]; readonly packages: readonly string[] }> {
  const folder = inject('consumer')
  const { metafile } = await build({
    stdin: { contents: `export * from '${entry}'`, resolveDir: folder },
    absWorkingDir: folder,
    bundle: true,
    write: false,
    metafile: true,
    format: 'esm',
    platform: 'neutral',
    treeShaking: false,
    plugins: [
      {
        name: 'packages stay outside',
        setup: ({ onResolve }) => {
          onResolve({ filter: /^[^./]/ }, ({ path }) =>
            path.startsWith('fleethook') ? undefined : { path, external: true },
          )
        },
      },
    ],
  })
  const inputs = Object.entries(metafile.inputs)
  return {
    files: inputs
      .filter(([path]) => path.includes('fleethook/dist/'))
      .flatMap(([path]) =>
        [...readFileSync(join(folder, path), 'utf8').matchAll(modules)].map(([, name = '']) => name),
      ),
    packages: [
      ...new Set(
        inputs.flatMap(([, { imports }]) => imports.filter(({ external }) => external).map(({ path }) => path)),
      ),
    ].toSorted(),
  }
}

/** The modules of ours that are in the bundle of a program, from the sources. */
async function bundledBy(code: string): Promise<readonly string[]> {
  const root = fileURLToPath(new URL('../..', import.meta.url))
  const { metafile } = await build({
    stdin: { contents: code, resolveDir: root },
    absWorkingDir: root,
    tsconfigRaw: {},
    bundle: true,
    write: false,
    metafile: true,
    format: 'esm',
    packages: 'external',
  })
  const [output] = Object.values(metafile.outputs)
  return Object.entries(output?.inputs ?? {}).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? [path] : []))
}

/** A file of the package consists of modules. The comment before each names its source. */
const modules = /^\/\/(?:#region)? ?((?:src|adapters)\/\S+\.ts)$/gm

const onePackage = (names: readonly string[], name: string): readonly string[] =>
  names.filter((path) => path === name || path.startsWith(`${name}/`))

const ofNode = /^(node|bun|deno):|^@hono\/node-server/
const nothing = /^$/

test.each<readonly [entry: string, files: RegExp, packages: RegExp, loaded: string]>([
  [
    'fleethook',
    // No adapter, no testing, no simulated fleet, and no way to messages that are kept elsewhere.
    /^(adapters|src\/(testing|service))/,
    /^(zod|eventsource-parser|ipaddr\.js)(\/|$)/,
    'src/receiver.ts',
  ],
  ['fleethook/normalize', /^(adapters|src\/(http|inbox|core|parts))\//, /^(hono|zod)(\/|$)/, 'src/wire/normalizer.ts'],
  [
    'fleethook/client',
    /^(adapters|src\/(http|inbox|testing|service\/fleet|receiver|parts|core\/(?!retry)))/,
    /^(?!(eventsource-parser|ipaddr\.js)$)/,
    'src/service/client/client.ts',
  ],
  ['fleethook/testing', /^adapters\//, nothing, 'src/testing/deliver.ts'],
  ['fleethook/workers', /^adapters\/(?!workers|workers\/)/, nothing, 'adapters/workers.ts'],
  [
    'fleethook/inbox/durable-object',
    /^adapters\/(?!inbox\/(durable-object|forwarding|stored-row))/,
    /^cloudflare:/,
    'adapters/inbox/durable-object.ts',
  ],
])('%s loads nothing of Node, and nothing that it does not need', async (entry, ofOthers, outside, loaded) => {
  const { files, packages } = await loadedBy(entry)
  expect(files).toContain(loaded)
  expect(files.filter((path) => ofOthers.test(path))).toEqual([])
  expect(packages.filter((path) => ofNode.test(path) || outside.test(path))).toEqual([])
})

test.each([
  ['vehicles', /^src\/(parts\/vehicles|vehicles\/(?!edge\.ts)|events\/(laws|limits))/],
  ['dedupe', /^src\/parts\/dedupe/],
])('a receiver without the part `%s` does not bundle it', async (part, files) => {
  const bundled = async (names: string, parts: string): Promise<readonly string[]> => {
    const code = `import { createReceiver${names} } from './src/index.ts'; export default createReceiver({ parts: [${parts}] })`
    return (await bundledBy(code)).filter((path) => files.test(path))
  }
  expect(await bundled('', '')).toEqual([])
  expect(await bundled(`, ${part}`, `${part}({})`)).not.toEqual([])
})

test('an adapter loads no other adapter, and no command line', async () => {
  for (const adapter of ['node', 'bun', 'deno', 'workers']) {
    const { files } = await loadedBy(`fleethook/${adapter}`)
    expect(
      files.filter(
        (path) => /^adapters\/(node|bun|deno|workers|cli)\b/.test(path) && !path.startsWith(`adapters/${adapter}`),
      ),
    ).toEqual([])
  }
})

test('control: the graph sees what an entry loads', async () => {
  expect(onePackage((await loadedBy('fleethook')).packages, 'hono')).not.toEqual([])
  expect((await loadedBy('fleethook/node')).packages).toContain('@hono/node-server')
  expect((await loadedBy('fleethook')).files).toContain('src/receiver.ts')
})
