import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { command } from './command.ts'

const templates = readdirSync('examples')
let scratch: string

beforeAll(() => {
  scratch = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-init-')))
})
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

const secretIn = (folder: string): string => {
  const file = readdirSync(folder).includes('.dev.vars') ? '.dev.vars' : '.env'
  expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600)
  return /^WEBHOOK_SECRET=(.+)$/m.exec(readFileSync(join(folder, file), 'utf8'))?.[1] ?? ''
}

describe('fleethook init', () => {
  test.each(templates)(
    'copies %s, with a strong secret that it does not print, and says what to type next',
    async (name) => {
      const folder = join(scratch, `My ${name}`)
      const { status, stdout, stderr } = await command(['init', name, folder])
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
      const secret = secretIn(folder)
      expect(secret).toMatch(/^[0-9a-f]{64}$/)
      expect(stdout).not.toContain(secret)
      expect(stdout).toMatch(/(npm|bun|deno) install\n {2}(npm|bun|deno) \w+/)
      const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
      expect(manifest.name).toBe(`my-${name}`)
      expect(manifest.dependencies.fleethook).toMatch(/^\^\d+\.\d+\.\d+$/)
      expect(readFileSync(join(folder, '.gitignore'), 'utf8')).toContain('node_modules/')
      expect(readdirSync(folder)).toContain('README.md')
    },
  )

  test('takes a secret and other variables by flags', async () => {
    const folder = join(scratch, 'flags')
    const hook = 'https://chat.example.com/hook'
    const { status } = await command([
      'init',
      'charging-alerts',
      folder,
      '--secret',
      'my own',
      '--set',
      `CHAT_WEBHOOK_URL=${hook}`,
    ])
    expect(status).toBe(0)
    expect(secretIn(folder)).toBe('my own')
    expect(readFileSync(join(folder, '.env'), 'utf8')).toContain(`CHAT_WEBHOOK_URL=${hook}`)
  })

  test('writes into a folder that is empty', async () => {
    const folder = join(scratch, 'empty')
    mkdirSync(folder)
    expect((await command(['init', 'node', folder, '--yes', '--name', 'receiver'])).status).toBe(0)
    expect(JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).name).toBe('receiver')
  })

  test('never overwrites: a folder that is not empty is left as it is', async () => {
    const folder = join(scratch, 'full')
    mkdirSync(folder)
    writeFileSync(join(folder, 'mine.txt'), 'mine')
    const { status, stderr } = await command(['init', 'node', folder])
    expect(status).toBe(2)
    expect(stderr).toContain('is not empty')
    expect(readdirSync(folder)).toEqual(['mine.txt'])
  })

  test.each([
    [['init'], 'Which template? One of bun, charging-alerts'],
    [['init', 'expres', 'x'], 'Did you mean express?'],
    [['init', 'node', 'x', '--set', 'nonsense'], 'NAME=value'],
    [['init', 'node', 'x', '--secret', ' blank '], 'blanks'],
  ])('%j is bad usage and writes nothing', async (args, told) => {
    const before = readdirSync(scratch)
    const { status, stderr } = await command(args)
    expect(status).toBe(2)
    expect(stderr).toContain(told)
    expect(readdirSync(scratch)).toEqual(before)
  })
})

test('fleethook openapi prints the document that is committed', async () => {
  const { status, stdout } = await command(['openapi'])
  expect(status).toBe(0)
  expect(JSON.parse(stdout)).toEqual(JSON.parse(readFileSync('docs/openapi.json', 'utf8')))
})
