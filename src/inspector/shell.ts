import { type Context, Hono } from 'hono'
import { page } from './page.generated.ts'

/** The page may load only what is at its own address. With Trusted Types, none of its code makes HTML of a text. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

/** Headers of every answer, including the data: another site can neither read, frame nor open it. */
const guards: Readonly<Record<string, string>> = {
  'content-security-policy': policy,
  'x-content-type-options': 'nosniff',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
}

/** Serves the page and its assets. They are the same for everybody and hold no data, so they need no secret. */
export function createShell(): Hono {
  const app = new Hono()
  app.use(async (c, next) => {
    await next()
    for (const [name, value] of Object.entries(guards)) c.header(name, value)
    if (!c.res.headers.has('cache-control')) c.header('cache-control', 'no-store')
  })
  const shell = (c: Context): Response => c.body(page.html, 200, { 'content-type': 'text/html; charset=utf-8' })
  // The page loads its assets from beside it, so its address must end with a slash. Hono matches that slash as an empty name.
  app.get('/:nothing{^$}', shell)
  app.get('/', (c) => {
    const { pathname } = new URL(c.req.url)
    const name = pathname.slice(pathname.lastIndexOf('/') + 1)
    return name === '' ? shell(c) : c.body(null, 308, { location: `${name}/` })
  })
  app.get('/assets/:name', (c) => {
    const name = c.req.param('name')
    const asset = Object.hasOwn(page.assets, name) ? page.assets[name] : undefined
    if (asset === undefined) return c.json({ error: 'path_unknown', text: 'Unknown path.' }, 404)
    const { type, body } = asset
    return c.body(body, 200, { 'content-type': type, 'cache-control': 'public, max-age=31536000, immutable' })
  })
  return app
}
