import { serve } from '../../adapters/bun.ts'
import { createTarget } from './target.ts'

await serve(createTarget(), { port: 0, hostname: '127.0.0.1' })
