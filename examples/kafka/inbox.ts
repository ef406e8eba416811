import { kafkaInbox } from 'fleethook/inbox/kafka'
import { sqliteInbox } from 'fleethook/inbox/sqlite'

const { FLEETHOOK_MEANWHILE = 'data/meanwhile.db', KAFKA_BROKERS, KAFKA_USERNAME, KAFKA_PASSWORD } = process.env

/** Every process has the same topic and the same number of partitions: a vehicle keeps its partition. */
export const inboxFor = (role: 'receive' | 'handle'): ReturnType<typeof kafkaInbox> =>
  kafkaInbox({
    brokers: (KAFKA_BROKERS || 'localhost:9092').split(','),
    topic: 'fleethook',
    partitions: 24,
    role,
    // While no broker answers, this file keeps what arrives, and nothing is refused. Each receiver has its own.
    ...(role === 'receive' ? { meanwhile: sqliteInbox({ path: FLEETHOOK_MEANWHILE }) } : {}),
    // A cluster with passwords has TLS too.
    ...(KAFKA_USERNAME && KAFKA_PASSWORD
      ? { tls: true, sasl: { mechanism: 'SCRAM-SHA-512', username: KAFKA_USERNAME, password: KAFKA_PASSWORD } }
      : {}),
  })
