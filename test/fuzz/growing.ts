const times = (count: number, part: (number: number) => string): string =>
  Array.from({ length: count }, (_, number) => part(number)).join()
/** More fields than a message may have, so that both sizes take the same way. */
const beyond = (size: number): number => Math.max(2_001, size)
const data = (value: string): string => `{"vin":"A","createdAt":"2024-02-24T04:58:44Z","data":${value}}`
const field = (name: string, text: string): string => data(`{"${name}":"${text}"}`)
const state = '{"vin":"A","state":"online"}'

/** Bodies of any size, of the kinds that make parsers slow. */
export const growing: Readonly<Record<string, (size: number) => string>> = {
  'lists in lists': (size) => '['.repeat(size) + ']'.repeat(size),
  'lists that never end': (size) => '['.repeat(size),
  'objects in objects': (size) => `${'{"a":'.repeat(size)}1${'}'.repeat(size)}`,
  'objects that never end': (size) => '{"a":'.repeat(size),
  'a field nested deep': (size) => data(`{"x":${'['.repeat(size)}${']'.repeat(size)}}`),
  'wrappers in wrappers': (size) => data(`{"Soc":${'{"fooValue":'.repeat(size)}1${'}'.repeat(size)}}`),
  'many fields': (size) => data(`{${times(size, (number) => `"f${number}":1`)}}`),
  'many numeric fields': (size) => data(`{${times(size, (number) => `"${number}":1`)}}`),
  'one field many times': (size) => data(`{${times(size, () => '"Soc":1')}}`),
  'many keys of the maker': (size) =>
    data(`[${times(beyond(size), (number) => `{"key":"f${number}","value":{"longValue":"1"}}`)}]`),
  'one key of the maker many times': (size) =>
    data(`[${times(beyond(size), () => '{"key":"Soc","value":{"longValue":"1"}}')}]`),
  'many wrappers of one value': (size) => data(`{"Soc":{${times(size, (number) => `"x${number}Value":1`)}}}`),
  'a list of alerts': (size) => `{"vin":"A","alerts":[${times(size, () => '{"name":"x"}')}]}`,
  'alerts by name': (size) => `{"vin":"A","alerts":{${times(size, (number) => `"x${number}":{}`)}}}`,
  'many alerts of one name': (size) => `{"vin":"A","alerts":{"x":[${times(size, () => '{}')}]}}`,
  'many tags': (size) => `{"vin":"A","errors":[{"name":"x","tags":{${times(size, (number) => `"x${number}":"y"`)}}}]}`,
  'many keys beside a state': (size) => `{"vin":"A","state":"x",${times(size, (number) => `"x${number}":"y"`)}}`,
  'many messages': (size) => state.repeat(size),
  'many messages and a broken one': (size) => `${state.repeat(size)}{`,
  'a list of messages': (size) => `[${times(size, () => state)}]`,
  'a list of messages that never ends': (size) => `[${times(size, () => state)},`,
  'blanks between messages': (size) => `${'{}          '.repeat(size)}{}`,
  'blanks before a message': (size) => `${' \n'.repeat(size * 5)}${state}`,
  'blanks behind a message': (size) => state + ' \n'.repeat(size * 5),
  'byte order marks': (size) => '\ufeff'.repeat(size * 10) + state,
  'a long text': (size) => field('VehicleName', 'x'.repeat(size * 10)),
  'many quotes': (size) => field('Gear', '\\"'.repeat(size * 5)),
  'many backslashes': (size) => field('Gear', '\\\\'.repeat(size * 5)),
  'backslashes that never end': (size) => `{"a":"${'\\'.repeat(size * 10)}`,
  'halves of characters': (size) => field('VehicleName', '\\ud800'.repeat(size)),
  'a long number': (size) => data(`{"Soc":${'9'.repeat(size * 10)}}`),
  'a long number as text': (size) => field('Soc', `1${'0'.repeat(size * 10)}x`),
  'blanks where a number should be': (size) => field('Soc', `${' '.repeat(size * 10)}x`),
  'half a location': (size) => field('Location', `(1${' '.repeat(size * 10)}N, 2`),
  'many doors': (size) => field('DoorState', 'DriverFront|'.repeat(size)),
  'no doors': (size) => field('DoorState', '|'.repeat(size * 10)),
  'a long fraction of a second': (size) =>
    `{"vin":"A","state":"x","createdAt":"2024-02-24T04:58:44.${'9'.repeat(size * 10)}x"}`,
  'a long clock time': (size) => field('ScheduledChargingStartTime', `Wed Dec  ${' '.repeat(size * 10)}`),
  'a long time of an envelope': (size) => `{"event":{},"source":"A","time":"${'1'.repeat(size * 10)}x"}`,
  'a long label': (size) => `{"event":{},"source":"A","sourcetype":"${'a:telemetry:'.repeat(size)}"}`,
  'many vehicles': (size) => times(size, (number) => `{"vin":"V${number}","state":"x"}`).replaceAll('},{', '}{'),
}
