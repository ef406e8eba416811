import { serve } from '../../adapters/node.ts'
import { createTarget } from './target.ts'

// Served alone, a receiver reads Node's own requests. Another port reports what it has handled.
const target = createTarget()
const { url } = await serve(
  { fetch: target.fetch },
  { port: 0, hostname: '127.0.0.1', announce: false, signals: false },
)
console.log(`events at ${url}`)
await serve(target.receiver, { port: 0, hostname: '127.0.0.1' })
