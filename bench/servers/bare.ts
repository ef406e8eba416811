// The least work of a receiver: read the body, parse it, answer. Its CPU time is the unit of the pipeline's budget. This is the
// fastest of the usual ways to read a body.
import { createServer } from 'node:http'
import { answerBody, answerType } from './answer.ts'
import { measured } from './measured.ts'

const headers = { 'content-type': answerType, 'content-length': answerBody.length }

const server = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => {
    chunks.push(chunk)
  })
  request.on('end', () => {
    JSON.parse(Buffer.concat(chunks).toString())
    response.writeHead(200, headers)
    response.end(answerBody)
  })
})
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (typeof address === 'object' && address !== null) measured(address.port)
})
