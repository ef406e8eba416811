import { Worker } from 'node:worker_threads'

/** A client in a thread of its own, so that it goes on while this thread is blocked. */
export interface PostingThread {
  /** Resolves when the answer has come. */
  post(port: number, body: string): Promise<void>
  /** Whether the answer has come. */
  hasAnswer(): boolean
}

const source = `
const { parentPort, workerData } = require('node:worker_threads')
parentPort.once('message', ({ port, body }) => {
  const request = require('node:http').request({ host: '127.0.0.1', port, method: 'POST', agent: false }, (response) => {
    response.resume().on('end', () => Atomics.store(workerData, 0, response.statusCode))
  })
  request.end(body)
})`

export function postingThread(): PostingThread {
  const status = new Int32Array(new SharedArrayBuffer(4))
  const worker = new Worker(source, { eval: true, workerData: status })
  return {
    post: (port, body) =>
      new Promise((resolve, reject) => {
        worker.once('exit', () => resolve())
        worker.once('error', reject)
        worker.postMessage({ port, body })
      }),
    hasAnswer: () => Atomics.load(status, 0) === 200,
  }
}
