// The package as it is installed: V8 compiles and collects less than with the source files.
import { createReceiver } from 'fleethook'
import { serve } from 'fleethook/node'
import { startReceiver } from './receiver.ts'

await startReceiver(createReceiver, serve)
