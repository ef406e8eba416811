/*
 * Checks the Compose file and the Kubernetes manifest of examples/kafka without a container: their shape, and that every name in them
 * exists.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
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
  const service = z.strictObject({
    image: z.string().optional(),
    build: z.string().optional(),
    command: z.string().optional(),
    environment: z.record(z.string(), z.union([z.string(), z.number()])).optional(),
    init: z.boolean().optional(),
    restart: z.enum(['unless-stopped', 'on-failure']),
    stop_grace_period: z.string().optional(),
    healthcheck: z
      .strictObject({ test: z.array(z.string()), interval: z.string(), timeout: z.string(), retries: z.number() })
      .optional(),
    depends_on: z
      .union([
        z.array(z.string()),
        z.record(
          z.string(),
          z.strictObject({ condition: z.enum(['service_healthy', 'service_completed_successfully']) }),
        ),
      ])
      .optional(),
    deploy: z.strictObject({ replicas: z.number() }).optional(),
    ports: z.array(z.string()).optional(),
    volumes: z.array(z.string()).optional(),
  })
  const file = z
    .object({ services: z.record(z.string(), service), volumes: z.record(z.string(), z.null()) })
    .parse(parse(read('compose.yaml'), { merge: true }))
  const services = Object.entries(file.services)

  test('every service has one source, and what it depends on and mounts exists', () => {
    for (const [, { image, build, depends_on: before = [], volumes = [] }] of services) {
      expect([image, build].filter((each) => each !== undefined)).toHaveLength(1)
      for (const name of Array.isArray(before) ? before : Object.keys(before))
        expect(file.services).toHaveProperty(name)
      for (const [source = ''] of volumes.map((each) => each.split(':')))
        if (source.startsWith('.')) expect(existsSync(join(folder, source))).toBe(true)
        else expect(file.volumes).toHaveProperty(source)
    }
  })

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
  const named = z.strictObject({ name: z.string() })
  const selector = z.strictObject({ matchLabels: z.record(z.string(), z.string()) })
  const probe = z.strictObject({
    httpGet: z.strictObject({ path: z.enum(['/readyz', '/healthz']), port: z.string() }).optional(),
    tcpSocket: z.strictObject({ port: z.string() }).optional(),
    periodSeconds: z.number(),
    failureThreshold: z.number().optional(),
  })
  const container = z.strictObject({
    name: z.string(),
    image: z.string(),
    command: z.array(z.string()).optional(),
    args: z.array(z.string()).optional(),
    env: z
      .array(
        z.union([
          z.strictObject({ name: z.string(), value: z.string() }),
          z.strictObject({
            name: z.string(),
            valueFrom: z.strictObject({ secretKeyRef: z.strictObject({ name: z.string(), key: z.string() }) }),
          }),
        ]),
      )
      .default([]),
    ports: z.array(z.strictObject({ name: z.string(), containerPort: z.number() })).default([]),
    readinessProbe: probe.optional(),
    livenessProbe: probe.optional(),
    lifecycle: z
      .strictObject({ preStop: z.strictObject({ exec: z.strictObject({ command: z.array(z.string()) }) }) })
      .optional(),
    volumeMounts: z.array(z.strictObject({ name: z.string(), mountPath: z.string() })).optional(),
  })
  const pod = z.strictObject({
    terminationGracePeriodSeconds: z.number().optional(),
    affinity: z.unknown().optional(),
    securityContext: z.strictObject({ fsGroup: z.number() }).optional(),
    topologySpreadConstraints: z.array(z.unknown()).optional(),
    restartPolicy: z.literal('OnFailure').optional(),
    containers: z.array(container).length(1),
  })
  const template = z.strictObject({
    metadata: z.strictObject({ labels: z.record(z.string(), z.string()) }).optional(),
    spec: pod,
  })
  const strategy = z.strictObject({
    rollingUpdate: z.strictObject({ maxUnavailable: z.number(), maxSurge: z.number() }),
  })
  const resource = z.discriminatedUnion('kind', [
    z.strictObject({
      apiVersion: z.literal('v1'),
      kind: z.literal('Service'),
      metadata: named,
      spec: z.strictObject({
        clusterIP: z.literal('None').optional(),
        publishNotReadyAddresses: z.boolean().optional(),
        selector: z.record(z.string(), z.string()),
        ports: z.array(z.strictObject({ name: z.string(), port: z.number(), targetPort: z.string().optional() })),
      }),
    }),
    z.strictObject({
      apiVersion: z.literal('policy/v1'),
      kind: z.literal('PodDisruptionBudget'),
      metadata: named,
      spec: z.strictObject({ maxUnavailable: z.number().optional(), minAvailable: z.number().optional(), selector }),
    }),
    z.strictObject({
      apiVersion: z.literal('apps/v1'),
      kind: z.literal('StatefulSet'),
      metadata: named,
      spec: z.strictObject({
        serviceName: z.string(),
        replicas: z.number(),
        podManagementPolicy: z.literal('Parallel'),
        selector,
        template,
        volumeClaimTemplates: z.array(z.object({ metadata: named })),
      }),
    }),
    z.strictObject({
      apiVersion: z.literal('apps/v1'),
      kind: z.literal('Deployment'),
      metadata: named,
      spec: z.strictObject({ replicas: z.number(), strategy, selector, template }),
    }),
    z.strictObject({
      apiVersion: z.literal('batch/v1'),
      kind: z.literal('Job'),
      metadata: named,
      spec: z.strictObject({ backoffLimit: z.number(), template }),
    }),
  ])
  const documents = parseAllDocuments(read('kubernetes.yaml'))
  const resources = documents.map((document) => {
    expect(document.errors).toEqual([])
    return resource.parse(document.toJS())
  })
  const workloads = resources.flatMap((each) =>
    each.kind === 'StatefulSet' || each.kind === 'Deployment' || each.kind === 'Job'
      ? [{ ...each.spec.template.spec.containers[0], ...each.spec.template.metadata, kind: each.kind }]
      : [],
  )
  const variables = (list: z.infer<typeof container>['env'] = []): Record<string, string> =>
    Object.fromEntries(list.map((each) => [each.name, 'value' in each ? each.value : 'a secret']))

  test('selectors find pods, services find ports, and probes ask for ports and routes that exist', () => {
    const found = (labels: Readonly<Record<string, string>>): typeof workloads =>
      workloads.filter((each) => each.labels?.['app'] === labels['app'])
    for (const { kind, spec } of resources) {
      if (kind === 'Job') continue
      const labels = kind === 'Service' ? spec.selector : spec.selector.matchLabels
      const [pods] = found(labels)
      expect(pods).toBeDefined()
      if (kind !== 'Service') continue
      const ports = pods?.ports?.map(({ name }) => name) ?? []
      for (const { name, targetPort = name } of spec.ports) expect(ports).toContain(targetPort)
    }
    for (const { ports = [], readinessProbe, livenessProbe } of workloads)
      for (const asked of [readinessProbe, livenessProbe])
        if (asked !== undefined)
          expect(ports.map(({ name }) => name)).toContain(asked.httpGet?.port ?? asked.tcpSocket?.port)
  })

  test('brokers have properties that Kafka knows, and the topics and programs find all of them', () => {
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
