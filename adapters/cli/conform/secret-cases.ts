import type { Format } from '../../../src/events/event.ts'
import { authorization } from '../../../src/wire/encode.ts'
import { type Case, formats, type Request } from './cases.ts'
import { dataIn, type Session } from './session.ts'

export function* secretCases(session: Session): Generator<Case> {
  const { secret } = session
  const hasScheme = secret.includes(' ')
  const request = (label: string, given: string | undefined, path = '', format: Format = 'service'): Request => {
    const sent = session.message()
    const type = { 'content-type': 'application/json' }
    const headers = given === undefined ? type : { ...type, authorization: given }
    return {
      posted: { path, headers, body: JSON.stringify(dataIn(format, sent)) },
      format,
      messages: [sent],
      label,
    }
  }
  const refused = (name: string, ...requests: readonly Request[]): Case => ({
    group: 'secret',
    name,
    expected: 'unauthorized',
    requests,
  })
  yield {
    group: 'secret',
    name: hasScheme ? 'the secret as it was set, in each format' : 'the secret, and behind Splunk in event_collector',
    expected: 'accepted',
    requests: formats.map((format) => request(format, authorization(secret, format), '', format)),
  }
  const query = `?token=${encodeURIComponent(secret)}`
  yield refused(
    'no secret',
    request('no Authorization', undefined),
    request('an empty Authorization', ''),
    request('the secret in the query', undefined, query),
  )
  yield refused('another secret', ...others(secret).map(([label, given]) => request(label, given)))
  yield refused(
    'another secret behind a scheme',
    ...['Splunk', 'Splunk wrong', 'Bearer wrong', `Splunk ${secret}x`, `Basic ${btoa('x:wrong')}`].map((given) =>
      request(`"${given.replace(secret, '…')}"`, given, '', 'event_collector'),
    ),
  )
  const endless = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start: (to) => to.enqueue(new TextEncoder().encode('{"vin":')),
  })
  yield refused('a wrong secret, before its body has arrived', {
    posted: { headers: { authorization: 'wrong', 'content-type': 'application/json' }, body: endless },
    messages: [],
  })
}

/** What a comparison that is no comparison takes for the secret. */
function others(secret: string): readonly (readonly [label: string, given: string])[] {
  const turned = secret.replaceAll(/[a-z]/gi, (letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  )
  const swapped = (character: string | undefined): string => (character === 'x' ? 'y' : 'x')
  const all: readonly (readonly [string, string])[] = [
    ['"wrong"', 'wrong'],
    ['another one as long', `${secret.slice(0, -1)}${swapped(secret.at(-1))}`],
    ['another first character', `${swapped(secret[0])}${secret.slice(1)}`],
    ['its first half', secret.slice(0, Math.max(1, Math.floor(secret.length / 2))).trim()],
    ['the secret and more behind it', `${secret}x`],
    ['the secret and more before it', `x${secret}`],
    ['the secret inside more text', `x${secret}x`],
    ['its first character', secret.slice(0, 1)],
    ['capitals for small letters', turned],
    ['a pattern', '.*'],
    ['"undefined"', 'undefined'],
    ['"null"', 'null'],
  ]
  return all.filter(([, given]) => given !== secret)
}
