import type { Command } from 'commander'
import { asked, changeAll } from './dead.ts'
import { type Filter, filters, operates } from './operator/command.ts'

/** `fleethook replay` */
export function define(command: Command): void {
  filters(command)
    .description(
      'Puts back messages that were handled and that the inbox still holds, in their order: all of their handlers run anew, marked as replayed.',
    )
    .option('--dry-run', 'only say how many there are')
    .option('--yes', 'do not ask')
  command.options.find(({ long }) => long === '--from')?.makeOptionMandatory()
  operates<[], Filter & { readonly from: Date; readonly dryRun?: true }>(
    command,
    (operating, { dryRun, from, to = new Date(), ...filter }) => {
      return changeAll(operating, '/replay', 'replay', asked({ ...filter, from, to }), dryRun === true)
    },
  )
}
