import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { vehicle } from 'fleethook/testing'
import { all, any, becomes, below, ends, is, starts } from 'fleethook/when'
import { expect, test } from 'vitest'
import { newFolder } from '../folder.ts'

const vin = '0FLEETV14T0000004'
const charges = any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging'))
const edges = [
  starts(charges, { first: true }),
  ends(charges),
  becomes('DetailedChargeState', 'Charging'),
  starts(all(charges, below('BatteryLevel', 20))),
]

test('a crash after any message neither repeats an edge under another id nor loses one', { timeout: 180_000 }, async () => {
  const folder = newFolder('restart')
  const script = [
    { DetailedChargeState: 'Disconnected', BatteryLevel: 15 },
    { DetailedChargeState: 'Charging' },
    { DetailedChargeState: 'Charging', BatteryLevel: 16 },
    { DetailedChargeState: 'Complete' },
    { DetailedChargeState: 'Charging', BatteryLevel: 17 },
  ] as const
  const expected = ['starts 1', 'starts 1', 'becomes 1', 'ends 3', 'becomes 4', 'starts 4', 'starts 4'].toSorted()
  for (let crashAfter = 1; crashAfter < script.length; crashAfter++) {
    const found = new Map<string, string>()
    const before = receiverOf(join(folder, `${crashAfter}.db`), found)
    const sent = vehicle(before, vin)
    for (const data of script.slice(0, crashAfter)) await sent.data(data, timeOf(data))
    // What a power cut would leave: the file as it is, without the end of the process.
    cpSync(folder, `${folder}-after`, { recursive: true, filter: (path) => !path.endsWith('.sock') })
    const after = receiverOf(join(`${folder}-after`, `${crashAfter}.db`), found)
    await after.open()
    // A message of the very millisecond of the restart would still count as one of the gap.
    const openedMs = Date.now()
    await expect.poll(() => Date.now()).toBeGreaterThan(openedMs + 1)
    const resent = vehicle(after, vin)
    // The sender saw no answer to the last message, and sends it again.
    for (const data of script.slice(crashAfter - 1)) await resent.data(data, timeOf(data))
    await Promise.all([before.drain(), after.drain()])
    rmSync(`${folder}-after`, { recursive: true })
    expect([...found.values()].toSorted()).toEqual(expected)
  }

  function timeOf(data: (typeof script)[number]): { readonly createdAt: string } {
    return { createdAt: new Date(Date.UTC(2026, 10, 21, 10, script.indexOf(data))).toISOString() }
  }
}) // prettier-ignore

function receiverOf(path: string, found: Map<string, string>): Receiver {
  const fields = ['DetailedChargeState', 'BatteryLevel'] as const
  const receiver: Receiver = createReceiver({
    ...{ secret: false, inbox: sqliteInbox({ path }), parts: [vehicles({ fields })] },
    log: { debug() {}, info() {}, warn() {}, error() {} },
  })
  for (const edge of edges)
    receiver.when(edge, ({ id, event }) => {
      found.set(id, `${edge.name.split('(')[0]} ${event.at.getUTCMinutes()}`)
    })
  return receiver
}
