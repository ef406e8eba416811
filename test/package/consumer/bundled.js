// Is bundled, and runs from the bundle: every entry that runs on Node, a message in each format over HTTP, an inbox in a file.
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { argv } from 'node:process'
import { createReceiver, FleethookError } from 'fleethook'
import * as client from 'fleethook/client'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import * as inspector from 'fleethook/inspector'
import * as metrics from 'fleethook/metrics'
import { serve } from 'fleethook/node'
import * as normalize from 'fleethook/normalize'
import * as operator from 'fleethook/operator'
import * as otel from 'fleethook/otel'
import * as sandbox from 'fleethook/sandbox'
import * as schemas from 'fleethook/schemas'
import * as testing from 'fleethook/testing'
import * as when from 'fleethook/when'
import { post } from './post.js'

const entries = [client, inspector, metrics, normalize, operator, otel, sandbox, schemas, testing, when]
const secret = 'a-secret-of-the-consumer'

/** Without an `await` at the top, which a CommonJS bundle cannot have. */
async function receive() {
  const path = join(mkdtempSync(join(tmpdir(), 'fleethook-bundle-')), 'inbox.db')
  const receiver = createReceiver({ secret, inbox: sqliteInbox({ path, thread: argv[2] === 'thread' }) })
  const handled = []
  const all = new Promise((resolve) => {
    receiver.on('data', (event) => {
      handled.push(`${event.format} ${event.vin} ${event.data.BatteryLevel}`)
      if (handled.length === 3) resolve()
    })
  })
  const server = await serve(receiver, { port: 0, hostname: '127.0.0.1' })
  const statuses = await post(server.url, secret)
  await all
  await server.close()
  return { statuses, handled, entries: entries.filter((entry) => Object.keys(entry).length > 0).length }
}

receive().then(
  (received) => console.log(JSON.stringify(received)),
  (error) => console.log(JSON.stringify(error instanceof FleethookError ? { code: error.code } : String(error))),
)
