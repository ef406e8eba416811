import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { packageRoot, packageVersion } from '../own-package.ts'
import { problemWithSecret } from '../send/post.ts'
import { type Circumstances, fail, type Finding, ok, okIf, skip, warn } from './check.ts'

/** Node 22.13 is the first with `node:sqlite` without a flag. */
const sqliteNode = '22.13'

/** The program that runs the receiver. */
export async function* checkRuntime(): AsyncIterable<Finding> {
  const { versions } = process
  const name = versions.bun === undefined ? (versions['deno'] === undefined ? 'Node' : 'Deno') : 'Bun'
  const version = versions.bun ?? versions['deno'] ?? versions.node
  const hasSqlite = await import('node:sqlite').then(
    () => true,
    () => false,
  )
  yield okIf(hasSqlite, 'runtime.version', `${name} ${version}, with node:sqlite`).orWarn(
    `${name} ${version} has no node:sqlite, so the inbox on SQLite does not run.`,
    `Install Node ${sqliteNode} or newer.`,
  )
  const own = realpathSync(packageRoot)
  const project = manifestBeside(process.cwd(), 'fleethook')
  if (project === undefined)
    yield ok('runtime.fleethook', `fleethook ${packageVersion()}; this folder does not install it`)
  else if (realpathSync(dirname(project.path)) === own) yield ok('runtime.fleethook', `fleethook ${packageVersion()}`)
  else
    yield warn(
      'runtime.fleethook',
      `This command is fleethook ${packageVersion()}, and the project has ${project.version}.`,
      'Run the command of the project: npx fleethook doctor in its folder.',
    )
  const hono = manifestBeside(process.cwd(), 'hono')
  const ours = manifestBeside(own, 'hono')
  if (hono === undefined || ours === undefined || realpathSync(hono.path) === realpathSync(ours.path))
    yield ok('runtime.hono', `hono ${(hono ?? ours)?.version ?? 'not found'}, one copy`)
  else
    yield warn(
      'runtime.hono',
      `There are two copies of hono: ${hono.version} for the project and ${ours.version} for fleethook.`,
      'Run npm dedupe, or install the version that fleethook asks for.',
    )
}

/** The manifest of the package that a file in this folder would import. */
function manifestBeside(folder: string, name: string): { readonly path: string; readonly version: string } | undefined {
  for (const place of createRequire(join(folder, 'file.js')).resolve.paths(name) ?? []) {
    const path = join(place, name, 'package.json')
    if (!existsSync(path)) continue
    const { version }: { version: string } = JSON.parse(readFileSync(path, 'utf8'))
    return { path, version }
  }
  return undefined
}

/** Values that our docs and examples show. */
const exampleValues = ['a-long-random-value', 'the-new-secret', 'the-old-one', 'changeme', 'secret']
/** As many as `openssl rand -hex 16` gives. */
const enoughBits = 128

/** Checks the secret without a request. Never shows a character of it. */
export async function* checkSecret({ variable, envFile }: Circumstances): AsyncIterable<Finding> {
  const secret = variable('WEBHOOK_SECRET')
  if (secret === undefined) {
    yield fail(
      'secret.set',
      `WEBHOOK_SECRET is set neither in the environment nor in ${envFile}.`,
      `Make one with openssl rand -hex 32, and write WEBHOOK_SECRET=… into ${envFile}.`,
    )
    return
  }
  const problem = problemWithSecret(secret)
  yield problem === undefined
    ? ok('secret.set', `WEBHOOK_SECRET is set: ${secret.length} characters`)
    : fail(
        'secret.set',
        problem,
        'Make another one with openssl rand -hex 32, and set it as `auth` of the webhook too.',
      )
  if (/^["'`].*["'`]$/.test(secret))
    yield fail(
      'secret.quotes',
      'The secret begins and ends with a quote. They probably belong to the syntax of the file or the shell.',
      'Remove the quotes.',
    )
  if (/^(bearer|basic|splunk|token) /i.test(secret))
    yield warn(
      'secret.scheme',
      'The secret begins with the name of an authentication scheme. The service sends `auth` exactly as it was set.',
      'Keep the name only if `auth` of the webhook begins with it too.',
    )
  const bits = guessedBits(secret)
  if (exampleValues.includes(secret.toLowerCase()))
    yield fail('secret.strength', 'The secret is the value of an example.', 'Make one with openssl rand -hex 32.')
  else if (bits < enoughBits)
    yield warn(
      'secret.strength',
      `The secret has about ${bits} bits. ${enoughBits} are enough.`,
      'Make one with openssl rand -hex 32.',
    )
  else yield ok('secret.strength', `about ${bits} bits, if it is random`)
  if (process.platform !== 'win32' && existsSync(envFile)) {
    const mode = statSync(envFile).mode & 0o777
    yield okIf((mode & 0o044) === 0, 'secret.file', `${envFile} is readable by its owner only`).orWarn(
      `Other users of this machine can read ${envFile} (mode ${mode.toString(8)}).`,
      `chmod 600 ${envFile}`,
    )
  }
}

/** An upper bound: the length times the bits of the used alphabet, and less if there are few different characters. */
function guessedBits(secret: string): number {
  const alphabet = [/[a-f]/, /[g-z]/, /[A-F]/, /[G-Z]/, /\d/, /[^\dA-Za-z]/].map((part) => part.test(secret))
  const sizes = [6, 20, 6, 20, 10, 32]
  const size = sizes.reduce((sum, each, index) => sum + (alphabet[index] ? each : 0), 0)
  return Math.floor(secret.length * Math.log2(Math.min(size, new Set(secret).size * 2)))
}

/** Compares the clock of this machine with that of the service. */
export async function* checkClock({ serviceUrl, signal }: Circumstances): AsyncIterable<Finding> {
  if (serviceUrl === undefined) {
    yield skip('clock.service', 'SERVICE_URL is not set, so there is no clock to compare with')
    return
  }
  try {
    const askedAt = Date.now()
    const response = await fetch(serviceUrl, { method: 'HEAD', redirect: 'manual', signal })
    const theirs = Date.parse(response.headers.get('date') ?? '')
    const apartSeconds = Math.round((theirs - (askedAt + Date.now()) / 2) / 1_000)
    if (Number.isNaN(theirs)) yield skip('clock.service', 'The service sends no Date header.')
    else if (Math.abs(apartSeconds) > 30)
      yield warn(
        'clock.service',
        `The clock of this machine and that of the service are ${Math.abs(apartSeconds)} s apart. The clock of a vehicle may add up to five minutes.`,
        'Turn time synchronization on: timedatectl set-ntp true.',
      )
    else yield ok('clock.service', `within ${Math.max(1, Math.abs(apartSeconds))} s of the service's clock`)
  } catch {
    yield skip('clock.service', `${new URL(serviceUrl).origin} could not be reached`)
  }
}
