import { milliseconds, type Rule, type Rules, trueOrFalse, wholeNumber } from '../src/base/options.ts'

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
  /** The longest that stopping may take, in milliseconds: up to half of it for open connections, the rest for handlers. Default 25,000. */
  readonly graceMs?: number
  /** The signals that stop the server, or `false` for none. Default `['SIGTERM', 'SIGINT']`. A second signal ends the process at once. */
  readonly signals?: readonly Signal[] | false
  /** How long to go on as before after a signal, until load balancers have noticed it, in milliseconds. Default 0. */
  readonly delayBeforeCloseMs?: number
  /** Whether to print where the server listens, what a 2xx means, and how a drain ended. Default `true`. */
  readonly announce?: boolean
}

const portHint = 'Is the environment variable set that it is read from? 0 takes any free port.'
const pem: Rule = {
  must: 'must be the text of a PEM file',
  accepts: (value) => typeof value === 'string' && value !== '',
  hint: 'Give the text of certificate and key, not the paths of their files.',
  isRequired: true,
  isSecret: true,
}

/** What the options of `serve` have in common on every runtime. */
export const serveRules: Rules<ServeOptions> = {
  port: { ...wholeNumber(0, 65_535), hint: portHint },
  hostname: {
    must: 'must be an address of the machine',
    accepts: (value) => typeof value === 'string' && value !== '',
    hint: 'Leave it out to listen on every address.',
  },
  tls: { cert: pem, key: pem },
  graceMs: milliseconds(0),
  signals: {
    must: 'must be false or a list of SIGTERM, SIGINT and SIGHUP',
    accepts: (value) =>
      value === false || (Array.isArray(value) && value.every((name) => /^SIG(TERM|INT|HUP)$/.test(String(name)))),
  },
  delayBeforeCloseMs: milliseconds(0),
  announce: trueOrFalse,
}
