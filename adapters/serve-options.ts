import { milliseconds, type Rule, type Rules, trueOrFalse, wholeNumber } from '../src/base/options.ts'

/** A signal that stops a server. */
export type Signal = 'SIGTERM' | 'SIGINT' | 'SIGHUP'

/** The texts of a certificate, with its chain, and of its key. */
export interface TlsTexts {
  readonly cert: string
  readonly key: string
}

/** The paths of their files. */
export interface TlsFiles {
  readonly certFile: string
  readonly keyFile: string
}

/** The key and the certificate of a server: as texts, or as files that are looked at again. */
export type TlsOptions = TlsTexts | TlsFiles

/** Options of `serve`, the same on every runtime. */
export interface ServeOptions {
  /** Default 3000. 0 takes any free port. */
  readonly port?: number
  /** The address to listen on. Default: every address of the machine. */
  readonly hostname?: string
  /**
   * Certificate and key in PEM, to serve https without a proxy in front: their texts, or the paths of their files. On Node, files that are renewed are
   * served within seconds; a pair that does not match is not, and the log says so. The log warns 14 days before a certificate expires.
   */
  readonly tls?: TlsOptions
  /**
   * Lets several processes listen on the same port. Each gets a share of the connections. Default `false`. Needs Linux.
   * With `sqliteInbox`, each process needs its own file, and order per VIN holds within one process only.
   */
  readonly reusePort?: boolean
  /**
   * The longest that stopping may take after `delayBeforeCloseMs`, in milliseconds: up to half of it for open connections,
   * the rest for handlers. Default 25,000.
   */
  readonly graceMs?: number
  /** How long running handlers may take after a signal when the inbox is durable, in milliseconds. Default 2,000. */
  readonly handlerGraceMs?: number
  /** The signals that stop the server, or `false` for none. Default `['SIGTERM', 'SIGINT']`. A second signal ends the process at once. */
  readonly signals?: readonly Signal[] | false
  /**
   * How long to go on taking messages after a signal, in milliseconds. In this time, every answer asks its client to close the
   * connection. By default 1,500, and on Node less when no connection is open and nobody has asked for `/readyz`. Set it to
   * the time that your load balancer needs to notice.
   */
  readonly delayBeforeCloseMs?: number
  /**
   * Whether to end the process after a signal and the drain when something still keeps it alive. The log names what does.
   * Default `true`: two seconds after `server.closed` resolves.
   */
  readonly exit?: boolean
  /** Whether to print where the server listens, what a 2xx means, and how a drain ended. Default `true`. */
  readonly announce?: boolean
}

const portHint = 'Is the environment variable set that it is read from? 0 takes any free port.'
const pem: Rule = {
  must: 'must be the text of a PEM file',
  accepts: (value) => typeof value === 'string' && value !== '',
  hint: 'Give the text of certificate and key, not the paths of their files, or the paths as certFile and keyFile.',
  isSecret: true,
}
const path: Rule = {
  must: 'must be the path of a PEM file',
  accepts: (value) => typeof value === 'string' && value !== '' && !value.includes('-----BEGIN'),
  // A text in its place can be the key.
  isSecret: true,
}

export const serveRules: Rules<ServeOptions> = {
  port: { ...wholeNumber(0, 65_535), hint: portHint },
  hostname: {
    must: 'must be an address of the machine',
    accepts: (value) => typeof value === 'string' && value !== '',
    hint: 'Leave it out to listen on every address.',
  },
  tls: { cert: pem, key: pem, certFile: path, keyFile: path },
  reusePort: trueOrFalse,
  graceMs: milliseconds(0),
  handlerGraceMs: milliseconds(0),
  signals: {
    must: 'must be false or a list of SIGTERM, SIGINT and SIGHUP',
    accepts: (value) =>
      value === false || (Array.isArray(value) && value.every((name) => /^SIG(TERM|INT|HUP)$/.test(String(name)))),
  },
  delayBeforeCloseMs: milliseconds(0),
  exit: trueOrFalse,
  announce: trueOrFalse,
}

/** The variable that holds the process id of the `fleethook run` that started this process. */
export const launcherVariable = 'FLEETHOOK_RUN_PID'

/** What `serve` tells the `fleethook run` that started its process. */
export interface LauncherMessage {
  /** `opening`: the program runs and is about to open its inbox. `listening`: it takes messages. */
  readonly fleethook: 'opening' | 'listening'
}
