import { createClient, type StreamingConfig } from 'fleethook/client'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { json, rejection, stub, vin } from './stub.ts'

const fields = { BatteryLevel: { interval_seconds: 60, minimum_delta: 1 }, Gear: { interval_seconds: 1 } } as const
const config = { fields }

describe('config(vin)', () => {
  test('get returns the config with or without a wrapper, and keeps unknown members', async () => {
    const { client, lines } = stub([json({ fields, prefer_typed: true }), json({ response: { fields } })])
    expect(await client.config(vin).get()).toEqual({ fields, prefer_typed: true })
    expect(await client.config(vin).get()).toEqual({ fields })
    expect(lines()).toEqual(Array(2).fill(`GET /api/config/${vin}`))
  })

  test('a setting that is stored as null or as {} is read as null, so that the config can be sent again', async () => {
    const { client, asked } = stub(
      json({ fields: { BatteryLevel: {}, Gear: null, Soc: { interval_seconds: 5, more: 1 } } }),
    )
    const config = await client.config(vin).get()
    expect(config).toEqual({ fields: { BatteryLevel: null, Gear: null, Soc: { interval_seconds: 5, more: 1 } } })
    await client.config(vin).replace(config)
    expect(asked[1]?.body).toEqual(config)
  })

  test('a stored setting of another shape is answer_unreadable', async () => {
    for (const setting of [{ minimum_delta: 1 }, { interval_seconds: 'often' }, 5, []]) {
      const { client } = stub(json({ fields: { BatteryLevel: setting } }))
      expect(await rejection(client.config(vin).get())).toMatchObject({ code: 'answer_unreadable' })
    }
  })
})

describe('ignoredFields', () => {
  test.each([
    [{ ignoredFields: ['Gaer'] }],
    [{ response: { ignoredFields: ['Gaer'] } }],
    [{ response: { updated_vehicles: 1 }, ignoredFields: ['Gaer'] }],
  ])('are found wherever the answer has them, and logged as a warning: %j', async (body) => {
    const { client, log } = stub(json(body))
    expect((await client.config(vin).patch(config)).ignoredFields).toEqual(['Gaer'])
    expect(log.lines).toHaveLength(1)
    expect(log.lines[0]).toMatch(/^warn .*\["Gaer"\]/)
  })

  test.each([[{ ignoredFields: [] }], [{ updated_vehicles: 1 }], [{}], [{ response: true }], [null]])(
    'are empty, and nothing is logged, when the answer is %j',
    async (body) => {
      const { client, log } = stub(json(body))
      expect((await client.config(vin).patch(config)).ignoredFields).toEqual([])
      expect(log.lines).toEqual([])
    },
  )

  test('a log that throws does not fail the call', async () => {
    const shout = (): never => {
      throw new Error('no room on the disk')
    }
    const log = { debug: shout, info: shout, warn: shout, error: shout }
    const { client } = stub(json({ ignoredFields: ['Gaer'] }), { log })
    expect((await client.config(vin).patch(config)).ignoredFields).toEqual(['Gaer'])
  })
})

describe('updatedVehicles', () => {
  const skipped = { missing_key: [vin], max_configs: [] }

  test.each([
    [{ updated_vehicles: 0, skipped_vehicles: skipped }],
    [{ response: { updated_vehicles: 0, skipped_vehicles: skipped } }],
    [{ response: { updated_vehicles: 0 }, skipped_vehicles: skipped }],
  ])('of 0 is logged with the reasons, wherever the answer has them: %j', async (body) => {
    for (const change of ['patch', 'replace', 'stop'] as const) {
      const { client, log } = stub(json(body))
      const result = await (change === 'stop' ? client.config(vin).stop() : client.config(vin)[change](config))
      expect(result).toMatchObject({ updatedVehicles: 0, skipped })
      expect(log.lines).toEqual([expect.stringMatching(/^warn .*no vehicle.*missing_key/)])
    }
  })

  test('is undefined when the answer does not have it, and members that the client does not know are kept', async () => {
    const { client, log } = stub(json({ fields, updated_vehicles: 'all', more: 1 }))
    const result = { fields, more: 1, ignoredFields: [], updatedVehicles: undefined, skipped: {} }
    expect(await client.config(vin).patch(config)).toMatchObject(result)
    expect(log.lines).toEqual([])
  })
})

describe('a setting that the service would refuse is refused before it is sent', () => {
  test.each([
    [{}, 'interval_seconds'],
    [{ interval_seconds: 0 }, 'interval_seconds'],
    [{ interval_seconds: 1.5 }, 'interval_seconds'],
    [{ interval_seconds: '5' }, 'interval_seconds'],
    [{ interval_seconds: 5, minimum_delta: -1 }, 'minimum_delta'],
    [{ interval_seconds: 5, minimum_delta: Number.NaN }, 'minimum_delta'],
    [{ interval_seconds: 5, resend_interval_seconds: 0 }, 'resend_interval_seconds'],
    [5, 'BatteryLevel'],
    [[], 'BatteryLevel'],
  ])('%j', async (setting, said) => {
    const { client, asked } = stub(json({}))
    const error = await rejection(client.config(vin).patch({ fields: { BatteryLevel: setting } } as never))
    expect(error).toMatchObject({ code: 'invalid_request' })
    expect(String(error)).toContain(said)
    expect(asked).toEqual([])
  })

  test('a config without fields', async () => {
    const { client } = stub(json({}))
    expect(await rejection(client.config(vin).replace({} as never))).toMatchObject({ code: 'invalid_request' })
  })
})

describe('types', () => {
  const { client } = stub(json({}))
  type Settings = Parameters<ReturnType<typeof client.config>['patch']>[0]['fields']

  test('an editor completes the names of the catalogue', () => {
    expectTypeOf<'BatteryLevel' | 'Gear' | 'Location'>().toExtend<keyof Settings>()
    expectTypeOf<string>().not.toExtend<keyof Settings>()
  })

  test('a setting has what its field can have', () => {
    const good: Settings = {
      BatteryLevel: { interval_seconds: 1, minimum_delta: 0.5, resend_interval_seconds: 60 },
      Location: { interval_seconds: 1, minimum_delta: 10 },
      Locked: { interval_seconds: 1 },
      Gear: null,
    }
    expect(good).toBeDefined()
    // @ts-expect-error: no interval
    const noInterval: Settings = { BatteryLevel: { minimum_delta: 1 } }
    // @ts-expect-error: the interval is a text
    const text: Settings = { BatteryLevel: { interval_seconds: '1' } }
    // @ts-expect-error: `interval` is not a member of a setting
    const named: Settings = { BatteryLevel: { interval_seconds: 1, interval: 1 } }
    // @ts-expect-error: a boolean has no delta
    const delta: Settings = { Locked: { interval_seconds: 1, minimum_delta: 1 } }
    // @ts-expect-error: an enum has no delta
    const ofList: Settings = { Gear: { interval_seconds: 1, minimum_delta: 1 } }
    // @ts-expect-error: a number is not a setting
    const bare: Settings = { BatteryLevel: 5 }
    expect([noInterval, text, named, delta, ofList, bare]).toHaveLength(6)
  })

  test('a misspelled field is a type error in patch, replace and the default config', () => {
    const interval = { interval_seconds: 60 }
    const calls = (): unknown => [
      // @ts-expect-error: BatteryLevel
      client.config(vin).patch({ fields: { BateryLevel: interval } }),
      // @ts-expect-error: BatteryLevel, beside a field that exists
      client.config(vin).patch({ fields: { Location: interval, BateryLevel: interval } }),
      // @ts-expect-error: BatteryLevel
      client.config(vin).replace({ fields: { BateryLevel: interval } }),
      // @ts-expect-error: BatteryLevel
      client.defaultConfig.set({ fields: { BateryLevel: interval } }),
      // @ts-expect-error: BatteryLevel
      { fields: { BateryLevel: interval } } satisfies StreamingConfig,
    ]
    expect(calls).toBeTypeOf('function')
  })

  test('your own fields are typed too, in configs and in events', () => {
    const own = createClient({
      baseUrl: 'https://service.example',
      apiKey: 'key',
      fields: { Mood: { enum: ['Good', 'Bad'] } },
    })
    type Own = Parameters<ReturnType<typeof own.config>['patch']>[0]['fields']
    const good: Own = { Mood: { interval_seconds: 1 }, BatteryLevel: { interval_seconds: 1 } }
    // @ts-expect-error: an enum has no delta
    const delta: Own = { Mood: { interval_seconds: 1, minimum_delta: 1 } }
    // @ts-expect-error: Mood
    const misspelled: Own = { Mod: { interval_seconds: 1 } }
    expect([good, delta, misspelled]).toHaveLength(3)
    type Event = ReturnType<typeof own.stream> extends AsyncIterable<infer Each> ? Each : never
    expectTypeOf<Extract<Event, { topic: 'data' }>['data']['Mood']>().toEqualTypeOf<'Good' | 'Bad' | null | undefined>()
  })
})
