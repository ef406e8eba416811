/* What is copied to a server lets strangers and the process itself do as little as possible. */
import { execFileSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { parse } from 'yaml'

const examples = join(import.meta.dirname, '../../examples')
const read = (path: string): string => readFileSync(join(examples, path), 'utf8')

test('each Compose file publishes its ports to this machine only, and the socket of systemd listens there', () => {
  const files = globSync('*/compose.yaml', { cwd: examples })
  const ports = files.flatMap((file) => {
    const { services }: { services: Record<string, { ports?: readonly string[] }> } = parse(read(file))
    return Object.values(services).flatMap((service) => service.ports ?? [])
  })
  expect(ports.length).toBeGreaterThan(6)
  expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([])
  expect(read('deploy/systemd/fleethook.socket')).toMatch(/^ListenStream=127\.0\.0\.1:3000$/m)
  for (const page of globSync('*/README.md', { cwd: examples })) expect(read(page)).not.toMatch(/ -p \d+:/)
})

const hasSystemd = ((): boolean => {
  try {
    return Number(/\d+/.exec(execFileSync('systemd-analyze', ['--version'], { encoding: 'utf8' }))?.[0]) >= 250
  } catch {
    return false
  }
})()

test.skipIf(!hasSystemd)('the service of systemd has an exposure below 3, and lets Node compile and write', () => {
  const unit = join(examples, 'deploy/systemd/fleethook.service')
  const said = execFileSync('systemd-analyze', ['security', '--offline=true', unit], { encoding: 'utf8' })
  expect(Number(/exposure level for \S+: ([\d.]+)/.exec(said)?.[1])).toBeLessThan(3)
  const settings = read('deploy/systemd/fleethook.service')
  expect(settings).not.toMatch(/^MemoryDenyWriteExecute=(yes|true)/m)
  expect(settings).toMatch(/^StateDirectory=fleethook$/m)
  expect(settings).toMatch(/^Environment=FLEETHOOK_INBOX=\/var\/lib\/fleethook\//m)
})
