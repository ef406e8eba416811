import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { execFileSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { nodeNeeded, readTemplate, writeProject } from '../../adapters/cli/project.ts'
import { runtimePath } from '../../scripts/runtimes.ts'
import { few } from '../form.ts'
import { command } from './command.ts'

// The others are configuration to copy by hand.
const templates = readdirSync('examples').filter(
  (name) => existsSync(`examples/${name}/package.json`) || existsSync(`examples/${name}/deno.json`),
)
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
  test.each(few(templates, 4))(
    'copies %s, with a strong secret that it does not print, and says what to type next',
    async (name) => {
      const folder = join(scratch, `My ${name}`)
      const { status, stdout, stderr } = await command(['init', name, folder])
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
      const secret = secretIn(folder)
      expect(secret).toMatch(/^[0-9a-f]{64}$/)
      expect(stdout).not.toContain(secret)
      expect(stdout).toContain(`cd "${relative(process.cwd(), folder)}" && `)
      expect(stdout).toMatch(/(npm|bun|deno) install\n {2}(npm|bun|deno) \w+/)
      const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
      expect(manifest.name).toBe(`my-${name}`)
      expect(manifest.dependencies.fleethook).toMatch(/^\^\d+\.\d+\.\d+$/)
      expect(readFileSync(join(folder, '.gitignore'), 'utf8')).toBe(
        readFileSync(join('examples', name, '.gitignore'), 'utf8'),
      )
      expect(readFileSync(join(folder, 'README.md'), 'utf8')).toMatch(/^# \w.+\n[^]*```sh\n(?![^]*^cp )/m)
    },
  )

  test.each([
    [
      'node',
      '22.17.1',
      'This template needs Node 22.18 or newer, and this is 22.17.1. Install a newer Node before the next step.',
    ],
    ['node', '20.20.2', expect.stringContaining('this is 20.20.2')],
    ['node', '22.18.0', undefined],
    ['node', '24.0.0', undefined],
    ['bun', '20.20.2', undefined],
  ])('with the template %s on Node %s warns when Node is too old', (name, version, said) => {
    expect(nodeNeeded(readTemplate(name), version)).toEqual(said)
  })

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
    expect(secretIn(folder)).toBe("'my own'")
    expect(readFileSync(join(folder, '.env'), 'utf8')).toContain(`CHAT_WEBHOOK_URL=${hook}`)
  })

  test('makes every token that a template wants, each of its own', async () => {
    const folder = join(scratch, 'tokens')
    expect((await command(['init', 'workers-storage', folder])).status).toBe(0)
    const made = readFileSync(join(folder, '.dev.vars'), 'utf8').match(/[0-9a-f]{64}/g) ?? []
    expect(new Set(made).size).toBe(2)
  })

  test('says which variables are left to fill in', async () => {
    const { stdout } = await command(['init', 'charging-alerts', join(scratch, 'left')])
    expect(stdout).toContain('Add CHAT_WEBHOOK_URL there.')
  })

  test.each(few([`it's`, `back\\slash\\n`, `plain+/=`, `un#quoted`, `two words`, `a "b" c`]))(
    'writes %s so that Node, Bun and Deno read it back from .env as it was',
    async (secret) => {
      const folder = join(scratch, `quoted ${Buffer.from(secret).toString('hex')}`)
      expect((await command(['init', 'node', folder, '--secret', secret])).status).toBe(0)
      writeFileSync(
        join(folder, 'print.mjs'),
        'console.log(JSON.stringify((await import("node:process")).env.WEBHOOK_SECRET))',
      )
      for (const [runtime, args] of [
        [process.execPath, ['--env-file=.env']],
        [runtimePath('bun'), []],
        [runtimePath('deno'), ['run', '--allow-all', '--env-file']],
      ] as const) {
        const { WEBHOOK_SECRET: _, ...env } = process.env
        const printed = execFileSync(runtime, [...args, 'print.mjs'], {
          cwd: folder,
          env,
          encoding: 'utf8',
          stdio: 'pipe',
        })
        expect(JSON.parse(printed)).toBe(secret)
      }
    },
  )

  test('leaves nothing behind when it cannot write', async () => {
    writeFileSync(join(scratch, 'a-file'), '')
    const { status, stderr } = await command(['init', 'node', join(scratch, 'a-file', 'below')])
    expect(status).toBe(2)
    expect(stderr).toContain('Nothing was written')
    expect(stderr).not.toContain('    at ')
  })

  test('leaves nothing behind when it fails half-way', () => {
    const folder = join(scratch, 'half', 'way')
    const template = {
      ...readTemplate('node'),
      files: new Map([
        ['a', 'a file'],
        ['a/b', 'below a file'],
      ]),
    }
    expect(() => writeProject({ template, folder, name: 'half', version: '1.0.0', variables: {} })).toThrow('EEXIST')
    expect(existsSync(join(scratch, 'half'))).toBe(false)
  })

  // `script` runs a command on a terminal. The one of Linux takes the command as an option.
  test.runIf(process.platform === 'linux')(
    'on a terminal asks nothing when template and folder are given, or with -y',
    () => {
      const main = fileURLToPath(new URL('../../adapters/cli/main.ts', import.meta.url))
      const init = (args: string): string =>
        execFileSync('script', ['-qec', `"${process.execPath}" "${main}" init ${args}`, '/dev/null'], {
          cwd: scratch,
          encoding: 'utf8',
          stdio: 'pipe',
          // The next line of what somebody pasted.
          input: 'npm install\n',
        })
      expect(init('node on-a-terminal')).toContain('written to on-a-terminal')
      expect(secretIn(join(scratch, 'on-a-terminal'))).toMatch(/^[0-9a-f]{64}$/)
      expect(init('-y')).toContain('A receiver on Node: written to node')
    },
  )

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

  const wrong: readonly (readonly [args: readonly string[], told: string])[] = [
    [['init'], 'Name a template: bun, charging-alerts'],
    [['init', 'expres', 'x'], 'Did you mean express?'],
    [['init', 'node', 'x', '--set', 'nonsense'], 'NAME=value'],
    [['init', 'node', 'x', '--secret', ' blank '], 'white space'],
    [['init', 'node', 'x', '--secret', 'do$llar'], 'write it there yourself'],
    [['init', 'node', 'x', '--set', 'WEBHOOK_SECRET='], 'The secret is empty'],
    [['init', 'node', 'x', '--set', 'NOBODY=reads'], 'reads no variable NOBODY'],
    [['init', 'node', 'x', '--name', 'My App'], 'cannot be the name of a package'],
  ]
  test.each(few(wrong, 3))('%j is bad usage and writes nothing', async (args, told) => {
    const folder = join(scratch, 'never')
    const { status, stderr } = await command(args.map((arg) => (arg === 'x' ? folder : arg)))
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringContaining(told) })
    expect(stderr).not.toContain('do$llar')
    expect(existsSync(folder)).toBe(false)
  })
})

test('fleethook openapi prints the document that is committed', async () => {
  const { status, stdout } = await command(['openapi'])
  expect(status).toBe(0)
  expect(JSON.parse(stdout)).toEqual(JSON.parse(readFileSync('docs/openapi.json', 'utf8')))
})
