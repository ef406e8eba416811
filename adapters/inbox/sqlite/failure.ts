import { FleethookError } from '../../../src/base/errors.ts'

/** Result codes of SQLite, https://sqlite.org/rescode.html, without what extends them. */
const codes = { busy: 5, locked: 6, readOnly: 8, corrupt: 11, full: 13, cannotOpen: 14, notADatabase: 26 } as const

/**
 * What an error of SQLite means for the inbox:
 * - `inbox_full`: the disk has no room. The transaction was rolled back; the connection is as good as before.
 * - `inbox_locked`: another process has the file.
 * - `inbox_damaged`: what the file holds cannot be trusted.
 * - `inbox_unavailable`: anything else. The connection must not be used again: after a sync that failed the next one may say
 *   that all is well while nothing was written.
 */
export function failureOf(error: unknown, path: string): FleethookError {
  if (error instanceof FleethookError) return error
  const { code, text } = resultOf(error)
  const why = `${text}${code === undefined ? '' : ` (SQLite result ${code})`}`
  switch (code === undefined ? code : code & 0xff) {
    case codes.full:
      return new FleethookError('inbox_full', `The disk of the inbox ${path} is full: ${why}.`, {
        hint: 'Make room on the disk; the inbox goes on by itself.',
        cause: error,
      })
    case codes.busy:
    case codes.locked:
      return locked(path, error)
    case codes.corrupt:
    case codes.notADatabase:
      return new FleethookError('inbox_damaged', `The file of the inbox ${path} is damaged: ${why}.`, { cause: error })
    case codes.readOnly:
      return unavailable(path, why, 'Make the file and its folder writable; the inbox goes on by itself.', error)
    case codes.cannotOpen:
      return unavailable(path, why, whoWrites, error)
    default:
      return unavailable(path, why, isRefused(error) ? whoWrites : undefined, error)
  }
}

/** Another process has the file. */
export function locked(path: string, cause?: unknown): FleethookError {
  return new FleethookError('inbox_locked', `Another process has the inbox ${path}, or another receiver of this one.`, {
    hint: 'An inbox belongs to one receiver at a time: end the other one, give each a path of its own, or let this one wait for it with `waitMs`.',
    cause,
  })
}

const whoWrites =
  'The user that this process runs as has to be able to write the file and its folder; in a container that is the volume.'

/** Whether the operating system would not let the file or its folder be made. */
function isRefused(error: unknown): boolean {
  return error instanceof Error && 'code' in error && /^E(ACCES|PERM|ROFS|EXIST|NOTDIR)$/.test(String(error.code))
}

function unavailable(path: string, why: string, hint: string | undefined, cause: unknown): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} cannot be used: ${why}.`, {
    cause,
    ...(hint === undefined ? {} : { hint }),
  })
}

function resultOf(error: unknown): { readonly code: number | undefined; readonly text: string } {
  if (!(error instanceof Error)) return { code: undefined, text: `a ${typeof error} was thrown` }
  const { message: text } = error
  const { errcode } = error as { errcode?: unknown }
  // Deno gives the number with errors of prepared statements only. The texts are SQLite's own.
  return { code: typeof errcode === 'number' ? errcode : texts.find(([start]) => text.startsWith(start))?.[1], text }
}

const texts: readonly (readonly [start: string, code: number])[] = [
  ['database is locked', codes.busy],
  ['database table is locked', codes.locked],
  ['attempt to write a readonly database', codes.readOnly],
  ['database disk image is malformed', codes.corrupt],
  ['malformed database schema', codes.corrupt],
  ['database or disk is full', codes.full],
  ['unable to open database file', codes.cannotOpen],
  ['file is not a database', codes.notADatabase],
]
