import { join } from 'node:path'
import { createReceiver, type Log } from 'fleethook'
import { branch } from 'fleethook/branch'
import { inspectorRoutes } from 'fleethook/inspector'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { metricsText } from 'fleethook/metrics'
import { operatorRoutes } from 'fleethook/operator'
import { expect, onTestFinished, test } from 'vitest'
import { Operator } from '../../adapters/cli/operator.ts'
import { start } from '../cli/command.ts'
import { soon } from './soon.ts'
import { data } from '../dispatch/scene.ts'
import { silent } from '../vehicles/scene.ts'
import { newFolder } from '../folder.ts'

const secret = 'a-secret-of-the-operator'

async function aReceiver(): Promise<ReturnType<typeof createReceiver>> {
  const receiver = createReceiver({ secret: false, log: silent })
  branch(receiver, { name: 'crm', retry: { attempts: 1 } }).on('data', function update({ vin }) {
    if (vin === 'B') throw new Error('the CRM does not know it')
  })
  return receiver
}

test('operators ask a branch in the words that they use for its receiver', async () => {
  const receiver = await aReceiver()
  const app = operatorRoutes(receiver, { secret })
  const ask = async (path: string, body?: object): Promise<[number, unknown]> => {
    const method = body === undefined ? 'GET' : 'POST'
    const answer = await app.request(path, {
      method,
      headers: { authorization: secret },
      body: body === undefined ? null : JSON.stringify(body),
    })
    return [answer.status, await answer.json()]
  }
  for (const vin of ['A', 'B']) await receiver.accept({ authorization: undefined, body: data(vin, 1) })
  await soon(() => expect(receiver.stats().branches?.['crm']).toMatchObject({ handled: 1, deadLettered: 1 }))
  expect(await ask('/about')).toMatchObject([200, { branches: ['crm'] }])
  // One answer over everything.
  const [, all] = await ask('/dead')
  expect(all).toMatchObject({ letters: [{ vin: 'B', branch: 'crm' }], next: null })
  expect(await ask('/branches/crm/dead')).toMatchObject([200, { letters: [{ vin: 'B', attempts: 1 }] }])
  expect(await ask('/branches/crm/stats')).toMatchObject([200, { received: 2, handled: 1, deadLettered: 1 }])
  expect(await ask('/branches/crm/failing')).toMatchObject([200, { messages: 0 }])
  expect(await ask('/branches/crm/about')).toMatchObject([200, { receiver: true }])
  expect(await ask('/stats')).toMatchObject([200, { branches: { crm: { received: 2, deadLettered: 1 } } }])
  expect(await ask('/branches/crm/vehicles/A%2FB')).toMatchObject([400, { error: 'option_invalid' }])
  expect(await ask('/branches/crm/dead/discard', {})).toEqual([200, { messages: 1 }])
  expect(await ask('/branches/other/dead')).toMatchObject([
    404,
    { text: expect.stringContaining('its branches are crm') },
  ])
  expect((await app.request('/branches/crm/stats')).status).toBe(401)
})

test('a vehicle is erased on the branches too, also by a command that reaches the receiver through its file', async () => {
  const folder = newFolder('forget')
  const place = (name: string): string => join(folder, `${name}.db`)
  const receiver = createReceiver({ secret: false, log: silent, inbox: sqliteInbox({ path: place('inbox') }) })
  const crm = branch(receiver, { name: 'crm' }).on('data', () => {})
  await receiver.open()
  await receiver.accept({ authorization: undefined, body: data('A', 1) })
  await soon(() => expect(crm.stats().handled).toBe(1))
  const past = { from: new Date(0), to: new Date(Date.now() + 60_000), dryRun: true }
  await soon(async () => expect(await crm.replay(past)).toBe(1))
  const operator = new Operator({ inbox: place('inbox') })
  await operator.ask('POST', '/forget', { vin: 'A' })
  expect(await crm.replay(past)).toBe(0)
  await receiver.drain()
})

test('what fails and what is dead is one answer over the receiver and its branches, and each row says whose it is', async () => {
  const path = join(newFolder('everywhere'), 'inbox.db')
  const receiver = createReceiver({ secret: false, log: silent, inbox: sqliteInbox({ path }) })
  const no = (): never => {
    throw new Error('no')
  }
  const retry = { minMs: 3_600_000, maxMs: 3_600_000 }
  branch(receiver, { name: 'crm', retry }).on('data', { vins: ['A'] }, function update() {
    no()
  })
  const dead = branch(receiver, { name: 'staging', retry: { attempts: 1 } }).on('data', no)
  await receiver.open()
  onTestFinished(async () => void (await receiver.drain()))
  const command = async (...args: string[]): Promise<{ readonly status: number | null; readonly out: string }> => {
    const { child, ended } = start([...args, '--inbox', path])
    let out = ''
    child.stdout?.on('data', (text) => (out += String(text)))
    const { status } = await ended
    return { status, out }
  }
  expect(await command('failing')).toEqual({ status: 0, out: 'Nothing fails now.\n' })
  await receiver.accept({ authorization: undefined, body: [data('A', 1), data('B', 2)] })
  await soon(() =>
    expect(receiver.stats().branches).toMatchObject({
      crm: { failing: { messages: 1 } },
      staging: { deadLettered: 2 },
    }),
  )
  const failing = await command('failing')
  expect(failing.out).toMatch(/the handler is update of the branch crm\.[^]*WHERE +HANDLER[^]*\ncrm +update +1 +1 /)
  // For a script that calls somebody.
  expect(failing.status).toBe(1)
  expect((await command('failing', '--branch', 'staging')).out).toBe('Nothing fails now.\n')
  const list = await command('dead', 'list')
  expect(list.out).toMatch(/^WHERE[^]*\nstaging [^]*\nstaging /)
  expect(list.status).toBe(0)
  const pages = await command('dead', 'list', '--limit', '1', '--json')
  const { letters, next } = JSON.parse(pages.out) as {
    letters: readonly { id: string; branch: string }[]
    next: string
  }
  expect(letters).toMatchObject([{ branch: 'staging', id: next }])
  expect((await command('dead', 'show', next)).out).toMatch(/branch +staging/)
  expect((await command('dead', 'discard', next)).status).toBe(0)
  expect(await dead.deadLetters.get(next)).toBeUndefined()
})

test('the feed of a branch says what happens there', async () => {
  const receiver = await aReceiver()
  const app = operatorRoutes(receiver, { secret })
  const { body } = await app.request('/branches/crm/feed', { headers: { authorization: secret } })
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader()
  await receiver.accept({ authorization: undefined, body: data('B', 1) })
  let text = ''
  while (!text.includes('"kind":"dead"')) text += (await reader?.read())?.value ?? ''
  expect(text).toContain('the CRM does not know it')
  await reader?.cancel()
})

test('metrics of a branch have its name, below one name and help each', async () => {
  const receiver = await aReceiver()
  metricsText(receiver)
  for (const vin of ['A', 'B']) await receiver.accept({ authorization: undefined, body: data(vin, 1) })
  await soon(() => expect(receiver.stats().branches?.['crm']?.deadLettered).toBe(1))
  const lines = metricsText(receiver).split('\n')
  expect(lines).toContain('fleethook_messages_settled_total{fleethook_outcome="handled"} 2')
  expect(lines).toContain('fleethook_messages_settled_total{fleethook_outcome="dead",fleethook_branch="crm"} 1')
  expect(lines).toContain('fleethook_dead_letters{fleethook_branch="crm"} 1')
  expect(
    lines.some((line) =>
      /^fleethook_handler_duration_seconds_count\{.*"update",fleethook_branch="crm"\} 2$/.test(line),
    ),
  ).toBe(true)
  const helps = lines.filter((line) => line.startsWith('# HELP'))
  expect(new Set(helps).size).toBe(helps.length)
})

test('the page of a branch is at an address of its own', async () => {
  const receiver = await aReceiver()
  const app = inspectorRoutes(receiver, { secret })
  const page = await app.request('/branches/crm/')
  expect(page.status).toBe(200)
  expect(await page.text()).toContain('assets/')
  expect((await app.request('/branches/crm/about')).status).toBe(401)
})

test('the page that the command shows of a branch says which one it is', async () => {
  const folder = newFolder('inspect')
  const path = join(folder, 'inbox.db')
  const receiver = createReceiver({ secret: false, log: silent, inbox: sqliteInbox({ path }) })
  branch(receiver, { name: 'crm' })
  await receiver.open()
  onTestFinished(async () => void (await receiver.drain()))
  const { child, ended } = start(['inspect', '--inbox', path, '--branch', 'crm'])
  onTestFinished(async () => {
    child.kill('SIGTERM')
    await ended
  })
  let said = ''
  child.stdout?.on('data', (text) => (said += String(text)))
  await soon(() => expect(said).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/branches\/crm\/#secret=[\w-]{24}\n$/))
  const page = new URL(said.trim())
  expect((await fetch(page)).headers.get('content-type')).toContain('text/html')
  const asked = await fetch(new URL('stats', page), { headers: { authorization: page.hash.slice('#secret='.length) } })
  expect(await asked.json()).toMatchObject({ received: 0 })
})

test('the log says how to look at a dead letter of a branch', async () => {
  const folder = newFolder('branch')
  const lines: string[] = []
  const log: Log = { ...silent, error: (text, details) => void lines.push(`${text} ${JSON.stringify(details)}`) }
  const inMemory = createReceiver({ secret: false, log })
  const inFile = createReceiver({ secret: false, log, inbox: sqliteInbox({ path: join(folder, 'inbox.db') }) })
  for (const [name, receiver] of Object.entries({ crm: inMemory, staging: inFile })) {
    branch(receiver, { name, retry: { attempts: 1 } }).on('data', () => {
      throw new Error('no')
    })
    await receiver.accept({ authorization: undefined, body: data('A', 1) })
  }
  await soon(() =>
    expect(lines.join('\n')).toMatch(/receiver\.branches\.get\('crm'\)\.deadLetters\.get\('[\da-f-]{36}'\)/),
  )
  await soon(() => expect(lines.join('\n')).toMatch(/fleethook dead show [\da-f-]{36} --branch staging/))
  await Promise.all([inMemory.drain(), inFile.drain()])
})
