import { expect, onTestFinished, test } from 'vitest'
import { inForm } from '../../form.ts'
import { command } from '../command.ts'
import { type Broken, hasVolumes, prepare, setups } from './setups.ts'

/** What doctor has to say in each setup: the id and mark of a line, with words of what was found and what to do. */
const causes: Readonly<Record<Broken, readonly RegExp[]>> = {
  'wrong-secret': [
    /✖ receiver\.refused +Refused since the start: secret_wrong \d+\./,
    /→ secret_wrong: .*Set `auth` of the webhook and `secret` of the receiver to the same value/,
  ],
  'proxy-strips-the-header': [
    /✖ proxy\.answer +The receiver got no Authorization header: something on the way removes it/,
    /→ Pass the header on/,
    /✖ receiver\.refused +Refused since the start: authorization_missing \d+\./,
  ],
  'handler-throws-on-one-field': [
    /[✖!] receiver\.handlers +savePosition \(data\) threw TypeError \d+ times, last in attempt \d+\./,
    /→ fleethook tail --errors shows the errors/,
  ],
  'disk-full': [
    /✖ inbox\.space +Only 0 MiB are free/,
    /! receiver\.refused +Refused since the start: inbox_full \d+\./,
    /→ inbox_full: Free some space on the disk/,
  ],
  'vehicle-without-a-config': [
    /✖ webhook\.vehicles +1 of 3 vehicles have no streaming config, so they send no data: 0F/,
    /→ fleethook config patch 0F/,
  ],
}

/** The lines that are wrong in no setup but their own. */
const ids = ['webhook.vehicles', 'proxy.answer', 'inbox.space', 'receiver.refused', 'receiver.handlers'] as const

const chosen: readonly Broken[] = inForm({
  real: ['wrong-secret'],
  full: setups.filter((broken) => broken !== 'disk-full' || hasVolumes),
})

test.each(chosen)('doctor leads to the cause: %s', { timeout: 180_000 }, async (broken) => {
  const setup = await prepare(broken)
  onTestFinished(() => setup[Symbol.asyncDispose]())
  const doctor = ['doctor', '--url', setup.url, '--only', 'webhook,proxy,inbox,receiver']
  let shown = ''
  // Vehicles need a second or two until something fails.
  await expect
    .poll(
      async () => {
        shown = (await command(doctor, {}, setup.folder)).stdout
        return causes[broken].filter((cause) => !cause.test(shown))
      },
      { timeout: 60_000, interval: 1_000 },
    )
    .toEqual([])
  const expected = causes[broken].map(String).join(' ')
  for (const id of ids)
    if (!expected.includes(id.replace('.', '\\.')))
      expect(shown).not.toMatch(new RegExp(`[✖!] ${id.replace('.', '\\.')}`))
})
