// The inbox inside a Durable Object. No entry of the package has it, because only the object creates it.
export { createObjectInbox as objectInbox } from '../../adapters/inbox/durable-object/object-inbox.ts'
