import { readFileSync } from 'node:fs'
import { Validator } from '@seriousme/openapi-schema-validator'
import { expect, test } from 'vitest'
import { createReceiver } from '../../src/index.ts'
import { openApiDocument } from '../../scripts/openapi-document.ts'

const { version }: { version: string } = JSON.parse(readFileSync('package.json', 'utf8'))

/** As it is once it is JSON. */
const document = JSON.parse(JSON.stringify(openApiDocument(version)))

test('the committed document matches the schemas', () => {
  // `npm run generate -- openapi` writes it.
  expect(JSON.parse(readFileSync('docs/openapi.json', 'utf8'))).toEqual(document)
})

test('the document is valid OpenAPI 3.1', async () => {
  const { valid, errors } = await new Validator().validate(structuredClone(document))
  expect(errors).toBeUndefined()
  expect(valid).toBe(true)
})

test('control: the validator rejects a document with a fault', async () => {
  const { valid } = await new Validator().validate({
    ...structuredClone(document),
    webhooks: { telemetry: { post: 'no operation' } },
  })
  expect(valid).toBe(false)
})

test('the webhook takes all three formats, and the document lists every refusal under its status', () => {
  const { post } = document.webhooks.telemetry
  expect(post.requestBody.content['application/json'].schema.anyOf).toHaveLength(3)
  expect(Object.keys(post.responses)).toEqual(['200', '400', '401', '403', '404', '405', '413', '415', '500', '503'])
  expect(post.responses['200'].content['application/json'].examples.Success.value).toEqual({ text: 'Success', code: 0 })
})

test('the probes answer without a secret what the document says', async () => {
  const { fetch, drain } = createReceiver({ secret: 'a-secret-of-the-tests' })
  const documented = (path: string, status: number): readonly unknown[] =>
    Object.values(document.paths[path].get.responses[status].content['text/plain'].examples)
  async function expectDocumented(path: string, status: number): Promise<void> {
    const response = await fetch(new Request(`http://localhost${path}`))
    expect(response.status).toBe(status)
    expect(response.headers.get('content-type')).toBe('text/plain')
    expect(documented(path, status)).toContainEqual({ value: await response.text() })
    expect(document.paths[path].get.security).toEqual([])
  }
  await expectDocumented('/healthz', 200)
  await expectDocumented('/readyz', 200)
  await drain()
  await expectDocumented('/readyz', 503)
  expect(documented('/readyz', 503)).toHaveLength(3)
})
