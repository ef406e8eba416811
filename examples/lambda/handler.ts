import type { APIGatewayProxyEventV2, APIGatewayProxyStructuredResultV2 } from 'aws-lambda'
import { createReceiver, summarize } from 'fleethook'

// A function is frozen after its response, so the answer waits until the handlers are done.
const receiver = createReceiver({
  secret: process.env.WEBHOOK_SECRET,
  ack: 'handled',
  timeoutMs: 10_000,
  retry: { attempts: 2 },
}).on(['data', 'alerts', 'errors'], (event) => console.log(summarize(event))) // your business code goes here

/** For a function URL (payload version 2.0). Give the function 30 seconds. */
export async function handler(event: APIGatewayProxyEventV2): Promise<APIGatewayProxyStructuredResultV2> {
  const { status, headers, body } = await receiver.accept({
    authorization: event.headers['authorization'],
    contentEncoding: event.headers['content-encoding'],
    path: event.rawPath,
    body: event.isBase64Encoded ? Buffer.from(event.body ?? '', 'base64') : event.body,
  })
  return { statusCode: status, headers: { ...headers }, body }
}
