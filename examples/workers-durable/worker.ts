import { createReceiver } from 'fleethook'
import { durableObjectInbox, inboxObject, type ObjectNamespace } from 'fleethook/inbox/durable-object'
import { worker } from 'fleethook/workers'

interface Env {
  Bindings: { FLEETHOOK_INBOX: ObjectNamespace; WEBHOOK_SECRET: string }
}

// Handlers run inside the object that keeps the message, with the same bindings in `context.env`.
const receiver = createReceiver<Env>({
  secret: (env) => env.WEBHOOK_SECRET,
  inbox: durableObjectInbox<Env['Bindings']>({ objects: (env) => env.FLEETHOOK_INBOX }),
})
  .on('data', (event) => console.log(event.vin, event.createdAt, JSON.stringify(event.data)))
  .on(['alerts', 'errors'], (event) => console.log(event.vin, event.topic))

export const FleethookInbox = inboxObject(receiver)
export default worker(receiver)
