import { uptime } from 'node:os'
import process from 'node:process'
import type { Command } from 'commander'
import { pause, systemClock } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import type { InboxEvent, InboxGap } from '../../src/inbox/inbox.ts'
import { readsNothing } from '../inbox/forwarding.ts'
import { KafkaSystem } from '../inbox/kafka/system.ts'
import { Meanwhile } from '../inbox/meanwhile.ts'
import { Database } from '../inbox/postgres/client.ts'
import { sqliteInbox } from '../inbox/sqlite.ts'
import { isMissing } from '../inbox/sqlite/file/database.ts'
import { moveToFile } from '../inbox/sqlite/file/moving.ts'
import { type Common, environment, type Print } from './arguments.ts'
import { clusterOptions, type Given as Cluster, settingsOf } from './kafka.ts'
import { moveFile, type Moved } from './move-to-postgres.ts'
import { type Given as Tables, onDatabase, withPool } from './postgres.ts'
import { logTo } from './terminal.ts'

/** How long the brokers may take no message before the command ends, in milliseconds. */
const patienceMs = 60_000

export function defineMove(command: Command): void {
  command
    .argument('<file>', 'the file of a receiver that does not run: its inbox, or the file of `meanwhile`')
    .argument('[to]', 'the inbox of another receiver that does not run either')
    .description('Moves what waits in a file to another file, to Postgres or to Kafka, where others handle it.')
  onDatabase<[string, string | undefined], Tables & Cluster>(
    clusterOptions(command),
    `With a second file, what waits, dead letters and gaps go there, all or nothing. With KAFKA_BROKERS or --brokers, what waits for the receiver goes to the topic; dead letters, gaps and what waits for branches stay in the file. Otherwise it goes to Postgres, with dead
letters, gaps and the states of vehicles, also of branches, which needs the package pg in your project. Each message is there before it leaves the file: when it was
interrupted, run it again. Handled messages stay in the file.`,
    runMove,
  )
}

async function runMove(given: Tables & Cluster & Common, print: Print, file: string, to?: string): Promise<void> {
  const brokers =
    given.brokers ?? (given.database === undefined ? environment(given.dotenv)('KAFKA_BROKERS') : undefined)
  const { schema, ...where } = given
  if (isMissing(file)) throw new FleethookError('inbox_unavailable', `There is no inbox at ${file}.`)
  if (to !== undefined) {
    const sign = { nowMs: Date.now(), uptimeMs: Math.floor(uptime() * 1_000) }
    const { messages, deadLetters, gaps } = moveToFile(file, to, sign)
    print(
      { to, messages, deadLetters, gaps },
      () => `Moved to the inbox ${to}: ${messages} messages that wait, ${deadLetters} dead letters, ${gaps} gaps.`,
    )
    return
  }
  if (brokers !== undefined) {
    const messages = await moveToTopic(file, { ...given, brokers })
    print({ topic: given.topic, messages }, () => `Moved to the topic ${given.topic}: ${messages} messages that wait.`)
    return
  }
  const moved: Moved = await withPool(where, async (pool) => moveFile(file, new Database(pool, schema, systemClock)))
  print({ schema, ...moved }, () =>
    [
      `Moved to the schema ${schema}: ${movedOf(moved)}, ${moved.gaps} gaps.`,
      ...moved.branches.map((each) => `Of the branch ${escapeControls(each.branch)}: ${movedOf(each)}.`),
    ].join('\n'),
  )
}

const movedOf = ({ messages, deadLetters, vehicles }: Moved['branches'][number] | Moved): string =>
  `${messages} messages that wait, ${deadLetters} dead letters, the states of ${vehicles} vehicles`

/** As a receiver with this file does, but without one: nobody listens. Resolves to the number of messages. */
async function moveToTopic(file: string, given: Cluster & Common): Promise<number> {
  /** They stay in the file, for the next receiver that has it. */
  const gaps: InboxGap[] = []
  const own = {
    limits: { pendingMessages: undefined, pendingBytes: undefined },
    read: readsNothing,
    clock: systemClock,
    log: logTo(process.stderr),
    on: (event: InboxEvent) => void (event.type === 'gap' && gaps.push(event.gap)),
    receiver: {
      openGaps: () => gaps.map((gap) => ({ ...gap, toMs: gap.toMs ?? Date.now(), missed: gap.missed ?? 0 })),
    },
  }
  const system = new KafkaSystem(settingsOf(given), own)
  const meanwhile = new Meanwhile(sqliteInbox({ path: file, waitMs: 0 }), own, system)
  try {
    await meanwhile.open()
    const before = meanwhile.stats()
    await system.connect()
    await meanwhile.begin()
    let left = meanwhile.stats()
    for (let since = Date.now(); left.messages > 0 && Date.now() - since < patienceMs;) {
      await pause(systemClock, 100)
      const now = meanwhile.stats()
      if (now.messages < left.messages) since = Date.now()
      left = now
    }
    if (left.messages > 0)
      throw new FleethookError('inbox_unavailable', `The brokers did not take ${left.messages} messages of ${file}.`, {
        hint: 'They stay in the file. Run the command again when the brokers answer.',
      })
    return before.messages - (left.deadLetters - before.deadLetters)
  } finally {
    await meanwhile.close()
    await system.close()
  }
}
