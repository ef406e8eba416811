// The sections of a page for the search of the site. Each page is found by its title and by every text on it.

export interface Section {
  readonly anchor: string
  /** The titles of the headings above it, and its own last. */
  readonly titles: string[]
  readonly text: string
}

const textOf = (part: string): string =>
  part
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll(/\s+/g, ' ')
    .trim()

/** The sections of a rendered page: one for each heading. What stands above the first heading belongs to it. */
export function sectionsOf(html: string): Section[] {
  const [intro = '', ...parts] = html.split(/(?=<h[1-6] id=")/)
  const isHeading = /^<h[1-6] id="/.test(intro)
  const above: { readonly level: number; readonly title: string }[] = []
  return (isHeading ? [intro, ...parts] : parts).map((part, index) => {
    const [heading = '', level = '1', anchor = '', inner = ''] =
      /^<h(\d) id="([^"]*)"[^>]*>(.*?)<\/h\1>/s.exec(part) ?? []
    const title = textOf(inner.replace(/<a class="header-anchor".*$/s, ''))
    // A heading is below the nearest ones of smaller levels, also where a level is skipped.
    while ((above.at(-1)?.level ?? 0) >= Number(level)) above.pop()
    above.push({ level: Number(level), title })
    const text = textOf(`${index === 0 && !isHeading ? intro : ''} ${part.slice(heading.length)}`)
    return { anchor, titles: above.map((each) => each.title), text }
  })
}
