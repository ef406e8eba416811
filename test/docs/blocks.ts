import { globSync, readFileSync } from 'node:fs'

/** A code block of the documentation. */
export interface Block {
  /** The file and the line of the block: `docs/events.md:12`. */
  readonly at: string
  /** A file name made from `at`. */
  readonly name: string
  readonly code: string
  /** The words after `ts` on the fence: `compile` for code that needs a runtime or a service that the tests do not have. */
  readonly flags: readonly string[]
  /** The comments behind its `console.log` lines: each must be part of the output. */
  readonly prints: readonly string[]
}

const fence = /^( *(?:\* ?)?)```ts([^\n]*)\n([\s\S]*?)^ *(?:\* ?)?```$/gm
const print = /^console\.log\(.*\) \/\/ (.+)$/gm

/** Every TypeScript block of the pages, and of the docstrings of the sources. */
export function blocks(root: string): readonly Block[] {
  const files = globSync(
    ['*.md', 'docs/**/*.md', 'examples/*/README.md', 'skills/**/*.md', 'src/**/*.ts', 'adapters/**/*.ts'],
    {
      cwd: root,
      exclude: (path) => path.includes('node_modules'),
    },
  )
  return files.sort().flatMap((file) => blocksOf(file, readFileSync(`${root}/${file}`, 'utf8')))
}

function blocksOf(file: string, text: string): readonly Block[] {
  return [...text.matchAll(fence)].map((match) => {
    const [, indent = '', flags = '', body = ''] = match
    const line = text.slice(0, match.index).split('\n').length
    const stripped = indent.trimEnd()
    const code = body
      .split('\n')
      .map((row) =>
        row.startsWith(indent) ? row.slice(indent.length) : row.trimStart() === stripped.trimStart() ? '' : row,
      )
      .join('\n')
    return {
      at: `${file}:${line}`,
      name: `${file.replace(/\W+/g, '-')}-${line}.ts`,
      code,
      flags: flags.trim().split(/\s+/).filter(Boolean),
      prints: [...code.matchAll(print)].map(([, printed = '']) => printed),
    }
  })
}
