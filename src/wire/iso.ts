const DAY_MS = 86_400_000

function padded(value: number, digits: number): string {
  return String(value).padStart(digits, '0')
}

let knownDay = Number.NaN
let knownDayText = ''

/** `2024-02-24T`, remembered for the last day asked for: nearly every message is of the day of the one before. */
function dayText(day: number): string {
  if (day !== knownDay) {
    knownDayText = new Date(day * DAY_MS).toISOString().slice(0, -13)
    knownDay = day
  }
  return knownDayText
}

/** What `toISOString` gives, in a tenth of its time: it would take longer than the rest of reading a message. */
export function isoText(ms: number): string {
  const day = Math.floor(ms / DAY_MS)
  const rest = ms - day * DAY_MS
  const seconds = Math.floor(rest / 1000)
  const minutes = Math.floor(seconds / 60)
  const hours = Math.floor(minutes / 60)
  const clock = `${padded(hours, 2)}:${padded(minutes - hours * 60, 2)}:${padded(seconds - minutes * 60, 2)}`
  return `${dayText(day)}${clock}.${padded(rest - seconds * 1000, 3)}Z`
}
