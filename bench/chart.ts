/** A bar of a chart. The bars of a group stand together, in the order given. */
export interface Bar {
  readonly label: string
  readonly group: string
  readonly value: number
  /** Written beside the value. */
  readonly note: string
  /** Whether it has the color that stands out. */
  readonly isOurs: boolean
}

const width = 860
const labelWidth = 190
const barsWidth = 320
const barHeight = 22
const barStep = 30
const groupStep = 34
const top = 58

/** Horizontal bars as SVG, readable on light and dark pages. */
export function chart(title: string, subtitle: string, bars: readonly Bar[]): string {
  const most = Math.max(...bars.map(({ value }) => value))
  const rows: string[] = []
  let y = top
  let group = ''
  for (const bar of bars) {
    if (bar.group !== group) {
      y += group === '' ? 0 : 10
      group = bar.group
      rows.push(`<text class="group" x="0" y="${y + 14}">${escaped(group)}</text>`)
      y += groupStep - 8
    }
    const length = Math.max(2, Math.round((bar.value / most) * barsWidth))
    const middle = y + barHeight / 2 + 5
    const value = Math.round(bar.value).toLocaleString('en')
    const kind = bar.isOurs ? 'ours' : 'other'
    rows.push(
      `<text class="${kind}-label" x="${labelWidth - 10}" y="${middle}" text-anchor="end">${escaped(bar.label)}</text>`,
      `<rect class="${kind}" x="${labelWidth}" y="${y}" width="${length}" height="${barHeight}" rx="3"/>`,
      `<text x="${labelWidth + length + 8}" y="${middle}"><tspan class="value">${value}</tspan><tspan class="note" dx="8">${escaped(bar.note)}</tspan></text>`,
    )
    y += barStep
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${y + 8}" width="${width}" height="${y + 8}" role="img" aria-label="${escaped(title)}">
<style>
  text { font: 14px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 }
  .subtitle, .note { font-size: 12px; fill: #59636e }
  .group { font-size: 12px; font-weight: 600; fill: #59636e }
  .value, .ours-label { font-weight: 600 }
  .ours { fill: #0969da }
  .other { fill: #afb8c1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .subtitle, .note, .group { fill: #9198a1 }
    .ours { fill: #4493f8 }
    .other { fill: #57606a }
  }
</style>
<text class="title" x="0" y="20">${escaped(title)}</text>
<text class="subtitle" x="0" y="40">${escaped(subtitle)}</text>
${rows.join('\n')}
</svg>
`
}

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
