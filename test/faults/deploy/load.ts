import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { secret } from '../../runtimes/targets.ts'
import { messageOf, type Sent } from '../process/traffic.ts'

/** How the sender uses connections. */
export type Connections = 'new' | 'kept' | 'pipelined'

/** What the sender counted. */
export interface Count {
  readonly sent: readonly Sent[]
  /** Messages without a 2xx, by the error or the status. */
  readonly failures: ReadonlyMap<string, number>
  /** The longest time until a 2xx, in milliseconds. */
  readonly slowestMs: number
}

export interface Load {
  /** Stops sending, waits for the last answers, and resolves to the count. */
  stop(): Promise<Count>
}

const vehicles = 50
const patienceMs = 30_000

/** Posts messages at a steady rate, each one once, as the service does. */
export function pour(port: number, connections: Connections, ratePerSecond = 200): Load {
  const failures = new Map<string, number>()
  const under = new Set<Promise<void>>()
  const answered: Sent[] = []
  const agent = new Agent(
    connections === 'kept' ? { keepAlive: true, maxSockets: 50, scheduling: 'fifo' } : { keepAlive: false },
  )
  const pipes = connections === 'pipelined' ? Array.from({ length: 8 }, () => pipe(port)) : []
  let sent = 0
  let slowestMs = 0
  const startedMs = performance.now()

  function send(): void {
    sent += 1
    const number = sent
    const vin = `V${number % vehicles}`
    const body = messageOf(vin, number)
    const sentAtMs = Date.now()
    const beganMs = performance.now()
    const piped = pipes[number % Math.max(1, pipes.length)]
    const posted = (piped === undefined ? post(port, agent, body) : piped.send(body)).then((result) => {
      const status = /^\d+$/.test(result) ? Number(result) : 0
      answered.push({
        vin,
        number,
        sentAtMs,
        endedAtMs: Date.now(),
        status,
        ...(status === 0 ? { error: result } : {}),
      })
      if (result === '200') slowestMs = Math.max(slowestMs, performance.now() - beganMs)
      else failures.set(result, (failures.get(result) ?? 0) + 1)
    })
    under.add(posted)
    void posted.finally(() => under.delete(posted))
  }

  const timer = setInterval(() => {
    while (sent < ((performance.now() - startedMs) / 1000) * ratePerSecond) send()
  }, 5)
  return {
    async stop() {
      clearInterval(timer)
      await Promise.all(under)
      agent.destroy()
      for (const one of pipes) one.close()
      return { sent: answered, failures, slowestMs }
    },
  }
}

/** Resolves to the status, or to the code of the error. */
function post(port: number, agent: Agent, body: string): Promise<string> {
  return new Promise((resolve) => {
    const posting = request(
      { host: '127.0.0.1', port, agent, method: 'POST', headers: { authorization: secret }, timeout: patienceMs },
      (response) => {
        response.resume().once('close', () => resolve(response.complete ? String(response.statusCode) : 'cut'))
      },
    )
    posting.once('timeout', () => posting.destroy(Object.assign(new Error('timeout'), { code: 'timeout' })))
    posting.once('error', (error) => resolve('code' in error ? String(error.code) : error.message))
    posting.end(body)
  })
}

/** A connection on which requests do not wait for the answers before them. */
function pipe(port: number): { send(body: string): Promise<string>; close(): void } {
  let open: ReturnType<typeof connection> | undefined
  function connection(): { send(body: string): Promise<string>; close(): void } {
    const socket = connect(port, '127.0.0.1').setNoDelay()
    const waiting: ((result: string) => void)[] = []
    let text = ''
    const end = (why: string): void => {
      open = undefined
      for (const answered of waiting.splice(0)) answered(why)
      socket.destroy()
    }
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
      for (;;) {
        const found = /^HTTP\/1\.1 (\d+)[^]*?\r\ncontent-length: (\d+)[^]*?\r\n\r\n/i.exec(text)
        const length = (found?.[0].length ?? 0) + Number(found?.[2] ?? 0)
        if (found === null || text.length < length) return
        text = text.slice(length)
        // The client sends nothing more on a connection that is to be closed. It still waits for the answers under way.
        if (/\r\nconnection: close\r\n/i.test(found[0])) open = undefined
        waiting.shift()?.(found[1] ?? '')
      }
    })
    socket.on('error', (error) => end('code' in error ? String(error.code) : error.message))
    socket.on('close', () => end('closed'))
    return {
      send: (body) =>
        new Promise((resolve) => {
          waiting.push(resolve)
          const head = `POST / HTTP/1.1\r\nhost: a\r\nauthorization: ${secret}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`
          socket.write(head + body)
        }),
      close: () => socket.destroy(),
    }
  }
  return {
    send(body) {
      open ??= connection()
      return open.send(body)
    },
    close: () => open?.close(),
  }
}

/** The number of messages that were not acknowledged. */
export const refused = ({ failures }: Count): number => [...failures.values()].reduce((sum, count) => sum + count, 0)
