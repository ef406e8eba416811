import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { packageRoot } from './own-package.ts'

export function defineOpenApi(command: Command): void {
  command
    .description(
      'Prints the OpenAPI 3.1 document of a receiver: the webhook in its three formats, the collector paths, every answer, ' +
        'and the events that handlers receive.',
    )
    .action(() => {
      console.log(readFileSync(join(packageRoot, 'docs/openapi.json'), 'utf8').trimEnd())
    })
}
