// Runs the journey on Node, Bun or Deno against the service of SERVICE_URL, and prints what it saw.
import { env } from 'node:process'
import { journey } from './journey.ts'

console.log(JSON.stringify(await journey(env['SERVICE_URL'] ?? '')))
