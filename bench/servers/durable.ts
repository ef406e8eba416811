// A receiver with one handler and the inbox that the environment names. All inboxes run in the same program.
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'
import { tenFields } from '../corpus.ts'
import { secret } from './answer.ts'
import { measured } from './measured.ts'

const { BENCH_INBOX: kind = '', BENCH_FOLDER: folder = '.', BENCH_VEHICLES: hasVehicles } = process.env
const path = join(folder, `${kind}-${process.pid}.db`)
const inbox: InboxFactory = kind === 'memory' ? memoryInbox() : sqliteInbox({ path, thread: kind === 'thread' })
let handled = 0
let highestSpeed = 0

const receiver = createReceiver({
  secret,
  inbox,
  parts: hasVehicles === undefined ? [] : [vehicles({ fields: tenFields })],
  ...(kind === 'memory' ? { limits: { pendingMessages: 1_000_000, pendingBytes: 1e9 } } : {}),
}).on('data', ({ data }) => {
  handled += 1
  highestSpeed = Math.max(highestSpeed, data.VehicleSpeed ?? 0)
})
const { port } = await serve(receiver, { port: 0, hostname: '127.0.0.1', announce: false })
const delay = monitorEventLoopDelay({ resolution: 1 })
delay.enable()
measured(port, () => handled, delay)
