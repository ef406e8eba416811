// The API reference: what each entry of the package exports, with its docstring and its declaration. It reads the sources, which
// `isolatedDeclarations` makes readable file by file, so it needs no build and no second compiler.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { format } from 'prettier'
import { isolatedDeclarationSync, parseSync } from 'rolldown/experimental'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** One entry of the package, such as `fleethook/when`. */
export interface Entry {
  readonly name: string
  /** The last part of the address of its page. */
  readonly page: string
  readonly source: string
}

/** A name that an entry exports. */
export interface Member {
  readonly name: string
  readonly isType: boolean
  /** The docstring, as Markdown. */
  readonly doc: string
  readonly code: string
}

export interface EntryReference extends Entry {
  readonly doc: string
  readonly members: readonly Member[]
}

/** The entries of `package.json`, in its order. */
export function entries(): readonly Entry[] {
  const manifest: { readonly exports: Readonly<Record<string, string | { readonly default: string }>> } = JSON.parse(
    readFileSync(join(root, 'package.json'), 'utf8'),
  )
  return Object.entries(manifest.exports).flatMap(([path, to]) =>
    typeof to === 'string'
      ? []
      : [
          {
            name: `fleethook${path.slice(1)}`,
            page: path === '.' ? 'fleethook' : path.slice(2).replaceAll('/', '-'),
            source: to.default.replace('./dist/', '').replace(/\.js$/, '.ts'),
          },
        ],
  )
}

export async function reference(entry: Entry): Promise<EntryReference> {
  const members = [...exportsOf(entry.source)].map(async ([name, { file, local }]): Promise<Member> => {
    const { doc, code, isType } = declarationOf(file, local)
    return { name, isType, doc, code: await formatted(code) }
  })
  return {
    ...entry,
    doc: docOf(/\/\*\*[\s\S]*?\*\//.exec(read(entry.source))?.[0] ?? ''),
    members: (await Promise.all(members)).toSorted((a, b) => (a.name.toLowerCase() < b.name.toLowerCase() ? -1 : 1)),
  }
}

/** The page of an entry, as Markdown. */
export function page({ name, doc, members }: EntryReference, all: readonly EntryReference[]): string {
  const linked = (text: string): string =>
    text.replaceAll(/\{@link ([^}]+)\}/g, (_, to: string) => {
      const target = all.find((entry) => entry.members.some((member) => member.name === to))
      const isHere = members.some((member) => member.name === to)
      if (isHere) return `[\`${to}\`](#${to})`
      return target === undefined ? `\`${to}\`` : `[\`${to}\`](./${target.page}.md#${to})`
    })
  const section = (title: string, some: readonly Member[]): string =>
    some.length === 0
      ? ''
      : `## ${title}\n\n${some
          .map(
            (member) =>
              `### ${member.name} {#${member.name}}\n\n${linked(member.doc)}\n\n\`\`\`ts\n${member.code}\`\`\`\n`,
          )
          .join('\n')}\n`
  return [
    `# ${name}\n\n${linked(doc)}\n\n`,
    section(
      'Values',
      members.filter(({ isType }) => !isType),
    ),
    section(
      'Types',
      members.filter(({ isType }) => isType),
    ),
  ].join('')
}

interface Origin {
  readonly file: string
  readonly local: string
}

/** The names that a file exports, each with the file and the name of its declaration. */
function exportsOf(file: string): ReadonlyMap<string, Origin> {
  const { staticExports, staticImports } = parsed(file).module
  const found = new Map<string, Origin>()
  for (const { moduleRequest, importName, exportName, localName } of staticExports.flatMap(({ entries }) => entries)) {
    const name = exportName.name
    const from = moduleRequest === null ? undefined : join(dirname(file), moduleRequest.value)
    if (from !== undefined && name === null) for (const [key, origin] of exportsOf(from)) found.set(key, origin)
    else if (name === null) throw new Error(`${file} exports something without a name.`)
    else if (from !== undefined) found.set(name, originOf(from, importName.name ?? name))
    else {
      const local = localName.name ?? name
      const imported = staticImports.find(({ entries }) => entries.some((entry) => entry.localName.value === local))
      const taken = imported?.entries.find((entry) => entry.localName.value === local)
      const isOurs = imported?.moduleRequest.value.startsWith('.')
      if (imported !== undefined && isOurs)
        found.set(name, originOf(join(dirname(file), imported.moduleRequest.value), taken?.importName.name ?? local))
      else found.set(name, { file, local })
    }
  }
  return found
}

function originOf(file: string, name: string): Origin {
  const origin = exportsOf(file).get(name)
  if (origin === undefined) throw new Error(`${file} does not export ${name}.`)
  return origin
}

/** The declaration of a name without its docstring: every overload, and both when a value and a type share a name. */
function declarationOf(
  file: string,
  name: string,
): { readonly doc: string; readonly code: string; readonly isType: boolean } {
  const { text, statements, comments } = declarationsIn(file)
  const own = statements.filter((statement) => statement.names.includes(name))
  if (own.length === 0) throw new Error(`${file} has no declaration of ${name}.`)
  const docs = own.flatMap(({ start }) => {
    const before = comments.findLast(({ end }) => end <= start && text.slice(end, start).trim() === '')
    return before === undefined ? [] : [docOf(text.slice(before.start, before.end))]
  })
  return {
    doc: docs.join('\n\n'),
    code: own.map(({ start, end }) => text.slice(start, end)).join('\n'),
    isType: own.every(({ isType }) => isType),
  }
}

interface Declarations {
  readonly text: string
  readonly statements: readonly {
    readonly names: readonly string[]
    readonly isType: boolean
    readonly start: number
    readonly end: number
  }[]
  readonly comments: readonly { readonly start: number; readonly end: number }[]
}

const known = new Map<string, Declarations>()

function declarationsIn(file: string): Declarations {
  const before = known.get(file)
  if (before !== undefined) return before
  const { code: text, errors } = isolatedDeclarationSync(file, read(file))
  if (errors.length > 0) throw new Error(`${file}: ${errors[0]?.message}`)
  const { program, comments } = parseSync(file.replace(/\.ts$/, '.d.ts'), text)
  const statements = program.body.flatMap((statement) => {
    const declaration = statement.type === 'ExportNamedDeclaration' ? (statement.declaration ?? statement) : statement
    const { start, end } = statement
    if (declaration.type === 'VariableDeclaration') {
      const names = declaration.declarations.flatMap(({ id }) => (id.type === 'Identifier' ? [id.name] : []))
      return [{ names, isType: false, start, end }]
    }
    if (!('id' in declaration) || declaration.id?.type !== 'Identifier') return []
    const isType = declaration.type === 'TSInterfaceDeclaration' || declaration.type === 'TSTypeAliasDeclaration'
    return [{ names: [declaration.id.name], isType, start, end }]
  })
  const declarations = { text, statements, comments: comments.filter(({ value }) => value.startsWith('*')) }
  known.set(file, declarations)
  return declarations
}

const parsed = (file: string): ReturnType<typeof parseSync> => parseSync(file, read(file))

const read = (file: string): string => readFileSync(join(root, file), 'utf8')

/** The text of a docstring. */
function docOf(comment: string): string {
  return comment
    .replace(/^\/\*\*/, '')
    .replace(/\*\/$/, '')
    .replaceAll(/^[ \t]*\* ?/gm, '')
    .replaceAll(/^@module\b.*$/gm, '')
    .replaceAll(/^@example\b */gm, '')
    .trim()
}

/** As the sources are formatted. What the declarations of a class hide is of no use to a reader. */
async function formatted(code: string): Promise<string> {
  const shown = code.replaceAll(/^export (declare )?/gm, '').replaceAll(/^\s*(private .*|#private;)$/gm, '')
  return format(shown, { parser: 'typescript', semi: false, singleQuote: true, printWidth: 100 })
}
