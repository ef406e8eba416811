import { describe, expect, test } from 'vitest'
import { filled } from '../../adapters/cli/terminal.ts'
import { few } from '../form.ts'
import { command } from './command.ts'

const url = ['--url', 'http://127.0.0.1:9/']

describe('fleethook', () => {
  // A process for each of them, one after the other: on a machine that is busy that takes a while.
  test(
    'lists only commands that exist, and none takes a secret that other users could read in its arguments',
    { timeout: 180_000 },
    async () => {
      const { stdout } = await command(['--help'])
      const listed = [...stdout.slice(stdout.indexOf('Commands:')).matchAll(/^ {2}(\w+)/gm)].map(
        ([, name]) => name ?? '',
      )
      expect(listed.length).toBeGreaterThan(0)
      for (const name of listed) {
        const { status, stdout: help } = await command([name, '--help'])
        expect(status).toBe(0)
        expect(help).toMatch(new RegExp(`^Usage: fleethook ${name} \\[options\\]`))
        // The secrets of receivers on this machine, which have little to guard: to compare with, and under test.
        const others =
          /--auth <value> +the secret of the receiver at --to|--secret <value> +the secret of the receiver under/
        expect(help.replace(others, '')).not.toMatch(/--\S*(secret|token|password|key|auth)\S* [<[]/i)
      }
    },
  )

  test('--version prints the version of the package', async () => {
    const { default: manifest } = await import('../../package.json', { with: { type: 'json' } })
    expect(await command(['--version'])).toEqual({ status: 0, stdout: `${manifest.version}\n`, stderr: '' })
  })

  test('help and version are words too', async () => {
    expect((await command(['help'])).stdout).toMatch(/^Usage: fleethook <command>/)
    expect(await command(['help', 'dead', 'list'])).toEqual(await command(['dead', 'list', '--help']))
    expect(await command(['help', 'tial'])).toMatchObject({ status: 2, stderr: expect.stringContaining('mean tail?') })
    expect(await command(['version'])).toEqual(await command(['--version']))
  })

  test.each(few(['dead list', 'send', 'doctor', 'completion', 'run', 'tail', 'replay', 'init', 'move'], 3))(
    'the help of %s fits into 60 and 80 columns',
    async (words) => {
      const { stdout } = await command([...words.split(' '), '--help'])
      for (const width of [60, 80])
        for (const line of filled(stdout, width).split('\n')) expect(line.length).toBeLessThanOrEqual(width)
      expect(filled(stdout, 80)).toBe(stdout)
    },
  )

  test('a command that does not exist is bad usage, with the one that was meant', async () => {
    const { status, stderr } = await command(['sned'])
    expect(status).toBe(2)
    expect(stderr).toContain('Did you mean send?')
  })
})

describe('bad usage of fleethook send ends with status 2 and says what is wrong', () => {
  const wrong: readonly (readonly [args: readonly string[], said: string])[] = [
    [['send', ...url, '--format', 'xml'], 'vehicle_maker'],
    [['send', ...url, '--frmat', 'all'], '--format'],
    [['send', ...url, 'extra'], 'too many arguments'],
    [['send', '--url', 'localhost:3000'], 'http://'],
    [['send', '--url', 'ftp://localhost/'], 'http://'],
    [['send', ...url, '--topic', 'weather'], 'There is no topic "weather"'],
    [['send', ...url, '--vins', '0'], 'from 1 to'],
    [['send', ...url, '--vins', '2000000'], 'from 1 to 1000000'],
    [['send', ...url, '--rate', '-1'], 'number from'],
    [['send', ...url, '--rate', 'fast'], 'number from'],
    [['send', ...url, '--count', '1.5'], 'whole number'],
    [['send', ...url, '--seed', ''], 'whole number'],
  ]
  test.each(few(wrong, 3))('%j', async (args, said) => {
    const { status, stdout, stderr } = await command(args)
    expect(status).toBe(2)
    expect(stderr).toContain(said)
    expect(stdout).toBe('')
  })

  test.each([
    ['a line end at its end', 'topsecret\n'],
    ['a blank at its start', ' topsecret'],
    ['a character beyond ASCII', 'topsecrèt'],
  ])('a secret with %s, which is not printed', async (_flaw, secret) => {
    const given = await command(['send', ...url], { WEBHOOK_SECRET: secret })
    expect(given.status).toBe(2)
    expect(given.stderr).toContain('secret')
    expect(given.stdout + given.stderr).not.toContain(secret.trim())
  })
})

test('NO_COLOR wins over FORCE_COLOR, without a warning', async () => {
  const colored = await command(['send', '--url', 'http://127.0.0.1:9/', '-c', '1'], { FORCE_COLOR: '1' })
  const plain = await command(['send', '--url', 'http://127.0.0.1:9/', '-c', '1'], { FORCE_COLOR: '1', NO_COLOR: '1' })
  expect(colored.stdout + colored.stderr).toContain('\u001b[')
  expect(plain.stdout + plain.stderr).not.toContain('\u001b[')
  expect(plain.stderr).not.toMatch(/warning/i)
})
