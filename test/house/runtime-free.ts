import {
  isIdentifier,
  isPropertyAccessExpression,
  isPropertyAssignment,
  isPropertySignatureDeclaration,
  isStringLiteral,
} from 'typescript/unstable/ast'
import type { Identifier, Node, SourceFile } from 'typescript/unstable/ast'

// `globalThis` hides the name of the global, and every web standard has a plain name.
const runtimeNames = new Set([
  ...['process', 'Buffer', 'require', '__dirname', '__filename', 'setImmediate', 'NodeJS', 'Bun', 'Deno'],
  'WebSocketPair',
  ...['navigator', 'globalThis'],
])

const runtimeModules =
  /^(node|bun|deno|cloudflare|workerd|npm|jsr):|^bun$|^@hono\/node-server|^hono\/(bun|deno|cloudflare-workers|aws-lambda|lambda-edge|vercel|netlify|service-worker)/

/**
 * What ties a file of `src/` to one runtime: imports (type-only ones included) and globals. Comments and texts do not count.
 */
export function runtimeTies(path: string, file: SourceFile): readonly string[] {
  const ties: string[] = []
  for (const { text } of file.imports.filter(isStringLiteral)) {
    if (runtimeModules.test(text) || leavesSource(path, text)) ties.push(`imports '${text}'`)
  }
  const visit = (node: Node): void => {
    if (isIdentifier(node) && runtimeNames.has(node.text) && !isOwnProperty(node)) ties.push(`names '${node.text}'`)
    node.forEachChild(visit)
  }
  visit(file)
  return ties
}

function leavesSource(path: string, specifier: string): boolean {
  if (!specifier.startsWith('.')) return specifier.startsWith('fleethook') || specifier.startsWith('/')
  return !new URL(specifier, `file:///${path}`).pathname.startsWith('/src/')
}

/** `job.process`, `{ process: 1 }` and a member of an interface are names of our own. */
function isOwnProperty(name: Identifier): boolean {
  const { parent } = name
  const hasName =
    isPropertyAccessExpression(parent) || isPropertyAssignment(parent) || isPropertySignatureDeclaration(parent)
  return hasName && parent.name === name
}
