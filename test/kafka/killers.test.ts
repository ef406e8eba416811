/* A message whose handler ends its process, in a group in which every process that ends is started again. */
import { expect, test } from 'vitest'
import { kafkaInbox } from '../../adapters/inbox/kafka.ts'
import { createReceiver } from '../../src/index.ts'
import { form } from '../form.ts'
import { secret } from '../runtimes/targets.ts'
import { ofFile } from '../of-file.ts'
import { startBrokers } from './brokers.ts'
import { createFleet, type Fleet, nameOf } from './fleet.ts'

const brokers = ofFile(() => startBrokers())

const partitions = 6

interface Group extends AsyncDisposable {
  /** The number of processes that ended by themselves. */
  readonly deaths: () => number
}

/** Keeps this number of processes with handlers running. */
function supervise(fleet: Fleet, count: number): Group {
  let deaths = 0
  let isOver = false
  const keep = async (): Promise<void> => {
    while (!isOver) {
      const member = await fleet.start('handle')
      const { status } = await member.exited
      if (status === 7) deaths += 1
    }
  }
  const kept = Array.from({ length: count }, keep)
  return {
    deaths: () => deaths,
    async [Symbol.asyncDispose]() {
      isOver = true
      for (const member of fleet.members) if (member.role === 'handle') await member.stop()
      await Promise.all(kept)
    },
  }
}

async function post(fleet: Fleet, messages: readonly string[]): Promise<void> {
  const body = messages.map((text) => {
    const [vin, number] = text.split(' ')
    return JSON.stringify({ vin, createdAt: '2026-05-01T00:00:00Z', data: { Odometer: Number(number) } })
  })
  const headers = { authorization: secret }
  const answer = await fetch(fleet.url, { method: 'POST', headers, body: body.join('\n') })
  expect(answer.status).toBe(200)
}

async function lettersOf(topic: string): Promise<readonly string[]> {
  const inbox = kafkaInbox({ brokers: brokers.addresses, topic, partitions, role: 'receive' })
  const receiver = createReceiver({ secret: false, inbox })
  const letters = await Array.fromAsync(receiver.deadLetters.list())
  await receiver.drain()
  return letters.map(({ event, error }) => `${Object(event).vin} ${Object(event).raw?.data?.Odometer}: ${error}`)
}

const others = Array.from({ length: 12 }, (_, vin) => [1, 2, 3].map((number) => `V${vin} ${number}`)).flat()
const why = '3 processes ended while they handled it, and it may be the reason.'

test.each(
  [
    { what: 'at once, in one process', processes: 1, afterMs: 0, killers: ['kills-1'] },
    {
      what: 'for several vehicles, after others have begun',
      processes: 2,
      afterMs: 50,
      killers: ['kills-1', 'kills-2', 'kills-3'],
    },
  ].slice(0, form === 'long' ? 2 : 1),
)(
  'a message that ends its process three times is a dead letter, and no other one: $what',
  async ({ processes, afterMs, killers }) => {
    const settings = { handlerMs: 20, kills: { how: 'exit', afterMs } } as const
    await using fleet = await createFleet({
      brokers,
      partitions,
      settings,
      inbox: { sessionMs: 6_000, quiesceMs: 2_000 },
    })
    await fleet.start('receive')
    await using group = supervise(fleet, processes)
    const messages = [...killers.flatMap((vin) => [1, 2, 3].map((number) => `${vin} ${number}`)), ...others]
    await post(fleet, messages)
    const deadly = killers.map((vin) => `${vin} 2`)
    const missing = (): readonly string[] => {
      const runs = new Set(fleet.journal().runs.map(nameOf))
      return messages.filter((name) => !runs.has(name) && !deadly.includes(name))
    }
    await expect.poll(missing, { timeout: 150_000, interval: 200 }).toEqual([])
    expect((await lettersOf(fleet.topic)).toSorted()).toEqual(deadly.map((name) => `${name}: ${why}`))
    expect(group.deaths()).toBeLessThanOrEqual(3 * killers.length)
  },
)
