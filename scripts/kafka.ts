// Installs Apache Kafka for the tests against real brokers into `.runtimes/`: the jars of the Maven registry, which `mvn` fetches
// from where it is configured to. Needs Java 17 or later and Maven.
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash, randomInt } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** The version of the brokers. */
export const kafkaVersion = '4.3.1'

/** SHA-256 over a line `<sha256 of the file>  <file>` for each jar, sorted by name. It pins every jar, also those that Kafka needs. */
const checksum = '9b241538730d32e890117f2362eee3ff6ed60f753d73e6a46652b547a64df32f'

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fleethook.tests</groupId>
  <artifactId>brokers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${kafkaVersion}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`
const copy = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies'

/** What every cluster of the tests has. */
export const cluster = { id: '5L6g3nShT-eMCtK--X86sw', user: 'fleethook', password: 'a-password-of-the-tests' } as const

const base = fileURLToPath(new URL('../.runtimes', import.meta.url))
const installed = `${base}/kafka-${createHash('sha256').update(pom).update(checksum).digest('hex').slice(0, 12)}`

const javaFlags = [
  '-Xmx512m',
  '-XX:+UseSerialGC',
  '-XX:TieredStopAtLevel=1',
  '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
]

/** The class path of the brokers. */
export const kafkaClasses = (): string => `${installed}/jars/*`

/** The command of a broker with this file of properties. `npm run test:kafka` installs it first. */
export function kafkaCommand(properties: string): readonly string[] {
  if (!existsSync(installed)) throw new Error('Kafka is not installed. Run "node scripts/kafka.ts".')
  const archived = ['-Xshare:auto', `-XX:SharedArchiveFile=${installed}/classes`]
  return ['java', ...archived, ...javaFlags, '-cp', `${installed}/jars/*`, 'kafka.Kafka', properties]
}

/** The file that a formatted log folder has beside its `meta.properties`. It holds the SCRAM password of {@link cluster}. */
export function bootstrapCheckpoint(): string {
  return `${installed}/formatted/bootstrap.checkpoint`
}

/** Fetches the jars and checks them. Two processes may do so at once: each fills its own folder, and the first to finish wins. */
export function installKafka(): void {
  if (existsSync(installed)) return
  const missing = ['java', 'mvn'].filter((command) => spawnSync(command, ['-version']).status !== 0)
  if (missing.length > 0) {
    throw new Error(
      `The tests against real brokers need Java 17 or later and Maven, and this machine has no ${missing.join(' and no ')}. ` +
        'On Debian: apt-get install openjdk-17-jre-headless maven',
    )
  }
  const own = `${installed}.${process.pid}`
  mkdirSync(own, { recursive: true })
  try {
    writeFileSync(`${own}/pom.xml`, pom)
    console.log(`Installing Apache Kafka ${kafkaVersion} into .runtimes/ (once)`)
    const folder = `-DoutputDirectory=${own}/jars`
    execFileSync('mvn', ['--batch-mode', '--quiet', `--file=${own}/pom.xml`, copy, folder, '-DincludeScope=runtime'], {
      stdio: ['ignore', 'inherit', 'inherit'],
    })
    const found = checksumOf(`${own}/jars`)
    if (found !== checksum) {
      throw new Error(`The jars of Kafka ${kafkaVersion} have the checksum ${found} instead of ${checksum}.`)
    }
    format(own)
    renameSync(own, installed)
    archiveClasses(installed)
  } catch (error) {
    if (!existsSync(installed)) throw error
  } finally {
    rmSync(own, { recursive: true, force: true })
  }
}

function checksumOf(folder: string): string {
  const sha256 = (data: Buffer | string): string => createHash('sha256').update(data).digest('hex')
  const lines = readdirSync(folder)
    .toSorted()
    .map((name) => `${sha256(readFileSync(`${folder}/${name}`))}  ${name}\n`)
  return sha256(lines.join(''))
}

/** Writes the properties of a broker in this folder, and returns their path. */
function writeProperties(folder: string): string {
  const [port, controller] = [randomInt(20_000, 26_000), randomInt(26_000, 32_000)]
  const properties = [
    'process.roles=broker,controller',
    'node.id=1',
    `controller.quorum.voters=1@127.0.0.1:${controller}`,
    `listeners=CLIENT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controller}`,
    'listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'inter.broker.listener.name=CLIENT',
    'controller.listener.names=CONTROLLER',
    `log.dirs=${folder}/formatted`,
  ]
  const path = `${folder}/first.properties`
  writeFileSync(path, properties.join('\n'))
  return path
}

/** Formats one log folder, which takes a second. The brokers of the tests copy its checkpoint. */
function format(own: string): void {
  const scram = `SCRAM-SHA-512=[name=${cluster.user},password=${cluster.password}]`
  const tool = ['kafka.tools.StorageTool', 'format', '-t', cluster.id, '-c', writeProperties(own), '-S', scram]
  execFileSync('java', ['-cp', `${own}/jars/*`, ...tool], { stdio: 'ignore' })
}

/** Runs a broker for some seconds and keeps the classes that it loaded. With them a broker starts with half of the work. */
function archiveClasses(folder: string): void {
  const archive = `${folder}/classes.${process.pid}`
  const archiving = `-XX:ArchiveClassesAtExit=${archive}`
  const args = [archiving, ...javaFlags, '-cp', `${folder}/jars/*`, 'kafka.Kafka', writeProperties(folder)]
  spawnSync('java', args, { stdio: 'ignore', timeout: 10_000, killSignal: 'SIGTERM' })
  if (existsSync(archive)) renameSync(archive, `${folder}/classes`)
}

if (import.meta.main) {
  try {
    installKafka()
  } catch (error) {
    console.error(error instanceof Error ? error.message : error)
    process.exitCode = 1
  }
}
