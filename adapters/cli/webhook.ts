import { type Command, Option } from 'commander'
import type { StoredWebhook } from '../../src/service/client/webhook.ts'
import type { Format } from '../../src/events/event.ts'
import { columns } from './service/columns.ts'
import { asks, statuses } from './service/command.ts'

interface Given {
  readonly url: string
  readonly format: Format
  readonly auth: boolean
  readonly verify: boolean
  readonly paused?: true
  readonly allowLocal?: true
}

/** `fleethook webhook set|get|delete` */
export function define(command: Command): void {
  command.description('The webhook of the business: the one URL to which the service posts.')

  const set = command
    .command('set')
    .description(
      'Sets the webhook, or replaces it. What the service sends as `Authorization` is WEBHOOK_SECRET, from the environment or .env: ' +
        'the `secret` of your receiver.',
    )
    .requiredOption('-u, --url <url>', 'where messages are posted; the internet must be able to reach it')
    .addOption(
      new Option('-f, --format <format>', 'the payload format')
        .choices(['service', 'vehicle_maker', 'event_collector'])
        .default('service'),
    )
    .option('--no-auth', 'have no Authorization header sent: anybody could then post to the receiver')
    .option('--no-verify', 'do not have the TLS certificate of the URL checked')
    .option('--paused', 'set it, but have nothing delivered')
    .option('--allow-local', 'let a sandbox that was started with --allow-local judge the URL')
    .addHelpText('after', statuses)
  asks<[], Given>(set, async ({ client, variable, signal, print }, given) => {
    const secret = variable('WEBHOOK_SECRET')
    if (given.auth && secret === undefined) {
      set.error(
        'error: WEBHOOK_SECRET is not set. Set it in the environment or in .env, name another file with --dotenv ' +
          '(the Workers templates have .dev.vars), or write out --no-auth.',
      )
    }
    const { url, format, verify } = given
    const webhook = await client.webhook.set(
      { url, format, verify, enabled: !given.paused, ...(given.auth ? { auth: secret } : {}) },
      { allowLocal: given.allowLocal ?? false, signal },
    )
    print(webhook, () => shown(webhook))
  })

  const get = command.command('get').description('Shows the webhook.').addHelpText('after', statuses)
  asks(get, async ({ client, signal, print }) => {
    const webhook = await client.webhook.get({ signal })
    print(webhook, () => shown(webhook))
  })

  const remove = command.command('delete').description('Deletes the webhook.').addHelpText('after', statuses)
  asks(remove, async ({ client, signal, print }) => {
    await client.webhook.delete({ signal })
    print({ deleted: true }, () => 'The webhook is deleted.')
  })
}

function shown({ url, format, auth, verify, enabled, updated_at: updatedAt }: StoredWebhook): string {
  return columns([
    ['url', url],
    ['format', format],
    ['auth', auth ? 'set' : 'none: anybody can post to the receiver'],
    ['verify', verify ? 'the TLS certificate is checked' : 'the TLS certificate is not checked'],
    ['enabled', enabled ? 'messages are delivered' : 'paused'],
    ['updated', updatedAt],
  ])
}
