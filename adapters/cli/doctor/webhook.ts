import { existsSync, statSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { vinsOf } from '../../../src/service/client/products.ts'
import { ServiceError } from '../../../src/service/client/service-error.ts'
import { codeOf } from '../exchange.ts'
import { type Circumstances, fail, type Finding, ok, okIf, skip, warn } from './check.ts'

const noService = 'SERVICE_URL and SERVICE_API_KEY are not set'
/** The most vehicles whose configs are read one by one. */
const mostConfigs = 25

/** Checks what the service knows about this business: its webhook, and which vehicles stream. */
export async function* checkWebhook(circumstances: Circumstances): AsyncIterable<Finding> {
  const { client, url, envFile, signal } = circumstances
  if (client === undefined) {
    yield skip('webhook.set', noService)
    return
  }
  try {
    const webhook = await client.webhook.get({ signal })
    yield ok('webhook.set', webhook.url)
    yield okIf(webhook.enabled, 'webhook.enabled', 'messages are delivered').orFail(
      'The webhook is paused: no message is delivered.',
      'Run fleethook webhook set without --paused.',
    )
    if (url !== undefined)
      yield okIf(sameAddress(webhook.url, url.href), 'webhook.url', 'the same as --url').orFail(
        `The service posts to ${webhook.url}, and --url is ${url.href}.`,
        `fleethook webhook set --url ${url.href}`,
      )
    yield okIf(webhook.auth, 'webhook.auth', 'set').orFail(
      'The service sends no Authorization header. A receiver with a secret refuses every message.',
      'Run fleethook webhook set without --no-auth.',
    )
    yield okIf(webhook.verify, 'webhook.verify', 'the service checks the certificate').orWarn(
      'The service does not check the certificate of the webhook.',
      'Run fleethook webhook set without --no-verify.',
    )
    const updatedAt = Date.parse(webhook.updated_at)
    const savedAt = existsSync(envFile) ? statSync(envFile).mtimeMs : Number.NaN
    if (updatedAt < savedAt - 1_000)
      yield warn(
        'webhook.rotation',
        `${envFile} was changed after the webhook was set (${webhook.updated_at}). Was the secret rotated on one side only?`,
        'Run fleethook webhook set. It sends the secret of the file.',
      )
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    yield error.code === 'webhook_not_found'
      ? fail(
          'webhook.set',
          'The business has no webhook, so the service posts nothing.',
          'fleethook webhook set --url <url>',
        )
      : fail(
          'webhook.set',
          `The service answered: ${error.message}`,
          error.hint ?? 'Check SERVICE_URL and SERVICE_API_KEY.',
        )
    return
  }
  yield* checkConfigs(circumstances)
}

const sameAddress = (one: string, other: string): boolean =>
  URL.canParse(one) && new URL(one).href.replace(/\/$/, '') === other.replace(/\/$/, '')

/** Finds shared vehicles without a config, which stream nothing. */
async function* checkConfigs({ client, signal, vin }: Circumstances): AsyncIterable<Finding> {
  if (client === undefined) return
  const shared = vinsOf(await client.products({ signal }))
  if (shared.length === 0) {
    yield fail('webhook.vehicles', 'No customer shares a vehicle with the business.', 'Ask a customer to share one.')
    return
  }
  const asked = vin === undefined ? shared.slice(0, mostConfigs) : [vin]
  const without: string[] = []
  for (const each of asked) {
    try {
      const { fields } = await client.config(each).get({ signal })
      if (Object.keys(fields).length === 0) without.push(each)
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error
      if (error.code !== 'config_not_found') {
        yield fail(
          'webhook.vehicles',
          `The config of ${each} cannot be read: ${error.message}`,
          error.hint ?? 'Try again later.',
        )
        return
      }
      without.push(each)
    }
  }
  const some = asked.length < shared.length ? ` (the first ${asked.length} of ${shared.length})` : ''
  yield okIf(
    without.length === 0,
    'webhook.vehicles',
    `${asked.length} vehicles have a streaming config${some}`,
  ).orFail(
    `${without.length} of ${asked.length} vehicles${some} have no streaming config, so they send no data: ${without.slice(0, 3).join(', ')}${without.length > 3 ? ', …' : ''}`,
    `fleethook config patch ${without[0]} BatteryLevel=60`,
  )
}

/** How long a message may take from the vehicle to the receiver, in milliseconds. */
const longestMs = 60_000

/** Reads a vehicle through the service, and waits for its message at the receiver. */
export async function* checkEndToEnd({ client, vin, ask, signal }: Circumstances): AsyncIterable<Finding> {
  if (vin === undefined) return
  if (client === undefined) {
    yield skip('end-to-end.message', noService)
    return
  }
  const received = async (): Promise<number> => {
    const stats = await ask('GET', '/stats')
    return numberAt(stats, 'topics', 'vehicle_data')
  }
  try {
    const before = await received()
    await client.vehicle(vin).data({ signal })
    const until = Date.now() + longestMs
    while (Date.now() < until) {
      if ((await received()) > before) {
        yield ok('end-to-end.message', `a vehicle_data message arrived after the service read ${vin}`)
        return
      }
      await sleep(500, undefined, { signal })
    }
    yield warn(
      'end-to-end.message',
      `The service read ${vin}, and no vehicle_data message arrived within ${longestMs / 1_000} s. The specification names the topic, not what makes the service send it.`,
      'Look at the other groups. If they passed, wait for a message from the vehicle with fleethook tail.',
    )
  } catch (error) {
    yield fail(
      'end-to-end.message',
      error instanceof Error && 'hint' in error ? error.message : `It failed with ${codeOf(error)}.`,
      'Run the other groups first.',
    )
  }
}

/** A number inside an answer of the receiver. 0: it is missing. */
export function numberAt(value: unknown, ...path: readonly string[]): number {
  const found = path.reduce<unknown>((inner, key) => Object(inner)[key], value)
  return typeof found === 'number' ? found : 0
}
