import type { CallOptions, Client } from 'fleethook/client'
import { describe, expect, test } from 'vitest'
import { refusal, rejection, stub, vin } from './stub.ts'

const retry = { attempts: 3, minMs: 100, maxMs: 60_000 }

type Run = (client: Client, options: CallOptions) => Promise<unknown>
const config = { fields: { Gear: { interval_seconds: 1 } } }
const webhook = { url: 'https://receiver.example/', format: 'service' } as const

/** Every call of the client, and whether it may be retried. */
const calls: readonly (readonly [name: string, again: boolean, run: Run])[] = [
  ['webhook.set', true, ({ webhook: it }, options) => it.set(webhook, options)],
  ['webhook.get', true, ({ webhook: it }, options) => it.get(options)],
  ['webhook.delete', true, ({ webhook: it }, options) => it.delete(options)],
  ['defaultConfig.get', true, ({ defaultConfig }, options) => defaultConfig.get(options)],
  ['defaultConfig.set', true, ({ defaultConfig }, options) => defaultConfig.set(config, options)],
  ['config.get', true, (client, options) => client.config(vin).get(options)],
  ['config.patch', true, (client, options) => client.config(vin).patch(config, options)],
  ['config.replace', true, (client, options) => client.config(vin).replace(config, options)],
  ['config.stop', true, (client, options) => client.config(vin).stop(options)],
  ['products', true, (client, options) => client.products(options)],
  ['vehicle.summary', true, (client, options) => client.vehicle(vin).summary(options)],
  ['vehicle.data', true, (client, options) => client.vehicle(vin).data(options)],
  ['vehicle.chargeHistory', true, (client, options) => client.vehicle(vin).chargeHistory(options)],
  ['vehicle.image', true, (client, options) => client.vehicle(vin).image(options)],
  ['vehicle.get', true, (client, options) => client.vehicle(vin).get('drivers', options)],
  ['energySite.siteInfo', true, (client, options) => client.energySite(7).siteInfo(options)],
  ['energySite.liveStatus', true, (client, options) => client.energySite(7).liveStatus(options)],
  ['energySite.get', true, (client, options) => client.energySite(7).get('programs', options)],
  ['energySite.command', false, (client, options) => client.energySite(7).command('backup', {}, options)],
  ['command', false, (client, options) => client.command(vin, 'charge_start', {}, options)],
  ['wakeUp', false, (client, options) => client.wakeUp(vin, options)],
]

describe('every call', () => {
  test.each(calls)('%s is retried after 503: %s', async (_name, again, run) => {
    const { client, asked, clock } = stub(refusal(503, 'unavailable'), { retry })
    const error = rejection(run(client, {}))
    await clock.advance(1_000)
    expect(await error).toMatchObject({ status: 503 })
    expect(asked).toHaveLength(again ? retry.attempts : 1)
  })

  test.each(calls)('%s ends with the caller’s signal', async (_name, _again, run) => {
    const signals: AbortSignal[] = []
    const { client, clock } = stub((_asked, { signal }) => {
      if (signal) signals.push(signal)
      return new Promise(() => {})
    })
    const controller = new AbortController()
    const reason = new Error('enough')
    const error = rejection(run(client, { signal: controller.signal }))
    await clock.advance(0)
    controller.abort(reason)
    expect(await error).toBe(reason)
    expect(signals.map(({ aborted }) => aborted)).toEqual([true])
    expect(clock.timers()).toEqual([])
  })
})
