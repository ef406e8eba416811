/** A word, a text, an operator or a comma; or what is in brackets, with the opening one as its text. */
interface Node {
  readonly space: string
  readonly text: string
  readonly inner?: readonly Node[]
}

const tokens =
  /\s+|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\d+|\$\w*\$|NOT\s+LIKE\b|[a-z_]\w*(?:\.(?:[a-z_]\w*|\*))*|\d+(?:\.\d+)?|::|[-+*/<>=~!@#%^&|?]+|./gi

/** What stands between two expressions. */
const between = new Set(
  (
    'ADD ALL ALTER ALWAYS AND AS ASC BEGIN BY CASE COLUMN CONFLICT CREATE CROSS DEFAULT DELETE DESC DISTINCT DO DROP ELSE END EXCEPT EXISTS FALSE FILTER ' +
    'FIRST FOR FROM FULL GENERATED GROUP HAVING IDENTITY IF INDEX INNER INSERT INTO IS JOIN KEY LAST LATERAL LEFT LIMIT LOCKED MATERIALIZED NO NOT ' +
    'NOTHING NOWAIT NULL NULLS OF OFFSET ON OR ORDER ORDINALITY OVER PARTITION PRIMARY REPLACE RETURNING SELECT SET SHARE SKIP TABLE THEN TRUE ' +
    'UNION UNIQUE UNLOGGED UPDATE USING VALUES VIEW WHEN WHERE WINDOW WITH'
  ).split(' '),
)
/** What looks like a call, and is none: the grammar of Postgres itself knows what it means. */
const known = new Set('ANY ARRAY CAST COALESCE COLLATE EXTRACT GREATEST LEAST ROW'.split(' '))
/** Types that are words of the grammar. */
const types = new Set(
  'BIGINT BIT BOOLEAN CHAR CHARACTER DEC DECIMAL DOUBLE FLOAT INT INTEGER INTERVAL NUMERIC REAL SMALLINT TIME TIMESTAMP VARCHAR'.split(
    ' ',
  ),
)
/** What Postgres turns into an operator by its bare name, and what to write instead. */
const unsafe: Readonly<Record<string, string>> = {
  BETWEEN: 'two comparisons',
  ILIKE: 'LIKE',
  NULLIF: 'CASE WHEN',
  SIMILAR: 'LIKE',
}
const operators: Readonly<Record<string, string>> = { '!=': '<>', LIKE: '~~', 'NOT LIKE': '!~~', IN: '=' }

/**
 * The same statement, with the schema of each function, operator and type of Postgres. By bare name, Postgres takes what stands first in the
 * `search_path`, or fits the types best: a role that may create functions in `public` could run code as the user of the inbox.
 * `OPERATOR(pg_catalog.=)` has no precedence, so parentheses keep the meaning.
 *
 * For the statements of the inbox only: it knows no more of the grammar than they need, and throws when it cannot tell what to write. It reads each
 * text once, so values belong into parameters.
 */
export function qualified(sql: string): string {
  if (!/^\s*(?:WITH|SELECT|INSERT|UPDATE|DELETE|DO|(?:CREATE|ALTER) (?!SCHEMA))\b/.test(sql)) return sql
  let statement = cache.get(sql)
  if (statement === undefined) {
    const all = [...(sql.match(tokens) ?? [])]
    statement = write(nodesOf(all), /^(?:CREATE (?:UNLOGGED )?TABLE|ALTER TABLE|DO)\b/.test(sql))
    cache.set(sql, statement)
  }
  return statement
}

const cache = new Map<string, string>()

/** Takes the tokens up to the end of the brackets. */
function nodesOf(all: string[]): readonly Node[] {
  const nodes: Node[] = []
  let space = ''
  for (let text = all.shift(); text !== undefined && text !== ')' && text !== ']'; text = all.shift()) {
    if (/^\s/.test(text)) {
      space = text
      continue
    }
    nodes.push(text === '(' || text === '[' ? { space, text, inner: nodesOf(all) } : { space, text })
    space = ''
  }
  return nodes
}

const wordOf = (node: Node | undefined): string => (node?.inner === undefined ? (node?.text.toUpperCase() ?? '') : '')
const isOperator = (node: Node): boolean =>
  node.inner === undefined &&
  (/^[-+*/<>=~!@#%^&|?]+$/.test(node.text) || Object.hasOwn(operators, wordOf(node).replace(/\s+/, ' ')))

/** `definesTables`: a type without a schema may follow a name. */
function write(nodes: readonly Node[], definesTables: boolean): string {
  let out = ''
  let expression: Node[] = []
  let isSet = false
  const flush = (): void => {
    out += isSet ? assigned(expression) : expressed(expression)
    expression = []
  }
  for (const [at, node] of nodes.entries()) {
    const word = wordOf(node)
    const next = nodes[at + 1]
    refuse(word, wordOf(nodes[at - 1]), next)
    const before = expression.at(-1)
    if (word === 'CASE' && before !== undefined && isOperator(before))
      throw new TypeError('A statement has CASE behind an operator. Write it in parentheses.')
    if (!/^(?:[,;]|\$\w*\$)$/.test(word) && !between.has(word)) {
      // In the settings of a table, `=` is no operator.
      const isSettings = definesTables && wordOf(nodes[at - 1]) === 'WITH'
      if (node.inner === undefined) expression.push(withSchema(node, nodes[at - 1], next, definesTables))
      else expression.push(bracketed(node, isSettings ? plain(node.inner) : write(node.inner, definesTables)))
      continue
    }
    flush()
    out += node.space + node.text
    if (word === 'SET') isSet = true
    else if (/^(?:WHERE|FROM|RETURNING)$/.test(word)) isSet = false
  }
  flush()
  return out
}

function refuse(word: string, before: string, next: Node | undefined): void {
  const instead =
    unsafe[word] ??
    (word === 'USING' && next?.inner !== undefined
      ? 'ON'
      : word === 'CASE' && wordOf(next) !== 'WHEN'
        ? 'CASE WHEN'
        : word === 'IN' && before === 'NOT'
          ? '<> ALL (ARRAY[…])'
          : word === 'DISTINCT' && /^(?:IS|NOT)$/.test(before)
            ? 'a comparison with IS NULL'
            : undefined)
  if (instead !== undefined)
    throw new TypeError(`A statement has ${word}, which compares by a bare operator. Write ${instead}.`)
}

function withSchema(node: Node, before: Node | undefined, next: Node | undefined, definesTables: boolean): Node {
  const word = wordOf(node)
  const isName = /^[A-Z_]\w*$/.test(word)
  const prefixed = { space: node.space, text: `pg_catalog.${node.text}` }
  if (wordOf(before) === '::') return isName && !types.has(word) ? prefixed : node
  if (wordOf(before) === 'COLLATE') return node.text.startsWith('"') ? prefixed : node
  if (!isName || known.has(word) || isOperator(node)) return node
  // A type before its text. Those of the grammar are safe.
  if (next?.text.startsWith("'") === true) return types.has(word) ? node : prefixed
  // The names of columns follow the alias of a table.
  const isAlias = before?.inner !== undefined || /^(?:AS|ORDINALITY)$/.test(wordOf(before))
  // Of several lists, `unnest` is a word of the grammar.
  const isGrammar = word === 'UNNEST' && next?.inner?.some(({ text }) => text === ',') === true
  if (next?.text === '(' && !isAlias && !isGrammar) return prefixed
  return definesTables && isColumn(before) && !types.has(word) ? prefixed : node
}

/** What is in brackets, as one text. */
const bracketed = ({ space, text }: Node, inner: string): Node => ({
  space,
  text: `${text}${inner}${text === '[' ? ']' : ')'}`,
})

/** A name before a type. */
const isColumn = (node: Node | undefined): boolean => /^[A-Z_]\w*$/.test(wordOf(node)) && !between.has(wordOf(node))

/** `column = value` in a list of SET. */
function assigned(nodes: readonly Node[]): string {
  const at = nodes.findIndex(isOperator)
  if (at === -1 || nodes[at]?.text !== '=') return expressed(nodes)
  return expressed(nodes.slice(0, at)) + plain(nodes.slice(at, at + 1)) + expressed(nodes.slice(at + 1))
}

/** An expression without keywords. The operator that Postgres applies last is written first. */
function expressed(nodes: readonly Node[]): string {
  let last = -1
  for (const [at, node] of nodes.entries()) {
    // `*` is no operator in `count(*)` and `SELECT *`.
    const isStar = node.text === '*' && (at === 0 || at === nodes.length - 1)
    if (isOperator(node) && !isStar && (last === -1 || binds(node) <= binds(nodes[last]))) last = at
  }
  const operator = nodes[last]
  if (operator === undefined) return plain(nodes)
  const word = wordOf(operator).replace(/\s+/, ' ')
  const name = operators[word] ?? operator.text
  return `${side(nodes.slice(0, last))}${operator.space}OPERATOR(pg_catalog.${name})${word === 'IN' ? ' ANY' : ''}${side(nodes.slice(last + 1))}`
}

/** How strongly an operator binds. */
function binds(node: Node | undefined): number {
  const text = node?.text ?? ''
  if (/^(?:[<>=]|<=|>=|<>|!=)$/.test(text)) return 1
  return /^[-+]$/.test(text) ? 3 : /^[*/%]$/.test(text) ? 4 : text === '^' ? 5 : 2
}

function side(nodes: readonly Node[]): string {
  const [first] = nodes
  const text = expressed(nodes)
  if (first === undefined || !nodes.some(isOperator)) return text
  return `${first.space}(${text.slice(first.space.length)})`
}

const plain = (nodes: readonly Node[]): string => nodes.map(({ space, text }) => space + text).join('')
