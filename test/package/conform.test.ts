// The command of the packed package against the templates of the four runtimes, installed as a user has them.
import { execFile } from 'node:child_process'
import { copyFileSync, readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, inject, test } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { restartable } from '../conformance/restartable.ts'
import type { TargetCommand } from '../conformance/spawn.ts'
import { secret, workerCommand } from '../runtimes/targets.ts'

const examples = fileURLToPath(new URL('../../examples/', import.meta.url))

const run = promisify(execFile)

/** Runs `fleethook conform --json`. The templates print each message, and know a repeated one by its id. */
async function conform(
  url: string,
  ...args: readonly string[]
): Promise<{ readonly fail: number; readonly open: string }> {
  const main = join(inject('consumer'), 'node_modules/fleethook/dist/adapters/cli/main.js')
  const given = [main, 'conform', '--url', url, '--json', '--at-least-once', ...args]
  const ended = run(process.execPath, given, { env: { ...process.env, WEBHOOK_SECRET: secret } })
  const { stdout } = await ended.catch((error: unknown) => ({ stdout: String(Object(error).stdout) }))
  const { fail, checks }: { fail: number; checks: readonly Record<string, string>[] } = JSON.parse(stdout)
  const open = checks.filter(({ result }) => result !== 'pass')
  const lines = open.map(({ group, name, result, detail }) => `${result}: ${group}, ${name}: ${detail}`)
  return { fail, open: lines.join('\n') }
}

const servers: readonly { readonly runtime: Runtime; readonly template: string; readonly flags: readonly string[] }[] =
  [
    { runtime: 'node24', template: 'node', flags: [] },
    { runtime: 'bun', template: 'bun', flags: ['run'] },
    { runtime: 'deno', template: 'deno', flags: ['run', '--allow-all', '--node-modules-dir=manual'] },
  ]

test.each(servers)(
  'the template $template falls short in nothing, through kills',
  async ({ runtime, template, flags }) => {
    const program = join(inject('consumer'), `template-${template}.ts`)
    copyFileSync(join(examples, template, 'server.ts'), program)
    await using server = await restartable((port, folder): TargetCommand => ({
      ...{ runtime, command: runtimePath(runtime), args: [...flags, program], cwd: inject('consumer') },
      env: { PORT: String(port), WEBHOOK_SECRET: secret, FLEETHOOK_INBOX: join(folder, 'inbox.db'), NO_COLOR: '1' },
    }))
    const kills = ['--restart', server.restart, '--kills', '3']
    const { fail, open } = await conform(server.url, '--handled', server.log, ...kills)
    expect({ fail, open }).toEqual({ fail: 0, open: expect.not.stringMatching(/^fail|kills|order/m) })
  },
)

test('the template workers falls short in nothing', async () => {
  const source = stripTypeScriptTypes(readFileSync(join(examples, 'workers/worker.ts'), 'utf8'))
  await using server = await restartable(async (port) => {
    const { args, ...worker } = await workerCommand(source, { resolveFrom: inject('consumer') })
    return { ...worker, args: [...args, `--socket-addr=http=127.0.0.1:${port}`] }
  })
  const { fail, open } = await conform(server.url, '--handled', server.log)
  expect({ fail, open }).toEqual({ fail: 0, open: expect.not.stringMatching(/^fail|order/m) })
})
