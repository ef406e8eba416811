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

test('fleethook/normalize loads neither hono nor zod, and no HTTP, inbox or core of ours', async () => {
  const { files, packages } = await loadedBy('fleethook/normalize')
  expect(files).toContain('src/wire/normalizer.ts')
  expect([...onePackage(packages, 'hono'), ...onePackage(packages, 'zod')]).toEqual([])
  expect(files.filter((path) => /^src\/(http|inbox|core|parts)\//.test(path))).toEqual([])
})

test.each(['fleethook', 'fleethook/normalize', 'fleethook/client', 'fleethook/testing', 'fleethook/workers'])(
  '%s loads nothing of Node',
  async (entry) => {
    const { files, packages } = await loadedBy(entry)
    expect(files.length).toBeGreaterThan(0)
    expect(packages.filter((path) => /^(node|bun|deno):|^@hono\/node-server/.test(path))).toEqual([])
    expect(files.filter((path) => /^adapters\/(?!workers|workers\/)/.test(path))).toEqual([])
  },
)

test('fleethook/inbox/durable-object loads nothing of Node, and of the other adapters nothing', async () => {
  const { files, packages } = await loadedBy('fleethook/inbox/durable-object')
  expect(packages.filter((path) => /^(node|bun|deno|cloudflare):|^@hono\/node-server/.test(path))).toEqual([])
  const own = 'adapters/inbox/durable-object'
  expect(files.filter((path) => path.startsWith('adapters/') && !path.startsWith(own))).toEqual([])
})

test.each([
  ['vehicles', /^src\/(parts\/vehicles|vehicles\/(?!edge\.ts))/],
  ['dedupe', /^src\/parts\/dedupe/],
])('a receiver without the part `%s` does not bundle it', async (part, files) => {
  const bundled = async (names: string, parts: string): Promise<readonly string[]> => {
    const code = `import { createReceiver${names} } from './src/index.ts'; export default createReceiver({ parts: [${parts}] })`
    return (await bundledBy(code)).filter((path) => files.test(path))
  }
  expect(await bundled('', '')).toEqual([])
  expect(await bundled(`, ${part}`, `${part}({})`)).not.toEqual([])
})

test('fleethook loads no relay to messages that are kept elsewhere', async () => {
  const { files } = await loadedBy('fleethook')
  expect(files).not.toContain('src/backend/relay.ts')
})

test('fleethook loads no adapter, no testing, no simulated fleet, and no zod', async () => {
  const { files, packages } = await loadedBy('fleethook')
  expect(files.filter((path) => /^(adapters|src\/(testing|service))/.test(path))).toEqual([])
  expect(onePackage(packages, 'zod')).toEqual([])
  expect(packages.filter((path) => ['eventsource-parser', 'ipaddr.js'].includes(path))).toEqual([])
})

test('fleethook/client loads neither hono nor any HTTP face, inbox or receiver of ours, and of zod what it needs itself', async () => {
  const { files, packages } = await loadedBy('fleethook/client')
  expect(files).toContain('src/service/client/client.ts')
  expect(
    files.filter((path) =>
      /^(adapters|src\/(http|inbox|testing|service\/fleet|receiver|parts|core\/(?!retry)))/.test(path),
    ),
  ).toEqual([])
  expect(packages).toEqual(['eventsource-parser', 'ipaddr.js'])
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
