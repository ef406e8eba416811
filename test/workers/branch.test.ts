import { createReceiver } from 'fleethook'
import { branch } from 'fleethook/branch'
import { durableObjectInbox, inboxObject, type ObjectNamespace } from 'fleethook/inbox/durable-object'
import { expect, test } from 'vitest'
import { silent } from '../vehicles/scene.ts'
import { objectStorage } from './object-storage.ts'

/** Objects of a class that is there when the first of them is asked. */
function namespaceOf(classOf: () => ReturnType<typeof inboxObject>): ObjectNamespace {
  const objects = new Map<string, InstanceType<ReturnType<typeof inboxObject>>>()
  const objectOf = (name: string): InstanceType<ReturnType<typeof inboxObject>> => {
    const found = objects.get(name) ?? new (classOf())({ storage: objectStorage(async () => {}) }, {})
    objects.set(name, found)
    return found
  }
  return {
    idFromName: (name) => ({ name }),
    get: (id) => ({
      fetch: (url, init) => objectOf(String(Reflect.get(Object(id), 'name'))).fetch(new Request(url, init)),
    }),
  }
}

test('a branch in Durable Objects gets what the objects of its receiver handle, in order, under the same ids', async () => {
  const classes: { readonly [name: string]: ReturnType<typeof inboxObject> } = {}
  const [inbox, crmInbox] = ['Inbox', 'CrmInbox'].map((name) =>
    durableObjectInbox({ objects: () => namespaces[name] as ObjectNamespace }),
  )
  const namespaces: Record<string, ObjectNamespace> = {}
  if (inbox === undefined || crmInbox === undefined) throw new Error('There are two.')
  const front: string[] = []
  const behind: string[] = []
  const receiver = createReceiver({ secret: false, log: silent, inbox })
  receiver.on(
    'data',
    ({ vin, data }, { delivery }) => void front.push(`${vin} ${String(data.Odometer)} ${delivery.id}`),
  )
  const crm = branch(receiver, { name: 'crm', inbox: crmInbox }).on('data', ({ vin, data }, { delivery }) => {
    behind.push(`${vin} ${String(data.Odometer)} ${delivery.id}`)
    if (vin === 'B') throw new Error('not this one')
  })
  Object.assign(classes, { Inbox: inboxObject(receiver), CrmInbox: inboxObject(crm) })
  for (const name of ['Inbox', 'CrmInbox'])
    namespaces[name] = namespaceOf(() => {
      const found = classes[name]
      if (found === undefined) throw new Error(`There is no ${name}.`)
      return found
    })
  for (let at = 0; at < 10; at += 1)
    for (const vin of ['A', 'C', 'D']) {
      const body = { vin, createdAt: '2026-01-01T00:00:00Z', data: { Odometer: at } }
      expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
    }
  await expect.poll(() => [behind.length, front.length]).toEqual([30, 30])
  for (const vin of ['A', 'C', 'D'])
    expect(behind.filter((one) => one.startsWith(vin))).toEqual(front.filter((one) => one.startsWith(vin)))
  expect(new Set(behind).size).toBe(30)
  await receiver.accept({ authorization: undefined, body: { vin: 'B', data: { Odometer: 1 } } })
  await expect.poll(() => crm.failing()).toMatchObject({ messages: 1 })
  expect(await receiver.failing()).toMatchObject({ messages: 0 })
})
