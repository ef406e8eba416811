// Serves a Worker in miniflare, with Durable Objects on disk and a queue, until it is killed.
import { readFileSync } from 'node:fs'
import { miniflareModule } from '../../../scripts/runtimes.ts'

interface Platform {
  new (options: object): { readonly ready: Promise<URL> }
}

const [, , script = '', storage = '', logPort = '', secret = ''] = process.argv
const {
  Miniflare,
  convertV4MiniflareOptions,
}: { Miniflare: Platform; convertV4MiniflareOptions(options: object): object } = await import(miniflareModule())

const options = convertV4MiniflareOptions({
  host: '127.0.0.1',
  port: 0,
  modules: [{ type: 'ESModule', path: 'worker.js', contents: readFileSync(script, 'utf8') }],
  compatibilityDate: '2026-08-04',
  bindings: { WEBHOOK_SECRET: secret },
  serviceBindings: { LOG: { external: { address: `127.0.0.1:${logPort}`, http: {} } } },
  durableObjects: { FLEETHOOK_INBOX: { className: 'FleethookInbox', useSQLite: true } },
  resourcePersistencePath: storage,
  queueProducers: { FLEETHOOK_QUEUE: 'messages' },
  queueConsumers: {
    messages: { maxBatchSize: 10, maxBatchTimeout: 0.05, maxRetries: 2, deadLetterQueue: 'dead' },
    dead: { maxBatchTimeout: 0.05 },
  },
})
const platform = new Miniflare(options)
console.log(`listening on ${(await platform.ready).href}`)

// A test that times out does not stop what it started.
const { ppid } = process
setInterval(() => {
  if (process.ppid !== ppid) process.exit(1)
}, 1_000)
