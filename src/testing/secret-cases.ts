import { type AnswerCase, accepted, collectorPaths, envelope, refusals, state } from './answer-cases.ts'
import { unfinished } from './bodies.ts'

/** Who may come in. */
export function secretCases(secret: string): readonly AnswerCase[] {
  const authorized = (authorization: string): Pick<AnswerCase, 'headers' | 'body'> => ({
    headers: { authorization },
    body: state,
  })
  const basic = (password: string): string => `Basic ${btoa(`x:${password}`)}`
  return [
    { name: 'No Authorization is refused', body: state, ...refusals.missing },
    { name: 'Another scheme is refused', ...authorized(`Bearer ${secret}`), ...refusals.scheme },
    { name: 'A wrong secret is refused', ...authorized(`${secret}x`), ...refusals.wrong },
    { name: 'A part of the secret is refused', ...authorized(secret.slice(0, -1)), ...refusals.wrong },
    { name: 'The secret in another case is refused', ...authorized(swapped(secret)), ...refusals.wrong },
    { name: "The collector's scheme word is taken in any case", ...authorized(`sPLUNK ${secret}`), ...accepted },
    { name: 'A wrong secret after the scheme word is refused', ...authorized(`Splunk ${secret}x`), ...refusals.wrong },
    { name: 'HTTP Basic is refused at the root', ...authorized(basic(secret)), ...refusals.scheme },
    { name: 'A secret in the query is not looked at', path: `/?token=${secret}`, body: state, ...refusals.missing },
    {
      name: 'The secret is looked at before the body: nobody else is told that it is too large, or in what encoding',
      headers: { authorization: `${secret}x`, 'content-encoding': 'br' },
      body: 'no JSON',
      ...refusals.wrong,
    },
    {
      name: 'Whoever does not know the secret is refused before the body has arrived',
      headers: { authorization: `${secret}x` },
      body: unfinished('{"vin":'),
      ...refusals.wrong,
    },
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => {
      const at = (authorization: string): Pick<AnswerCase, 'path' | 'headers' | 'body'> => ({
        path,
        headers: { authorization },
        body: envelope,
      })
      return [
        {
          name: `HTTP Basic with the secret as password is accepted at ${path}`,
          ...at(basic(secret)),
          ...accepted,
        },
        {
          name: `HTTP Basic with another password is refused at ${path}`,
          ...at(basic(`${secret}x`)),
          ...refusals.wrong,
        },
        { name: `A bare secret is refused at ${path}`, ...at(secret), ...refusals.scheme },
        { name: `No Authorization is refused at ${path}`, path, body: envelope, ...refusals.missing },
      ]
    }),
  ]
}

function swapped(text: string): string {
  const letters = [...text].map((letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  )
  return letters.join('') === text ? `${text}-` : letters.join('')
}
