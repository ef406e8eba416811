import { type AnswerCase, accepted, collectorPaths, envelope, refusals, state } from './answer-cases.ts'
import { chunked, gzipped, torn } from './bodies.ts'
import type { Posted } from './post.ts'

/** What may be posted, and how. */
export function bodyCases(secret: string, bodyBytes: number): readonly AnswerCase[] {
  const headers = { authorization: secret }
  const relayed = { authorization: `Splunk ${secret}` }
  const gzip = { ...headers, 'content-encoding': 'gzip' }
  const long = `{"vin":"V","x":"${'x'.repeat(bodyBytes)}"}`
  const post = (
    body: NonNullable<Posted['body']>,
    more: NonNullable<Posted['headers']> = headers,
  ): Pick<AnswerCase, 'headers' | 'body'> => ({
    headers: more,
    body,
  })
  const typed = { ...headers, 'content-type': 'application/x-www-form-urlencoded' }
  return [
    {
      name: 'A message is answered with exactly the success of the collector protocol',
      ...post(state),
      ...accepted,
    },
    { name: 'A wrong Content-Type makes no difference', ...post(state, typed), ...accepted },
    { name: 'Several objects one after another are accepted', ...post(`${state}${state}\n ${state}`), ...accepted },
    { name: 'A list of objects is accepted', ...post(`[${state},${state}]`), ...accepted },
    { name: 'A body in chunks, without its length, is accepted', ...post(chunked(state)), ...accepted },
    { name: 'A body in gzip is accepted', ...post(gzipped(`${state}${state}`), gzip), ...accepted },
    { name: 'An unknown object is accepted', ...post('{"hello":"world"}'), ...accepted },
    { name: 'An envelope is accepted at the root', ...post(envelope, relayed), ...accepted },
    {
      name: 'Time as text, and in milliseconds, is accepted',
      ...post(
        `${envelope.replace('1795255200.5', '"1795255200.5"')}${envelope.replace('1795255200.5', '1795255200500')}`,
      ),
      ...accepted,
    },
    { name: 'An empty body is refused', ...post(''), ...refusals.empty },
    { name: 'A blank body is refused', ...post(' \r\n '), ...refusals.empty },
    { name: 'An empty body in chunks is refused', ...post(chunked('')), ...refusals.empty },
    { name: 'What is not JSON is refused', ...post('hello'), ...refusals.notJson },
    { name: 'A bare scalar is refused', ...post('42'), ...refusals.notJson },
    { name: 'A list with a scalar in it is refused there', ...post(`[${state},42]`), ...refusals.notJson, number: 1 },
    {
      name: 'The answer says at which event of a batch it stopped',
      ...post(`${state}${state}{"vin":`),
      ...refusals.notJson,
      number: 2,
    },
    { name: 'A wrong time is refused', ...post(envelope.replace('1795255200.5', '"noon"')), ...refusals.time },
    { name: 'What is called gzip and is none is refused', ...post(state, gzip), ...refusals.gzip },
    { name: 'Gzip that ends too early is refused', ...post(torn(state), gzip), ...refusals.gzip },
    { name: 'A body over the limit is refused', ...post(long), ...refusals.tooLarge },
    { name: 'A body over the limit in chunks is refused', ...post(chunked(long)), ...refusals.tooLarge },
    {
      name: 'A small body in gzip that is over the limit when inflated is refused',
      ...post(gzipped(long), gzip),
      ...refusals.tooLarge,
    },
    {
      name: 'Another encoding is refused',
      ...post(state, { ...headers, 'content-encoding': 'br' }),
      ...refusals.encoding,
    },
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => [
      { name: `Envelopes are accepted at ${path}`, path, ...post(`${envelope}${envelope}`, relayed), ...accepted },
      {
        name: `A foreign event does not sink its batch at ${path}`,
        path,
        ...post(`${envelope}{"event":"a line of a log","sourcetype":"syslog"}${envelope}`, relayed),
        ...accepted,
      },
      {
        name: `An envelope without event is refused at ${path}`,
        path,
        ...post('{"time":1}', relayed),
        ...refusals.noEvent,
        number: 0,
      },
      {
        name: `An envelope with a blank event is refused at ${path}`,
        path,
        ...post(`${envelope}{"event":""}`, relayed),
        ...refusals.blankEvent,
        number: 1,
      },
    ]),
  ]
}
