import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, statSync, writeFileSync } from 'node:fs'
import { execFileSync, spawnSync } from 'node:child_process'
import { join, relative } from 'node:path'
import { describe, expect, test } from 'vitest'
import { nextCommands, readTemplate, writeProject } from '../../adapters/cli/init.ts'
import { runtimePath } from '../../scripts/runtimes.ts'
import { command } from './command.ts'
import { newFolder } from '../folder.ts'

// The others are configuration to copy by hand.
const templates = readdirSync('examples').filter(
  (name) => existsSync(`examples/${name}/package.json`) || existsSync(`examples/${name}/deno.json`),
)
/** No request comes to these, so they have no secret. */
const withoutWebhook = ['own-server']
/** Where `send` must post when that is not its default. */
const sendTo: Readonly<Record<string, RegExp>> = {
  express: /--url http:\/\/localhost:3000\/telemetry /,
  fastify: /--url http:\/\/localhost:3000\/telemetry /,
  logbook: /send --count 20000 --rate 200 +#/,
  lambda: /--url https:\/\/\S+\.on\.aws /,
  nextjs: /--url http:\/\/localhost:3000\/telemetry /,
  workers: /--url http:\/\/localhost:8787 --dotenv \.dev\.vars /,
  'workers-durable': /--url http:\/\/localhost:8787 --dotenv \.dev\.vars /,
  'workers-storage': /--url http:\/\/localhost:8787\/telemetry --dotenv \.dev\.vars /,
}
const scratch = newFolder('init')

const secretIn = (folder: string): string => {
  const file = readdirSync(folder).includes('.dev.vars') ? '.dev.vars' : '.env'
  expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600)
  return /^WEBHOOK_SECRET=(.+)$/m.exec(readFileSync(join(folder, file), 'utf8'))?.[1] ?? ''
}

describe('fleethook init', () => {
  test.each(withoutWebhook)('copies %s, which nobody posts to, without a secret', async (name) => {
    const folder = join(scratch, `My ${name}`)
    const { status, stdout } = await command(['init', name, folder])
    expect(status).toBe(0)
    expect(secretIn(folder)).toBe('')
    expect(stdout).not.toContain('fleethook send')
    expect(JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).name).toBe(`my-${name}`)
  })

  test.each(templates.filter((name) => !withoutWebhook.includes(name)))(
    'copies %s, with a strong secret that it does not print, and says what to type next',
    async (name) => {
      const folder = join(scratch, `My ${name}`)
      const { status, stdout, stderr } = await command(['init', name, folder])
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
      const secret = secretIn(folder)
      expect(secret).toMatch(/^[0-9a-f]{64}$/)
      expect(stdout).not.toContain(secret)
      expect(stdout).toContain(`cd '${relative(process.cwd(), folder)}' && `)
      // These tests run in a checkout.
      expect(stdout).toMatch(
        / && npm pack \S+\n {2}npm install \.\/fleethook-[\d.]+\.tgz\n {2}(npm|bun|deno|docker) \w+/,
      )
      const send = /^ {2}((?:npx |bunx |deno run -A npm:)fleethook send.*)$/m.exec(stdout)?.[1]
      expect(send).toMatch(sendTo[name] ?? /send +#/)
      expect(readFileSync(join(folder, 'README.md'), 'utf8')).toContain(`\n${send}\n`)
      const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
      expect(manifest.name).toBe(`my-${name}`)
      expect(manifest.dependencies.fleethook).toMatch(/^\^\d+\.\d+\.\d+$/)
      expect(readFileSync(join(folder, '.gitignore'), 'utf8')).toBe(
        readFileSync(join('examples', name, '.gitignore'), 'utf8'),
      )
      const agents = readFileSync(join(folder, 'AGENTS.md'), 'utf8')
      expect(agents.trimEnd().split('\n')).toHaveLength(3)
      const named = /node_modules\/fleethook\/(\S+\/SKILL\.md)/
      expect(existsSync(named.exec(agents)?.[1] ?? '')).toBe(true)
      expect(stdout.trimEnd().split('\n').at(-1)).toMatch(named)
      expect(readFileSync(join(folder, 'README.md'), 'utf8')).toMatch(/^# \w.+\n[^]*```sh\n(?![^]*^cp )/)
    },
  )

  test.skipIf(process.platform === 'win32')(
    'what it prints can be pasted, whatever the name of the folder',
    async () => {
      for (const name of ['$(touch ran)', "it's `touch ran`", '-x', 'a"b; touch ran']) {
        const { stdout } = await command(['init', 'node', `./${name}`], {}, scratch)
        const cd = /^ {2}(cd .*) && npm pack/m.exec(stdout)?.[1] ?? ''
        expect(execFileSync('bash', ['-c', `${cd} && pwd`], { cwd: scratch, encoding: 'utf8' })).toBe(
          `${realpathSync(join(scratch, name))}\n`,
        )
      }
      expect(existsSync(join(scratch, 'ran'))).toBe(false)
    },
    180_000,
  )

  test.each(templates.filter((name) => !['bun', 'deno'].includes(name)))(
    '%s states the Node that it needs, and its tests fail on one that would run none of them',
    (name) => {
      const template = readTemplate(name)
      const { scripts, engines } = JSON.parse(template.files.get('package.json') ?? '')
      expect(engines.node).toMatch(/^>= ?22\.\d+/)
      const files = [...template.files.keys()].filter((path) => path.endsWith('.test.ts'))
      if (files.length > 0) expect(scripts.test).toContain('node --test "*.test.ts"')
    },
  )

  test('a Node that is too old ends the tests of a template with an error', () => {
    const { status } = spawnSync(runtimePath('node22.13'), ['--test', '*.test.ts'], { cwd: 'examples/workers' })
    expect(status).toBe(1)
  })

  test('names the registry, the tarball or the checkout to install from', () => {
    const template = readTemplate('bun')
    expect(nextCommands(template, '1.2.3').slice(0, 2)).toEqual(['bun install', 'bun start'])
    expect(nextCommands(template, '1.2.3', '/a b/fleethook-1.2.3.tgz').slice(0, 2)).toEqual([
      "npm install '/a b/fleethook-1.2.3.tgz'",
      'bun start',
    ])
    expect(nextCommands(template, '1.2.3', '/src/fleethook').slice(0, 3)).toEqual([
      'npm pack /src/fleethook',
      'npm install ./fleethook-1.2.3.tgz',
      'bun start',
    ])
  })

  test('makes every token that a template wants, each of its own', async () => {
    const folder = join(scratch, 'tokens')
    expect((await command(['init', 'workers-storage', folder])).status).toBe(0)
    const made = readFileSync(join(folder, '.dev.vars'), 'utf8').match(/[0-9a-f]{64}/g) ?? []
    expect(new Set(made).size).toBe(2)
  })

  test('keeps the value that a template has for a variable', async () => {
    const { stdout } = await command(['init', 'kafka', join(scratch, 'brokers')])
    expect(stdout).not.toContain('KAFKA_BROKERS')
    expect(readFileSync(join(scratch, 'brokers', '.env'), 'utf8')).toContain('\nKAFKA_BROKERS=localhost:9092\n')
  })

  test('says which variables are left to fill in', async () => {
    const { stdout } = await command(['init', 'charging-alerts', join(scratch, 'left')])
    expect(stdout).toContain('Add CHAT_WEBHOOK_URL there.')
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
    expect(() => writeProject({ template, folder, name: 'half', version: '1.0.0' })).toThrow('EEXIST')
    expect(existsSync(join(scratch, 'half'))).toBe(false)
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

  const wrong: readonly (readonly [args: readonly string[], said: string])[] = [
    [['init'], "missing required argument 'template'"],
    [['init', 'expres', 'x'], 'There is no template "expres". There are bun, charging-alerts'],
    [['init', 'expres', 'x'], 'Did you mean express?'],
  ]
  test.each(wrong)('%j is bad usage and writes nothing', async (args, said) => {
    const folder = join(scratch, 'never')
    const { status, stderr } = await command(args.map((arg) => (arg === 'x' ? folder : arg)))
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringContaining(said) })
    expect(existsSync(folder)).toBe(false)
  })
})

test('fleethook openapi prints the document that is committed', async () => {
  const { status, stdout } = await command(['openapi'])
  expect(status).toBe(0)
  expect(JSON.parse(stdout)).toEqual(JSON.parse(readFileSync('docs/openapi.json', 'utf8')))
})
