const vin = '0FLEETV14T0000004'
const createdAt = '2026-01-02T03:04:05Z'
const messages = [
  { vin, createdAt, data: { BatteryLevel: 81.5 } },
  { vin, createdAt, data: [{ key: 'BatteryLevel', value: { stringValue: '81.5' } }] },
  { time: 1767323045, host: 'host', source: vin, sourcetype: 'maker:telemetry:data', event: { BatteryLevel: '81.5' } },
]

/** Posts a message in each format, and one with a wrong secret, and resolves to the statuses. */
export async function post(url, secret, send = fetch) {
  const statuses = []
  for (const [authorization, message] of [...messages.map((each) => [secret, each]), ['wrong', {}]]) {
    const answer = await send(url, { method: 'POST', headers: { authorization }, body: JSON.stringify(message) })
    statuses.push(answer.status)
  }
  return statuses
}
