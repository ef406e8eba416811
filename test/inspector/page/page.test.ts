import { execFileSync } from 'node:child_process'
import { deliver, message } from 'fleethook/testing'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { freePort } from '../../conformance/spawn.ts'
import { axe, type Browser, hostile, launch, openScene, openTab, type Scene, type Tab, webhookSecret } from './scene.ts'

let browser: Browser
let scene: Scene

beforeAll(async () => {
  ;[browser, scene] = await Promise.all([launch(), openScene()])
})

afterAll(async () => {
  await browser.close()
  await scene.close()
})

afterEach(() => Promise.all(browser.contexts().map((context) => context.close())))

/** Opens each view in turn, with a message open where there can be one. */
async function throughViews(tab: Tab, look: (view: string) => Promise<void>): Promise<void> {
  const { page } = tab
  await page.locator('.row').first().waitFor()
  await look('live')
  await page.locator('.row a', { hasText: '0FLEETV14T0000004' }).first().click()
  await page.locator('.detail tr.undecoded').waitFor()
  await look('message')
  await page.goto(`${scene.url}#/vehicles`)
  await page.locator('.map circle').first().waitFor()
  await look('vehicles')
  await page.goto(`${scene.url}#/vehicles/0FLEETV14T0000001`)
  await page.locator('.row').first().waitFor()
  await look('vehicle')
  await page.goto(`${scene.url}#/vehicles/${encodeURIComponent(hostile)}`)
  await page.locator('.row').first().waitFor()
  await look('vehicle of a hostile VIN')
  await page.goto(`${scene.url}#/dead`)
  await page.locator('.row a').first().waitFor()
  await look('dead letters')
  await page.locator('.row a').first().click()
  await page.locator('.detail pre.error').first().waitFor()
  await look('dead letter')
  await page.goto(`${scene.url}#/health`)
  await page.locator('.checks li', { hasText: /secret\[0\] [1-9]\d*, secret\[1\] 0/ }).waitFor()
  await look('health')
  await page.keyboard.press('?')
  await page.locator('dialog[open]').waitFor()
  await look('keys')
  await page.keyboard.press('Escape')
}

describe.each([
  ['light', { colorScheme: 'light' }],
  ['dark', { colorScheme: 'dark' }],
  ['390 px wide', { viewport: { width: 390, height: 844 } }],
] as const)('in every view, %s', (_name, options) => {
  test('nothing breaks a policy or scrolls sideways, hostile text stays text, and axe finds nothing serious', async () => {
    const tab = await openTab(browser, scene, options)
    const { page, complaints } = tab
    await page.evaluate(axe)
    await throughViews(tab, async (view) => {
      const seen = await page.evaluate(() => ({
        images: document.images.length,
        // The page itself, and what scrolls in it.
        isWide: [...document.querySelectorAll('html, .page, .body, .scroll, .halves')].some(
          ({ scrollWidth, clientWidth }) => scrollWidth > clientWidth,
        ),
      }))
      expect(seen, view).toEqual({ images: 0, isWide: false })
      const found = await page.evaluate<readonly { id: string; impact: string; nodes: { html: string }[] }[]>(
        'axe.run().then(({ violations }) => violations)',
      )
      const serious = found.filter(({ impact }) => impact === 'serious' || impact === 'critical')
      expect(
        serious.map(({ id, nodes }) => `${id} ${nodes[0]?.html}`),
        view,
      ).toEqual([])
    })
    expect(complaints).toEqual([])
  })
})

test('says what to do about a wrong secret, and takes the right one', async () => {
  const { page } = await openTab(browser, scene)
  await page.goto(`${scene.url}#secret=wrong`)
  await page.reload()
  await page.getByRole('alert').getByText('The receiver refused this secret').waitFor()
  expect(page.url()).not.toContain('wrong')
  await page.getByLabel('Secret').fill('an-operator-of-the-tests')
  await page.getByRole('button', { name: 'Open' }).click()
  await page.locator('.row').first().waitFor()
})

test('reads older messages of the inbox, until there are no more', async () => {
  const { page } = await openTab(browser, scene)
  const older = page.getByRole('button', { name: 'Show older messages' })
  await older.click()
  await older.waitFor({ state: 'detached' })
})

test('every key does what the list of keys says', async () => {
  const { page } = await openTab(browser, scene, { permissions: ['clipboard-read', 'clipboard-write'] })
  const view = (): Promise<string | null> => page.locator('nav [aria-current]').textContent()
  await page.locator('.row').first().waitFor()
  for (const [key, name] of [
    ['2', 'Vehicles'],
    ['3', 'Dead letters'],
    ['4', 'Health'],
    ['1', 'Live'],
  ] as const) {
    await page.keyboard.press(key)
    // The browser reports the new address in a task of its own.
    await expect.poll(view).toContain(name)
  }
  await page.locator('.row').first().waitFor()
  await page.keyboard.press('p')
  await page.getByRole('button', { name: 'Resume' }).waitFor()
  await page.keyboard.press('p')
  await page.getByRole('button', { name: 'Pause' }).waitFor()
  for (const key of ['j', 'j', 'j', 'k']) await page.keyboard.press(key)
  await expect.poll(() => page.locator('.row a').nth(1).getAttribute('class')).toBe('marked')
  await page.keyboard.press('Enter')
  await page.locator('.detail').waitFor()
  await page.keyboard.press('Escape')
  await page.locator('.detail').waitFor({ state: 'detached' })
  await page.keyboard.press('/')
  await page.keyboard.type('BatteryLevel null')
  await page.keyboard.press('Escape')
  await page.locator('.row', { hasNotText: 'BatteryLevel null' }).first().waitFor({ state: 'detached' })
  await page.keyboard.press('j')
  await page.keyboard.press('Enter')
  await page.locator('.detail tr.undecoded').waitFor()
  const copied = async (key: string): Promise<string> => {
    // The page still says that it has copied the text before.
    await page.evaluate(() => navigator.clipboard.writeText(''))
    await page.keyboard.press(key)
    await page.getByRole('status').getByText('Copied').waitFor()
    const clipboard = (): Promise<string> => page.evaluate(() => navigator.clipboard.readText())
    await expect.poll(clipboard).not.toBe('')
    return clipboard()
  }
  expect(await copied('c')).toContain('$WEBHOOK_SECRET')
  expect(await copied('t')).toContain("from './handlers.ts'")
  await page.keyboard.press('3')
  await page.locator('.row a').first().click()
  await page.getByRole('button', { name: 'Replay', exact: true }).waitFor()
  await page.keyboard.press('r')
  await page.getByRole('status').getByText('1 dead letter was replayed').waitFor()
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keys' }).waitFor()
})

test('a copied curl posts the message again, in each format and with hostile text', async () => {
  const { page } = await openTab(browser, scene, { permissions: ['clipboard-read', 'clipboard-write'] })
  const post = async (command: string): Promise<number> => {
    const env = { WEBHOOK_URL: new URL('/telemetry', scene.url).href, WEBHOOK_SECRET: webhookSecret }
    const printed = execFileSync('/bin/sh', ['-c', `curl() { printf '%s\\0' "$@"; }\n${command}`], { env })
    const [url = '', ...options] = printed.toString().split('\0').slice(0, -1)
    const values = (name: string): readonly string[] => options.filter((_, index) => options[index - 1] === name)
    const headers = values('-H').map((line): [string, string] => {
      const [name = '', value = ''] = line.split(': ')
      return [name, value]
    })
    return (await fetch(url, { method: 'POST', headers, body: values('--data-raw').join('') })).status
  }
  const { received } = scene.receiver.stats()
  const formats: string[] = []
  // These three vehicles have sent messages in three formats.
  for (const vin of ['0FLEETV14T0000002', '0FLEETV14T0000004', hostile]) {
    const list = `${scene.url}#/live?vin=${encodeURIComponent(vin)}`
    await page.goto(list)
    await page.locator('.row', { hasText: vin }).first().waitFor()
    // The rows of the vehicle before are there until the receiver has answered.
    await page.locator('.row', { hasNotText: vin }).first().waitFor({ state: 'detached' })
    const links = await page
      .locator('.row a')
      .evaluateAll((all) => all.flatMap((link) => link.getAttribute('href') ?? []))
    for (const link of links) {
      await page.goto(list)
      await page.locator('.detail').waitFor({ state: 'detached' })
      await page.goto(`${scene.url}${link}`)
      await page.getByRole('button', { name: 'Copy as curl' }).waitFor()
      const clipboard = (): Promise<string> => page.evaluate(() => navigator.clipboard.readText())
      await page.evaluate(() => navigator.clipboard.writeText(''))
      await page.keyboard.press('c')
      await expect.poll(clipboard).not.toBe('')
      const command = await clipboard()
      expect(await post(command), command).toBe(200)
      formats.push(command.includes('Splunk') ? 'collector' : command.includes('"data":[{"key"') ? 'maker' : 'own')
    }
  }
  expect(scene.receiver.stats().received - received).toBe(formats.length)
  expect(new Set(formats).size).toBe(3)
})

test('shows each field of a collector message raw and parsed, and a position as latitude and longitude', async () => {
  const { page } = await openTab(browser, scene)
  await page.goto(`${scene.url}#/live?vin=0FLEETV14T0000002&topic=data`)
  const rows = page.locator('.row a', { hasText: /Location 52\.\d{4}, 13\.\d{4}$/ })
  await rows.nth(2).waitFor()
  const formats: string[] = []
  for (const link of await rows.evaluateAll((all) => all.flatMap((row) => row.getAttribute('href') ?? []))) {
    await page.goto(`${scene.url}${link}`)
    const cells = page.getByRole('table', { name: 'Fields' }).locator('td')
    const raw = await cells.nth(0).textContent()
    expect(raw).toMatch(/^\{?.*\d/)
    expect(await page.getByRole('row', { name: /^Location/ }).textContent()).toMatch(/52\.\d{4}, 13\.\d{4}$/)
    formats.push((await page.getByText(/^Received as /).textContent())?.split(/ as |,/)[1] ?? '')
  }
  expect(new Set(formats)).toEqual(new Set(['service', 'vehicle_maker', 'event_collector']))
})

test.each([390, 768, 1280])(
  'at %d px no word of a table is broken, and the map is as wide as the page',
  async (width) => {
    const { page } = await openTab(browser, scene, { viewport: { width, height: 844 } })
    for (const view of ['vehicles', 'vehicles/0FLEETV14T0000001', 'health']) {
      await page.goto(`${scene.url}#/${view}`)
      await page.locator('tbody tr').first().waitFor()
      const broken = await page.evaluate(() => {
        const words: string[] = []
        for (const cell of document.querySelectorAll('th, td')) {
          const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT)
          for (let node = texts.nextNode(); node !== null; node = texts.nextNode()) {
            for (const { 0: word, index } of (node.textContent ?? '').matchAll(/[^\s]+/g)) {
              const range = document.createRange()
              range.setStart(node, index)
              range.setEnd(node, index + word.length)
              // A hyphen is a place to break at.
              if (!word.includes('-') && new Set([...range.getClientRects()].map(({ top }) => top)).size > 1)
                words.push(word)
            }
          }
        }
        return words
      })
      expect(broken.filter((word) => !hostile.includes(word))).toEqual([])
      if (view !== 'vehicles') continue
      const map = await page.locator('.map svg').boundingBox()
      expect(map?.width).toBeGreaterThan(width - 40)
    }
  },
)

test('the list of vehicles has battery, gear, charge, place and when each was heard, and a map loads the land', async () => {
  const { page, complaints } = await openTab(browser, scene)
  const asked: string[] = []
  page.on('request', (request) => asked.push(new URL(request.url()).pathname))
  await page.goto(`${scene.url}#/health`)
  await page.locator('.checks li').first().waitFor()
  expect(asked.filter((path) => path.endsWith('.txt'))).toEqual([])
  await page.goto(`${scene.url}#/vehicles`)
  const row = page.locator('tbody tr', { hasText: '0FLEETV14T0000001' })
  await row.waitFor()
  expect(await row.innerText()).toMatch(/65 %\s+D\s+52\.4680, 13\.3550\s+.*\s+\d.* ago/)
  await page.locator('.land[d^="M"]').first().waitFor({ state: 'attached' })
  expect(asked.filter((path) => path.endsWith('.txt'))).toHaveLength(1)
  expect(complaints).toEqual([])
})

test('a fleet on both sides of the date line is in one place of the map', async () => {
  const far = await openScene({ isEmpty: true })
  for (const [vin, longitude] of [
    ['0FLEETV14T0000001', 179.9],
    ['0FLEETV14T0000002', -179.9],
  ] as const)
    await (
      await deliver(far.receiver, message.data({ Location: { latitude: -17, longitude } }, { vin }), {
        secret: webhookSecret,
      })
    ).settled
  const { page } = await openTab(browser, far)
  await page.goto(`${far.url}#/vehicles`)
  await page.locator('.map circle').nth(1).waitFor()
  expect((await page.locator('.map svg text').allTextContents()).filter((text) => /[EW]$/.test(text)).join()).toMatch(
    /179\.\d+° E.*180\.0+° E.*179\.\d+° W/,
  )
  await far.close()
})

test('replays the dead letters of a time', async () => {
  const { page } = await openTab(browser, scene)
  const inAnHour = (hours: number): string => new Date(Date.now() + hours * 3_600_000).toISOString().slice(0, 19)
  await page.goto(`${scene.url}#/dead`)
  await page.locator('.row').first().waitFor()
  await page.getByLabel('Received from (UTC)').fill(inAnHour(1))
  await page.getByLabel('Received from (UTC)').press('Enter')
  await page.getByText('No dead letter matches the filters').waitFor()
  await page.getByLabel('Received from (UTC)').fill(inAnHour(-1))
  await page.getByLabel('Received from (UTC)').press('Enter')
  await page.getByLabel('to (UTC)', { exact: true }).fill(inAnHour(1))
  await page.getByLabel('to (UTC)', { exact: true }).press('Enter')
  await page.getByRole('button', { name: 'Replay these…' }).click()
  await page.getByRole('heading', { name: /Replay \d+ dead letters\?/ }).waitFor()
  await page.getByRole('dialog').getByRole('button', { name: 'Replay' }).click()
  await page.getByRole('status').getByText('dead letters were replayed').waitFor()
})

test('reconnects to a receiver that was gone, and shows nothing twice', async () => {
  const first = await openScene({ port: await freePort() })
  const { page } = await openTab(browser, first)
  await page.locator('.row').first().waitFor()
  const hrefs = (): Promise<string[]> =>
    page.locator('.row a').evaluateAll((links) => links.flatMap((link) => link.getAttribute('href') ?? []))
  await page.keyboard.press('4')
  const state = page.locator('.checks li').first()
  await state.getByText('Accepting messages').waitFor()
  expect(await state.textContent()).toBe('ReceiverAccepting messageshealthy')
  await first.close()
  await page.getByRole('alert').getByText('The receiver is gone').waitFor()
  expect(await state.textContent()).toMatch(/^ReceiverNot answering.* from before/)
  expect(await page.locator('.checks').textContent()).not.toMatch(/healthy|OK/)
  await page.keyboard.press('1')
  const again = await openScene({ port: Number(new URL(first.url).port), isEmpty: true })
  await page.getByRole('alert').waitFor({ state: 'detached' })
  const { settled } = await deliver(again.receiver, message.state('online', { vin: 'AGAIN' }), {
    secret: webhookSecret,
  })
  await settled
  await page.locator('.row a', { hasText: 'AGAIN' }).waitFor()
  const shown = await hrefs()
  expect(new Set(shown).size).toBe(shown.length)
  expect(await page.locator('.row a', { hasText: 'AGAIN' }).count()).toBe(1)
  await again.close()
})

test('says what to do when vehicles are not kept, payloads are hidden, and nothing has arrived', async () => {
  const bare = await openScene({ vehicles: false, payloads: false, isEmpty: true })
  const { page } = await openTab(browser, bare)
  await page.getByText('No message has arrived yet').waitFor()
  await page.keyboard.press('2')
  await page.getByText('This receiver keeps no state of vehicles').waitFor()
  await deliver(bare.receiver, message.data({ BatteryLevel: 81.5 }), { secret: webhookSecret })
  await page.keyboard.press('1')
  await page.locator('.row a').first().click()
  await page.getByText('Payloads are hidden').waitFor()
  await bare.close()
})

/** Sends 1,000 messages a second for ten seconds. Resolves to the longest task of the page in milliseconds, and how far things moved. */
async function burst(): Promise<{ readonly longest: number; readonly shift: number }> {
  const busy = await openScene({ isEmpty: true })
  const { page } = await openTab(browser, busy)
  await page.getByText('No message has arrived yet').waitFor()
  await page.evaluate(() => {
    const seen: { longest: number; shift: number } = { longest: 0, shift: 0 }
    Object.assign(window, { seen })
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) seen.longest = Math.max(seen.longest, duration)
    }).observe({ type: 'longtask' })
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if ('value' in entry) seen.shift += Number(entry.value)
    }).observe({ type: 'layout-shift' })
  })
  const startedAt = performance.now()
  for (let sent = 0; sent < 10_000;) {
    const due = Math.min(10_000, Math.floor(performance.now() - startedAt))
    const bodies = Array.from({ length: Math.min(100, due - sent) }, (_, index) =>
      message.data(
        { BatteryLevel: (sent + index) % 100 },
        { vin: `V${(sent + index) % 500}`, createdAt: new Date(Date.now() - index).toISOString() },
      ),
    )
    sent += bodies.length
    await Promise.all(bodies.map((each) => deliver(busy.receiver, each, { secret: webhookSecret })))
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  const seen = await page.evaluate<{ longest: number; shift: number }>('window.seen')
  expect(await page.locator('.row').count()).toBeGreaterThan(10)
  console.log(`the longest task took ${Math.round(seen.longest)} ms, layout shift ${seen.shift.toFixed(3)}`)
  // Control: a long task is seen.
  await page.evaluate(() => {
    setTimeout(() => {
      for (const end = performance.now() + 250; performance.now() < end;);
    })
  })
  await page.waitForFunction('window.seen.longest >= 200')
  await busy.close()
  return seen
}

test('1,000 messages a second for 10 seconds make no long task over 200 ms, and move nothing but the list', async () => {
  let { longest, shift } = await burst()
  // Other work of the machine does not hit all three.
  for (let tries = 1; tries < 3 && longest >= 200; tries += 1) {
    const next = await burst()
    longest = Math.min(longest, next.longest)
    shift = Math.max(shift, next.shift)
  }
  expect(longest).toBeLessThan(200)
  expect(shift).toBeLessThan(0.1)
}, 180_000)
