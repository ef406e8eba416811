import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { openApiDocument } from '../../src/openapi.ts'

/** `fleethook openapi`: prints the OpenAPI 3.1 document of a receiver. */
export function define(command: Command): void {
  command
    .description(
      'Prints the OpenAPI 3.1 document of a receiver: the webhook in its three formats, the collector paths, every answer, ' +
        'and the events that handlers get.',
    )
    .action(() => {
      const manifest: { version: string } = JSON.parse(
        readFileSync(fileURLToPath(import.meta.resolve('fleethook/package.json')), 'utf8'),
      )
      console.log(JSON.stringify(openApiDocument(manifest.version), null, 2))
    })
}
