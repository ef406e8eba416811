// Bundles the package into dist/: a file for each entry, one for each command of the command line, and files that they share. A
// process starts faster with few files than with many. The dependencies of a receiver stay outside. The libraries of the
// command line become part of it, and what the client needs of zod. Their licenses go into THIRD-PARTY-NOTICES.txt.
import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'rolldown'
import { buildPage } from './inspector.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const target = resolve(root, 'dist')

interface Manifest {
  readonly name: string
  readonly version: string
  readonly license?: string
  readonly author?: string | { readonly name: string }
  readonly dependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
  readonly exports?: Readonly<Record<string, string | { readonly default: string }>>
}

const readManifest = (folder: string): Manifest => JSON.parse(readFileSync(resolve(folder, 'package.json'), 'utf8'))

const own = readManifest(root)
const installed = new Set([...Object.keys(own.dependencies ?? {}), ...Object.keys(own.peerDependencies ?? {})])
const ofSchemas = /[\\/]src[\\/]events[\\/]/
const ofCommandLine = /[\\/](adapters[\\/]cli[\\/]|node_modules[\\/](?!zod))/

/** The schemas are for the receiver's own zod. What the client needs of zod is part of the package, because few install both. */
function isExternal(name: string, importer: string | undefined): boolean {
  if (/^[./]/.test(name)) return false
  // `imports` of package.json chooses what the host gets.
  if (name.startsWith('#')) return true
  const [first = '', second = ''] = name.split('/')
  const from = first.startsWith('@') ? `${first}/${second}` : first
  return from === 'zod' ? importer === undefined || ofSchemas.test(importer) : installed.has(from)
}

const entries = Object.values(own.exports ?? {}).flatMap((entry) =>
  Object.values(entry).flatMap((file) =>
    file.endsWith('.js') ? [file.replace('./dist/', '').replace(/\.js$/, '')] : [],
  ),
)

/** The files that entries share: what is always loaded together is one file. */
const shared: Readonly<Record<string, RegExp>> = {
  events: /[\\/]src[\\/](base|hosting[\\/](?!request)|events[\\/](?!schemas|wire-schemas)|wire)/,
  // The client needs it too, and nothing else of the core.
  retry: /[\\/]src[\\/]core[\\/]retry/,
  // What every receiver loads.
  receiver:
    /[\\/]src[\\/](hosting[\\/]request|http|observe|inbox|reports|core|gaps|parts|receiver|operator[\\/](archive|operated))/,
  serve: /[\\/]adapters[\\/](runtime|serve-options|startup-errors)/,
  // Objects need them too, and nothing else of SQLite.
  suspects: /[\\/]adapters[\\/]inbox[\\/](crash-suspects|stored-row)/,
  sqlite: /[\\/]adapters[\\/]inbox[\\/]sqlite[\\/](?!file[\\/]thread)/,
}

const { output } = await build({
  cwd: root,
  input: {
    ...Object.fromEntries(entries.map((name) => [name, `${name}.ts`])),
    'adapters/cli/main': 'adapters/cli/main.ts',
    // The SQLite inbox looks for it beside its own file.
    'chunks/thread': 'adapters/inbox/sqlite/file/thread.ts',
  },
  platform: 'node',
  external: isExternal,
  output: {
    dir: target,
    format: 'esm',
    comments: { jsdoc: false },
    // Shorter than what the bundler of a Worker makes of it by itself. Names and line breaks stay.
    minify: { compress: true, mangle: false, codegen: { removeWhitespace: false } },
    entryFileNames: '[name].js',
    chunkFileNames: ({ moduleIds }) =>
      moduleIds.length > 0 && moduleIds.every((id) => ofCommandLine.test(id))
        ? 'adapters/cli/[name].js'
        : 'chunks/[name].js',
    codeSplitting: { groups: Object.entries(shared).map(([name, test]) => ({ name, test })) },
  },
  logLevel: 'warn',
})

// npm makes it executable when it installs the package. Whoever unpacks it by hand, or by another tool, can run it too.
chmodSync(resolve(target, 'adapters/cli/main.js'), 0o755)

// The inspector's page is a text in a module, so the bundler does not see what it is made of.
const inPage = (await buildPage()).packages.map((folder) => resolve(root, folder))
const folders = new Set([
  ...inPage,
  ...output.flatMap((file) =>
    file.type === 'chunk'
      ? file.moduleIds.flatMap((path) => /^.*node_modules[\\/](?:@[^\\/]+[\\/])?[^\\/]+/.exec(path)?.[0] ?? [])
      : [],
  ),
])
writeFileSync(
  resolve(target, 'THIRD-PARTY-NOTICES.txt'),
  [...folders]
    .toSorted()
    .map(notice)
    .join(`\n${'-'.repeat(80)}\n\n`),
)

/** What the license of a package asks to be kept with its code. */
function notice(folder: string): string {
  const { name, version, license, author } = readManifest(folder)
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each))
  const text = readFileSync(resolve(file === undefined ? root : folder, file ?? 'LICENSE'), 'utf8').trim()
  if (file !== undefined && license !== undefined) return `${name} ${version} (${license})\n\n${text}\n`

  const holder = typeof author === 'string' ? author : author?.name
  if (license !== 'MIT' || holder === undefined) throw new Error(`${name} ${version} has no license with a text.`)
  // Ours is the same license. Its text needs the name of the holder only.
  return `${name} ${version} (MIT)\n\n${text.replace(/^Copyright .*$/m, `Copyright (c) ${holder}`)}\n`
}
