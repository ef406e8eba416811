import { execFileSync, spawn } from 'node:child_process'
import { chownSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'

/** A database server of the machine, for the time of a test. */
export interface DatabaseServer extends AsyncDisposable {
  readonly port: number
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** Servers refuse to run as root. */
function ids(user: string): { readonly uid?: number; readonly gid?: number } {
  if (userInfo().uid !== 0) return {}
  const idOf = (flag: string): number => Number(execFileSync('id', [flag, user], { encoding: 'utf8' }))
  return { uid: idOf('-u'), gid: idOf('-g') }
}

function newestPostgres(): string | undefined {
  try {
    const [newest] = readdirSync('/usr/lib/postgresql').toSorted((one, other) => Number(other) - Number(one))
    return newest === undefined ? undefined : join('/usr/lib/postgresql', newest, 'bin')
  } catch {
    return undefined
  }
}

const postgresBin = newestPostgres()
/** Whether Debian's `postgresql` is installed. CI installs it. */
export const hasPostgres: boolean = postgresBin !== undefined

export interface PostgresServer extends DatabaseServer {
  /** Stops it as a crash does, and starts it again. */
  crash(): Promise<void>
}

/** `settings`: such as `fsync=off`. */
export async function startPostgres(settings: readonly string[] = []): Promise<PostgresServer> {
  const as = ids('postgres')
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-postgres-'))
  if (as.uid !== undefined && as.gid !== undefined) chownSync(folder, as.uid, as.gid)
  const data = join(folder, 'data')
  const options = { ...as, cwd: folder, stdio: 'ignore' } as const
  execFileSync(join(postgresBin ?? '', 'initdb'), ['-D', data, '-U', 'test', '--auth=trust', '--no-sync'], options)
  const port = await freePort()
  const args = [
    '-D',
    data,
    '-p',
    String(port),
    '-c',
    'listen_addresses=127.0.0.1',
    '-c',
    `unix_socket_directories=${folder}`,
    ...settings.flatMap((setting) => ['-c', setting]),
  ]
  function start(): (signal: NodeJS.Signals) => Promise<unknown> {
    const server = spawn(join(postgresBin ?? '', 'postgres'), args, options)
    const ended = new Promise((resolve) => server.once('exit', resolve))
    return (signal) => {
      server.kill(signal)
      return ended
    }
  }
  let stop = start()
  return {
    port,
    async crash() {
      await stop('SIGQUIT')
      stop = start()
    },
    async [Symbol.asyncDispose]() {
      await stop('SIGINT')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

export const hasMysql: boolean = hasProgram('mariadbd')

function hasProgram(name: string): boolean {
  try {
    execFileSync('which', [name], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

export async function startMysql(): Promise<DatabaseServer> {
  const as = ids('mysql')
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-mysql-'))
  if (as.uid !== undefined && as.gid !== undefined) chownSync(folder, as.uid, as.gid)
  const options = { ...as, cwd: folder, stdio: 'ignore' } as const
  const common = ['--no-defaults', `--datadir=${folder}/data`]
  execFileSync('mariadb-install-db', [...common, '--auth-root-authentication-method=normal'], options)
  const port = await freePort()
  const server = spawn(
    'mariadbd',
    [...common, `--port=${port}`, '--bind-address=127.0.0.1', `--socket=${folder}/socket`, `--pid-file=${folder}/pid`],
    options,
  )
  const ended = new Promise((resolve) => server.once('exit', resolve))
  return {
    port,
    async [Symbol.asyncDispose]() {
      server.kill('SIGTERM')
      await ended
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
