// The size of the minimal receiver on Workers: bundled as wrangler 4 does with the settings of our Workers templates
// ("minify": true, "keep_names": false), gzipped.
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { page } from '../src/inspector/page.generated.ts'
import { gzipBytesOf, landBudgetBytes, pageBudgetBytes } from './inspector.ts'

/** The budget for the gzipped bundle. We miss it: docs/decisions/0005-size-of-a-worker.md says why. */
export const budgetBytes = 48_000

/** The last measured size and a little more. A change that exceeds it needs a reason. */
export const ceilingBytes = 52_740

/** The smallest Worker that handles something. */
export const minimalWorker = `
import { createReceiver } from 'fleethook'
import { worker } from 'fleethook/workers'

const receiver = createReceiver({ secret: (env) => env.WEBHOOK_SECRET }).on('data', (event) => console.log(event.vin, event.data))

export default worker(receiver)
`

/** A bundle, with the share of each package. */
export interface Bundle {
  readonly code: Uint8Array
  readonly gzipBytes: number
  /** Bytes of minified code, by package; fleethook's own by folder. Largest first. */
  readonly parts: readonly { readonly name: string; readonly bytes: number }[]
}

/** Bundles a Worker as wrangler does, from where `fleethook` resolves in `folder`. */
export async function bundleWorker(source: string, folder: string): Promise<Bundle> {
  const { outputFiles, metafile } = await build({
    stdin: { contents: source, resolveDir: folder, sourcefile: 'worker.js' },
    absWorkingDir: folder,
    tsconfigRaw: {},
    bundle: true,
    write: false,
    metafile: true,
    minify: true,
    format: 'esm',
    target: 'es2024',
    platform: 'browser',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['node:*', 'cloudflare:*'],
    define: { 'process.env.NODE_ENV': '"production"', 'navigator.userAgent': '"Cloudflare-Workers"' },
    logLevel: 'error',
  })
  const [file] = outputFiles
  const [output] = Object.values(metafile.outputs)
  if (!file || !output) throw new Error('esbuild made no bundle.')
  const sizes = new Map<string, number>()
  for (const [path, { bytesInOutput }] of Object.entries(output.inputs)) {
    const name = partOf(path)
    sizes.set(name, (sizes.get(name) ?? 0) + bytesInOutput)
  }
  const parts = [...sizes].map(([name, bytes]) => ({ name, bytes })).sort((a, b) => b.bytes - a.bytes)
  return { code: file.contents, gzipBytes: gzipSync(file.contents, { level: 9 }).length, parts }
}

function partOf(path: string): string {
  const own = /(?:^|\/)((?:src|adapters|chunks)\/[^/]+)/.exec(path)?.[1]
  return /.*node_modules\/(?!fleethook\/)((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? own ?? path
}

/** The same Worker made of the sources. The package has them in few files, which say nothing about the parts. */
const fromSources = minimalWorker
  .replace("'fleethook'", "'./src/index.ts'")
  .replace("'fleethook/workers'", "'./adapters/workers.ts'")

if (import.meta.main) {
  const root = fileURLToPath(new URL('..', import.meta.url))
  if (!existsSync(`${root}dist`)) throw new Error('Run "npm run build" first.')
  const { code, gzipBytes } = await bundleWorker(minimalWorker, root)
  const { parts } = await bundleWorker(fromSources, root)
  for (const { name, bytes } of parts) console.log(`${String(bytes).padStart(8)}  ${name}`)
  console.log(`${String(code.length).padStart(8)}  minified`)
  console.log(`${String(gzipBytes).padStart(8)}  gzipped; the budget is ${budgetBytes}, the ceiling ${ceilingBytes}`)
  const { page: pageBytes, land: landBytes } = gzipBytesOf(page)
  console.log(`${String(pageBytes).padStart(8)}  the inspector's page, gzipped; the budget is ${pageBudgetBytes}`)
  console.log(`${String(landBytes).padStart(8)}  its outline of land, gzipped; the budget is ${landBudgetBytes}`)
  const isPageSmall = pageBytes <= pageBudgetBytes && landBytes <= landBudgetBytes
  process.exitCode = gzipBytes <= ceilingBytes && isPageSmall ? 0 : 1
}
