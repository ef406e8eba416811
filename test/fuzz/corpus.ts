import { createFleet } from '../../src/service/fleet/fleet.ts'
import { builtInFields, encode, type Format } from '../../src/normalize.ts'

const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']

/** Messages from public sources of a kind that the simulated fleet does not send. */
const collected = [
  '{"data":{"Location":{"latitude":30.22,"longitude":-97.62},"VehicleSpeed":"34.797"},"createdAt":"2024-02-24T04:58:44.983607402Z","vin":"A","isCache":true}',
  '{"vin":"A","data":[{"key":"Gear","value":{"shiftStateValue":"ShiftStateD"}},{"key":179,"value":{"longValue":"9007199254740993"}}],"createdAt":null,"isResend":true}',
  '{"vin":"A","data":[{"key":"DoorState","value":{"doorValue":{}}},{"key":"Soc","value":{"invalid":true}},{"key":"Soc","value":{}}],"createdAt":"2024-02-24T04:58:44"}',
  '{"vin":"A","data":{"TpmsPressureFl":"NaN","Gear":"\\"D\\"","ScheduledChargingStartTime":"1708750724","DoorState":"DriverFront|TrunkRear","Location":"(37.412374 N, 122.145867 W)"},"createdAt":"2024-02-24T04:58:44Z"}',
  '{"vin":"A","alerts":{"X":[{"startedAt":"2024-02-24T04:58:44Z","audiences":["Customer"]},{"audiences":["ServiceFix"]}],"Y":{"audiences":[]}},"createdAt":"2024-02-24T04:58:44Z"}',
  '{"vin":"A","errors":[{"name":"x","createdAt":"2024-02-24T04:58:44Z","tags":{"a":"b"},"body":"text"}],"createdAt":"2024-02-24T04:58:44Z"}',
  '{"vin":"A","vehicle_data":{"charge_state":{"battery_level":71,"extra":[1,2,{"x":null}]}},"createdAt":"2024-02-24T04:58:44Z"}',
  '{"event":{"state":"online"},"time":"1708750724.983","host":"h","source":"A","sourcetype":"maker:telemetry:state","index":"main","fields":{"a":1}}',
  '{"event":"online","time":1708750724983,"source":"A","sourcetype":"maker:telemetry:state"}',
  '{"event":"a line of somebody else","sourcetype":"syslog"}',
  '{"credits":5,"createdAt":"2024-02-24T04:58:44Z"}',
  '{"vin":"A","config":{"fields":{}}}',
  '{}',
]

/** Messages as the service sends them, of every topic and in all three formats. Mutations start from them. */
export const corpus: readonly string[] = (() => {
  const texts: string[] = [...collected]
  const wanted = new Map<string, number>()
  for (const { event } of createFleet({ vins: 40, seed: 11, startAt: Date.UTC(2026, 1, 2, 6) })) {
    const count = wanted.get(event.topic) ?? 0
    wanted.set(event.topic, count + 1)
    for (const format of formats) {
      const text = JSON.stringify(encode(event, format))
      // Most messages are short. A few long ones are enough, and cases stay fast.
      if (count < (text.length > 700 ? 1 : 40)) texts.push(text)
    }
    if ([...wanted.values()].reduce((sum, number) => sum + number) > 20_000) break
  }
  return texts
})()

/** Words with a meaning in one place, to put into other places. */
export const names: readonly string[] = [
  ...['vin', 'createdAt', 'isCache', 'isResend', 'state', 'data', 'alerts', 'errors', 'networkInterface', 'status'],
  ...['vehicle_data', 'connectionId', 'event', 'time', 'host', 'source', 'sourcetype', 'index', 'fields', 'key'],
  'value',
  ...['name', 'tags', 'body', 'audiences', 'startedAt', 'endedAt', 'stringValue', 'longValue', 'doubleValue'],
  'invalid',
  ...['locationValue', 'doorValue', 'timeValue', 'tireLocationValue', 'shiftStateValue', 'fooValue', 'foo_value'],
  'Value',
  ...['latitude', 'longitude', 'hour', 'minute', 'second', 'DriverFront', 'driver_front', 'frontLeft', 'front_left'],
  ...['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'toJSON', 'then', 'length', 'valueOf', ''],
  ...['0', '-1', '179', '4294967295', '1e3', '*unknown', '*gap', 'é', '\ud800', '\0', '\ufeff', 'createdAtMissing'],
  ...['meta', 'raw', 'topic', 'id', 'at', 'receivedAt', 'format', 'undecoded', 'reason', 'from', 'to'],
  ...Object.keys(builtInFields),
]

/** Values as JSON text that often break parsers. */
export const values: readonly string[] = [
  ...['null', 'true', 'false', '0', '-0', '1', '-1', '0.1', '1e999', '-1e999', '1e308', '5e-324', '9007199254740993'],
  ...['123456789012345678901234567890', '1e-400', '1708750724.983', '1708750724983', '8640000000000001'],
  '253402300800',
  ...['""', '" "', '"NaN"', '"Infinity"', '"-Infinity"', '"0x10"', '"1e5"', '"+1"', '"1_000"', '"١"', '"\\"D\\""'],
  ...['"\\""', '"\\"\\""', '"D"', '"ShiftStateD"', '"ShiftState"', '"true"', '"FALSE"', '"online"', '"CONNECTED"'],
  ...['"DriverFront|TrunkRear"', '"|"', '"(37.41 N, 122.14 W)"', '"(NaN N, 1 W)"', '"(1 N"', '"07:30"', '"25:61:99"'],
  ...['"2024-02-24T04:58:44.983607402Z"', '"2024-02-24T04:58:44"', '"2024-02-30T99:00:00Z"'],
  '"+275760-09-13T00:00:00Z"',
  ...['"+275761-01-01T00:00:00Z"', '"-000000-01-01T00:00:00Z"', '"2024-02-24T04:58:44+99:99"'],
  '"0000-01-01T00:00:00Z"',
  ...['"Wed Dec  4 00:15:00 2024"', '"maker:telemetry:data"', '"maker:telemetry:alerts"', '"a:b:telemetry:data"'],
  '"::"',
  ...['"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\ufeff"', '"\\u2028"', '"__proto__"', '"constructor"', '"*gap"'],
  ...['[]', '{}', '[[]]', '[{}]', '[null]', '{"":""}', '{"__proto__":{"polluted":1}}', '{"invalid":true}'],
  ...['{"invalid":false}', '{"stringValue":null}', '{"longValue":"99999999999999999999"}', '{"doubleValue":"NaN"}'],
  ...['{"latitude":1.5,"longitude":-2}', '{"latitude":"x"}', '{"hour":25,"minute":-1}', '{"key":"Soc","value":{}}'],
  ...['{"constructor":{"prototype":{"polluted":1}}}', '{"toJSON":1}', '{"then":1}', '{"length":-1}', '[1,"2",{"3":4}]'],
]
