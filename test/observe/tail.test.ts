import { rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { expect, onTestFinished, test } from 'vitest'
import { command, start } from '../cli/command.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { post } from '../runtimes/client.ts'
import { programCommand } from '../runtimes/targets.ts'
import { newFolder } from '../folder.ts'

/** A receiver whose handler fails, with an SQLite inbox. */
async function running(): Promise<{ readonly inbox: string; readonly target: Target }> {
  const folder = newFolder('tail')
  const [inbox, broken] = [join(folder, 'inbox.db'), join(folder, 'broken')]
  writeFileSync(broken, '')
  const program = join(import.meta.dirname, '../operator/program.ts')
  const target = await spawnTarget(programCommand('node24', program, { INBOX: inbox, BROKEN: broken }))
  onTestFinished(() => target[Symbol.asyncDispose]())
  return { inbox, target }
}

/** `fleethook tail`, and its lines as they come. */
function tail(...args: readonly string[]): {
  line(pattern: RegExp): Promise<string>
  /** Waits until a line matches, and resolves to the lines up to it. */
  linesTo(pattern: RegExp): Promise<readonly string[]>
  end(): ReturnType<typeof command>
} {
  const { child, ended } = start(['tail', ...args])
  onTestFinished(() => void child.kill('SIGKILL'))
  const lines: string[] = []
  if (child.stdout !== null) createInterface({ input: child.stdout }).on('line', (line) => lines.push(line))
  const linesTo = async (pattern: RegExp): Promise<readonly string[]> => {
    await expect.poll(() => lines.some((line) => pattern.test(line))).toBe(true)
    return lines.slice(0, lines.findIndex((line) => pattern.test(line)) + 1)
  }
  return {
    linesTo,
    line: async (pattern) => (await linesTo(pattern)).at(-1) ?? '',
    async end() {
      child.kill('SIGINT')
      await once(child, 'exit')
      return ended
    },
  }
}

test('shows what happens, one line per event, and what went wrong before it began', { timeout: 180_000 }, async () => {
  const { inbox, target } = await running()
  expect((await fetch(target.url, { method: 'POST', headers: { authorization: 'wrong' } })).status).toBe(403)
  const shown = tail('--inbox', inbox)
  expect(await shown.line(/secret_wrong/)).toMatch(/^refused +403 {2}\d\d:\d\d:\d\d secret_wrong\. /)
  expect(await post(target.url, '0FLEETV14T0000004', 1)).toBe(200)
  expect(await shown.line(/^failed/)).toMatch(
    /^failed +run 1 {2}.* 0FLEETV14T0000004 data .*the database is gone, next none$/,
  )
  expect(await shown.line(/^dead/)).toMatch(/^dead +1 run {2}.*fleethook dead show [\da-f-]{36} --inbox=\S+$/)
  expect(await shown.end()).toMatchObject({ status: 0, stderr: '' })
})

test('begins with the last items, whether few or many are kept', { timeout: 180_000 }, async () => {
  const { inbox, target } = await running()
  const refused = async (count: number): Promise<void> => {
    for (let each = 0; each < count; each += 1)
      expect((await fetch(target.url, { method: 'POST', headers: { authorization: 'wrong' } })).status).toBe(403)
  }
  await refused(6)
  expect(await tail('--inbox', inbox, '--last', '10').linesTo(/\(6 since the start\)/)).toHaveLength(6)
  await refused(60)
  const lines = await tail('--inbox', inbox, '--last', '5').linesTo(/\(66 since the start\)/)
  expect(lines.map((line) => /\((\d+) since/.exec(line)?.[1])).toEqual(['62', '63', '64', '65', '66'])
})

test('with --json, each line is an item of the feed', { timeout: 180_000 }, async () => {
  const { inbox, target } = await running()
  const shown = tail('--json', '--inbox', inbox, '--vin', 'A')
  await fetch(target.url, { method: 'POST', headers: { authorization: 'wrong' } })
  await expect.poll(async () => (await post(target.url, 'A', 1), shown.line(/"dead"/))).toBeTruthy()
  expect(JSON.parse(await shown.line(/"kind":"dead"/))).toMatchObject({
    kind: 'dead',
    event: { vin: 'A' },
    attempts: 1,
  })
  await shown.end()
})

test('says what to do when no receiver runs', async () => {
  const { status, stderr } = await command(['tail', '--inbox', join(tmpdir(), 'nothing-here.db')])
  expect(status).toBe(1)
  expect(stderr).toMatch(/No receiver runs with the inbox .*nothing-here\.db\. Start it, or name the file/)
})

test('-n shows what was handled before it began, and --no-follow ends after that', { timeout: 180_000 }, async () => {
  const { inbox, target } = await running()
  expect((await command(['tail', '--inbox', inbox, '--no-follow'])).status).toBe(0)
  rmSync(join(dirname(inbox), 'broken'))
  // The feed keeps what was refused. Messages that only the inbox has are newer.
  for (const n of [1, 2, 3]) expect((await fetch(target.url, { method: 'POST', body: String(n) })).status).toBe(401)
  for (const n of [1, 2, 3]) expect(await post(target.url, '0FLEETV14T0000004', n)).toBe(200)
  await expect
    .poll(async () => (await command(['tail', '--inbox', inbox, '--no-follow', '-n', '2'])).stdout)
    .toMatch(/^handled .*BatteryLevel 2\nhandled .*BatteryLevel 3\n$/)
  const json = await command(['tail', '--inbox', inbox, '--no-follow', '-n', '1', '--json'])
  expect(JSON.parse(json.stdout)).toMatchObject({ kind: 'settled', outcome: 'handled' })
  expect((await command(['tail', '--inbox', inbox, '--no-follow', '--vin', 'other'])).stdout).toBe('')
  expect((await command(['tail', '--inbox', inbox, '--no-follow', '-n', '0'])).stdout).toBe('')
})
