import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { command } from '../cli/command.ts'
import { endpoint } from '../cli/endpoint.ts'
import { spawnTarget } from '../conformance/spawn.ts'
import { newFolder } from '../folder.ts'
import { secret, templateCommand } from './running.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const examples = join(root, 'examples')
const names = readdirSync(examples).filter((name) => existsSync(join(examples, name, 'package.json')))

test('the templates are the ones that the documentation names', () => {
  expect(names).toEqual([
    ...['bun', 'charging-alerts', 'charging-sessions', 'customer-rules', 'deno', 'express', 'fastify'],
    ...['geofence-alerts', 'kafka'],
    ...['lambda', 'logbook', 'nextjs', 'node', 'own-server', 'postgres', 'sqlite', 'trips', 'watchdog', 'workers'],
    ...['workers-durable', 'workers-storage'],
  ])
})

/** Templates that are an application, and not only a receiver. */
const applications = [
  ...['charging-alerts', 'charging-sessions', 'customer-rules', 'geofence-alerts', 'logbook', 'own-server', 'trips'],
  'watchdog',
]

test.each(names)(
  '%s shows its receiver in at most 40 lines, an application in fewer than 80, and lists typescript when it has a tsconfig',
  (name) => {
    const sources = committed(name).filter((path) => path.endsWith('.ts') && !/\.(test|d)\.ts$/.test(path))
    expect(sources.length).toBeGreaterThan(0)
    for (const path of sources)
      expect(
        readFileSync(join(examples, name, path), 'utf8')
          .trimEnd()
          .split('\n').length,
      ).toBeLessThanOrEqual(applications.includes(name) ? 79 : 40)
    const { devDependencies } = JSON.parse(readFileSync(join(examples, name, 'package.json'), 'utf8'))
    expect('typescript' in devDependencies).toBe(existsSync(join(examples, name, 'tsconfig.json')))
  },
)

const arrivals = 'the geofence template tells its chat about the vehicles of `fleethook send`'
test(arrivals, { timeout: 300_000 }, async () => {
  const posts: string[] = []
  await using chat = await endpoint(({ body }, response) => {
    posts.push(JSON.parse(body).text.replace(/ \(.*/, ''))
    response.end()
  })
  const inbox = join(newFolder('templates'), 'geofence.db')
  const env = { CHAT_WEBHOOK_URL: chat.url, FLEETHOOK_INBOX: inbox }
  // The rows of its page.
  const page = readFileSync(join(examples, 'geofence-alerts/README.md'), 'utf8')
  const { openAreas }: { openAreas: (path: string) => DatabaseSync } = await import(
    join(examples, 'geofence-alerts/areas.ts')
  )
  const db = openAreas(`${inbox}-areas`)
  for (const [statement] of page.matchAll(/^INSERT OR REPLACE .*?;/gm)) db.exec(statement)
  db.close()
  await using server = await spawnTarget(templateCommand('geofence-alerts', env))
  const hasPosted = chat.received(2)
  // As many messages as `send` posts in eight seconds.
  const sent = await command(['send', '--url', server.url, '-c', '800', '-r', '2000'], { WEBHOOK_SECRET: secret })
  expect(sent).toMatchObject({ status: 0 })
  await hasPosted
  expect(posts.slice(0, 2)).toEqual(['c-12: 0FLXEETVXT0000003 left home', 'c-12: 0FLXEETVXT0000003 arrived at work'])
})

/** The files of a template in the repository, and not what a run has left there. */
function committed(name: string): readonly string[] {
  const left =
    /(^|\/)(node_modules|dist|\.next|\.wrangler|next-env\.d\.ts|\.env|\.dev\.vars|package-lock\.json)(\/|$)|\.db/
  return readdirSync(join(examples, name), { recursive: true, encoding: 'utf8' }).filter((path) => !left.test(path))
}
