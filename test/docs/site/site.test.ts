import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { repository, root } from '../../../docs/.vitepress/links.ts'
import { entries } from '../../../docs/.vitepress/reference.ts'
import { meanings } from '../../../scripts/troubleshooting.ts'
import { refusalErrors } from '../../../src/http/answers.ts'
import { inForm } from '../../form.ts'
import { axe, type Browser, launch, type Page } from '../../inspector/page/scene.ts'
import { base, build, built, host, type Site } from './site.ts'

let pages: ReadonlyMap<string, string>
let browser: Browser
let site: Site

beforeAll(async () => {
  build()
  pages = built('**/*.html')
  ;[browser, site] = await Promise.all([launch(), host()])
}, 300_000)

afterAll(async () => {
  await browser.close()
  await site.close()
})

test('every link, anchor and image of the site leads somewhere', () => {
  const origin = 'http://site.invalid'
  const files = built('**/*.*')
  const idsOf = (file: string): ReadonlySet<string> =>
    new Set([...(pages.get(file) ?? '').matchAll(/ id="([^"]*)"/g)].map(([, id = '']) => id))
  const ids = new Map([...pages.keys()].map((file) => [file, idsOf(file)]))
  const leads = (file: string, link: string): boolean => {
    const { origin: host, pathname, hash } = new URL(link.replaceAll('&amp;', '&'), `${origin}${base}${file}`)
    const own = new RegExp(`^${repository}/(?:blob|tree|edit)/main/(.+?)(?:#.*)?$`).exec(link)?.[1]
    if (own !== undefined) return existsSync(join(root, own))
    if (host !== origin) return true
    const path = decodeURI(pathname.slice(base.length))
    const target = path === '' || path.endsWith('/') ? `${path}index.html` : path
    if (!pathname.startsWith(base) || !files.has(target)) return false
    return hash === '' || (ids.get(target)?.has(decodeURIComponent(hash.slice(1))) ?? false)
  }
  const broken = [...pages].flatMap(([file, html]) => {
    const links = [...html.matchAll(/ (?:href|src)="([^"]*)"/g)].map(([, link = '']) => link)
    return [...new Set(links)].filter((link) => !leads(file, link)).map((link) => `${file}: ${link}`)
  })
  expect(pages.size).toBeGreaterThan(50)
  expect(broken).toEqual([])
})

test('each entry of the package has a page with every name that it exports', () => {
  const names = entries().map(({ page }) => `api/${page}.html`)
  expect(names.filter((name) => !pages.has(name))).toEqual([])
  expect(pages.get('api/when.html')).toContain('id="becomes"')
})

test('llms.txt lists pages as Markdown, and each is there', () => {
  const files = built('**/*.{md,txt}')
  const links = [...(files.get('llms.txt') ?? '').matchAll(/\]\(([^)]*)\)/g)].map(([, link = '']) => link)
  expect(links.length).toBeGreaterThan(30)
  expect(links.filter((link) => !files.has(link.slice(base.length)))).toEqual([])
})

/** One page of each kind. */
const kinds = [
  ...['404.html', 'index.html', 'playground.html', 'handlers.html', 'http.html', 'compare.html', 'api/once.html'],
  ...['benchmarks/index.html', 'decisions/0004-answers.html', 'figures/power-cut.html', 'project/context.html'],
]

const isOfEachKind = (file: string): boolean => kinds.includes(file)

/** Each change looks for faults on a page of each kind, and each night on all. The dark colors are the same on every page of a kind. */
const isRead = inForm({ real: isOfEachKind, full: () => true })
const isInDark = inForm({ full: isOfEachKind, long: () => true })

/** Tabs at the same time. Each shows one page after another. */
const tabs = 2

/** What axe finds serious, and whether the page scrolls sideways on a phone. */
async function faultsOf(page: Page, file: string): Promise<readonly string[]> {
  await page.goto(`${site.url}${file}`)
  // The scripts of the page name this button.
  await page.locator('.VPSwitchAppearance:not([title=""])').first().waitFor({ state: 'attached' })
  if (isRead(file)) await page.evaluate(axe)
  const found = async (rules: string): Promise<readonly string[]> => {
    const violations = await page.evaluate<readonly { id: string; impact: string; nodes: { html: string }[] }[]>(
      `axe.run({ resultTypes: ["violations"], ${rules} }).then(({ violations }) => violations)`,
    )
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }) => `${id} ${nodes[0]?.html.slice(0, 200)}`)
  }
  const light = isRead(file) ? await found('') : []
  if (isInDark(file)) await page.evaluate(() => document.documentElement.classList.add('dark'))
  const dark = isInDark(file) ? await found('runOnly: ["color-contrast"]') : []
  await page.setViewportSize({ width: 390, height: 844 })
  const isWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)
  await page.setViewportSize({ width: 1280, height: 800 })
  return [...light, ...dark.map((fault) => `dark: ${fault}`), ...(isWide ? ['scrolls sideways'] : [])].map(
    (fault) => `${file}: ${fault}`,
  )
}

describe('in a browser', () => {
  test('axe finds nothing serious on any page, in light and dark, and none scrolls sideways on a phone', async () => {
    const files = [...pages.keys()].values()
    const faults: string[] = []
    const check = async (): Promise<void> => {
      const page = await browser.newPage({ reducedMotion: 'reduce', viewport: { width: 1280, height: 800 } })
      for (const file of files) faults.push(...(await faultsOf(page, file)))
      await page.close()
    }
    await Promise.all(Array.from({ length: tabs }, check))
    expect(faults).toEqual([])
  }, 600_000)

  test('the search finds each page by its title', async () => {
    const page = await browser.newPage()
    await page.goto(site.url, { waitUntil: 'networkidle' })
    await page.keyboard.press('Control+k')
    const missed: string[] = []
    // Pages of the reference have the names of entries, which every import of the docs has too.
    for (const [file, html] of [...pages].filter(([name]) => !/^(404|api)/.test(name))) {
      const [, heading = ''] = /<h1[^>]*>(.*?)<a class="header-anchor"/s.exec(html) ?? []
      const title = heading
        .replaceAll(/<[^>]*>/g, '')
        .replaceAll('&amp;', '&')
        .trim()
      await page.locator('#localsearch-input').fill(title)
      const address = `${base}${file.replace(/index\.html$/, '')}`
      const found = page.locator(`.results li:nth-child(-n + 5) a[href^="${address}"]`).first()
      await found.waitFor().catch(() => missed.push(`${file}: ${title}`))
    }
    expect(missed).toEqual([])
    await page.close()
  }, 300_000)

  test('the code of an error or an answer, a check of doctor and the word of an alert lead to what to do about it', async () => {
    const wordsIn = (file: string, pattern: RegExp): readonly string[] => [
      ...new Set([...readFileSync(join(root, file), 'utf8').matchAll(pattern)].map(([, name = '']) => name)),
    ]
    const codes = [...meanings('src/base/errors.ts', 'ErrorCode').keys(), ...refusalErrors]
    const pageOf = new Map([
      ...codes.map((code) => [code, /\/(http\.html#what-each-error|troubleshooting\.html#errors-by-code)/] as const),
      ...wordsIn(
        'adapters/cli/doctor.ts',
        /'((?:secret|webhook|proxy|inbox|postgres|receiver|vehicles)\.[a-z]+)'/g,
      ).map((check) => [check, /\/troubleshooting\.html#each-check-of-doctor$/] as const),
      ...wordsIn('examples/observability/alerts.yml', /alert: (\w+)/g).map(
        (alert) => [alert, /\/operating\.html#what-to-watch$/] as const,
      ),
    ])
    expect(pageOf.size).toBeGreaterThan(75)
    const page = await browser.newPage()
    await page.goto(site.url, { waitUntil: 'networkidle' })
    await page.keyboard.press('Control+k')
    for (const [word, where] of pageOf) {
      const first = page.locator('.results li:first-child a')
      await page.locator('#localsearch-input').fill('')
      await expect.poll(() => first.count()).toBe(0)
      await page.locator('#localsearch-input').fill(word)
      await expect.poll(() => first.getAttribute('href'), { message: word }).toMatch(where)
    }
    await page.close()
  }, 180_000)

  test.each([
    ['wide', { width: 1280, height: 800 }],
    ['a phone', { width: 390, height: 844 }],
  ])('the playground reads each sample and what is pasted, and sends nothing: %s', async (_name, viewport) => {
    const page = await browser.newPage({ viewport })
    const complaints: string[] = []
    page.on('console', (entry) => ['error', 'warning'].includes(entry.type()) && complaints.push(entry.text()))
    page.on('pageerror', (error) => complaints.push(String(error)))
    await page.goto(`${site.url}playground.html`)
    const shown = page.locator('.playground [aria-live]')
    await shown.getByText('The receiver answers 200').waitFor()
    await page.waitForLoadState('networkidle')
    const sent: string[] = []
    // The site fetches its other pages ahead when it has time, which a busy machine has later.
    const isAhead = /^[^?]+\/assets\/[\w.-]+\.js$/
    page.on('request', (request) => {
      if (request.method() !== 'GET' || !isAhead.test(request.url())) sent.push(`${request.method()} ${request.url()}`)
    })
    for (const [sample, texts] of [
      ['service', ['"BatteryLevel": 81.488', '"format": "service"']],
      ['vehicle_maker', ['"Gear": "D"', '"VehicleSpeed": null', '"format": "vehicle_maker"']],
      ['event_collector', ['"Locked": false', '"format": "event_collector"']],
      [
        'undecoded and unknown',
        ['Your handlers get 2 events', '"BatteryLevel": "a lot"', 'Unknown because of no_topic'],
      ],
      ['a broken body', ['The receiver answers 400', '"body_not_json"', 'Your handlers get 0 events']],
    ] as const) {
      await page.getByRole('button', { name: sample, exact: true }).click()
      for (const text of texts) await shown.getByText(text).first().waitFor()
    }
    await page.getByLabel('The body of a POST').fill('{"vin": "0FLEETV14T0000004", "state": "asleep"}')
    await shown.getByText('"state": "asleep"').waitFor()
    expect(sent).toEqual([])
    expect(complaints).toEqual([])
    expect(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)).toBe(false)
    await page.close()
  })
})
