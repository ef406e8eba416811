// Writes the inspector's page, src/inspector/page.generated.ts, from src/inspector/page. It is text in a module, so that the page
// is there on every runtime and in every bundle.
//
//     npm run generate -- inspector
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { format, resolveConfig } from 'prettier'

const root = fileURLToPath(new URL('..', import.meta.url))
const target = fileURLToPath(new URL('../src/inspector/page.generated.ts', import.meta.url))

/** The budget for HTML, CSS and JavaScript together, each gzipped. A test holds the page to it. */
export const pageBudgetBytes = 26_500

/** The budget for the outline of land, gzipped. The page loads it when a map is shown. */
export const landBudgetBytes = 20_000

/** The parts of a file of TopoJSON that are read here: rings of arcs, whose points are differences. */
interface Topology {
  readonly transform: { readonly scale: readonly [number, number]; readonly translate: readonly [number, number] }
  readonly arcs: readonly (readonly (readonly [number, number])[])[]
  readonly objects: {
    readonly land: { readonly geometries: readonly { readonly arcs: readonly (readonly number[])[][] }[] }
  }
}

/**
 * The outline of land, which is in the public domain, as an SVG path in tenths of a degree, with south below. What crosses the date line goes on
 * beyond it, so the page draws all of it once more to the east and to the west.
 */
function land(): string {
  const path = new URL('../node_modules/world-atlas/land-110m.json', import.meta.url)
  const { transform, arcs, objects }: Topology = JSON.parse(readFileSync(path, 'utf8'))
  const tenths = (place: number, axis: 0 | 1): number =>
    Math.round((place * transform.scale[axis] + transform.translate[axis]) * (axis === 0 ? 10 : -10))
  const lines = arcs.map((arc) => {
    let [x, y] = [0, 0]
    return arc.map(([dx, dy]) => [tenths((x += dx), 0), tenths((y += dy), 1)] as const)
  })
  // The number of an arc that runs backwards is its complement.
  const lineOf = (arc: number): (typeof lines)[number] =>
    arc < 0 ? (lines[~arc] ?? []).toReversed() : (lines[arc] ?? [])
  const rings = objects.land.geometries.flatMap(({ arcs: polygons }) => polygons.flat())
  // Relative points are short, and several in a row are the same place in tenths of a degree.
  const pathOf = (points: readonly Point[]): string => {
    let [lastX, lastY] = [0, 0]
    const moves = points.flatMap(([x, y], index) => {
      const [dx, dy] = [x - lastX, y - lastY]
      ;[lastX, lastY] = [x, y]
      return index > 0 && dx === 0 && dy === 0 ? [] : [index === 0 ? `M${dx} ${dy}` : `${dx} ${dy}`]
    })
    return `${moves[0]}l${moves.slice(1).join(' ')}z`
  }
  return rings.map((ring) => pathOf(unbroken(ring.flatMap(lineOf)))).join('')
}

type Point = readonly [x: number, y: number]

/** The same ring without a jump from one edge of the map to the other. One that goes around the world is closed at its pole. */
function unbroken(ring: readonly Point[]): readonly Point[] {
  let turns = 0
  const points = ring.map(([x, y], index): Point => {
    const jump = x - (ring[index - 1]?.[0] ?? x)
    if (Math.abs(jump) > 1800) turns -= Math.sign(jump)
    return [x + 3600 * turns, y]
  })
  const [first = [0, 0], last = [0, 0]] = [points[0], points.at(-1)]
  if (Math.abs(last[0] - first[0]) < 1800) return points
  const pole = 900 * Math.sign(first[1])
  return [...points, [last[0], pole], [first[0], pole]]
}

/** A built page. */
export interface Page {
  readonly html: string
  readonly assets: { readonly [name: string]: { readonly type: string; readonly body: string } }
  /** The folders of the packages in it. */
  readonly packages: readonly string[]
}

async function bundle(
  entry: string,
  define: Record<string, string> = {},
): Promise<{ readonly text: string; readonly inputs: readonly string[] }> {
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: [`src/inspector/page/${entry}`],
    tsconfigRaw: { compilerOptions: { jsx: 'react', target: 'es2024' } },
    jsxFactory: 'h',
    jsxFragment: 'Fragment',
    inject: ['src/inspector/page/jsx.ts'],
    define,
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
  const nameOf = (text: string, ending: string): string =>
    `page.${createHash('sha256').update(text).digest('hex').slice(0, 12)}.${ending}`
  const outline = land()
  const landName = nameOf(outline, 'txt')
  const [script, style] = await Promise.all([
    bundle('main.tsx', { landAddress: JSON.stringify(`assets/${landName}`) }),
    bundle('page.css'),
  ])
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
      [landName]: { type: 'text/plain; charset=utf-8', body: outline },
    },
    packages: [...new Set(packages)].toSorted(),
  }
}

/** What a browser loads at once and what it loads with a map, each file gzipped by itself. */
export function gzipBytesOf({ html, assets }: Pick<Page, 'html' | 'assets'>): {
  readonly page: number
  readonly land: number
} {
  const bytesOf = (text: string): number => gzipSync(text, { level: 9 }).length
  const sizes = Object.entries(assets).map(([name, { body }]) => ({
    isLand: name.endsWith('.txt'),
    bytes: bytesOf(body),
  }))
  const sum = (isLand: boolean): number =>
    sizes.filter((each) => each.isLand === isLand).reduce((all, { bytes }) => all + bytes, 0)
  return { page: bytesOf(html) + sum(false), land: sum(true) }
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
  const { page: bytes, land: landBytes } = gzipBytesOf(page)
  console.log(`gzipped: page ${bytes} of ${pageBudgetBytes} bytes, land ${landBytes} of ${landBudgetBytes}`)
}
