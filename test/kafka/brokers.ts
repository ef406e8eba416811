/*
 * Real brokers: Apache Kafka with KRaft, each process broker and controller at once. A killed process is started again from
 * its log folder. On Linux the brokers die with the process that started them, however that ends.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bootstrapCheckpoint, cluster, kafkaCommand } from '../../scripts/kafka.ts'
import { freePort } from '../conformance/spawn.ts'

/** One broker. */
export interface Broker {
  /** 1, 2, 3. */
  readonly id: number
  /** The address for clients without a password: `127.0.0.1:port`, of the proxy if there is one. */
  readonly address: string
  /** The address of its second listener. */
  readonly otherAddress: string
  /** Its process, or undefined while it is down. */
  readonly pid: number | undefined
  /** The folder of its logs. */
  readonly folder: string
  /** Resolves when it accepts connections. */
  start(): Promise<void>
  /** Sends a signal. Resolves when the process has ended, and at once for `SIGSTOP` and `SIGCONT`. */
  kill(signal: NodeJS.Signals): Promise<void>
  /** The warnings and errors that it printed. */
  log(): string
}

/** Brokers that form one cluster. */
export interface Brokers extends AsyncDisposable {
  readonly all: readonly Broker[]
  /** The addresses of all brokers, for clients without a password. */
  readonly addresses: readonly string[]
  /** The addresses of the second listeners, for clients whose network fails while that of others works. */
  readonly otherAddresses: readonly string[]
  /** The addresses of the listeners that ask for the user and the password of `cluster` in scripts/kafka.ts: SASL PLAIN or SCRAM-SHA-512. */
  readonly addressesWithPassword: readonly string[]
  /** The addresses of the listeners with TLS. They require a client certificate. */
  readonly addressesWithTls: readonly string[]
  /** The addresses of the listeners with TLS and a login. */
  readonly addressesWithTlsAndLogin: readonly string[]
  readonly get: (id: number) => Broker
}

export interface BrokersOptions {
  /** Default 3. */
  readonly count?: number
  /** Properties that are added to those of the tests, or replace them. */
  readonly properties?: Readonly<Record<string, string | number | boolean>>
  /** The folder of the broker's logs. Default: a temporary folder, which is removed at the end. */
  readonly folder?: (id: number) => string
  /** Certificates as PEM text. With them, the brokers listen with TLS too. */
  readonly tls?: { readonly chain: string; readonly key: string; readonly authority: string }
  /** The port that clients without a password connect to, given the broker's own. Default: the same. */
  readonly proxied?: (port: number, listener: 'first' | 'other', id: number) => Promise<number>
}

interface Ports {
  readonly client: number
  readonly other: number
  readonly inside: number
  readonly controller: number
  readonly password: number
  readonly tls: number
  readonly tlsLogin: number
}

const prefix = 'fleethook-kafka-'

/** Starts brokers and resolves when all of them accept connections and can elect leaders. */
export async function startBrokers(options: BrokersOptions = {}): Promise<Brokers> {
  const { count = 3, proxied = (port) => Promise.resolve(port) } = options
  removeLeftovers()
  const place = mkdtempSync(join(tmpdir(), `${prefix}${process.pid}-`))
  const ids = Array.from({ length: count }, (_, n) => n + 1)
  // A broker gets the same ports each time it starts.
  const free = await Promise.all(Array.from({ length: count * 7 }, freePort))
  const portsOf = (id: number): Ports => {
    const own = free.slice((id - 1) * 7)
    const [client = 0, other = 0, inside = 0, controller = 0, password = 0, tls = 0, tlsLogin = 0] = own
    return { client, other, inside, controller, password, tls, tlsLogin }
  }
  const voters = ids.map((id) => `${id}@127.0.0.1:${portsOf(id).controller}`).join(',')
  const all = await Promise.all(
    ids.map(async (id) => {
      const ports = portsOf(id)
      const folder = options.folder?.(id) ?? join(place, String(id))
      const seen = {
        ...ports,
        client: await proxied(ports.client, 'first', id),
        other: await proxied(ports.other, 'other', id),
      }
      const properties = { ...defaults(id, { ports, seen, voters, folder, tls: options.tls }), ...options.properties }
      return createBroker(id, seen, { folder, properties, ports, place })
    }),
  )
  const brokers: Brokers = {
    all,
    addresses: all.map(({ address }) => address),
    otherAddresses: all.map(({ otherAddress }) => otherAddress),
    addressesWithPassword: ids.map((id) => `127.0.0.1:${portsOf(id).password}`),
    addressesWithTls: ids.map((id) => `127.0.0.1:${portsOf(id).tls}`),
    addressesWithTlsAndLogin: ids.map((id) => `127.0.0.1:${portsOf(id).tlsLogin}`),
    get(id) {
      const found = all.find((broker) => broker.id === id)
      if (found === undefined) throw new Error(`There is no broker ${id}.`)
      return found
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(all.map((broker) => broker.kill('SIGKILL')))
      rmSync(place, { recursive: true, force: true, maxRetries: 5 })
    },
  }
  try {
    await Promise.all(all.map((broker) => broker.start()))
  } catch (error) {
    await brokers[Symbol.asyncDispose]()
    throw error
  }
  return brokers
}

interface Place {
  readonly ports: Ports
  /** The ports that clients connect to. */
  readonly seen: Ports
  readonly voters: string
  readonly folder: string
  readonly tls: BrokersOptions['tls']
}

function defaults(id: number, { ports, seen, voters, folder, tls }: Place): Record<string, string | number | boolean> {
  const at = (name: string, port: number): string => `${name}://127.0.0.1:${port}`
  const plain = 'org.apache.kafka.common.security.plain.PlainLoginModule'
  const scram = 'org.apache.kafka.common.security.scram.ScramLoginModule'
  const bearer = 'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule'
  const withTls = tls === undefined ? [] : [at('TLS', ports.tls), at('TLS_LOGIN', ports.tlsLogin)]
  const logins: Record<string, string> = {}
  for (const listener of ['password', 'tls_login']) {
    logins[`listener.name.${listener}.plain.sasl.jaas.config`] =
      `${plain} required user_${cluster.user}="${cluster.password}";`
    logins[`listener.name.${listener}.scram-sha-512.sasl.jaas.config`] = `${scram} required;`
    // Unsigned tokens, as in Kafka's own tests.
    logins[`listener.name.${listener}.oauthbearer.sasl.jaas.config`] =
      `${bearer} required unsecuredLoginStringClaim_sub="brokers";`
  }
  return {
    'process.roles': 'broker,controller',
    'node.id': id,
    'controller.quorum.voters': voters,
    listeners: [
      at('CLIENT', ports.client),
      at('OTHER', ports.other),
      at('INSIDE', ports.inside),
      at('CONTROLLER', ports.controller),
      at('PASSWORD', ports.password),
      ...withTls,
    ].join(','),
    'advertised.listeners': [
      at('CLIENT', seen.client),
      at('OTHER', seen.other),
      at('INSIDE', ports.inside),
      at('PASSWORD', ports.password),
      ...withTls,
    ].join(','),
    'listener.security.protocol.map':
      'CLIENT:PLAINTEXT,OTHER:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT,PASSWORD:SASL_PLAINTEXT,TLS:SSL,TLS_LOGIN:SASL_SSL',
    ...logins,
    ...(tls === undefined ? {} : tlsProperties(tls)),
    'inter.broker.listener.name': 'INSIDE',
    'controller.listener.names': 'CONTROLLER',
    'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-512,OAUTHBEARER',
    'log.dirs': folder,
    'auto.create.topics.enable': false,
    'default.replication.factor': 3,
    'min.insync.replicas': 2,
    // Fewer files than the default of 50, so that a broker starts within seconds.
    'offsets.topic.num.partitions': 6,
    'offsets.topic.replication.factor': 3,
    'transaction.state.log.num.partitions': 3,
    // A group of the tests starts at once.
    'group.initial.rebalance.delay.ms': 0,
    // Leaders move within a second when a test changes the order of replicas.
    'leader.imbalance.check.interval.seconds': 1,
    'leader.imbalance.per.broker.percentage': 0,
    'num.io.threads': 4,
    'num.network.threads': 2,
  }
}

function tlsProperties({ chain, key, authority }: NonNullable<BrokersOptions['tls']>): Record<string, string> {
  // Java reads the ends of lines in a value as `\n`.
  const inLine = (pem: string): string => pem.replaceAll(/\r?\n/g, String.raw`\n`)
  return {
    'ssl.keystore.type': 'PEM',
    'ssl.keystore.certificate.chain': inLine(chain),
    'ssl.keystore.key': inLine(key),
    'ssl.truststore.type': 'PEM',
    'ssl.truststore.certificates': inLine(authority),
    'listener.name.tls.ssl.client.auth': 'required',
  }
}

interface Setup {
  readonly folder: string
  readonly properties: Readonly<Record<string, string | number | boolean>>
  readonly ports: Ports
  readonly place: string
}

function createBroker(id: number, seen: Ports, { folder, properties, ports, place }: Setup): Broker {
  const config = join(place, `${id}.properties`)
  const printed = join(place, `${id}.log`)
  writeFileSync(
    config,
    Object.entries(properties)
      .map(([name, value]) => `${name}=${value}\n`)
      .join(''),
  )
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'meta.properties'), `version=1\ncluster.id=${cluster.id}\nnode.id=${id}\n`)
  copyFileSync(bootstrapCheckpoint(), join(folder, 'bootstrap.checkpoint'))
  let child: ChildProcess | undefined

  const java = kafkaCommand(config)
  // The kernel ends the broker when the process that started it ends.
  const command = process.platform === 'linux' ? ['setpriv', '--pdeathsig', 'KILL', ...java] : java

  return {
    id,
    address: `127.0.0.1:${seen.client}`,
    otherAddress: `127.0.0.1:${seen.other}`,
    folder,
    get pid() {
      return child?.pid
    },
    async start() {
      if (child !== undefined) throw new Error(`Broker ${id} runs already.`)
      const [program = '', ...args] = command
      const output = openSync(printed, 'a')
      const started = spawn(program, args, { stdio: ['ignore', output, output] })
      child = started
      started.once('error', () => {})
      started.once('exit', () => {
        if (child === started) child = undefined
      })
      const giveUpAt = performance.now() + 110_000
      while (!(await accepts(ports.client))) {
        if (child !== started || performance.now() > giveUpAt)
          throw new Error(`Broker ${id} did not start.\n${this.log()}`)
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    },
    async kill(signal) {
      const running = child
      if (running === undefined) return
      const ended = once(running, 'exit')
      running.kill(signal)
      if (signal === 'SIGSTOP' || signal === 'SIGCONT') return
      await ended
    },
    log: () => readFileSync(printed, 'utf8'),
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}

/** Removes the folders of processes that were killed. */
function removeLeftovers(): void {
  for (const name of readdirSync(tmpdir()).filter((each) => each.startsWith(prefix))) {
    const owner = Number(name.slice(prefix.length).split('-')[0])
    if (!isAlive(owner)) rmSync(join(tmpdir(), name), { recursive: true, force: true })
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
