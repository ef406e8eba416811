// Bundles the command line into dist/adapters/cli, with a file of its own for each command. The libraries of the command line
// become part of it, and their licenses go into THIRD-PARTY-NOTICES.txt beside it. The rest of fleethook stays in dist/ and
// is imported from there, so that a FleethookError is of the same class everywhere.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, type Plugin } from 'esbuild'

const root = fileURLToPath(new URL('..', import.meta.url))
const commandLine = resolve(root, 'adapters/cli')
const target = resolve(root, 'dist/adapters/cli')

interface Manifest {
  readonly name: string
  readonly version: string
  readonly license?: string
  readonly dependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
}

const readManifest = (folder: string): Manifest => JSON.parse(readFileSync(resolve(folder, 'package.json'), 'utf8'))

const own = readManifest(root)
const installed = [...Object.keys(own.dependencies ?? {}), ...Object.keys(own.peerDependencies ?? {})]

const libraryInDist: Plugin = {
  name: 'fleethook stays in dist',
  setup({ onResolve }) {
    onResolve({ filter: /^\./ }, ({ path, resolveDir }) => {
      if (resolveDir !== commandLine && !resolveDir.startsWith(commandLine + sep)) return undefined
      const file = resolve(resolveDir, path)
      if (file.startsWith(commandLine + sep)) return undefined
      const compiled = resolve(root, 'dist', relative(root, file)).replace(/\.ts$/, '.js')
      return { path: relative(target, compiled).replaceAll(sep, '/'), external: true }
    })
  },
}

const { metafile } = await build({
  entryPoints: [resolve(commandLine, 'main.ts')],
  outdir: target,
  absWorkingDir: root,
  bundle: true,
  splitting: true,
  chunkNames: '[name]-[hash]',
  format: 'esm',
  platform: 'node',
  target: 'node20',
  external: installed.flatMap((name) => [name, `${name}/*`]),
  plugins: [libraryInDist],
  // Libraries written as CommonJS ask for Node's own modules by `require`.
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module';\nconst require = __createRequire(import.meta.url);",
  },
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
})

const folders = new Set(
  Object.keys(metafile.inputs).flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? []),
)
writeFileSync(
  resolve(target, 'THIRD-PARTY-NOTICES.txt'),
  [...folders]
    .toSorted()
    .map(notice)
    .join(`\n${'-'.repeat(80)}\n\n`),
)

/** What the license of a package asks to be kept with its code. */
function notice(path: string): string {
  const folder = resolve(root, path)
  const { name, version, license } = readManifest(folder)
  if (license === undefined) throw new Error(`${name} ${version} names no license.`)
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each))
  const text =
    file === undefined
      ? `The package comes without the text of its license. Its source: https://www.npmjs.com/package/${name}`
      : readFileSync(resolve(folder, file), 'utf8').trim()
  return `${name} ${version} (${license})\n\n${text}\n`
}
