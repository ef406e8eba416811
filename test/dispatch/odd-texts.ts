/** Messages that JavaScript reads and then writes in another way. Each has a vehicle of its own. */
const odd: readonly string[] = [
  '"Gear":"D","id":9007199254740993',
  '"Gear":"D","Odometer":1e400',
  '"Gear":"D","Odometer":-0',
  '"Gear":"P","Gear":"D"',
  '"Gear":"D","2":"two","1":"one"',
  '"Gear":"D","Odometer":1.0,"EnergyRemaining":1E2',
  '"Gear" :  "D" ,\n\t"Odometer":\r\n1',
  '"Gear":"D","Name":"\\u0041\\/\\ud83d\\ude00 \u00e9\u{1f600}\\ud800"',
  '"Gear":"D","__proto__":{"a":1},"constructor":null',
]

export const oddTexts: readonly string[] = odd.map(
  (fields, at) =>
    `{"vin":"${String.fromCharCode(65 + at)}","createdAt":"2024-02-24T04:58:44.123456789Z","data":{${fields}}}`,
)
