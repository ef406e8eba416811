import { test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { storedWorker } from './command.ts'
import type { Outcome } from './programs/conformance.ts'

const source = `
  export { FleethookInbox } from './conformance.ts'
  export default { fetch: (request, env) => env.FLEETHOOK_INBOX.get(env.FLEETHOOK_INBOX.idFromName('any')).fetch(request) }`

test("a Durable Object's inbox and its states of vehicles do what every inbox does, inside a real one", async ({
  expect,
}) => {
  using worker = await storedWorker(source)
  await using target = await spawnTarget(worker.commands.workerd)
  const outcomes: readonly Outcome[] = JSON.parse(await (await fetch(target.url)).text())
  expect(outcomes.filter(([, failure]) => failure !== null)).toEqual([])
  expect(outcomes.length).toBeGreaterThan(30)
})

test('a message that is handled costs two rows written, which is most of its price, and one more with the state of its vehicle or a branch', async ({
  expect,
}) => {
  using worker = await storedWorker(source)
  await using target = await spawnTarget(worker.commands.workerd)
  expect(await (await fetch(`${target.url}/rows`)).text()).toBe('2')
  expect(await (await fetch(`${target.url}/rows-with-vehicles`)).text()).toBe('3')
  expect(await (await fetch(`${target.url}/rows-with-branch`)).text()).toBe('3')
  expect(await (await fetch(`${target.url}/rows-with-branches`)).text()).toBe('9')
})

test('dead letters are kept within their bounds, and count when there is no room', async ({ expect }) => {
  using worker = await storedWorker(source)
  await using target = await spawnTarget(worker.commands.workerd)
  expect(JSON.parse(await (await fetch(`${target.url}/retention`)).text())).toEqual({
    // The first made room for the third, and the time of the second was over.
    dropped: [[0x018dd9c43fd5], [0x018dd9c43fd6]],
    letters: ['6', '7'],
    full: 'inbox_full',
    swept: ['7'],
  })
})
