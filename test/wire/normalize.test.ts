import { normalize } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'

const one = { state: 'online', vin: 'A', createdAt: '2024-02-24T04:58:44Z' }
const two = { state: 'asleep', vin: 'B', createdAt: '2024-02-24T04:58:45Z' }

describe('a whole body as events', () => {
  test('as text or already parsed, one message or several', () => {
    const vins = (body: unknown) => normalize(body).map(({ vin }) => vin)
    expect(vins(JSON.stringify(one))).toEqual(['A'])
    expect(vins(JSON.stringify(one) + JSON.stringify(two))).toEqual(['A', 'B'])
    expect(vins(one)).toEqual(['A'])
    expect(vins([one, two])).toEqual(['A', 'B'])
    expect(vins([])).toEqual([])
  })

  test('takes the options of a normalizer, and one time of receipt for all messages', () => {
    const receivedAt = new Date(5)
    const [event, other] = normalize([{ data: { Soc: '5' }, vin: 'A' }, two], { receivedAt, decode: false })
    expect(event).toMatchObject({ receivedAt, at: receivedAt, data: { Soc: '5' } })
    expect(other).toMatchObject({ receivedAt })
  })

  test('throws when a part of it is not a JSON object, with its number and without its content', () => {
    for (const body of [`${JSON.stringify(one)}{"secret":`, [one, 'secret']]) {
      expect(() => normalize(body)).toThrow(
        expect.objectContaining({ code: 'message_unreadable', message: expect.stringMatching(/^Message 1 of/) }),
      )
      expect(() => normalize(body)).not.toThrow(/secret/)
    }
  })
})
