import { type Command, InvalidArgumentError } from 'commander'
import type { StreamOptions } from '../../src/service/client/stream.ts'
import type { StreamEvent } from '../../src/service/client/stream-events.ts'
import type { WireTopic } from '../../src/events/event.ts'
import type { BuiltInFields } from '../../src/events/fields.ts'
import { colorsFor } from './colors.ts'
import { asks, statuses } from './service/command.ts'

const topics: readonly WireTopic[] = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity']

interface Given {
  readonly field?: string
  readonly topics?: readonly WireTopic[]
  readonly count: number
  readonly json?: true
}

/** `fleethook stream <vin>` */
export function define(command: Command): void {
  command
    .description(
      'Streams a vehicle by Server-Sent Events, one line for each event, until Ctrl+C. Needs no webhook. With --json each line is the ' +
        'message as the service sent it.',
    )
    .argument('<vin>')
    .option('--field <name>', 'one field only')
    .option('-t, --topics <topics>', `only these topics, with commas between: ${topics.join(', ')}`, topicList)
    .option('-c, --count <n>', 'end after so many; 0 never ends', whole, 0)
    .addHelpText('after', statuses)
  asks<[string], Given>(command, async ({ client, signal }, { field, topics: only, count, json }, vin) => {
    const options: StreamOptions<BuiltInFields> = {
      signal,
      ...(field === undefined ? {} : { field }),
      ...(only === undefined ? {} : { topics: only }),
    }
    const stream = client.stream(vin, options)
    let left = count === 0 ? Infinity : count
    for await (const line of json ? texts(stream.messages()) : lines(stream)) {
      console.log(line)
      left -= 1
      if (left === 0) break
    }
  })
}

async function* texts(messages: AsyncIterable<{ readonly text: string }>): AsyncGenerator<string> {
  // A message with line ends would be several lines of JSON to whoever reads them.
  for await (const { text } of messages) yield text.replaceAll('\n', ' ')
}

async function* lines(events: AsyncIterable<StreamEvent>): AsyncGenerator<string> {
  const { dim, cyan } = colorsFor(process.stdout)
  for await (const event of events) yield `${dim(event.createdAt)}  ${cyan(event.topic.padEnd(12))}  ${said(event)}`
}

function said(event: StreamEvent): string {
  switch (event.topic) {
    case 'data':
      return Object.entries(event.data)
        .map(([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
        .join('  ')
    case 'state':
      return event.state
    case 'connectivity':
      return `${event.status}  ${event.networkInterface}`
    case 'alerts':
      return event.alerts.map(({ name, endedAt }) => `${name}${endedAt === undefined ? '' : ' (ended)'}`).join('  ')
    case 'errors':
      return event.errors.map(({ name }) => name).join('  ')
    case 'vehicle_data':
      return `${Object.keys(event.vehicleData).length} members`
    case 'config':
      return `${Object.keys(event.config.fields).length} fields`
    case 'unknown':
      return event.reason
    default:
      return event.document === null ? 'none' : `${Object.keys(event.document).length} members`
  }
}

function topicList(text: string): readonly WireTopic[] {
  return text.split(',').map((name) => {
    const known = topics.find((topic) => topic === name.trim())
    if (known !== undefined) return known
    throw new InvalidArgumentError(`There is no topic "${name}". There are ${topics.join(', ')}.`)
  })
}

function whole(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && Number.isInteger(value) && value >= 0) return value
  throw new InvalidArgumentError('It must be a whole number from 0 up.')
}
