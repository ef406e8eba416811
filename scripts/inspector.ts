// Writes the inspector's page, src/inspector/page.generated.ts, from src/inspector/page. It is text in a module, so that the page
// is there on every runtime and in every bundle.
//
//     npm run generate -- inspector
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { format, resolveConfig } from 'prettier'

const root = fileURLToPath(new URL('..', import.meta.url))
const target = fileURLToPath(new URL('../src/inspector/page.generated.ts', import.meta.url))

/** The budget for HTML, CSS and JavaScript together, each gzipped. A test holds the page to it. */
export const pageBudgetBytes = 25_000

/** A built page. */
export interface Page {
  readonly html: string
  readonly assets: { readonly [name: string]: { readonly type: string; readonly body: string } }
  /** The folders of the packages in it. */
  readonly packages: readonly string[]
}

async function bundle(entry: string): Promise<{ readonly text: string; readonly inputs: readonly string[] }> {
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: [`src/inspector/page/${entry}`],
    tsconfigRaw: { compilerOptions: { jsx: 'react', target: 'es2024' } },
    jsxFactory: 'h',
    jsxFragment: 'Fragment',
    inject: ['src/inspector/page/jsx.ts'],
    bundle: true,
    write: false,
    metafile: true,
    minify: true,
    format: 'esm',
    target: ['es2022'],
    logLevel: 'warning',
  })
  const [file] = outputFiles
  if (file === undefined) throw new Error(`esbuild made nothing of ${entry}.`)
  return { text: file.text.trim(), inputs: Object.keys(metafile.inputs) }
}

export async function buildPage(): Promise<Page> {
  const [script, style] = await Promise.all([bundle('main.tsx'), bundle('page.css')])
  const nameOf = (text: string, ending: string): string =>
    `page.${createHash('sha256').update(text).digest('hex').slice(0, 12)}.${ending}`
  const [scriptName, styleName] = [nameOf(script.text, 'js'), nameOf(style.text, 'css')]
  const html = [
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>fleethook inspector</title>',
    '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">',
    `<link rel="icon" href="data:,"><link rel="stylesheet" href="assets/${styleName}">`,
    `<script type="module" src="assets/${scriptName}"></script></head>`,
    '<body><noscript>The inspector needs JavaScript.</noscript></body></html>',
  ].join('')
  const packages = script.inputs.flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? [])
  return {
    html,
    assets: {
      [scriptName]: { type: 'text/javascript; charset=utf-8', body: script.text },
      [styleName]: { type: 'text/css; charset=utf-8', body: style.text },
    },
    packages: [...new Set(packages)].toSorted(),
  }
}

/** What a browser loads, each file gzipped by itself. */
export function gzipBytesOf({ html, assets }: Pick<Page, 'html' | 'assets'>): number {
  const files = [html, ...Object.values(assets).map(({ body }) => body)]
  return files.reduce((sum, text) => sum + gzipSync(text, { level: 9 }).length, 0)
}

/** The module that `npm run generate -- inspector` writes. */
export async function pageModule({ html, assets }: Page): Promise<string> {
  const text = `
    // Made by \`npm run generate -- inspector\` from src/inspector/page. Do not edit.

    /** The inspector's page: a shell without data, and what it loads from \`assets/\` beside it. The names hold a hash of the content. */
    export const page: {
      readonly html: string
      readonly assets: { readonly [name: string]: { readonly type: string; readonly body: string } }
    } = ${JSON.stringify({ html, assets })}
  `
  return format(text, { ...(await resolveConfig(target)), filepath: target })
}

if (import.meta.main) {
  const page = await buildPage()
  writeFileSync(target, await pageModule(page))
  console.log(`${gzipBytesOf(page)} bytes gzipped; the budget is ${pageBudgetBytes}`)
}
