import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { freePort } from '../conformance/spawn.ts'

/** A database server of the machine, for the time of a test. */
export interface DatabaseServer extends AsyncDisposable {
  readonly port: number
}

/** Servers refuse to run as root. */
function ids(user: string): { readonly uid?: number; readonly gid?: number } {
  if (userInfo().uid !== 0) return {}
  const idOf = (flag: string): number => Number(execFileSync('id', [flag, user], { encoding: 'utf8' }))
  return { uid: idOf('-u'), gid: idOf('-g') }
}

function newestPostgres(): string | undefined {
  if (process.env['POSTGRES_BIN'] !== undefined) return process.env['POSTGRES_BIN']
  try {
    const [newest] = readdirSync('/usr/lib/postgresql').toSorted((one, other) => Number(other) - Number(one))
    return newest === undefined ? undefined : join('/usr/lib/postgresql', newest, 'bin')
  } catch {
    return undefined
  }
}

/** The programs of the server: those of `POSTGRES_BIN`, or of Debian's newest. */
const postgresBin = newestPostgres()
/** Whether Debian's `postgresql` is installed. CI installs it. */
export const hasPostgres: boolean = postgresBin !== undefined

/** Whether a standby can be made. Some packages of Postgres have only the server. */
export const hasBaseBackup: boolean = existsSync(join(postgresBin ?? '', 'pg_basebackup'))

export interface PostgresServer extends DatabaseServer {
  /** Where its files are. Its user owns it. */
  readonly folder: string
  /** Stops it as a crash does, and starts it again. `SIGKILL`: its first process ends, and the others end when they notice. */
  crash(how?: 'SIGQUIT' | 'SIGKILL'): Promise<void>
  /** Stops it, by default as an update does. Resolves to what starts it again. */
  stop(how?: 'SIGINT' | 'SIGQUIT'): Promise<() => void>
  /** Stops it as a crash does, for good. */
  kill(): Promise<void>
  /** Stops all of its processes where they are. Returns what lets them go on. */
  freeze(): () => void
  /** Starts a replica of it. `name` is for `synchronous_standby_names`. Read-only until `pg_promote()`. */
  standby(name: string): Promise<PostgresServer>
}

/** `settings`: such as `fsync=off`. */
export async function startPostgres(settings: readonly string[] = []): Promise<PostgresServer> {
  return startOn(settings, (data, options) => {
    runTool('initdb', ['-D', data, '-U', 'test', '--auth=trust', '--no-sync', '--no-locale', '-E', 'UTF8'], options)
  })
}

type Options = { readonly uid?: number; readonly gid?: number; readonly cwd: string; readonly stdio: 'ignore' }

function runTool(name: string, args: readonly string[], options: Options): void {
  execFileSync(join(postgresBin ?? '', name), args, options)
}

async function startOn(
  settings: readonly string[],
  fill: (data: string, options: Options) => void,
): Promise<PostgresServer> {
  const as = ids('postgres')
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-postgres-'))
  if (as.uid !== undefined && as.gid !== undefined) chownSync(folder, as.uid, as.gid)
  const data = join(folder, 'data')
  const options: Options = { ...as, cwd: folder, stdio: 'ignore' }
  fill(data, options)
  const port = await freePort()
  // The tests of a file share it, and their pools keep idle connections for a while.
  const given = ['listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`, 'max_connections=300', ...settings]
  const args = ['-D', data, '-p', String(port), ...given.flatMap((setting) => ['-c', setting])]
  let isWanted = true
  let server: ChildProcess | undefined
  let mayRun: Promise<void> = Promise.resolve()
  /** Resolves when it has ended for good. It does not start while processes of the one before still run, so that is tried again. */
  async function run(): Promise<void> {
    while (isWanted) {
      await mayRun
      server = spawn(join(postgresBin ?? '', 'postgres'), args, options)
      await once(server, 'exit')
      if (isWanted) await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
  const running = run()
  async function end(signal: NodeJS.Signals): Promise<void> {
    isWanted = false
    server?.kill(signal)
    await running
  }
  const signal = (pids: readonly number[], name: NodeJS.Signals): void => {
    for (const pid of pids) {
      try {
        process.kill(pid, name)
      } catch {
        // It has ended.
      }
    }
  }
  return {
    port,
    folder,
    async crash(how = 'SIGQUIT') {
      if (server === undefined || server.exitCode !== null || server.signalCode !== null) return
      const ended = once(server, 'exit')
      server.kill(how)
      await ended
    },
    async stop(how = 'SIGINT') {
      const { promise, resolve } = Promise.withResolvers<void>()
      mayRun = promise
      const ended = server && once(server, 'exit')
      server?.kill(how)
      await ended
      return resolve
    },
    kill: () => end('SIGQUIT'),
    freeze() {
      const pid = server?.pid
      const frozen = pid === undefined ? [] : [...childrenOf(pid), pid]
      signal(frozen, 'SIGSTOP')
      // They have to be let go even when the first of them has ended meanwhile: the next server waits for all of them.
      return () => signal(frozen, 'SIGCONT')
    },
    standby: (name) =>
      startOn(settings, (copy, as) => {
        const from = `host=127.0.0.1 port=${port} user=test application_name=${name}`
        runTool('pg_basebackup', ['-D', copy, '-d', from, '-R', '-X', 'stream', '-c', 'fast', '--no-sync'], as)
      }),
    async [Symbol.asyncDispose]() {
      if (isWanted) await end('SIGINT')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function childrenOf(pid: number): readonly number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim()
    return text === '' ? [] : text.split(' ').map(Number)
  } catch {
    return []
  }
}

export const hasPgBouncer: boolean = hasProgram('pgbouncer')

/** A pooler in front of a server of {@link startPostgres}. */
export async function startPgBouncer(
  server: PostgresServer,
  mode: 'transaction' | 'session' = 'transaction',
): Promise<DatabaseServer> {
  const as = ids('postgres')
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-pgbouncer-'))
  const port = await freePort()
  const users = join(folder, 'users')
  writeFileSync(users, '"test" ""\n')
  const config = join(folder, 'pgbouncer.ini')
  const settings = [
    ...['listen_addr = 127.0.0.1', `listen_port = ${port}`, 'unix_socket_dir =', 'auth_type = trust'],
    `auth_file = ${users}`,
    // It does not try to connect again for this time, in seconds.
    ...[`pool_mode = ${mode}`, `default_pool_size = ${mode === 'session' ? 24 : 4}`, 'server_login_retry = 1'],
  ]
  writeFileSync(
    config,
    ['[databases]', `postgres = host=127.0.0.1 port=${server.port}`, '[pgbouncer]', ...settings, ''].join('\n'),
  )
  if (as.uid !== undefined && as.gid !== undefined)
    for (const path of [folder, users, config]) chownSync(path, as.uid, as.gid)
  const pooler = spawn('pgbouncer', [config], { ...as, cwd: folder, stdio: 'ignore' })
  const ended = once(pooler, 'exit')
  return {
    port,
    async [Symbol.asyncDispose]() {
      pooler.kill('SIGKILL')
      await ended
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
