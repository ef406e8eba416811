import { type Command, Option } from 'commander'
import type { StoredWebhook } from '../../src/service/client/webhook.ts'
import type { Format } from '../../src/events/event.ts'
import { formats } from './arguments.ts'
import { asks, statuses } from './service.ts'
import { columns } from './terminal.ts'

interface Given {
  readonly url: string
  readonly format: Format
  readonly auth: boolean
  readonly verify: boolean
  readonly paused?: true
  readonly allowLocal?: true
}

export function defineWebhook(command: Command): void {
  command.description('The webhook of your business: the one URL to which the service posts.')

  const set = command
    .command('set')
    .description(
      'Sets or replaces the webhook. The service then sends WEBHOOK_SECRET, from the environment or .env, as `Authorization`. ' +
        'It is the `secret` of your receiver.',
    )
    .requiredOption('-u, --url <url>', 'the address of the receiver, which the internet must reach')
    .addOption(new Option('-f, --format <format>', 'the payload format').choices(formats).default('service'))
    .option('--no-auth', 'send no Authorization header: anybody can then post to the receiver')
    .option('--no-verify', 'do not check the TLS certificate of the URL')
    .option('--paused', 'set the webhook without delivering messages')
    .option('--allow-local', 'allow a URL on this machine, for a sandbox that was started with --allow-local')
    .addHelpText('after', statuses)
  asks<[], Given>(set, async ({ client, variable, signal, print }, given) => {
    const secret = variable('WEBHOOK_SECRET')
    if (given.auth && secret === undefined) {
      set.error(
        'error: WEBHOOK_SECRET is not set. Set it in the environment or in .env, or name another file with --dotenv ' +
          '(the Workers templates have .dev.vars). With --no-auth the service sends no secret.',
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
