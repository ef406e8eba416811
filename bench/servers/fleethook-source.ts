// The source files, whose names a profile shows.
import { serve } from '../../adapters/node.ts'
import { createReceiver } from '../../src/index.ts'
import { startReceiver } from './receiver.ts'

await startReceiver(createReceiver, serve)
