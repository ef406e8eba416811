// `npm run generate` writes every generated file. `npm run generate -- <name> [arguments]` writes one: see `--help`.
import { spawnSync } from 'node:child_process'

const generators: Readonly<Record<string, { readonly writes: readonly string[]; readonly from: string }>> = {
  catalogue: { writes: ['src/events/catalogue.generated.ts'], from: 'scripts/fields.json, or a list of your own' },
  inspector: { writes: ['src/inspector/page.generated.ts'], from: 'src/inspector/page' },
  metrics: { writes: ['docs/observing.md'], from: 'src/operator/measures.ts' },
  openapi: { writes: ['docs/openapi.json'], from: 'scripts/openapi-document.ts' },
  troubleshooting: {
    writes: ['docs/troubleshooting.md', 'docs/http.md'],
    from: 'comments at lines of the log and at codes of errors',
  },
}

const [given, ...args] = process.argv.slice(2)
if (given !== undefined && generators[given] === undefined) {
  console.log('npm run generate -- <name>\n')
  for (const [name, { writes, from }] of Object.entries(generators))
    console.log(`  ${name.padEnd(17)}${writes.join(', ')}, from ${from}`)
  process.exitCode = given === '--help' ? 0 : 1
} else {
  for (const name of given === undefined ? Object.keys(generators) : [given]) {
    const { status } = spawnSync(process.execPath, [`scripts/${name}.ts`, ...args], { stdio: 'inherit' })
    if (status !== 0) process.exit(status ?? 1)
  }
  if (args.length === 0) spawnSync('prettier --write --log-level warn docs/openapi.json', { shell: true })
}
