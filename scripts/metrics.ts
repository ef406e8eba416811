/** Writes the list of metrics in docs/observing.md, from what a receiver answers that has every metric. */
import { createReceiver, memoryInbox } from '../src/index.ts'
import { metricsText } from '../src/metrics.ts'
import { hostedBy } from '../src/receiver/hosted.ts'
import { filled, writePages } from './tables.ts'

/** The metrics as text. The inbox is one that knows everything that any inbox knows. */
async function everything(): Promise<string> {
  const receiver = createReceiver({
    secret: ['a-long-random-value', 'another-long-random-value'],
    inbox: (settings) => {
      const inbox = memoryInbox()(settings)
      const known = {
        oldestWaitingMs: 0,
        lag: { 0: 0 },
        meanwhile: { messages: 0, bytes: 0, deadLetters: 0, awayMs: undefined },
        deadRows: 0,
        oldestSnapshotMs: 0,
      }
      const commitMs = { bounds: [1], counts: [0, 0], sum: 0 }
      return { ...inbox, stats: () => ({ ...inbox.stats?.(), ...known, commitMs }) }
    },
  }).on('state', function save() {})
  Object.assign(hostedBy(receiver)?.reports ?? {}, { certificateUntilMs: 0 })
  metricsText(receiver)
  const headers = { authorization: 'a-long-random-value' }
  await receiver.accept({ headers, body: { vin: '0FLEETV14T0000004', state: 'online' } })
  await receiver.drain()
  return metricsText(receiver, { missing: { last: () => ({ at: new Date(), vehicles: [] }) } })
}

function item(text: string, name: string, help: string): string {
  const [, type] = new RegExp(`^# TYPE ${name} (.+)$`, 'm').exec(text) ?? []
  const [, label] = new RegExp(`^${name}(?:_bucket)?\\{(\\w+)=`, 'm').exec(text) ?? []
  const by = label === undefined || label === 'le' ? '' : `, by \`${label}\``
  return `- \`${name}\`${by}: ${type === 'histogram' ? 'Histogram. ' : ''}${help}`
}

/** The page with its list as the code has it. */
export async function page(): Promise<ReadonlyMap<string, string>> {
  const text = await everything()
  const items = [...text.matchAll(/^# HELP (\w+) (.+)$/gm)].map(([, name = '', help = '']) => item(text, name, help))
  return filled(['docs/observing.md'], new Map([['metrics', items.join('\n')]]))
}

if (import.meta.main) writePages(await page())
