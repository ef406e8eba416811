/*
 * Checks the Compose file and the Kubernetes manifest of examples/kafka without a container: every property, command and variable in them
 * exists.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { z } from 'zod'
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
  expect(others).toMatchObject({
    KAFKA_BROKER_SESSION_TIMEOUT_MS: expect.toSatisfy((value: unknown) => Number(value) === 4_000),
    KAFKA_BROKER_HEARTBEAT_INTERVAL_MS: expect.toSatisfy((value: unknown) => Number(value) === 1_000),
    KAFKA_MIN_INSYNC_REPLICAS: expect.toSatisfy((value: unknown) => Number(value) === 2),
    KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: expect.toSatisfy((value: unknown) => Number(value) === 3),
  })
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
const imageCommand: readonly string[] = z
  .array(z.string())
  .parse(JSON.parse(/^CMD (?<command>.*)$/m.exec(read('Dockerfile'))?.groups?.['command'] ?? ''))

describe('compose.yaml', () => {
  const service = z.object({
    image: z.string().optional(),
    build: z.string().optional(),
    command: z.string().optional(),
    environment: z.record(z.string(), z.union([z.string(), z.number()])).optional(),
    healthcheck: z.object({ test: z.array(z.string()) }).optional(),
  })
  const file = z.object({ services: z.record(z.string(), service) }).parse(parse(read('compose.yaml'), { merge: true }))
  const services = Object.entries(file.services)

  test('brokers have properties that Kafka knows, and each has its own id and address', () => {
    const brokers = services.filter(([, { image }]) => image?.startsWith('apache/kafka') === true)
    for (const [name, { environment = {}, image = '', healthcheck }] of brokers) {
      checkBroker(environment, image)
      expect(environment['KAFKA_ADVERTISED_LISTENERS']).toBe(`PLAINTEXT://${name}:9092`)
      expect(environment['KAFKA_CONTROLLER_QUORUM_VOTERS']).toContain(`${environment['KAFKA_NODE_ID']}@${name}:9093`)
      expect(healthcheck?.test[0]).toBe('CMD')
    }
    expect(brokers).toHaveLength(3)
  })

  test('programs get commands and variables that exist', () => {
    const own = services.filter(([, { build }]) => build !== undefined)
    expect(own.map(([name]) => name)).toEqual(['topics', 'receiver', 'handler'])
    for (const [, { command, environment = {} }] of own) {
      checkCommand(command?.split(' ') ?? imageCommand)
      checkProgram(environment)
    }
  })
})

describe('kubernetes.yaml', () => {
  const container = z.object({
    image: z.string(),
    command: z.array(z.string()).optional(),
    args: z.array(z.string()).optional(),
    env: z.array(z.object({ name: z.string(), value: z.string().optional() })).default([]),
  })
  const workload = z.object({
    kind: z.enum(['StatefulSet', 'Deployment', 'Job']),
    metadata: z.object({ name: z.string() }),
    spec: z.object({
      serviceName: z.string().optional(),
      replicas: z.number().optional(),
      template: z.object({ spec: z.object({ containers: z.tuple([container]) }) }),
    }),
  })
  const resources = parseAllDocuments(read('kubernetes.yaml')).flatMap((document) => {
    expect(document.errors).toEqual([])
    return workload.safeParse(document.toJS()).data ?? []
  })
  const workloads = resources.map(({ kind, spec }) => ({ ...spec.template.spec.containers[0], kind }))
  const variables = (list: z.infer<typeof container>['env'] = []): Record<string, string> =>
    Object.fromEntries(list.map(({ name, value = 'a secret' }) => [name, value]))

  test('brokers have properties that Kafka knows, and the topics and programs find all of them', () => {
    expect(resources.length).toBeGreaterThan(3)
    const set = resources.find((each) => each.kind === 'StatefulSet')
    const broker = workloads.find(({ kind }) => kind === 'StatefulSet')
    const ids = Array.from({ length: set?.spec.replicas ?? 0 }, (_, n) => n)
    const host = (n: number): string => `${set?.metadata.name}-${n}.${set?.spec.serviceName}`
    const exported = [...(broker?.args?.[0] ?? '').matchAll(/export (?<name>\w+)=/g)].map(({ groups }) => [
      groups?.['name'] ?? '',
      '',
    ])
    const environment = { ...variables(broker?.env), ...Object.fromEntries(exported) }
    checkBroker(environment, broker?.image ?? '')
    expect(environment['KAFKA_CONTROLLER_QUORUM_VOTERS']).toBe(ids.map((n) => `${n + 1}@${host(n)}:9093`).join(','))
    for (const { env } of workloads) {
      const { KAFKA_BROKERS: addresses } = variables(env)
      if (addresses !== undefined) expect(addresses).toBe(ids.map((n) => `${host(n)}:9092`).join(','))
    }
  })

  test('programs get commands and variables that exist', () => {
    for (const { kind, command = imageCommand, env } of workloads.filter((each) => each.kind !== 'StatefulSet')) {
      checkCommand(command)
      if (kind !== 'Job') checkProgram(variables(env))
    }
  })
})
