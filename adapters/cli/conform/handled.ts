import { exec } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { promisify } from 'node:util'
import { FleethookError } from '../../../src/base/errors.ts'
import { readWithin } from '../../../src/base/read-within.ts'
import { isJsonObject, type JsonObject } from '../../../src/wire/record.ts'
import { codeOf, parsed } from '../exchange.ts'

/** What a receiver says that it has handled, oldest first: each entry is a line of text or a JSON value. */
export interface HandledList {
  /** How people named it. */
  readonly name: string
  /** Resolves to all entries so far. Rejects with a `FleethookError` when they cannot be read. */
  read(): Promise<readonly unknown[]>
  close(): void
}

const mostBytes = 256 * 1_048_576
const longestMs = 30_000

/**
 * A list at an address, in a file, or printed by a command after `cmd:`. A file may come later. An address of the receiver itself gets its secret.
 */
export function listFrom(from: string, receiver: URL, secret: string): HandledList {
  const text = /^https?:\/\//.test(from)
    ? () => textAt(new URL(from), receiver, secret)
    : from.startsWith('cmd:')
      ? () => printedBy(from.slice('cmd:'.length))
      : () => textIn(from)
  return {
    name: from,
    async read() {
      try {
        return entriesIn(await text())
      } catch (error) {
        throw new FleethookError('option_invalid', `--handled ${from} cannot be read: ${reasonOf(error)}.`, {
          hint: 'Name an address, a file, or a command after `cmd:` that lists each handled message.',
        })
      }
    },
    close() {},
  }
}

async function textAt(url: URL, receiver: URL, secret: string): Promise<string> {
  const headers: Readonly<Record<string, string>> = url.origin === receiver.origin ? { authorization: secret } : {}
  const answer = await fetch(url, { signal: AbortSignal.timeout(longestMs), headers })
  if (!answer.ok) throw new Error(`it answers ${answer.status}`)
  const bytes = await readWithin(answer, { mostBytes, mostMs: longestMs })
  if (bytes === undefined) throw new Error(`its answer has more than ${mostBytes} bytes, or no end`)
  return new TextDecoder().decode(bytes)
}

async function textIn(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return ''
    throw error
  }
}

const execute = promisify(exec)

const printedBy = async (command: string): Promise<string> =>
  (await execute(command, { maxBuffer: mostBytes, timeout: longestMs })).stdout

function reasonOf(error: unknown): string {
  const code = codeOf(error)
  return code === 'Error' && error instanceof Error ? (error.message.split('\n', 1)[0] ?? code) : code
}

/** Text as a JSON array, as JSON values in lines, or as lines. */
export function entriesIn(text: string): readonly unknown[] {
  const whole = parsed(text)
  if (Array.isArray(whole)) return whole
  if (isJsonObject(whole)) return [whole]
  return text.split('\n').flatMap((line) => {
    if (line.trim() === '') return []
    const value = /^\s*[[{]/.test(line) ? parsed(line) : undefined
    return [value ?? line]
  })
}

/** Listens on a port, and takes what the receiver posts there as handled. */
export function listenForHandled(port: number): Promise<HandledList> {
  const entries: unknown[] = []
  const server: Server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      entries.push(...entriesIn(Buffer.concat(chunks).toString()))
      response.end()
    })
  })
  return new Promise((resolve, reject) => {
    server.once('error', (error) =>
      reject(
        new FleethookError('option_invalid', `Nothing can listen on port ${port} for --sink: ${codeOf(error)}.`, {
          hint: 'Choose a free port.',
        }),
      ),
    )
    server.listen(port, () =>
      resolve({
        name: `what is posted to port ${port}`,
        read: async () => [...entries],
        close() {
          server.closeAllConnections()
          server.close()
        },
      }),
    )
  })
}

/** A message that was handled, as an entry shows it. */
export interface HandledMessage {
  readonly vin: string
  readonly serial: number
  /** The values without the serial number. `undefined`: the entry does not show them. */
  readonly data: JsonObject | undefined
}

/** The VINs of vehicles that do not exist: `syntheticVin` makes these. */
const ofVin = /0FL[3YSX]EETV[\dX]T0\d{6}/
/** A number that stands alone. */
const ofSerial = /(?<![A-Za-z\d.])1\d{5}(?:\.0+)?(?!\.?\d|[A-Za-z])/g
const ofTime = /\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?/g
const ofSeconds = /(?<![A-Za-z\d.])1\d{9}(?:\d{3})?(?:\.\d+)?(?![A-Za-z\d])/g

/** The field that carries the serial number of a message. */
export const serialField = 'Odometer'

/** Finds the message of an entry: its VIN, and its serial number or its time. `of` says which serial a vehicle has at a time. */
export function messageIn(
  entry: unknown,
  isSent: (vin: string, serial: number) => boolean,
  serialAt: (ms: number) => number,
): HandledMessage | { readonly vin: string } | undefined {
  const text = typeof entry === 'string' ? entry : JSON.stringify(entry)
  const vin = ofVin.exec(text)?.[0]
  if (vin === undefined) return undefined
  const data = valuesIn(entry)
  const own = data === undefined ? Number.NaN : Number(data[serialField])
  const times = [...text.matchAll(ofTime)].map(([time]) => Date.parse(zoned(time)))
  const epochs = [...text.matchAll(ofSeconds)].map(([number]) => Number(number) * (Number(number) < 1e11 ? 1_000 : 1))
  const found = [own, ...[...text.matchAll(ofSerial)].map(([number]) => Number(number))]
  const serial = [...found, ...[...times, ...epochs].map(serialAt)].find((each) => isSent(vin, each))
  if (serial === undefined) return { vin }
  if (data === undefined) return { vin, serial, data }
  const { [serialField]: _, ...rest } = data
  return { vin, serial, data: rest }
}

const zoned = (time: string): string =>
  /(?:Z|[+-]\d{2}:?\d{2})$/.test(time) ? time.replace(' ', 'T') : `${time.replace(' ', 'T')}Z`

/** The values of a data message, wherever the entry has them: an object, or the list of the vehicle maker. */
function valuesIn(value: unknown): JsonObject | undefined {
  if (Array.isArray(value)) {
    const pairs = value.filter((item): item is JsonObject => isJsonObject(item) && typeof item['key'] === 'string')
    if (pairs.some(({ key }) => key === serialField))
      return Object.fromEntries(pairs.map(({ key, value: wrapped }) => [String(key), wrapped]))
  }
  if (!isJsonObject(value) && !Array.isArray(value)) return undefined
  if (!Array.isArray(value) && Object.hasOwn(value, serialField)) return value
  const { data, ...others } = Object(value)
  // What it says comes first: an event can carry what came, too.
  for (const inner of [data, ...Object.values(others)]) {
    const found = valuesIn(inner)
    if (found !== undefined) return found
  }
  return undefined
}
