import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { clearInterval, setInterval } from 'node:timers'
import { createSecureContext } from 'node:tls'
import { FleethookError } from '../src/base/errors.ts'
import type { TlsFiles, TlsOptions, TlsTexts } from './serve-options.ts'

/** How often files are looked at, in milliseconds. Watching would miss the links that some tools swap. */
const lookMs = 1_000
/** A certificate and its key are two files, and one is written after the other. A pair that does not match for this long is said. */
const patienceMs = 10_000
const dayMs = 86_400_000
/** How long before the end somebody should hear of it. A certificate that lives for days: in its last third. */
const warnMs = 14 * dayMs

/** The certificate of a server that listens: its files are watched, and somebody hears before it expires. */
export class Certificate {
  readonly #runtime: string
  #files: TlsFiles | undefined
  #texts: TlsTexts
  #use: ((texts: TlsTexts) => void) | undefined
  #note = (_: number): void => {}
  #timer: NodeJS.Timeout | undefined
  #served: string | undefined
  /** Since when the files hold something that is not served, and whether that was said. */
  #waiting: { readonly sinceMs: number; isSaid: boolean } | undefined
  #warnedMs = -Infinity

  /** Reads the option `tls`. Throws `option_invalid`. */
  constructor(tls: TlsOptions, runtime: string) {
    this.#runtime = runtime
    this.#files = filesOf(tls)
    this.#texts = textsOf(tls)
    this.#served = this.#files && stampOf(this.#files)
  }

  /** What to listen with. */
  get texts(): TlsTexts {
    return this.#texts
  }

  /**
   * Begins to watch. `use` serves another pair for new connections; `undefined`: this runtime cannot. `note` hears when the served certificate ends, in
   * milliseconds since the epoch, now and with each renewal.
   */
  watch(use: ((texts: TlsTexts) => void) | undefined, note: (untilMs: number) => void): void {
    this.#use = use
    this.#note = note
    this.#noteEnd()
    this.#warnOfEnd(true)
    this.#timer = setInterval(() => this.#look(), lookMs)
    this.#timer.unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Serves another pair, or what is in the files now. Throws `option_invalid` when it cannot be served, and keeps the old pair. */
  renew(given?: TlsOptions): void {
    const next = given ?? this.#files
    if (next === undefined) {
      throw new FleethookError(
        'option_invalid',
        'renewCertificate was given no certificate, and serve no files of one.',
        {
          hint: 'Pass { cert, key }, or give serve `tls: { certFile, keyFile }`.',
        },
      )
    }
    this.#apply(textsOf(next))
    this.#files = filesOf(next)
    this.#served = this.#files && stampOf(this.#files)
    this.#waiting = undefined
  }

  #apply(given: TlsTexts): void {
    if (this.#use === undefined) {
      throw new FleethookError(
        'option_invalid',
        `${this.#runtime} cannot change the certificate of a server that listens.`,
        {
          hint: 'Restart the process, terminate TLS in a proxy, or use `serve` of fleethook/node.',
        },
      )
    }
    check(given)
    this.#use(given)
    this.#texts = given
    this.#noteEnd()
    this.#warnedMs = -Infinity
    this.#warnOfEnd()
  }

  #noteEnd(): void {
    const end = endOf(this.#texts)
    if (end !== undefined) this.#note(end.ms)
  }

  #look(): void {
    this.#warnOfEnd()
    const files = this.#files
    if (files === undefined) return
    const stamp = stampOf(files)
    if (stamp === this.#served) return void (this.#waiting = undefined)
    const waiting = (this.#waiting ??= { sinceMs: performance.now(), isSaid: false })
    try {
      const found = readFiles(files)
      if (found.cert !== this.#texts.cert || found.key !== this.#texts.key) {
        this.#apply(found)
        // What to do about `serving the renewed certificate …`: Nothing to do.
        console.info(`fleethook: serving the renewed certificate ${files.certFile}${until(found)}.`)
      }
      this.#served = stamp
      this.#waiting = undefined
    } catch (error) {
      const patienceLeftMs = (this.#use === undefined ? 0 : patienceMs) - (performance.now() - waiting.sinceMs)
      if (waiting.isSaid || patienceLeftMs > 0) return
      waiting.isSaid = true
      const why = error instanceof FleethookError ? `${error.message} ${error.hint ?? ''}`.trim() : String(error)
      // What to do about `the certificate on disk is not in use`: The key does not fit, a file is half written, or this runtime
      // cannot change it.
      console.error(`fleethook: the certificate on disk is not in use${until(this.#texts)}. ${why}`)
    }
  }

  #warnOfEnd(isStart = false): void {
    const nowMs = Date.now()
    const end = endOf(this.#texts)
    if (end === undefined || nowMs - this.#warnedMs < dayMs) return
    const leftMs = end.ms - nowMs
    if (leftMs > (isStart ? warnMs : Math.min(warnMs, end.livesMs / 3))) return
    this.#warnedMs = nowMs
    const when = new Date(end.ms).toISOString().slice(0, 16).replace('T', ' ')
    // What to do about `the certificate expires at`, `the certificate expired at`: Renew it: with `verify`, the service posts nothing afterward. Only
    // `fleethook doctor --url` sees the certificate of a proxy.
    if (leftMs <= 0)
      console.error(
        `fleethook: the certificate expired at ${when} UTC. The service posts nothing to a server whose certificate it checks and finds expired.`,
      )
    else
      console.warn(
        `fleethook: the certificate expires at ${when} UTC, ${leftMs < 2 * dayMs ? `in ${Math.ceil(leftMs / 3_600_000)} hours` : `in ${Math.floor(leftMs / dayMs)} days`}. Renew it.`,
      )
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
