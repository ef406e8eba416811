import { type AnswerCase, accepted, collectorPaths, envelope, healthPaths, refusals, state } from './answer-cases.ts'

/** Which methods and paths there are. */
export function pathCases(secret: string): readonly AnswerCase[] {
  const headers = { authorization: secret }
  const relayed = { authorization: `Splunk ${secret}` }
  const healthy = { status: 200, code: 17 } as const
  return [
    { name: 'A trailing slash makes no difference at the root', path: '/', headers, body: state, ...accepted },
    { name: 'A query makes no difference', path: '?from=here', headers, body: state, ...accepted },
    { name: 'OPTIONS needs no secret at the root', method: 'OPTIONS', status: 200 },
    { name: 'GET is refused at the root', method: 'GET', headers, ...refusals.method },
    { name: 'PUT is refused at the root', method: 'PUT', headers, body: state, ...refusals.method },
    // The host's own words, where the receiver is mounted in one.
    { name: 'Nothing is at another path', path: '/nothing-is-here', headers, body: state, status: 404 },
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => [
      {
        name: `A trailing slash makes no difference at ${path}`,
        path: `${path}/`,
        headers: relayed,
        body: envelope,
        ...accepted,
      },
      { name: `OPTIONS needs no secret at ${path}`, path, method: 'OPTIONS', status: 200 },
      { name: `GET is refused at ${path}`, path, method: 'GET', headers: relayed, ...refusals.method },
    ]),
    ...healthPaths.flatMap((path): readonly AnswerCase[] => [
      { name: `GET ${path} needs no secret`, path, method: 'GET', ...healthy },
      { name: `POST is refused at ${path}`, path, headers: relayed, body: envelope, ...refusals.method },
    ]),
  ]
}
