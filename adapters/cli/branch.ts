import type { Command } from 'commander'
import { systemClock } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import { isMissing, loadSqlite } from '../inbox/sqlite/file/database.ts'
import { checkStopped, dropBranch as dropInTables, renameBranch as renameInTables } from '../inbox/postgres/branches.ts'
import { Database } from '../inbox/postgres/client.ts'
import { schemaName } from '../inbox/postgres/options.ts'
import { checkServer } from '../inbox/postgres/schema.ts'
import { type BranchInFile, dropBranch, renameBranch } from '../inbox/sqlite/file/changing.ts'
import { acts, type Common, environment, inboxPath } from './arguments.ts'
import { agreed } from './operator.ts'
import { withPool } from './postgres.ts'

interface Given {
  readonly inbox?: string
  readonly database?: string
  readonly schema: string
  readonly yes?: true
}

export function defineBranch(command: Command): void {
  command.description('Changes the branches in the file, or the tables, of receivers that do not run.')
  const onFile = (own: Command): Command =>
    own
      .option('--inbox <file>', 'the file of the inbox (default: FLEETHOOK_INBOX, or data/inbox.db)')
      .option('-d, --database <url>', 'the address of the database of postgresInbox')
      .option('--schema <name>', 'the schema of its tables', 'fleethook')
  const rename = onFile(command.command('rename'))
    .argument('<old>', 'the name that the branch had')
    .argument('<new>', 'the name that it has in the code now')
    .summary('give what waits for a branch to its new name')
    .description(
      'A branch is known by its name. When you change that in the code, this gives what waits, its dead letters and its states of vehicles to the new name.',
    )
  acts<[string, string], Given>(rename, async (given, print, from, to) => {
    const had = await (given.database === undefined
      ? renameBranch(fileOf(given, environment(given.dotenv)), from, to)
      : inTables(given, (db) => renameInTables(db, from, to)))
    print({ from, to, ...had }, () => `The branch \`${shown(from)}\` is \`${shown(to)}\` now, with ${whatOf(had)}.`)
    return 0
  })
  const drop = onFile(command.command('drop'))
    .argument('<name>', 'a branch that is no longer in the code')
    .option('--yes', 'do not ask for confirmation')
    .summary('delete what waits for a branch that was removed')
    .description(
      'Deletes what waits for a branch, its dead letters and its states of vehicles. What was for other readers stays. A branch that is still in the code begins again with the next message.',
    )
  acts<[string], Given>(drop, async (given, print, name) => {
    if (!(await agreed(`Delete what waits for the branch ${shown(name)}, for good?`, given))) return 1
    const had = await (given.database === undefined
      ? dropBranch(fileOf(given, environment(given.dotenv)), name)
      : inTables(given, (db) => dropInTables(db, name)))
    const { messages, deadLetters } = had
    print(
      { name, ...had },
      () =>
        `Dropped the branch \`${shown(name)}\`: ${counted(messages, 'message')} waited for it, and it had ${counted(deadLetters, 'dead letter')}.`,
    )
    return 0
  })
}

async function inTables(
  { schema, ...where }: Given & Common,
  change: (db: Database) => Promise<BranchInFile>,
): Promise<BranchInFile> {
  if (!schemaName.accepts(schema)) throw new FleethookError('option_invalid', `--schema ${schemaName.must}.`)
  return withPool(where, async (pool) => {
    const db = new Database(pool, schema, systemClock)
    await checkServer(db, true)
    await checkStopped(db)
    return change(db)
  })
}

function fileOf({ inbox }: Given, variable: ReturnType<typeof environment>): string {
  const path = inboxPath(inbox, variable)
  if (isMissing(path)) throw new FleethookError('inbox_unavailable', `There is no inbox at ${path}.`)
  loadSqlite()
  return path
}

const shown = escapeControls

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`

const whatOf = ({ messages, deadLetters }: BranchInFile): string =>
  `${counted(messages, 'message')} that wait${messages === 1 ? 's' : ''} and ${counted(deadLetters, 'dead letter')}`
