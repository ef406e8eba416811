import { execFileSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import { serveStatic } from '@hono/node-server/serve-static'
import { Hono } from 'hono'
import { root } from '../../../docs/.vitepress/links.ts'

/** The path that the site is built for and served under. */
export const base = '/fleethook/'

const folder = join(root, 'docs/.vitepress/dist')

/** Builds the site. VitePress fails for a link to a page that does not exist. */
export function build(): void {
  execFileSync(join(root, 'docs/node_modules/.bin/vitepress'), ['build', 'docs'], {
    cwd: root,
    env: { ...process.env, DOCS_BASE: base },
    encoding: 'utf8',
    stdio: 'pipe',
  })
}

/** The files of the built site that match a pattern, with their texts. */
export function built(pattern: string): ReadonlyMap<string, string> {
  const files = globSync(pattern, { cwd: folder }).map((file) => file.replaceAll('\\', '/'))
  return new Map(files.sort().map((file) => [file, readFileSync(join(folder, file), 'utf8')]))
}

export interface Site {
  readonly url: string
  close(): Promise<void>
}

/** Serves the built site as a plain host of files does. */
export async function host(): Promise<Site> {
  const app = new Hono()
    .use(`${base}*`, serveStatic({ root: folder, rewriteRequestPath: (path) => path.slice(base.length - 1) }))
    .notFound((context) => context.html(readFileSync(join(folder, '404.html'), 'utf8'), 404))
  return new Promise((resolve) => {
    const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) =>
      resolve({
        url: `http://127.0.0.1:${port}${base}`,
        close: () => new Promise((done) => server.close(() => done())),
      }),
    )
  })
}
