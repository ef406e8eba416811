import { createServer, type Server } from 'node:net'
import * as client from '@platformatic/kafka'
import { afterEach, expect, test } from 'vitest'
import { closeClient, Connector } from '../../adapters/inbox/kafka/client.ts'
import { readKafkaOptions } from '../../adapters/inbox/kafka/options.ts'

const metadataKey = 3
const versionsKey = 18
let server: Server

/** A broker that answers only which requests it knows, and the metadata of a topic of two partitions, of which one has no leader. */
function listen(): Promise<number> {
  return new Promise((resolve) => {
    let port = 0
    const answer = (request: Buffer): Buffer => {
      const writer = client.Writer.create().appendInt32(request.readInt32BE(4))
      if (request.readInt16BE(0) === versionsKey)
        return writer
          .appendInt16(0)
          .appendArray([metadataKey, versionsKey], (w, key) => {
            w.appendInt16(key)
              .appendInt16(0)
              .appendInt16(key === metadataKey ? 12 : 3)
          })
          .appendInt32(0)
          .appendTaggedFields()
          .prependLength().buffer
      return writer
        .appendTaggedFields()
        .appendInt32(0)
        .appendArray([1], (w, id) => {
          w.appendInt32(id).appendString('127.0.0.1').appendInt32(port).appendString(null)
        })
        .appendString('cluster')
        .appendInt32(1)
        .appendArray(['fleethook'], (w, name) => {
          w.appendInt16(0).appendString(name).appendUUID('11111111-1111-1111-1111-111111111111').appendBoolean(false)
          w.appendArray([0, 1], (partition, index) => {
            partition
              .appendInt16(index === 1 ? 5 : 0)
              .appendInt32(index)
              .appendInt32(index === 1 ? -1 : 1)
              .appendInt32(0)
            for (const ids of [[1], [1], []])
              partition.appendArray(ids, (replica, id) => void replica.appendInt32(id), true, false)
          })
          w.appendInt32(0)
        })
        .appendTaggedFields()
        .prependLength().buffer
    }
    server = createServer((socket) => {
      let received = Buffer.alloc(0)
      socket.on('data', (chunk) => {
        received = Buffer.concat([received, chunk])
        while (received.length >= 4 && received.length >= 4 + received.readInt32BE(0)) {
          const end = 4 + received.readInt32BE(0)
          socket.write(answer(received.subarray(4, end)))
          received = received.subarray(end)
        }
      })
    }).listen(0, '127.0.0.1', () => {
      const address = server.address()
      port = typeof address === 'object' && address !== null ? address.port : 0
      resolve(port)
    })
  })
}

afterEach(() => server.close())

test('the metadata of a topic can be read while one of its partitions has no leader', async () => {
  const port = await listen()
  const connector = new Connector(client, readKafkaOptions({ brokers: [`127.0.0.1:${port}`] }))
  const producer = connector.producer(2_000, 1_000)
  try {
    const { topics } = await producer.metadata({ topics: ['fleethook'], forceUpdate: true, retries: 0 })
    expect(topics.get('fleethook')?.partitions.map(({ leader }) => leader)).toEqual([1, -1])
  } finally {
    await closeClient(producer)
  }
})
