import { expect, test } from 'vitest'
import { sectionsOf } from '../../docs/.vitepress/sections.ts'

const heading = (level: number, id: string, title: string): string =>
  `<h${level} id="${id}" tabindex="-1">${title} <a class="header-anchor" href="#${id}" aria-label="Permalink">&#8203;</a></h${level}>`

test('the search has the title of a page and the text below it, whatever comes first', () => {
  const page = `${heading(1, 'reliability', 'Reliability')}\n<p>What a 2xx promises.</p>\n${heading(2, 'limits', 'Limits')}<p>Few.</p>`
  const expected = [
    { anchor: 'reliability', titles: ['Reliability'], text: 'What a 2xx promises.' },
    { anchor: 'limits', titles: ['Reliability', 'Limits'], text: 'Few.' },
  ]
  expect(sectionsOf(page)).toEqual(expected)
  expect(sectionsOf(`<p>A badge</p>${page}`)[0]).toEqual({ ...expected[0], text: 'A badge What a 2xx promises.' })
})

test('the search names the headings above a section, also where a level is skipped and where a heading has a link', () => {
  const page = [
    heading(1, 'a', 'Page'),
    heading(3, 'b', 'First'),
    heading(3, 'c', 'The <a href="/x">second</a> of <code>them</code>'),
    heading(2, 'd', 'Next'),
    heading(4, 'e', 'Deep'),
    heading(3, 'f', 'Less deep'),
  ].join('')
  expect(sectionsOf(page).map(({ titles }) => titles)).toEqual([
    ['Page'],
    ['Page', 'First'],
    ['Page', 'The second of them'],
    ['Page', 'Next'],
    ['Page', 'Next', 'Deep'],
    ['Page', 'Next', 'Less deep'],
  ])
})
