/*
 * Checks the Compose file and the Kubernetes manifest of examples/kafka without a container: every property, command and variable in them
 * exists.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { kafkaClasses, kafkaVersion } from '../../scripts/kafka.ts'

const root = join(import.meta.dirname, '../..')
const folder = join(root, 'examples/kafka')
const read = (name: string): string => readFileSync(join(folder, name), 'utf8')

/** The names that Kafka reads from its properties. */
const properties = new Set(
  [
    ...execFileSync('java', ['-cp', kafkaClasses(), 'kafka.server.KafkaConfig'], { encoding: 'utf8' }).matchAll(
      /id="(?<name>[\w.]+)"/g,
    ),
  ].map((found) => found.groups?.['name'] ?? ''),
)

/** The image of Kafka reads `KAFKA_A_B` as the property `a.b`. */
const propertyOf = (name: string): string =>
  name
    .replace(/^KAFKA_/, '')
    .toLowerCase()
    .replaceAll('_', '.')

/** The variables that the example's programs read, and those that they require. */
const programs = readdirSync(folder).filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
const readByPrograms = new Set(
  programs.flatMap((name) =>
    [...read(name).matchAll(/process\.env\.(?<name>\w+)|\b(?<other>KAFKA_[A-Z]+)\b/g)].map(
      ({ groups }) => groups?.['name'] ?? groups?.['other'] ?? '',
    ),
  ),
)
const needed = ['WEBHOOK_SECRET', 'KAFKA_BROKERS']

function checkBroker(environment: Readonly<Record<string, unknown>>, image: string): void {
  expect(image).toBe(`apache/kafka:${kafkaVersion}`)
  const { CLUSTER_ID, ...others } = environment
  expect(CLUSTER_ID).toMatch(/^[\w-]{22}$/)
  expect(Object.keys(others).filter((name) => !properties.has(propertyOf(name)))).toEqual([])
  // As docs/several-machines.md advises, and as the receiver requires.
  const advised = [
    'BROKER_SESSION_TIMEOUT_MS',
    'BROKER_HEARTBEAT_INTERVAL_MS',
    'MIN_INSYNC_REPLICAS',
    'OFFSETS_TOPIC_REPLICATION_FACTOR',
  ]
  expect(advised.map((name) => Number(others[`KAFKA_${name}`]))).toEqual([4_000, 1_000, 2, 3])
}

/** Runs the command without `--apply`, so that it prints the topics and needs no cluster. */
function checkCommand(command: readonly string[]): void {
  const [program, ...args] = command
  if (program === 'node') {
    expect(programs).toContain(args[0])
    return
  }
  expect([program, args[0], args.at(-1)]).toEqual(['npx', 'fleethook', '--apply'])
  const main = join(root, 'adapters/cli/main.ts')
  const out = execFileSync(process.execPath, [main, ...args.slice(1, -1)], { encoding: 'utf8' })
  expect(out).toContain('fleethook-dead')
  const partitions = args[args.indexOf('--partitions') + 1]
  expect(read('inbox.ts')).toContain(`partitions: ${partitions},`)
}

function checkProgram(environment: Readonly<Record<string, unknown>>): void {
  expect(Object.keys(environment).filter((name) => !readByPrograms.has(name))).toEqual([])
  expect(Object.keys(environment)).toEqual(expect.arrayContaining(needed))
}

/** `CMD` of the image of the example. */
const imageCommand: readonly string[] = JSON.parse(
  /^CMD (?<command>.*)$/m.exec(read('Dockerfile'))?.groups?.['command'] ?? '',
)

interface Container {
  readonly name: string
  readonly image?: string
  readonly build?: string
  readonly command?: readonly string[]
  readonly environment: Readonly<Record<string, string | number>>
  readonly healthcheck?: { readonly test: readonly string[] }
}

describe('compose.yaml', () => {
  const file: { readonly services: object } = parse(read('compose.yaml'), { merge: true })
  const services: readonly Container[] = Object.entries(file.services).map(([name, { command, ...rest }]) => ({
    ...{ environment: {}, ...rest, name },
    ...(command === undefined ? {} : { command: command.split(' ') }),
  }))

  test('brokers have properties that Kafka knows, and each has its own id and address', () => {
    const brokers = services.filter(({ image }) => image?.startsWith('apache/kafka') === true)
    for (const { name, environment, image = '', healthcheck } of brokers) {
      checkBroker(environment, image)
      expect(healthcheck?.test[0]).toBe('CMD')
      expect(environment['KAFKA_ADVERTISED_LISTENERS']).toBe(`PLAINTEXT://${name}:9092`)
      expect(environment['KAFKA_CONTROLLER_QUORUM_VOTERS']).toContain(`${environment['KAFKA_NODE_ID']}@${name}:9093`)
    }
    expect(brokers).toHaveLength(3)
  })

  test('programs get commands and variables that exist', () => {
    const own = services.filter(({ build }) => build !== undefined)
    expect(own.map(({ name }) => name)).toEqual(['topics', 'receiver-1', 'receiver-2', 'handler'])
    for (const { command = imageCommand, environment } of own) {
      checkCommand(command)
      checkProgram(environment)
    }
  })
})

describe('kubernetes.yaml', () => {
  const documents = parseAllDocuments(read('kubernetes.yaml'))
  const resources = documents.map((document) => document.toJS()).filter(({ spec }) => spec?.template !== undefined)
  const containers: readonly Container[] = resources.map(({ spec }) => {
    const [{ env = [], args = [], ...container }] = spec.template.spec.containers
    const exported = [...String(args).matchAll(/export (\w+)=/g)].map(([, name = '']) => ({ name, value: '' }))
    const variables: readonly { readonly name: string; readonly value?: string }[] = [...env, ...exported]
    const environment = Object.fromEntries(variables.map(({ name, value = 'a secret' }) => [name, value]))
    return { ...container, environment }
  })

  test('brokers have properties that Kafka knows, and the topics and programs find all of them', () => {
    expect(documents.flatMap(({ errors }) => errors)).toEqual([])
    expect(resources.length).toBeGreaterThan(3)
    const { metadata, spec } = resources.find(({ metadata: { name } }) => name === 'kafka')
    const hosts = Array.from({ length: spec.replicas }, (_, n) => `${metadata.name}-${n}.${spec.serviceName}`)
    for (const { name, image = '', environment } of containers) {
      if (name === 'kafka') {
        checkBroker(environment, image)
        const voters = hosts.map((host, n) => `${n + 1}@${host}:9093`).join(',')
        expect(environment['KAFKA_CONTROLLER_QUORUM_VOTERS']).toBe(voters)
      }
      const addresses = hosts.map((host) => `${host}:9092`).join(',')
      expect(environment['KAFKA_BROKERS'] ?? addresses).toBe(addresses)
    }
  })

  test('programs get commands and variables that exist', () => {
    for (const { name, command = imageCommand, environment } of containers.filter(({ name }) => name !== 'kafka')) {
      checkCommand(command)
      if (name !== 'topics') checkProgram(environment)
    }
    expect(containers.map(({ name }) => name)).toEqual(['kafka', 'topics', 'receiver', 'handler'])
  })
})
