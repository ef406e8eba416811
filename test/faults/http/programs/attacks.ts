import { connect, type Socket } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { inForm } from '../../../form.ts'
import { secret } from './seen.ts'

/** An attack that goes on. */
export interface Attack {
  /** What was done, for the figures. */
  done(): Readonly<Record<string, number>>
}

const head = (...lines: readonly string[]): string =>
  ['POST / HTTP/1.1', 'Host: localhost', `Authorization: ${secret}`, ...lines, '', ''].join('\r\n')

/** Starts an attack with `count` connections, and resolves when all of them are open. */
type Begin = (port: number, amount: number) => Promise<Attack>

const silent = ''
const halfHead = 'POST / HTTP/1.1\r\nHost: localho'
const message = '{"vin":"IDLE","state":"online"}'
const whole = `${head(`Content-Length: ${message.length}`)}${message}`
const halfBody = `${head('Content-Length: 1000000')}{"vin":"HALF","data":{"${'x'.repeat(60_000)}`
const halfChunk = `${head('Transfer-Encoding: chunked')}ffff\r\n{"vin":"HALF"`
const halfGzip = Buffer.concat([
  Buffer.from(head('Content-Encoding: gzip', 'Content-Length: 1000000')),
  gzipSync('x'.repeat(1_000)).subarray(0, 15),
])

/** Connections that are opened again when they close. Each sends one thing, and then nothing or one byte at a time. */
function hold(beginnings: readonly (string | Buffer)[], dripsEveryMs?: number): Begin {
  return async (port, amount) => {
    let opened = 0
    let closed = 0
    const open = (number: number, ready: () => void): void => {
      const socket = connect(port, '127.0.0.1', () => {
        opened += 1
        socket.write(beginnings[number % beginnings.length] ?? '', ready)
        if (dripsEveryMs !== undefined && number % 2 === 0) drip(socket, dripsEveryMs)
      })
      socket.resume()
      socket.on('error', ready)
      socket.on('close', () => {
        closed += 1
        // Waits, because a server that refuses connections would get thousands of them in a second.
        setTimeout(open, 500, number, () => {})
      })
    }
    // A hundred at a time. More would not fit in the queue of the listening socket and would have to try again.
    for (let from = 0; from < amount; from += 100) {
      const numbers = Array.from({ length: Math.min(100, amount - from) }, (_, index) => from + index)
      await Promise.all(numbers.map((number) => new Promise<void>((resolve) => open(number, resolve))))
    }
    return { done: () => ({ opened, closed }) }
  }
}

function drip(socket: Socket, everyMs: number): void {
  const timer = setInterval(() => socket.write('x'), everyMs)
  socket.on('close', () => clearInterval(timer))
}

/** `count` senders at once. Each starts again when it was answered or cut off. */
function pour(send: (port: number, turn: number) => Promise<string>): Begin {
  return async (port, amount) => {
    const counts: Record<string, number> = {}
    let turn = 0
    const loop = async (ready: () => void): Promise<void> => {
      for (;;) {
        const answer = await send(port, turn++)
        counts[answer] = (counts[answer] ?? 0) + 1
        ready()
      }
    }
    await Promise.all(Array.from({ length: amount }, () => new Promise<void>((resolve) => void loop(resolve))))
    return { done: () => counts }
  }
}

/**
 * Sends until the receiver answers, closes, or has everything. Resolves to the answer's status, or to how the
 * connection ended.
 */
function sendUntilAnswered(port: number, beginning: string, chunk: Buffer, chunks: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    let received = ''
    let left = chunks
    const push = (): void => {
      while (left > 0 && !received && !socket.destroyed) {
        left -= 1
        if (!socket.write(chunk)) return
      }
    }
    socket.on('data', (bytes: Buffer) => {
      received += bytes.toString('latin1')
      // A client does this when it has read its answer.
      if (received.includes('}')) socket.destroy()
    })
    socket.on('drain', push)
    socket.on('error', () => {})
    socket.on('close', () => resolve(/^HTTP\/1\.1 (\d+)/.exec(received)?.[1] ?? 'cut off'))
    socket.write(beginning)
    push()
  })
}

const megabyte = 1_048_576
const bombMegabytes = inForm({ full: 16, long: 100 })
const blanks = Buffer.alloc(65_536, ' ')
const hugeChunks = (100 * megabyte) / blanks.length
const chunked = Buffer.concat([Buffer.from(`${blanks.length.toString(16)}\r\n`), blanks, Buffer.from('\r\n')])

export type AttackKind = 'idle' | 'halfBodies' | 'bombs' | 'bombsAtOnce' | 'hugeBodies'

/** `pauseMs`: the time between two requests of a sender. */
function bombs(pauseMs: number): Begin {
  return (port, amount) => {
    const bomb = gzipSync(Buffer.alloc(bombMegabytes * megabyte))
    const beginning = head('Content-Encoding: gzip', `Content-Length: ${bomb.length}`)
    const send = async (): Promise<string> => {
      if (pauseMs > 0) await wait(pauseMs)
      return sendUntilAnswered(port, beginning, bomb, 1)
    }
    return pour(send)(port, amount)
  }
}

export const attacks: Readonly<Record<AttackKind, Begin>> = {
  /** Idle connections: a third that never sent anything, a third that stopped in the headers, a third after a message. */
  idle: hold([silent, halfHead, whole]),
  /** Half of a body, with the right secret. Half of the senders continue with one byte a second. */
  halfBodies: hold([halfBody, halfChunk, halfGzip], 1_000),
  /** About 100 kB that inflate to 100 MB, with the right secret, up to fifty a second from each sender. */
  bombs: bombs(20),
  /** The same as fast as they are answered. */
  bombsAtOnce: bombs(0),
  /** 100 MB, declared, in chunks, or without a secret. */
  hugeBodies: pour((port, turn) => {
    const declared = `Content-Length: ${100 * megabyte}`
    if (turn % 3 === 0) return sendUntilAnswered(port, head(declared), blanks, hugeChunks)
    if (turn % 3 === 1) return sendUntilAnswered(port, head('Transfer-Encoding: chunked'), chunked, hugeChunks)
    return sendUntilAnswered(port, `POST / HTTP/1.1\r\nHost: localhost\r\n${declared}\r\n\r\n`, blanks, hugeChunks)
  }),
}
