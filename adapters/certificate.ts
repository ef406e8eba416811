import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { clearInterval, setInterval } from 'node:timers'
import { createSecureContext } from 'node:tls'
import { FleethookError } from '../src/base/errors.ts'
import type { TlsFiles, TlsOptions, TlsTexts } from './serve-options.ts'

/** The certificate of a server that listens: its files are watched, and somebody hears before it expires. */
export interface Certificate {
  /** What to listen with. */
  readonly texts: TlsTexts
  /** Serves another pair, or what is in the files now. Throws `option_invalid` when it cannot be served, and keeps the old pair. */
  renew(tls?: TlsOptions): void
  /**
   * Begins to watch. `use` serves another pair for new connections; `undefined`: this runtime cannot. `note` hears when the served certificate ends, in
   * milliseconds since the epoch, now and with each renewal.
   */
  watch(use: ((texts: TlsTexts) => void) | undefined, note: (untilMs: number) => void): void
  stop(): void
}

/** How often files are looked at, in milliseconds. Watching would miss the links that some tools swap. */
const lookMs = 1_000
/** A certificate and its key are two files, and one is written after the other. A pair that does not match for this long is said. */
const patienceMs = 10_000
const dayMs = 86_400_000
/** How long before the end somebody should hear of it. A certificate that lives for days: in its last third. */
const warnMs = 14 * dayMs

/** Reads the option `tls`. Throws `option_invalid`. */
export function createCertificate(tls: TlsOptions, runtime: string): Certificate {
  let files = filesOf(tls)
  let texts = textsOf(tls)
  let use: ((texts: TlsTexts) => void) | undefined
  let note = (_: number): void => {}
  let timer: NodeJS.Timeout | undefined
  let served = files && stampOf(files)
  /** Since when the files hold something that is not served, and whether that was said. */
  let waiting: { readonly sinceMs: number; isSaid: boolean } | undefined
  let warnedMs = -Infinity

  function apply(given: TlsTexts): void {
    if (use === undefined) {
      throw new FleethookError('option_invalid', `${runtime} cannot change the certificate of a server that listens.`, {
        hint: 'Restart the process, terminate TLS in a proxy, or use `serve` of fleethook/node.',
      })
    }
    check(given)
    use(given)
    texts = given
    noteEnd()
    warnedMs = -Infinity
    warnOfEnd()
  }

  function noteEnd(): void {
    const end = endOf(texts)
    if (end !== undefined) note(end.ms)
  }

  function look(): void {
    warnOfEnd()
    if (files === undefined) return
    const stamp = stampOf(files)
    if (stamp === served) return void (waiting = undefined)
    const since = (waiting ??= { sinceMs: performance.now(), isSaid: false })
    try {
      const found = readFiles(files)
      if (found.cert !== texts.cert || found.key !== texts.key) {
        apply(found)
        // What to do about `serving the renewed certificate …`: Nothing to do.
        console.info(`fleethook: serving the renewed certificate ${files.certFile}${until(found)}.`)
      }
      served = stamp
      waiting = undefined
    } catch (error) {
      if (since.isSaid || performance.now() - since.sinceMs < (use === undefined ? 0 : patienceMs)) return
      since.isSaid = true
      const why = error instanceof FleethookError ? `${error.message} ${error.hint ?? ''}`.trim() : String(error)
      // What to do about `the certificate on disk is not in use`: The key does not fit, a file is half written, or this runtime
      // cannot change it.
      console.error(`fleethook: the certificate on disk is not in use${until(texts)}. ${why}`)
    }
  }

  function warnOfEnd(isStart = false): void {
    const nowMs = Date.now()
    const end = endOf(texts)
    if (end === undefined || nowMs - warnedMs < dayMs) return
    const leftMs = end.ms - nowMs
    if (leftMs > (isStart ? warnMs : Math.min(warnMs, end.livesMs / 3))) return
    warnedMs = nowMs
    const when = new Date(end.ms).toISOString().slice(0, 16).replace('T', ' ')
    // What to do about `the certificate expires at`, `the certificate expired at`: Renew it: with `verify`, the service posts nothing afterward. Of a
    // proxy, only `fleethook doctor --url` says it.
    if (leftMs <= 0)
      console.error(
        `fleethook: the certificate expired at ${when} UTC. The service posts nothing to a server whose certificate it checks and finds expired.`,
      )
    else
      console.warn(
        `fleethook: the certificate expires at ${when} UTC, ${leftMs < 2 * dayMs ? `in ${Math.ceil(leftMs / 3_600_000)} hours` : `in ${Math.floor(leftMs / dayMs)} days`}. Renew it.`,
      )
  }

  return {
    get texts() {
      return texts
    },
    renew(given) {
      const next = given ?? files
      if (next === undefined) {
        throw new FleethookError(
          'option_invalid',
          'renewCertificate was given no certificate, and serve no files of one.',
          {
            hint: 'Pass { cert, key }, or give serve `tls: { certFile, keyFile }`.',
          },
        )
      }
      apply(textsOf(next))
      files = filesOf(next)
      served = files && stampOf(files)
      waiting = undefined
    },
    watch(given, noting) {
      use = given
      note = noting
      noteEnd()
      warnOfEnd(true)
      timer = setInterval(look, lookMs)
      timer.unref()
    },
    stop: () => clearInterval(timer),
  }
}

function filesOf(tls: TlsOptions): TlsFiles | undefined {
  return 'certFile' in tls ? tls : undefined
}

function textsOf(tls: TlsOptions): TlsTexts {
  const given = Object.entries(tls).flatMap(([name, value]) => (value === undefined ? [] : [name]))
  if ('certFile' in tls && given.length === 2 && given.includes('keyFile')) return readFiles(tls)
  if ('cert' in tls && given.length === 2 && given.includes('key')) return tls
  throw new FleethookError('option_invalid', `Option \`tls\` of serve has ${given.join(' and ') || 'nothing'}.`, {
    hint: 'Give cert and key as texts, or certFile and keyFile as paths.',
  })
}

function readFiles({ certFile, keyFile }: TlsFiles): TlsTexts {
  return { cert: readPem('certFile', certFile), key: readPem('keyFile', keyFile) }
}

function readPem(option: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : 'it failed'
    throw new FleethookError('option_invalid', `\`tls.${option}\` of serve could not be read: ${path}, ${why}.`, {
      cause,
    })
  }
}

/** Changes with the content, also when a link on the way is swapped. */
function stampOf({ certFile, keyFile }: TlsFiles): string {
  return [certFile, keyFile]
    .map((path) => {
      const found = statSync(path, { throwIfNoEntry: false })
      return found === undefined ? 'missing' : [found.dev, found.ino, found.size, found.mtimeMs].join(' ')
    })
    .join(', ')
}

/** Throws `option_invalid` for a pair that no client could use. Its errors show nothing of the key. */
function check({ cert, key }: TlsTexts): void {
  let problem = 'The certificate or its key is no whole PEM file.'
  try {
    if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
      problem = 'The certificate and the key do not belong together.'
    createSecureContext({ cert, key })
  } catch (cause) {
    throw new FleethookError('option_invalid', problem, { cause })
  }
}

/** When a certificate ends, and how long it lives. `undefined`: this runtime cannot read it. */
function endOf({ cert }: TlsTexts): { readonly ms: number; readonly livesMs: number } | undefined {
  try {
    const { validFrom, validTo } = new X509Certificate(cert)
    const [from, to] = [Date.parse(validFrom), Date.parse(validTo)]
    return Number.isNaN(to) ? undefined : { ms: to, livesMs: to - from }
  } catch {
    return undefined
  }
}

function until(texts: TlsTexts): string {
  const end = endOf(texts)
  return end === undefined ? '' : `, valid until ${new Date(end.ms).toISOString().slice(0, 10)}`
}
