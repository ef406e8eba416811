#!/usr/bin/env node
import { Command, CommanderError } from 'commander'
import { packageVersion } from './own-package.ts'

interface Entry {
  readonly summary: string
  /** Loaded only when the command is named, so that none pays for the others. */
  readonly load: () => Promise<{ readonly define: (command: Command) => void }>
}

const commands: Readonly<Record<string, Entry>> = {
  init: {
    summary: 'copy a template of a receiver into a new folder',
    load: () => import('./init.ts'),
  },
  send: {
    summary: 'post the messages of a simulated fleet to a receiver',
    load: () => import('./send.ts'),
  },
  webhook: {
    summary: 'set, show or delete the webhook of the business',
    load: () => import('./webhook.ts'),
  },
  config: {
    summary: 'show or change what vehicles stream',
    load: () => import('./config.ts'),
  },
  products: {
    summary: 'list what customers have shared',
    load: () => import('./products.ts'),
  },
  stream: {
    summary: 'stream a vehicle, without a webhook',
    load: () => import('./stream.ts'),
  },
  sandbox: {
    summary: 'serve a stand-in for the service, with simulated vehicles',
    load: () => import('./sandbox.ts'),
  },
  completion: {
    summary: 'print the completion of a shell',
    load: () => import('./completion.ts'),
  },
  dead: {
    summary: 'look at messages that were given up, and put them back',
    load: () => import('./dead.ts'),
  },
  replay: {
    summary: 'have handled messages handled once more',
    load: () => import('./replay.ts'),
  },
  openapi: {
    summary: 'print the OpenAPI document of a receiver',
    load: () => import('./openapi.ts'),
  },
}

const program = new Command('fleethook')
  .usage('<command> [options]')
  .description(
    'Receives the telemetry that a shared-vehicle service posts to a webhook. These commands help to build and test it.',
  )
  .version(packageVersion(), '-v, --version', 'print the version')
  .helpOption('-h, --help', 'print help, also about one command: fleethook <command> --help')
  .helpCommand(false)
  .showSuggestionAfterError()
  .exitOverride()

for (const [name, { summary, load }] of Object.entries(commands)) {
  const command = program.command(name).summary(summary).description(summary)
  if (process.argv[2] === name || process.argv[2] === 'complete') (await load()).define(command)
}
if (process.argv[2] === 'complete') (await import('./completion.ts')).defineAnswers(program)

// Whoever reads the output may have read enough, as `head` does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit()
  throw error
})

try {
  if (process.argv.length < 3) program.outputHelp()
  else await program.parseAsync()
} catch (error) {
  // Bad usage has been told in words by now; its status is 2, so that 1 can mean that a message was not accepted.
  if (!(error instanceof CommanderError)) throw error
  process.exitCode = error.exitCode === 0 ? 0 : 2
}
