import { FleethookError } from '../src/base/errors.ts'

/** A signal that stops a server. */
export type Signal = 'SIGTERM' | 'SIGINT' | 'SIGHUP'

/** Options of `serve`, the same on every runtime. */
export interface ServeOptions {
  /** Default 3000. 0 takes any free port. */
  readonly port?: number
  /** The address to listen on. Default: every address of the machine. */
  readonly hostname?: string
  /** Certificate and key in PEM, to serve https without a proxy before it. */
  readonly tls?: { readonly cert: string; readonly key: string }
  /** How long stopping may take in all, in milliseconds: up to half of it for open connections, the rest for handlers. Default 25,000. */
  readonly graceMs?: number
  /** The signals that stop the server. Default `['SIGTERM', 'SIGINT']`; `false` for none. A second signal ends the process at once. */
  readonly signals?: readonly Signal[] | false
  /** How long to go on as before after a signal, while load balancers learn of it, in milliseconds. Default 0. */
  readonly delayBeforeCloseMs?: number
  /** Whether to say on the console where the server listens, what a 2xx means, and how a drain ended. Default `true`. */
  readonly announce?: boolean
}

/** Longer than this no timer can wait. */
const longestMs = 2 ** 31 - 1

/** Throws `option_invalid` for an option that cannot work: said here, it has the same words on every runtime. */
export function checkServeOptions({ port, hostname, tls, graceMs, delayBeforeCloseMs }: ServeOptions): void {
  checkNumber('port', port, 0, 65_535)
  checkNumber('graceMs', graceMs, 0, longestMs)
  checkNumber('delayBeforeCloseMs', delayBeforeCloseMs, 0, longestMs)
  if (hostname === '') throw invalid('hostname', 'is empty', 'Leave it out to listen on every address of the machine.')
  if (tls !== undefined && (!isText(tls.cert) || !isText(tls.key))) {
    throw invalid('tls', 'needs `cert` and `key`', 'Give the text of both in PEM, not the paths of their files.')
  }
}

/** Throws `option_invalid` unless the value is left out, or a whole number within these bounds. */
export function checkNumber(name: string, value: number | undefined, least = 1, most: number = longestMs): void {
  if (value === undefined || (Number.isInteger(value) && value >= least && value <= most)) return
  const hint =
    name === 'port' ? 'Is the environment variable set that it is read from? 0 takes any free port.' : undefined
  throw invalid(name, `must be a whole number from ${least} to ${most} and is ${String(value)}`, hint)
}

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== ''
}

function invalid(name: string, flaw: string, hint: string | undefined): FleethookError {
  return new FleethookError(
    'option_invalid',
    `Option \`${name}\` of serve ${flaw}.`,
    hint === undefined ? {} : { hint },
  )
}
