import { readFileSync } from 'node:fs'
import { type Command, Option } from 'commander'
import { FleethookError } from '../../src/base/errors.ts'
import { defined } from '../../src/base/options.ts'
import { clusterError, closeClient, Connector, loadClient } from '../inbox/kafka/client.ts'
import { type KafkaInboxOptions, type KafkaSasl, type KafkaSettings, readKafkaOptions } from '../inbox/kafka/options.ts'
import { type AppliedTopic, applyTopics, checkTopics, type TopicPlan, topicPlans } from '../inbox/kafka/topics.ts'
import { acts, type Common, environment, whole } from './arguments.ts'
import { columns, logTo } from './terminal.ts'

export interface Given {
  readonly brokers?: string
  readonly topic: string
  readonly partitions: number
  readonly tls?: true
  readonly ca?: string
  readonly sasl?: KafkaSasl['mechanism']
  readonly apply?: true
  readonly allowWeak?: true
}

const mechanisms: readonly KafkaSasl['mechanism'][] = ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512', 'OAUTHBEARER']

export function defineKafka(command: Command): void {
  command.description('The topics of kafkaInbox.')
  const topics = clusterOptions(
    command
      .command('topics')
      .description(
        'Prints the topics that kafkaInbox needs, with their settings. With --apply it creates missing topics, and checks all.',
      ),
  )
    .option('--apply', 'create the topics that are missing')
    .addHelpText(
      'after',
      `
Environment: KAFKA_BROKERS; for --sasl KAFKA_USERNAME and KAFKA_PASSWORD, or KAFKA_TOKEN. All are also read from .env.

Topics that exist stay as they are.

Exit status: 0 done, 1 an error, 2 bad usage.`,
    )
  acts<[], Given>(topics, async (given, print) => {
    const settings = settingsOf(given)
    const found = given.apply === true ? await applied(settings) : topicPlans(settings)
    print({ topics: found }, () => found.map((topic) => shown(topic, settings)).join('\n\n'))
  })
}

/** Adds the options that say which topic of which cluster. */
export function clusterOptions(command: Command): Command {
  return command
    .option('-b, --brokers <list>', 'brokers of the cluster, separated by commas (default: KAFKA_BROKERS)')
    .option('--topic <name>', 'the topic of the messages', 'fleethook')
    .option('--partitions <n>', 'the number of partitions', whole(1, 10_000), 24)
    .option('--allow-weak', 'accept fewer than 3 brokers, and topics that one broker alone confirms')
    .option('--tls', 'connect with TLS')
    .option('--ca <file>', 'connect with TLS, and trust this certificate authority')
    .addOption(new Option('--sasl <mechanism>', 'log in').choices(mechanisms))
}

export function settingsOf({
  brokers,
  topic,
  partitions,
  tls,
  ca,
  sasl,
  allowWeak,
  dotenv,
  apply,
}: Given & Common): KafkaSettings {
  const variable = environment(dotenv)
  const addresses = brokers ?? variable('KAFKA_BROKERS')
  if (addresses === undefined && apply === true) {
    throw new FleethookError('option_invalid', 'No broker is given.', {
      hint: 'Pass --brokers b1:9092,b2:9092, or set KAFKA_BROKERS.',
    })
  }
  const options: KafkaInboxOptions = {
    brokers: (addresses ?? 'localhost:9092').split(',').map((address) => address.trim()),
    topic,
    partitions,
    allowWeak: allowWeak === true,
    ...(ca === undefined ? (tls === undefined ? {} : { tls }) : { tls: { ca: authority(ca) } }),
    ...defined({ sasl: sasl && login(sasl, variable) }),
  }
  return readKafkaOptions(options)
}

function authority(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    throw new FleethookError('option_invalid', `The file ${path} cannot be read.`, {
      cause,
      hint: 'Name the file of the authority with --ca.',
    })
  }
}

function login(mechanism: KafkaSasl['mechanism'], variable: (name: string) => string | undefined): KafkaSasl {
  const given =
    mechanism === 'OAUTHBEARER'
      ? { token: variable('KAFKA_TOKEN') }
      : { username: variable('KAFKA_USERNAME'), password: variable('KAFKA_PASSWORD') }
  return { mechanism, ...defined(given) }
}

async function applied(settings: KafkaSettings): Promise<readonly AppliedTopic[]> {
  const admin = new Connector(await loadClient(), settings).admin(8_000)
  try {
    const topics = await applyTopics(admin, settings)
    await settledTopics(admin, settings)
    return topics
  } catch (error) {
    throw clusterError(error, settings)
  } finally {
    await closeClient(admin)
  }
}

/** Checks the topics. Waits for the leaders of new ones. */
async function settledTopics(admin: Parameters<typeof checkTopics>[0], settings: KafkaSettings): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await checkTopics(admin, settings, logTo(process.stderr))
      return
    } catch (error) {
      if (tries === 20 || (error instanceof FleethookError && error.code === 'option_invalid')) throw error
      await new Promise((resolve) => setTimeout(resolve, 500))
    }
  }
}

function shown(topic: TopicPlan | AppliedTopic, { allowWeak }: KafkaSettings): string {
  if (!('configs' in topic)) return `${topic.name}: exists, with the settings that it has`
  const outcome = 'outcome' in topic ? `: ${topic.outcome}` : ''
  const rows = [
    ['  partitions', String(topic.partitions)],
    ['  replication', allowWeak ? 'up to 3' : '3'],
    ...Object.entries(topic.configs).map(([name, value]) => [`  ${name}`, value]),
  ]
  return `${topic.name}${outcome}\n${columns(rows)}`
}
