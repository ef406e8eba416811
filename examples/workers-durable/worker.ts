import { createReceiver, summarize } from 'fleethook'
import { durableObjectInbox, inboxObject, type ObjectNamespace } from 'fleethook/inbox/durable-object'
import { worker } from 'fleethook/workers'

interface Env {
  FLEETHOOK_INBOX: ObjectNamespace
  WEBHOOK_SECRET: string
}

// Handlers run inside the object that keeps the message, with the same bindings in `context.env`.
const receiver = createReceiver({
  secret: (env: Env) => env.WEBHOOK_SECRET,
  inbox: durableObjectInbox({ objects: (env: Env) => env.FLEETHOOK_INBOX }),
}).on(['data', 'alerts', 'errors'], (event) => console.log(summarize(event))) // your business code goes here

export const FleethookInbox = inboxObject(receiver)
export default worker(receiver)
