// Writes docs/openapi.json, which a test holds against the schemas.
import { readFileSync, writeFileSync } from 'node:fs'
import { openApiDocument } from './openapi-document.ts'

const root = new URL('..', import.meta.url)
const { version }: { version: string } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8'))
writeFileSync(new URL('docs/openapi.json', root), `${JSON.stringify(openApiDocument(version), null, 2)}\n`)
