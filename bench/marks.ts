import { readFileSync, writeFileSync } from 'node:fs'

/** Replaces the text between `<!-- name: begin -->` and `<!-- name: end -->` in a page. */
export function writeBetween(page: string, name: string, content: string): void {
  const [begin, end] = [`<!-- ${name}: begin -->`, `<!-- ${name}: end -->`]
  const text = readFileSync(page, 'utf8')
  if (!text.includes(begin) || !text.includes(end)) throw new Error(`${page} has no place for ${name}.`)
  const before = text.slice(0, text.indexOf(begin) + begin.length)
  writeFileSync(page, `${before}\n\n${content}\n\n${text.slice(text.indexOf(end))}`)
}
