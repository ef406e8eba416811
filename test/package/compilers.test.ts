import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, inject, test } from 'vitest'
import { inForm } from '../form.ts'

const strict = { strict: true, skipLibCheck: false, noEmit: true, target: 'es2022', exactOptionalPropertyTypes: true }
const web = { lib: ['es2023', 'dom', 'dom.iterable', 'dom.asynciterable'], types: [] }

/** How users' projects differ: where globals come from, and how modules are found. */
const settings = {
  'the web platform, modules as Node finds them': { ...strict, ...web, module: 'nodenext' },
  'the web platform, modules as bundlers find them': {
    ...strict,
    ...web,
    module: 'esnext',
    moduleResolution: 'bundler',
  },
  'types of Node, as Node finds them': { ...strict, lib: ['es2023'], types: ['node'], module: 'nodenext' },
}

const compilers = inForm({ real: ['7.0'], full: ['5.9', '6.0', '7.0'] })
const cases = compilers.flatMap((version) =>
  Object.entries(settings).map(([name, options]) => ({ version, name, options })),
)

test.each(inForm({ real: cases.slice(0, 1), full: cases }))(
  'a strict project compiles on TypeScript $version with $name',
  ({ version, options }) => {
    expect(compile(version, options, 'typed.ts')).toEqual({ status: 0, output: '' })
  },
)

test.each(compilers)(
  'on TypeScript %s every entry of inboxes compiles without exactOptionalPropertyTypes, as most projects have it',
  (version) => {
    const source = `import { postgresInbox } from 'fleethook/inbox/postgres'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { durableObjectInbox } from 'fleethook/inbox/durable-object'
export const inboxes = [postgresInbox, sqliteInbox, durableObjectInbox]\n`
    writeFileSync(join(inject('consumer'), 'inboxes.ts'), source)
    const options = { ...strict, ...web, module: 'nodenext', exactOptionalPropertyTypes: false }
    expect(compile(version, options, 'inboxes.ts')).toEqual({ status: 0, output: '' })
  },
)

test('TypeScript 5.4, the oldest, compiles the same project with `skipLibCheck`', () => {
  const options = { ...settings['the web platform, modules as Node finds them'], skipLibCheck: true }
  expect(compile('5.4', options, 'typed.ts')).toEqual({ status: 0, output: '' })
})

test.each(compilers)(
  'on TypeScript %s a receiver can be exported from a project that emits declarations',
  (version) => {
    const options = {
      ...strict,
      ...web,
      module: 'nodenext',
      noEmit: false,
      declaration: true,
      outDir: `out-${version}`,
    }
    const source = `import { createReceiver } from 'fleethook'
export const receiver = createReceiver({ secret: 'a-long-random-value' }).on('data', (event) => event.data.Gear)
export const own = createReceiver({ secret: 'a-long-random-value', fields: { Mood: 'number' } })\n`
    writeFileSync(join(inject('consumer'), 'exported.ts'), source)
    expect(compile(version, options, 'exported.ts')).toEqual({ status: 0, output: '' })
    const declared = readFileSync(join(inject('consumer'), `out-${version}`, 'exported.d.ts'), 'utf8')
    // Declared by its name and not as 251 fields, which is also what an editor shows.
    expect(declared).toMatch(/receiver: .*Receiver<.*BuiltInFields, false>;/)
  },
)

describe.each(compilers)('in a CommonJS file, on TypeScript %s', (version) => {
  const options = { ...strict, ...web, skipLibCheck: true }
  const written = (name: string, source: string): string => {
    writeFileSync(join(inject('consumer'), name), source)
    return name
  }
  const required = "import { createReceiver } from 'fleethook'\ncreateReceiver({ secret: 'a-long-random-value' })\n"

  test('the package can be required with `module: nodenext`', () => {
    const file = written('required.cts', required)
    expect(compile(version, { ...options, module: 'nodenext' }, file)).toEqual({ status: 0, output: '' })
  })

  test('with `module: node16` that is TS1479, and `import()` and a type with its resolution mode compile', () => {
    const { status, output } = compile(version, { ...options, module: 'node16' }, written('required.cts', required))
    expect([status === 0, output]).toEqual([false, expect.stringMatching(/^required\.cts\(1,\d+\): error TS1479/)])
    const source = `import type { Receiver } from 'fleethook' with { 'resolution-mode': 'import' }
export async function make(): Promise<Receiver> {
  const { createReceiver } = await import('fleethook')
  return createReceiver({ secret: 'a-long-random-value' })
}\n`
    const file = written('imported.cts', source)
    expect(compile(version, { ...options, module: 'node16' }, file)).toEqual({ status: 0, output: '' })
  })
})

test.each(compilers)('control: TypeScript %s finds a wrong use', (version) => {
  const source = "import { createReceiver } from 'fleethook'\ncreateReceiver({ secret: 1 })\n"
  writeFileSync(join(inject('consumer'), 'wrong.ts'), source)
  const { status, output } = compile(version, { ...strict, ...web, module: 'nodenext' }, 'wrong.ts')
  expect(status).not.toBe(0)
  expect(output).toMatch(/^wrong\.ts\(2,\d+\): error TS2322/m)
})

test.each(compilers)('TypeScript %s says what to write in place of a wrong name or type argument', (version) => {
  const source = `import { createReceiver } from 'fleethook'
interface Env { SECRET: string }
createReceiver({ secret: false }).on('dta', () => {})
createReceiver({ secret: false }).batch('dta', { size: 2, withinMs: 1 }, () => {})
createReceiver<{ Bindings: Env }>({ secret: false })
createReceiver<Env>({ secret: false, fields: { Mood: 'number' } })
createReceiver<Env>({ secret: ({ SECRET }) => SECRET }).on('data', (event, { env }) => env.SECRET)\n`
  writeFileSync(join(inject('consumer'), 'names.ts'), source)
  const { output } = compile(version, { ...strict, ...web, module: 'nodenext' }, 'names.ts')
  const said = Map.groupBy(output.split(/^(?=names\.ts)/m), (text) => Number(/^names\.ts\((\d+)/.exec(text)?.[1]))
  for (const line of [3, 4])
    for (const topic of ['data', 'vehicle_data', 'gap', 'malformed'])
      expect(said.get(line)?.join()).toContain(`"${topic}"`)
  expect(said.get(5)?.join()).toContain('BindingsNotHonoEnv')
  expect(said.get(6)?.join()).toContain('MissingSecondTypeArgument')
  expect(said.has(7)).toBe(false)
})

function compile(
  version: string,
  compilerOptions: object,
  file: string,
): { readonly status: number | null; readonly output: string } {
  const cwd = inject('consumer')
  const config = join(cwd, 'tsconfig.json')
  writeFileSync(config, JSON.stringify({ compilerOptions, files: [file] }))
  const compiler = join(cwd, 'node_modules', `typescript-${version}`)
  const { status, stdout } = spawnSync(
    process.execPath,
    [join(compiler, 'bin/tsc'), '-p', config, '--pretty', 'false'],
    { cwd, encoding: 'utf8' },
  )
  return { status, output: stdout }
}
