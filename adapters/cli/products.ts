import type { Command } from 'commander'
import { defined } from '../../src/base/options.ts'
import { summarize } from '../../src/events/summarize.ts'
import type { WireTopic } from '../../src/events/event.ts'
import type { StreamEvent } from '../../src/service/client/stream-events.ts'
import { wireTopics } from '../../src/wire/envelope.ts'
import { topicList, whole } from './arguments.ts'
import { asks, statuses } from './service.ts'
import { columns, escapeJson } from './terminal.ts'

export function defineProducts(command: Command): void {
  command
    .description('Lists the vehicles and energy sites that customers share, with the customer of each.')
    .addHelpText('after', statuses)
  asks(command, async ({ client, signal, print }) => {
    const products = await client.products({ signal })
    const rows = products.map(({ product_type: type, product_id: id, customer, granted_at: since }) => [
      type,
      id,
      customer?.ref ?? customer?.id ?? '',
      since ?? '',
    ])
    print(products, () => (rows.length === 0 ? 'Nothing is shared.' : columns(rows)))
  })
}

interface StreamGiven {
  readonly field?: string
  readonly topics?: readonly WireTopic[]
  readonly count: number
  readonly json?: true
}

export function defineStream(command: Command): void {
  command
    .description(
      'Streams a vehicle by Server-Sent Events until Ctrl+C, one line per event. Needs no webhook. ' +
        'With --json, each line is the message as the service sent it.',
    )
    .argument('<vin>')
    .option('--field <name>', 'only this field')
    .option('-t, --topics <topics>', `only these topics, separated by commas: ${wireTopics.join(', ')}`, topicList)
    .option('-c, --count <n>', 'end after this many events; 0 streams until Ctrl+C', whole(0), 0)
    .addHelpText('after', statuses)
  asks<[string], StreamGiven>(command, async ({ client, signal }, { field, topics, count, json }, vin) => {
    const stream = client.stream(vin, { signal, ...defined({ field, topics }) })
    let left = count === 0 ? Infinity : count
    for await (const line of json ? texts(stream.messages()) : summaries(stream)) {
      console.log(line)
      left -= 1
      if (left === 0) break
    }
  })
}

async function* texts(messages: AsyncIterable<{ readonly text: string }>): AsyncGenerator<string> {
  // A reader of JSON lines would read a message with line breaks as several.
  for await (const { text } of messages) yield escapeJson(text.replaceAll(/[\n\r]/g, ' '))
}

async function* summaries(events: AsyncIterable<StreamEvent>): AsyncGenerator<string> {
  for await (const event of events) {
    if ('siteId' in event) yield `${event.createdAt} ${event.siteId} ${event.topic}: ${membersOf(event.document)}`
    else if (event.topic === 'config')
      yield `${event.createdAt} ${event.vin} ${event.topic}: ${membersOf(event.config.fields)}`
    else yield summarize(event)
  }
}

function membersOf(document: object | null): string {
  return document === null ? 'none' : `${Object.keys(document).length} members`
}
