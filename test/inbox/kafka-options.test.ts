import { createReceiver, FleethookError, vehicles } from 'fleethook'
import { kafkaInbox, type KafkaInboxOptions } from 'fleethook/inbox/kafka'
import { fact } from 'fleethook/when'
import { expect, test } from 'vitest'
import { clusterError, outageError } from '../../adapters/inbox/kafka/client.ts'
import { readKafkaOptions } from '../../adapters/inbox/kafka/options.ts'
import {
  deadIdOf,
  fromDeadRecord,
  fromRecord,
  partitionOf,
  recordBytes,
  toDeadRecord,
  toRecord,
} from '../../adapters/inbox/kafka/records.ts'
import { message, reason } from '../../src/testing/kept-message.ts'

const brokers = ['b1:9092', 'b2:9092']

const address = 'must be a list of addresses such as b1:9092 and'
const login = { mechanism: 'PLAIN', username: 'me' }
test.each([
  [{}, 'brokers', `${address} is missing.`],
  [{ brokers: [] }, 'brokers', `${address} was given a list.`],
  [{ brokers: ['kafka://b1'] }, 'brokers', `${address} was given a list.`],
  [{ brokers, partitions: 0 }, 'partitions', 'must be a whole number from 1 to 10000 and was given 0.'],
  [{ brokers, role: 'read' }, 'role', "must be 'both' or 'receive' or 'handle' and was given 'read'."],
  [{ brokers, meanwhile: {} }, 'meanwhile', 'must be an inbox in a file on this machine and was given an object.'],
  [
    { brokers, sessionMs: 6_000 },
    'sessionMs',
    'is 6000, and a process that finishes its handlers sends no heartbeat for up to `quiesceMs` (7000).',
  ],
  [{ brokers, sasl: login }, 'sasl.password', 'is missing, and PLAIN needs it.'],
  [
    { brokers, sasl: { ...login, password: '' } },
    'sasl.password',
    'must be a non-empty text, or a function that returns one.',
  ],
  [
    { brokers, tls: { rejectUnauthorized: false } },
    'tls',
    'must be true, or an object with ca, cert, key, passphrase, servername.',
  ],
  [{ brokers, sasl: 'hunter2' }, 'sasl', 'must be an object of mechanism, username, password, token.'],
])('kafkaInbox(%j) is refused: %s', (options, name, problem) => {
  const make = (): unknown => kafkaInbox(options as KafkaInboxOptions) // oxlint-disable-line no-unsafe-type-assertion -- what the types forbid
  const message = `Option \`${name}\` of kafkaInbox ${problem}`
  expect(make).toThrow(FleethookError)
  expect(make).toThrow(expect.objectContaining({ code: 'option_invalid', message }))
})

test('kafkaInbox refuses an option that it does not have', () => {
  expect(() => kafkaInbox({ brokers, acks: 1 } as KafkaInboxOptions)).toThrow('kafkaInbox has no option `acks`.')
})

test.each(['both', 'receive', 'handle'] as const)(
  'kafkaInbox in the role %s refuses states of vehicles, and so facts',
  (role) => {
    const parts = [vehicles({ fields: 'all', facts: [fact('customer', 'string')] })]
    expect(() => createReceiver({ secret: 'a', inbox: kafkaInbox({ brokers, role }), parts })).toThrow(
      expect.objectContaining({
        code: 'option_invalid',
        message: expect.stringContaining('The part `vehicles` needs an inbox that keeps the state'),
        hint: expect.stringContaining('sqliteInbox'),
      }),
    )
  },
)

test('one kafkaInbox belongs to one receiver', () => {
  const inbox = kafkaInbox({ brokers })
  createReceiver({ secret: 'a-long-random-value', inbox })
  expect(() => createReceiver({ secret: 'a-long-random-value', inbox })).toThrow(
    'One kafkaInbox was given to two receivers.',
  )
  const options = { secret: 'a-long-random-value', inbox: kafkaInbox({ brokers }) }
  expect(() => createReceiver({ ...options, ack: 'handled' })).toThrow(
    expect.objectContaining({ code: 'ack_unavailable' }),
  )
})

test('a process with the role handle says what it promises before it is open', () => {
  const receiver = createReceiver({ secret: false, inbox: kafkaInbox({ brokers, role: 'handle' }) })
  expect(receiver.ack).toBe('stored')
  expect(receiver.durability).toBe('replicated')
  expect(receiver.stats().pending).toEqual({ messages: 0, bytes: 0 })
})

const failure = (code: string, message = code): Error => Object.assign(new Error(message), { code })
const several = (...errors: readonly Error[]): Error => new AggregateError(errors, 'Cannot connect to any broker.')

test.each([
  [several(failure('ENOTFOUND')), 'The brokers b1:9092, b2:9092 could not be reached: ENOTFOUND.'],
  [new Error('Request timed out'), 'The brokers b1:9092, b2:9092 could not be reached: no answer in time.'],
  [
    Object.assign(new Error('The SASL/PLAIN password provider threw an error.'), { code: 'PLT_KFK_AUTHENTICATION' }),
    'A function of option `sasl` failed.',
  ],
  [new Error('Connection closed while waiting for ready.'), 'The brokers b1:9092, b2:9092 closed the connection.'],
  [
    Object.assign(new Error('no'), { apiId: 'GROUP_AUTHORIZATION_FAILED' }),
    'The user may not do what this role needs: GROUP_AUTHORIZATION_FAILED.',
  ],
])('%o is one sentence', (error, text) => {
  expect(clusterError(error, readKafkaOptions({ brokers }))).toMatchObject({ code: 'inbox_unavailable', message: text })
})

test('once connected with TLS, a broken connection is no TLS handshake', () => {
  const settings = readKafkaOptions({ brokers, tls: true })
  expect(clusterError(new Error('Connection closed'), settings).message).toContain('TLS handshake')
  expect(outageError(new Error('Connection closed'), settings).message).toBe(
    'The brokers b1:9092, b2:9092 closed the connection.',
  )
})

const to = { topic: 'fleethook', partition: 3 }

test('a message in a record is as it was, and other programs find its text under the VIN', () => {
  const text = '{"vin":"VIN","name":"Zoë"}'
  const given = { ...message(1), door: 'collector', kind: 'gap', text, bytes: 27 } as const
  const { key, value = null, headers } = toRecord(given, to)
  expect([key.toString(), value?.toString()]).toEqual(['VIN', given.text])
  expect(fromRecord({ key, value, headers: [...headers] })).toEqual({ message: given, replayed: false })
})

test('a dead letter in a record is as it was', () => {
  const letter = { id: message(1).id, message: message(1), ...reason }
  const { key, value = null, headers } = toDeadRecord(letter, to)
  expect(deadIdOf(key.toString())).toBe(letter.id)
  expect(fromDeadRecord({ key, value, headers: [...headers] })).toEqual({
    ...letter,
    message: { ...message(1), bytes: message(1).text.length },
  })
})

const headersWith = (id: string) => Object.entries({ fh: '1', id, at: '1' })
const record = { key: Buffer.from('VIN'), value: Buffer.from('{}') }
test.each([
  ['no headers', record, []],
  ['a tombstone', { ...record, value: null }, []],
  ['an id that is none', record, headersWith('x')],
  ['no key', { ...record, key: null }, headersWith(message(1).id)],
])('a record with %s is foreign', (_, given, headers) => {
  const list = headers.map(([name, value]): [Buffer, Buffer] => [Buffer.from(name), Buffer.from(value)])
  expect(fromRecord({ ...given, headers: list })).toBeUndefined()
})

test('a lane has the partition that every other Kafka client gives the same key', async () => {
  const client = await import('@platformatic/kafka')
  // The same as `Utils.toPositive(Utils.murmur2(key)) % partitions` in Apache Kafka.
  const known = [
    ['0FLEETV14T0000004', 24],
    ['21', 1_000],
    ['foobar', 1_000],
  ] as const
  const partitions = known.map(([lane, partitions]) => partitionOf(client, lane, partitions))
  // murmur2 of '21' is -973932308, and of 'foobar' -790332482, in the tests of Apache Kafka.
  expect(partitions.slice(1)).toEqual([(-973_932_308 & 0x7fff_ffff) % 1_000, (-790_332_482 & 0x7fff_ffff) % 1_000])
})

test('the size of a record is never less than what the brokers see', () => {
  const text = JSON.stringify({ vin: 'VIN', note: '☃'.repeat(1_000) })
  const given = { ...message(1), text, bytes: text.length }
  const { key, value, headers } = toRecord(given, to)
  let bytes = key.length + (value?.length ?? 0)
  for (const [name, content] of headers) bytes += name.length + content.length + 10
  expect(recordBytes(given)).toBeGreaterThan(bytes + 61)
})
