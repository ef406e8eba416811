import type { Command } from 'commander'
import { FleethookError } from '../../src/base/errors.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import { isMissing, loadSqlite } from '../inbox/sqlite/file/database.ts'
import { type BranchInFile, dropBranch, renameBranch } from '../inbox/sqlite/file/changing.ts'
import { acts, environment, inboxPath } from './arguments.ts'
import { agreed } from './operator.ts'

interface Given {
  readonly inbox?: string
  readonly yes?: true
}

export function defineBranch(command: Command): void {
  command.description('Changes the branches in the file of a receiver that does not run.')
  const onFile = (own: Command): Command =>
    own.option('--inbox <file>', 'the file of the inbox (default: FLEETHOOK_INBOX, or data/inbox.db)')
  const rename = onFile(command.command('rename'))
    .argument('<old>', 'the name that the branch had')
    .argument('<new>', 'the name that it has in the code now')
    .summary('give what waits for a branch to its new name')
    .description(
      'A branch is known by its name. When you change that in the code, this gives what waits, its dead letters and its states of vehicles to the new name.',
    )
  acts<[string, string], Given>(rename, async (given, print, from, to) => {
    const path = fileOf(given, environment(given.dotenv))
    const had = renameBranch(path, from, to)
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
    const path = fileOf(given, environment(given.dotenv))
    if (!(await agreed(`Delete what waits for the branch ${shown(name)}, for good?`, given))) return 1
    const had = dropBranch(path, name)
    const { messages, deadLetters } = had
    print(
      { name, ...had },
      () =>
        `Dropped the branch \`${shown(name)}\`: ${counted(messages, 'message')} waited for it, and it had ${counted(deadLetters, 'dead letter')}.`,
    )
    return 0
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
