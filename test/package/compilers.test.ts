import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, inject, test } from 'vitest'
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

const compilers = inForm({ short: ['7.0'], full: ['5.9', '6.0', '7.0'] })
const cases = compilers.flatMap((version) =>
  Object.entries(settings).map(([name, options]) => ({ version, name, options })),
)

test.each(inForm({ short: cases.slice(0, 1), full: cases }))(
  'a strict project compiles on TypeScript $version with $name',
  ({ version, options }) => {
    expect(compile(version, options, 'typed.ts')).toEqual({ status: 0, output: '' })
  },
)

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
    expect(declared).toMatch(/receiver: .*Receiver<.*BuiltInFields>;/)
  },
)

test.each(compilers)('control: TypeScript %s finds a wrong use', (version) => {
  const source = "import { createReceiver } from 'fleethook'\ncreateReceiver({ secret: 1 })\n"
  writeFileSync(join(inject('consumer'), 'wrong.ts'), source)
  const { status, output } = compile(version, { ...strict, ...web, module: 'nodenext' }, 'wrong.ts')
  expect(status).not.toBe(0)
  expect(output).toMatch(/^wrong\.ts\(2,\d+\): error TS2322/m)
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
