#!/usr/bin/env node
import { Command, CommanderError } from 'commander'
import { isOlder, packageVersion } from './own-package.ts'
import { escapeLines, filled } from './terminal.ts'

/** What a command is for, and what loads the function that defines it. */
type Listed = readonly [summary: string, load: () => Promise<(command: Command) => void>]

const commands: Readonly<Record<string, Listed>> = {
  init: ['copy a template of a receiver into a new folder', async () => (await import('./init.ts')).defineInit],
  send: ['post the messages of a simulated fleet to a receiver', async () => (await import('./send.ts')).defineSend],
  conform: [
    'check any receiver of the webhook, whatever it is written in',
    async () => (await import('./conform.ts')).defineConform,
  ],
  run: ['hold the port, run a receiver on it, and restart it', async () => (await import('./run.ts')).defineRun],
  reload: [
    'replace the receiver of fleethook run without refusing a message',
    async () => (await import('./run.ts')).defineReload,
  ],
  doctor: ['find out why messages do not arrive', async () => (await import('./doctor.ts')).defineDoctor],
  dev: [
    'run a receiver with simulated vehicles and its inspector, and restart it when its files change',
    async () => (await import('./dev.ts')).defineDev,
  ],
  inspect: [
    'show a running receiver on a page in the browser',
    async () => (await import('./inspect.ts')).defineInspect,
  ],
  webhook: [
    'set, show or delete the webhook of the business',
    async () => (await import('./webhook.ts')).defineWebhook,
  ],
  config: ['show or change what vehicles stream', async () => (await import('./config.ts')).defineConfig],
  products: [
    'list the vehicles and energy sites that customers share',
    async () => (await import('./products.ts')).defineProducts,
  ],
  stream: ['stream a vehicle without a webhook', async () => (await import('./products.ts')).defineStream],
  sandbox: [
    'run a local stand-in for the service with simulated vehicles',
    async () => (await import('./sandbox.ts')).defineSandbox,
  ],
  completion: [
    'print the completion script for a shell',
    async () => (await import('./completion.ts')).defineCompletion,
  ],
  tail: [
    'show what happens in a running receiver, one line per event',
    async () => (await import('./tail.ts')).defineTail,
  ],
  dead: ['list, replay, or discard dead letters', async () => (await import('./dead.ts')).defineDead],
  forget: ['erase everything that is kept of a vehicle', async () => (await import('./forget.ts')).defineForget],
  failing: ['show what fails now, by handler', async () => (await import('./failing.ts')).defineFailing],
  replay: ['replay messages that were already handled', async () => (await import('./dead.ts')).defineReplay],
  kafka: ['print or create the topics of the Kafka inbox', async () => (await import('./kafka.ts')).defineKafka],
  postgres: ['create the tables of the Postgres inbox', async () => (await import('./postgres.ts')).definePostgres],
  branch: [
    'rename a branch in a file, or drop what waits for a removed branch',
    async () => (await import('./branch.ts')).defineBranch,
  ],
  move: [
    'move what waits in a file to another one, to Postgres or Kafka',
    async () => (await import('./move.ts')).defineMove,
  ],
  vehicles: ['show the newest state of vehicles', async () => (await import('./vehicles.ts')).defineVehicles],
  openapi: ['print the OpenAPI document of a receiver', async () => (await import('./openapi.ts')).defineOpenApi],
}

// As `engines` says: older ones fail later, with an error that names no version.
const neededNode = '22.13'
if (isOlder(process.versions.node, neededNode)) {
  // What to do about `fleethook needs Node … or newer`: Install it. Templates need 22.18.
  console.error(`error: fleethook needs Node ${neededNode} or newer, and this is Node ${process.versions.node}.`)
  process.exit(1)
}

// NO_COLOR wins. With both set, Node would ignore it and warn.
if (process.env['NO_COLOR']) delete process.env['FORCE_COLOR']

const program = new Command('fleethook')
  .usage('<command> [options]')
  .description(
    'Receives the telemetry that a shared-vehicle service posts to a webhook. These commands help to build and test it.',
  )
  .version(packageVersion(), '-v, --version', 'print the version')
  .helpOption('-h, --help', 'print help, also about one command: fleethook <command> --help')
  .helpCommand(false)
  .addHelpText('after', '\nFor a coding agent, the skill: node_modules/fleethook/docs/skills/fleethook/SKILL.md\n')
  .showSuggestionAfterError()
  .exitOverride()
  // Descriptions are wrapped in narrow terminals too. Commander gives up on columns of less than 40 characters.
  .configureHelp({ minWidthToWrap: 20 })
  .configureOutput({
    writeOut: (text) => process.stdout.write(filled(text, process.stdout.columns || 80)),
    // Commander's errors quote what was given.
    writeErr: (text) => process.stderr.write(escapeLines(text)),
  })

// People type these as words, as for other programs.
const [, , word, ...about] = process.argv
// Without `--help`, an unknown command is told, with what is like it.
const hasHelp = about[0] === undefined || Object.hasOwn(commands, about[0])
if (word === 'help') process.argv.splice(2, Infinity, ...about, ...(hasHelp ? ['--help'] : []))
else if (word === 'version') process.argv.splice(2, Infinity, '--version')

for (const [name, [summary, load]] of Object.entries(commands)) {
  const command = program.command(name).summary(summary).description(summary)
  if (process.argv[2] === name || process.argv[2] === 'complete') (await load())(command)
}
if (process.argv[2] === 'complete') (await import('./completion.ts')).defineAnswers(program)

// The reader of a pipe, for instance `head`, may close it early.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit()
  throw error
})

try {
  if (process.argv.length < 3) program.outputHelp()
  else await program.parseAsync()
} catch (error) {
  // Commander has already printed what is wrong. Bad usage is status 2; 1 means that a command failed.
  if (!(error instanceof CommanderError)) throw error
  process.exitCode = error.exitCode === 0 ? 0 : 2
}
