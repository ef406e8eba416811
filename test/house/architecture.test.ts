import { readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { filesUnder, root, sourceFile, withProject, withSource } from './project.ts'
import { runtimeTies } from './runtime-free.ts'

/**
 * The places that have to use a runtime's global, where there is one: whether somebody reads the console in a terminal, and what the file for bundles
 * of the library that compares accepts.
 */
const known = [
  "src/base/log.ts names 'process'",
  "src/base/log.ts names 'globalThis'",
  "src/http/secret.ts names 'Buffer'",
  "src/http/secret.ts names 'globalThis'",
]

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

/** The folders of src/ in the order of imports: a file may import from its own folder and from those before it. */
const order = [
  'base',
  'hosting',
  'events',
  'http',
  'wire',
  'observe',
  'inbox',
  'once',
  'reports',
  'gaps',
  'vehicles',
  'core',
  'parts',
  'receiver',
]
/** Beside the path of a message: folders that build on all of it. */
const beside = [
  'branch',
  'when',
  'operator',
  'inspector',
  'service/client',
  'service/fleet',
  'service/sandbox',
  'testing',
]
const entries = [
  ...['branch', 'client', 'extend', 'forward', 'index', 'inspector', 'metrics', 'normalize', 'once', 'operator'],
  ...['otel', 'receiver', 'sandbox', 'schemas', 'testing', 'when'],
]

const importing = /(?:\bfrom|\bimport)\s*\(?\s*'(\.[^']+)'/g

/** The files of the project that a file imports, type-only imports included. */
function importsOf(path: string): readonly string[] {
  return [...readFileSync(`${root}${path}`, 'utf8').matchAll(importing)].map((match) =>
    join(dirname(path), match[1] ?? '').replaceAll('\\', '/'),
  )
}

/** What each file of src/ and adapters/ imports. */
const imports = new Map(
  [...filesUnder('src'), ...filesUnder('adapters')]
    .filter((path) => path.endsWith('.ts'))
    .map((path) => [path, importsOf(path)] as const),
)

/** What may change as long as no promise does. */
const middle =
  /^src\/((core|parts|receiver|reports|gaps|inbox)\/|receiver\.ts)|^adapters\/inbox\/([\w-]+\/|signs-of-life|shared-)/

/** The only tests that know a file of the middle: of a unit with a meaning of its own, or as the one door to what no entry has. */
const inside: Readonly<Record<string, readonly string[]>> = {
  'test/inbox/delivery-id.test.ts': ['delivery-id'],
  'test/inbox/group-commit.test.ts': ['group-commit'],
  'test/inbox/kafka-client.test.ts': ['client', 'options'],
  'test/inbox/kafka-cluster.ts': ['client', 'options', 'records', 'writer'],
  'test/inbox/kafka-ends.test.ts': ['ends'],
  'test/inbox/kafka-life.test.ts': ['life', 'signs-of-life'],
  'test/inbox/kafka-membership.test.ts': ['membership'],
  'test/inbox/kafka-options.test.ts': ['client', 'options', 'records'],
  'test/inbox/kafka-topics.test.ts': ['options', 'topic-reader', 'topics'],
  'test/inbox/meanwhile.test.ts': ['records', 'way'],
  'test/inbox/postgres-parts.test.ts': ['client', 'endings', 'leases', 'schema', 'tables', 'vehicles'],
  // The journal between two steps of an erasure.
  'test/inbox/sqlite-erased.test.ts': ['database', 'scrub'],
  'test/inbox/sqlite-store.ts': ['file', 'inbox', 'interface', 'moving', 'options'],
  'test/inbox/sqlite-vehicles.test.ts': ['interface', 'states'],
  'test/kafka/traps.test.ts': ['client', 'options'],
  'test/operator/metrics.test.ts': ['hosted'],
  'test/operator/operator.test.ts': ['control'],
  'test/postgres/failover.test.ts': ['client', 'snapshots'],
  'test/postgres/idle.test.ts': ['client', 'leases'],
  'test/postgres/locks.test.ts': ['schema'],
  'test/postgres/readers-conformance.test.ts': ['client', 'store', 'tables'],
  'test/postgres/retention.test.ts': ['client', 'store'],
  'test/postgres/scene.ts': ['schema'],
  'test/postgres/setup.test.ts': ['client', 'schema'],
  'test/postgres/snapshots.test.ts': ['client', 'snapshots'],
  'test/postgres/upgrade.test.ts': ['schema'],
  'test/workers/object-inbox.ts': ['object-inbox'],
  'test/workers/resting-clock.test.ts': ['resting-clock'],
}

test('tests use the entries of the package, so the middle can change under them', () => {
  const found = filesUnder('test').flatMap((path) => {
    const names = importsOf(path)
      .filter((target) => middle.test(target))
      .map((target) => basename(target, '.ts'))
    return names.length === 0 ? [] : [[path, [...new Set(names)].toSorted()] as const]
  })
  expect(Object.fromEntries(found)).toEqual(inside)
})

describe('imports point one way', () => {
  test('no import cycle, type-only imports included', () => {
    expect(cycles(imports)).toEqual([])
  })

  test('no folder of src/ imports from one that comes after it', () => {
    const backward = [...imports].flatMap(([path, targets]) =>
      targets.filter((target) => levelOf(target) > levelOf(path)).map((target) => `${path} → ${target}`),
    )
    expect(backward).toEqual([])
  })

  test('the root of src/ holds the public entries and receiver.ts, and every folder has its place in the order', () => {
    const found = [...imports.keys()].filter((path) => path.startsWith('src/')).map((path) => folderOf(path))
    const loose = [...imports.keys()].filter((path) => /^src\/[^/]+$/.test(path))
    expect(loose).toEqual(entries.map((name) => `src/${name}.ts`))
    expect([...new Set(found)].sort()).toEqual(['', ...order, ...beside].sort())
  })

  test('only its entry and the command line know the page of the inspector, so a receiver without it does not load it', () => {
    const knowing = [...imports].filter(([, targets]) => targets.some((target) => target.startsWith('src/inspector')))
    expect(knowing.map(([path]) => path).filter((path) => !path.startsWith('src/inspector/'))).toEqual([
      'src/inspector.ts',
      'adapters/cli/inspect.ts',
    ])
  })

  test('control: a cycle and a backward import are found', () => {
    const seeded = new Map([
      ['a', ['b']],
      ['b', ['c']],
      ['c', ['a']],
      ['d', ['a']],
    ])
    expect(cycles(seeded)).toEqual([['a', 'b', 'c']])
    expect(levelOf('src/core/message.ts')).toBeGreaterThan(levelOf('src/wire/split.ts'))
  })
})

function folderOf(path: string): string {
  return /^src\/((?:service\/)?[^/]+)\//.exec(path)?.[1] ?? ''
}

/** `src/receiver.ts` comes after the folders that it puts together, and before what builds on it. */
function levelOf(path: string): number {
  if (!path.startsWith('src/')) return Number.MAX_SAFE_INTEGER
  const level = path === 'src/receiver.ts' ? order.length : order.indexOf(folderOf(path))
  return level === -1 ? order.length + 1 : level
}

/** The groups of files that import each other, directly or through others. */
function cycles(graph: ReadonlyMap<string, readonly string[]>): readonly (readonly string[])[] {
  const reachable = new Map([...graph.keys()].map((path) => [path, reachableFrom(path, graph)]))
  const groups = [...graph.keys()]
    .filter((path) => reachable.get(path)?.has(path))
    .map((path) =>
      [...graph.keys()].filter((other) => reachable.get(path)?.has(other) && reachable.get(other)?.has(path)),
    )
  return [...new Map(groups.map((group) => [group.join(), group])).values()]
}

function reachableFrom(path: string, graph: ReadonlyMap<string, readonly string[]>): ReadonlySet<string> {
  const seen = new Set<string>()
  const next = [...(graph.get(path) ?? [])]
  for (let found = next.pop(); found !== undefined; found = next.pop()) {
    if (seen.has(found)) continue
    seen.add(found)
    next.push(...(graph.get(found) ?? []))
  }
  return seen
}

/**
 * Files that may spread a condition, and why a member that is missing differs there from one that is `undefined`. Everywhere else the type of the
 * member says `| undefined` and it is written as it is, because in what is spread the compiler checks no names.
 */
const spreadsAllowed: Readonly<Record<string, string>> = {
  'src/events/gap.ts': 'the schemas of events take no `undefined`',
  'src/wire/normalized-event.ts': 'the same',
  'src/wire/encode.ts': 'the same',
  'src/service/fleet/messages.ts': 'the same',
  'src/service/client/config.ts': 'the schemas of answers take no `undefined`',
  'src/service/client/call.ts': 'a header would be the text "undefined"',
  'src/service/sandbox/deliveries.ts': 'the same',
  'src/testing/deliver.ts': 'the same',
  'adapters/cli/post-on.ts': 'the same',
  'adapters/cli/send.ts': 'the same',
  'src/service/sandbox/options.ts': 'the service leaves them out',
  'adapters/cli/webhook.ts': 'the service would delete the secret',
  'src/otel.ts': 'the types of OpenTelemetry and of an observer take no `undefined`',
  'adapters/bun.ts': 'options of the runtime',
  'adapters/node.ts': 'options of the runtime',
  'adapters/cli/kafka.ts': 'options of the client of Kafka',
  'adapters/inbox/kafka/client.ts': 'options of the client of Kafka',
  'src/when/conditions.ts': 'the types of edges are exact',
  'src/when/edges.ts': 'the types of edges are exact',
}

test('a condition is spread only where a missing member is not the same as `undefined`', () => {
  const files = [...filesUnder('src'), ...filesUnder('adapters')].filter(
    (path) => path.endsWith('.ts') && !path.endsWith('.generated.ts'),
  )
  const spreads = files.filter((path) =>
    /\.\.\.\((?!\n)[^\n]*(?:&&|[?:]) \{ [\w']/.test(readFileSync(`${root}${path}`, 'utf8')),
  )
  expect(spreads.toSorted()).toEqual(Object.keys(spreadsAllowed).toSorted())
})

test('no object spreads a literal: the compiler would not check the names in it', () => {
  const files = [...filesUnder('src'), ...filesUnder('adapters')].filter(
    (path) => path.endsWith('.ts') && !path.endsWith('.generated.ts'),
  )
  expect(files.filter((path) => readFileSync(`${root}${path}`, 'utf8').includes('...{'))).toEqual([])
})
