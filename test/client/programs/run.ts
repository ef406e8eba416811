// Runs the journey in the failure modes of MODES on Node, Bun or Deno against the sandbox of SERVICE_URL, and prints what it saw.
import { env } from 'node:process'
import { everyMode } from './journey.ts'

const modes = JSON.parse(env['MODES'] ?? '[]')
console.log(JSON.stringify(await everyMode(env['SERVICE_URL'] ?? '', env['SERVICE_API_KEY'] ?? '', modes)))
