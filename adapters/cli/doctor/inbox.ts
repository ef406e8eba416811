import {
  closeSync,
  existsSync,
  fdatasyncSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { FleethookError } from '../../../src/base/errors.ts'
import { secretErrors } from '../../../src/receiver/refusals.ts'
import { applicationId, schemaVersion } from '../../inbox/sqlite/file/schema.ts'
import { codeOf } from '../exchange.ts'
import { type Circumstances, fail, type Finding, type KeptError, ok, okIf, skip, warn } from './check.ts'
import { numberAt } from './webhook.ts'

/** File systems on which locks or syncs do not do what SQLite needs, by the type number of `statfs` on Linux. */
const remoteFileSystems: ReadonlyMap<number, string> = new Map([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff53_4d42, 'CIFS'],
  [0xfe53_4d42, 'SMB'],
  [0x6573_5546, 'FUSE'],
  [0x0102_1997, '9p'],
])
/** File systems on which a file is lost with the machine or the container. */
const passingFileSystems: ReadonlyMap<number, string> = new Map([
  [0x0102_1994, 'tmpfs'],
  [0x8584_58f6, 'ramfs'],
  [0x794c_7630, 'overlay'],
])

const syncs = 20
const pageBytes = 4_096
/** With slower syncs, one connection gets few acknowledgments per second. In milliseconds. */
const slowSyncMs = 20
/** The most bytes that the default retention keeps: settled messages of a day, and dead letters. */
const usualBytes = (256 + 1_024) * 1_048_576

/** Checks the inbox file and its disk. Opens no database, so it may run beside a receiver. */
export async function* checkInbox({ inbox, ask }: Circumstances): AsyncIterable<Finding> {
  const path = resolve(inbox)
  const folder = dirname(path)
  if (!existsSync(folder)) {
    yield skip('inbox.file', `there is no folder ${folder}: no receiver has used this inbox yet, or --inbox is missing`)
    return
  }
  const exists = existsSync(path)
  yield exists ? ok('inbox.file', path) : skip('inbox.file', `there is no file ${path} yet`)
  yield fileSystem(folder)
  yield freeSpace(folder)
  yield syncTime(folder)
  if (!exists) return
  yield access(path)
  yield schema(path)
  const damaged = readdirSync(folder).filter(
    (name) => name.startsWith(`${basename(path)}.damaged-`) && !/-(wal|shm)$/.test(name),
  )
  if (damaged.length > 0)
    yield warn(
      'inbox.damaged',
      `There is a damaged file beside it: ${damaged.join(', ')}. The messages that could be read are in the inbox.`,
      'Find out why (docs/inbox.md), then delete it.',
    )
  yield await deadLetters(ask)
}

function fileSystem(folder: string): Finding {
  const id = 'inbox.disk'
  const { type } = statfsSync(folder)
  const remote = process.platform === 'linux' ? remoteFileSystems.get(type >>> 0) : undefined
  const passing = process.platform === 'linux' ? passingFileSystems.get(type >>> 0) : undefined
  if (remote !== undefined)
    return fail(
      id,
      `${folder} is on ${remote}. Locks and syncs of SQLite do not hold there.`,
      'Put the inbox on a local disk.',
    )
  if (passing !== undefined)
    return warn(
      id,
      `${folder} is on ${passing}: the inbox is lost with the machine or the container.`,
      'Mount a volume there.',
    )
  return ok(id, `a local file system (type 0x${(type >>> 0).toString(16)})`)
}

function freeSpace(folder: string): Finding {
  const id = 'inbox.space'
  const { bavail, bsize } = statfsSync(folder)
  const mebibytes = Math.floor((bavail * bsize) / 1_048_576)
  if (mebibytes < 64)
    return fail(
      id,
      `Only ${mebibytes} MiB are free. The receiver refuses messages when the disk is full.`,
      'Free space, or lower the retention of the inbox.',
    )
  return okIf(bavail * bsize >= usualBytes, id, `${mebibytes} MiB free`).orWarn(
    `${mebibytes} MiB are free. With the default retention, the inbox can take 1,280 MiB.`,
    'Free space, or lower the retention of the inbox.',
  )
}

function syncTime(folder: string): Finding {
  const id = 'inbox.sync'
  try {
    const scratch = mkdtempSync(join(folder, '.fleethook-doctor-'))
    try {
      const file = openSync(join(scratch, 'sync'), 'w')
      const page = Buffer.alloc(pageBytes, 1)
      const times = Array.from({ length: syncs }, () => {
        const startedAt = performance.now()
        writeSync(file, page)
        fdatasyncSync(file)
        return performance.now() - startedAt
      }).toSorted((one, other) => one - other)
      closeSync(file)
      const [p50 = 0, p99 = 0] = [times[syncs / 2], times.at(-1)]
      const found = `${syncs} syncs of 4 KiB: p50 ${p50.toFixed(1)} ms, slowest ${p99.toFixed(1)} ms`
      return p50 > slowSyncMs
        ? warn(id, `The disk is slow. ${found}.`, 'Use another disk, or sqliteInbox({ thread: true }).')
        : ok(id, found)
    } finally {
      rmSync(scratch, { recursive: true, force: true })
    }
  } catch (error) {
    return fail(
      id,
      `${folder} cannot be written: ${codeOf(error)}.`,
      'Check the owner and the mode of the folder, and the disk.',
    )
  }
}

function access(path: string): Finding {
  const id = 'inbox.access'
  if (process.platform === 'win32') return skip(id, 'not checked on this system')
  const { mode, uid } = lstatSync(path)
  if (uid !== process.getuid?.() && process.getuid?.() !== 0)
    return warn(
      id,
      `The file belongs to user ${uid}, and this command runs as ${process.getuid?.()}.`,
      'Run it as the user of the receiver.',
    )
  return okIf((mode & 0o077) === 0, id, 'only its owner can read it').orWarn(
    `Others can read the file (mode ${(mode & 0o777).toString(8)}). It holds positions of vehicles.`,
    `chmod 600 ${path}`,
  )
}

/** The header of a SQLite file has the version of our schema at byte 60 and the owner's number at byte 68. */
function schema(path: string): Finding {
  const id = 'inbox.schema'
  const header = Buffer.alloc(100)
  const file = openSync(path, 'r')
  try {
    readSync(file, header, 0, 100, 0)
  } finally {
    closeSync(file)
  }
  if (!header.toString('latin1').startsWith('SQLite format 3\0'))
    return statSync(path).size === 0
      ? skip(id, 'the file is empty')
      : fail(id, `${path} is not a SQLite file.`, 'Name another file with --inbox, or move this one away.')
  const [version, owner] = [header.readUInt32BE(60), header.readUInt32BE(68)]
  if (owner !== applicationId)
    return fail(id, `${path} is a database of another program.`, 'Name another file with --inbox.')
  return version > schemaVersion
    ? fail(id, `The file has schema ${version}, and this fleethook knows ${schemaVersion}.`, 'Update fleethook.')
    : ok(id, `schema ${version}`)
}

async function deadLetters(ask: Circumstances['ask']): Promise<Finding> {
  const id = 'inbox.dead'
  try {
    const { letters = [] }: { letters?: readonly unknown[] } = Object(await ask('GET', '/dead?limit=1000'))
    if (letters.length === 0) return ok(id, 'no dead letters')
    return warn(
      id,
      `${letters.length}${letters.length === 1_000 ? ' or more' : ''} dead letters wait: a handler failed until its attempts ended.`,
      'fleethook dead list shows the errors. Fix the handler, then fleethook dead replay.',
    )
  } catch (error) {
    return skip(id, error instanceof FleethookError ? error.message : codeOf(error))
  }
}

/** The receiver that has the inbox, over the socket beside the file. */
export async function* checkReceiver({ inbox, ask, errors }: Circumstances): AsyncIterable<Finding> {
  let stats: unknown
  try {
    stats = await ask('GET', '/stats')
  } catch (error) {
    yield skip(
      'receiver.running',
      `no receiver answers for ${inbox}: ${error instanceof FleethookError ? error.message : codeOf(error)}`,
    )
    return
  }
  const at = (...keys: readonly string[]): number => numberAt(stats, ...keys)
  yield Object(stats)['draining'] === true
    ? warn('receiver.running', 'The receiver is stopping.', 'Start it again.')
    : ok('receiver.running', 'it answers on its control socket')
  const lastMs = at('lastReceivedAtMs')
  const received = `${at('received')} messages, the last ${Math.round((Date.now() - lastMs) / 1_000)} s ago`
  yield okIf(lastMs > 0, 'receiver.received', received).orWarn(
    'The receiver has taken no message since it started.',
    'Look at the groups webhook and proxy.',
  )
  const remembered = await errors().catch((): readonly KeptError[] => [])
  yield refusedRequests(Object.entries(Object(stats)['refused'] ?? {}), remembered, lastMs > 0)
  yield failingHandlers(remembered, at('pending', 'messages'))
  const oldestMs = at('inbox', 'oldestWaitingMs')
  const waiting = `${at('pending', 'messages')} messages wait`
  yield okIf(oldestMs <= 60_000, 'receiver.backlog', waiting).orWarn(
    `${waiting}, the oldest for ${Math.round(oldestMs / 1_000)} s.`,
    'fleethook tail --errors shows handlers that fail. Slow handlers need more `concurrency` or `batch`.',
  )
  if (at('lost') > 0)
    yield fail(
      'receiver.lost',
      `${at('lost')} acknowledged messages were lost.`,
      'Use a durable inbox, and see docs/reliability.md.',
    )
  if (at('openGaps') > 0)
    yield warn(
      'receiver.gaps',
      `${at('openGaps')} gaps wait for a handler.`,
      "Register a handler: receiver.on('gap', …).",
    )
  if (at('drifted') > 0)
    yield warn(
      'receiver.drift',
      `${at('drifted')} values had a type that the catalogue does not expect.`,
      'Update fleethook, or name the fields in the option `fields`.',
    )
}

/** What was refused beside the requests of the group `proxy`, and what to do about the most frequent reason. */
function refusedRequests(
  counts: readonly (readonly [string, number])[],
  remembered: readonly KeptError[],
  receives: boolean,
): Finding {
  const id = 'receiver.refused'
  const own = (error: string): number =>
    remembered.filter((each) => each.kind === 'refused' && each.isTest && each.error === error).length
  const others = counts
    .map(([error, count]) => [error, count - own(error)] as const)
    .filter(([, count]) => count > 0)
    .toSorted(([, one], [, other]) => other - one)
  const [most] = others
  if (most === undefined)
    return ok(id, counts.length === 0 ? 'nothing was refused' : 'only tests of doctor were refused')
  const last = remembered.findLast(({ kind, isTest, error }) => kind === 'refused' && !isTest && error === most[0])
  const text = `Refused since the start: ${others.map(([error, count]) => `${error} ${count}`).join(', ')}.${last === undefined ? '' : ` The last at ${last.at}.`}`
  const todo = `${most[0]}: ${last?.hint ?? 'see docs/troubleshooting.md.'}`
  if (!secretErrors.has(most[0])) return warn(id, text, todo)
  // A stranger can send wrong secrets too, so they are no failure while other messages arrive.
  return (receives ? warn : fail)(id, text, `${todo} \`fleethook webhook set\` sends WEBHOOK_SECRET to the service.`)
}

/** The handlers that failed, by their name and topic. Without the messages of errors, which can quote a payload. */
function failingHandlers(remembered: readonly KeptError[], pending: number): Finding {
  const id = 'receiver.handlers'
  const failures = remembered.filter(({ kind }) => kind === 'failed')
  const byHandler = Map.groupBy(failures, ({ handler = 'the inbox', topic }) =>
    topic === undefined ? handler : `${handler} (${topic})`,
  )
  if (byHandler.size === 0) return ok(id, 'no handler failed')
  const described = [...byHandler].map(([name, all]) => {
    const { error, attempt } = all.at(-1) ?? { error: '', attempt: 0 }
    const thrown = /^[\w.$]+/.exec(error)?.[0] ?? 'an error'
    return `${name} threw ${thrown} ${all.length === 1 ? 'once' : `${all.length} times`}, last in attempt ${attempt}`
  })
  const nextAt = failures.findLast((each) => each.nextAt !== undefined)?.nextAt
  const isRetried = nextAt !== undefined && pending > 0 && Date.parse(nextAt) > Date.now()
  const found = `${described.slice(0, 3).join('; ')}${described.length > 3 ? '; …' : ''}.`
  const todo =
    'fleethook tail --errors shows the errors, and fleethook inspect the messages. Fix the handler and restart the receiver.'
  return isRetried ? fail(id, `${found} The next attempt is at ${nextAt}.`, todo) : warn(id, found, todo)
}
