import { parseAst } from 'rolldown/parseAst'
import * as z from 'zod'

/** A function or a class of a file, and how much a reader has to keep in mind of it. */
export interface Measured {
  /** The file, and the name behind `#`. */
  readonly name: string
  readonly lines: number
  /** Functions inside it. */
  readonly functions: number
  /** Fields, of a class. */
  readonly fields: number
}

/** A node of the syntax tree, as far as it is looked at. */
const nodeForm = z.looseObject({ type: z.string(), start: z.number(), end: z.number() })
type SyntaxNode = z.infer<typeof nodeForm>

const isNode = (value: unknown): value is SyntaxNode =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string'
const isFunction = ({ type }: SyntaxNode): boolean =>
  /^(?:Arrow)?Function(?:Declaration|Expression)$|^ArrowFunctionExpression$/.test(type)
const isClass = ({ type }: SyntaxNode): boolean => /^Class(?:Declaration|Expression)$/.test(type)

/** There are millions of nodes. */
function childrenOf(node: SyntaxNode): readonly SyntaxNode[] {
  const found: SyntaxNode[] = []
  for (const value of Object.values(node)) {
    if (typeof value !== 'object') continue
    if (Array.isArray(value)) found.push(...value.filter(isNode))
    else if (isNode(value)) found.push(value)
  }
  return found
}

/** The text of a name or of the first argument of a call, which names a test. */
function textOf(node: unknown): string | undefined {
  const { name, value }: { name?: unknown; value?: unknown } = Object(node)
  return [name, value].find((text) => typeof text === 'string')
}

/** The name of a function or a class, or that of the variable or member that it is the value of. */
function nameOf(node: SyntaxNode, parent: SyntaxNode | undefined): string {
  const [first]: readonly unknown[] = Object(parent)['arguments'] ?? []
  return (
    textOf(node['id']) ??
    textOf(parent?.['key']) ??
    textOf(parent?.['id']) ??
    textOf(first)?.slice(0, 60) ??
    '(anonymous)'
  )
}

/** The body of a suite is a list of tests, and no function that somebody follows. */
const isSuite = (parent: SyntaxNode | undefined, text: string): boolean =>
  parent?.type === 'CallExpression' && /^describe\b/.test(text.slice(parent.start, parent.start + 9))

/** All functions and classes of a file. */
export function measuresOf(path: string, text: string): readonly Measured[] {
  const breaks = [...text.matchAll(/\n/g)].map(({ index }) => index)
  const lineAt = (position: number): number => {
    let [low, high] = [0, breaks.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if ((breaks[middle] ?? 0) < position) low = middle + 1
      else high = middle
    }
    return low
  }
  const found: Measured[] = []
  /** Returns how many functions are in the node. */
  const visit = (node: SyntaxNode, parent: SyntaxNode | undefined): number => {
    const children = childrenOf(node)
    const inside = children.reduce((sum, child) => sum + visit(child, node), 0)
    const name = (): string => `${path}#${nameOf(node, parent)}`
    if (isClass(node)) {
      const members = children.flatMap(childrenOf).filter(({ type }) => type === 'PropertyDefinition')
      found.push({ name: name(), lines: 0, functions: 0, fields: members.length })
    }
    if (!isFunction(node)) return inside
    const lines = lineAt(node.end) - lineAt(node.start) + 1
    if (!isSuite(parent, text)) found.push({ name: name(), lines, functions: inside, fields: 0 })
    return inside + 1
  }
  visit(nodeForm.parse(parseAst(text, { lang: path.endsWith('x') ? 'tsx' : 'ts' })), undefined)
  return found
}
