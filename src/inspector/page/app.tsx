import type { JSX } from 'preact'
import { useRef } from 'preact/hooks'
import { Dead } from './dead.tsx'
import { commands } from './detail.tsx'
import { numberOf, timeOf } from './format.ts'
import { deadEverywhere, Health } from './health.tsx'
import { move, openMarked } from './list.tsx'
import { Live } from './live.tsx'
import { Dialog, Facts } from './parts.tsx'
import { forgetSecret, isRefused, secret, useSecret } from './receiver.ts'
import { goTo, linkTo, route, type View, views } from './route.ts'
import { Signal } from './signal.ts'
import { about, connection, isPaused, lost, rate, stats, toast } from './store.ts'
import { Vehicles } from './vehicles.tsx'

const names: Readonly<Record<View, string>> = {
  live: 'Live',
  vehicles: 'Vehicles',
  dead: 'Dead letters',
  health: 'Health',
}

const isHelpOpen: Signal<boolean> = new Signal(false)

const keys: readonly (readonly [key: string, what: string])[] = [
  ['j', 'Next row'],
  ['k', 'Row before'],
  ['Enter', 'Open the row'],
  ['Esc', 'Close'],
  ['p', 'Pause or resume the live list'],
  ['/', 'Search'],
  ['r', 'Replay the open dead letter'],
  ['c', 'Copy the open message as curl'],
  ['t', 'Copy the open message as a test'],
  ['1', 'Live'],
  ['2', 'Vehicles'],
  ['3', 'Dead letters'],
  ['4', 'Health'],
  ['?', 'These keys'],
]

/** Closes the open message, or else the open vehicle. */
function close(): void {
  const { view, parts, query } = route.value
  if (parts.length > 0) goTo(linkTo(view, parts.slice(0, -1), query))
}

const actions: Readonly<Record<string, () => void>> = {
  j: () => walk(1),
  k: () => walk(-1),
  ArrowDown: () => walk(1),
  ArrowUp: () => walk(-1),
  Enter: openMarked,
  Escape: close,
  p: () => (isPaused.value = !isPaused.value),
  '/': () => document.querySelector<HTMLElement>('#search')?.focus(),
  r: () => commands.replay?.(),
  c: () => commands.curl?.(),
  t: () => commands.test?.(),
  '?': () => (isHelpOpen.value = true),
  ...Object.fromEntries(views.map((view, index) => [String(index + 1), () => goTo(linkTo(view))])),
}

/** Moves to another row. Holds the list first, because new rows would move this one away. */
function walk(by: 1 | -1): void {
  if (route.value.view === 'live') isPaused.value = true
  move(by)
}

const controls = 'input, select, textarea, button, a, [role=link], dialog'

export function listenToKeys(): void {
  addEventListener('keydown', (event) => {
    const { key, target, altKey, ctrlKey, metaKey } = event
    const on = target instanceof Element ? target : document.body
    if (secret.value === undefined || altKey || ctrlKey || metaKey || document.querySelector('dialog[open]') !== null)
      return
    if (on.matches('input, select, textarea')) {
      if (key === 'Escape' && on instanceof HTMLElement) on.blur()
      return
    }
    // Enter belongs to the control that has the focus, and arrows scroll.
    if (key === 'Enter' && on.matches(controls)) return
    if (key.startsWith('Arrow') && on !== document.body && !on.matches('.scroll, .row a')) return
    const act = actions[key]
    if (act === undefined) return
    event.preventDefault()
    act()
  })
}

export function App(): JSX.Element {
  if (secret.value === undefined) return <Door />
  const { view } = route.value
  return (
    <>
      <header class="top">
        <a class="brand" href={linkTo('live')}>
          fleethook
        </a>
        <nav aria-label="Views">
          {views.map((each) => (
            <a key={each} href={linkTo(each)} aria-current={each === view ? 'page' : undefined}>
              {names[each]}
              {each === 'dead' && <Count />}
            </a>
          ))}
        </nav>
        <span class="grow" />
        <Branches />
        <Pulse />
        <button class="plain" onClick={() => (isHelpOpen.value = true)} aria-label="Keys" title="Keys (?)">
          ?
        </button>
      </header>
      <Gone />
      <main>
        {view === 'live' && <Live />}
        {view === 'vehicles' && <Vehicles />}
        {view === 'dead' && <Dead />}
        {view === 'health' && <Health />}
      </main>
      <p class={toast.value === '' ? 'toast' : 'toast on'} role="status">
        {toast.value}
      </p>
      <Help />
    </>
  )
}

/** Links to the branches of the receiver, or back. The page of a branch is the same page at an address of its own. */
function Branches(): JSX.Element | null {
  const here = /\/branches\/([^/]+)\/$/.exec(location.pathname)?.[1]
  const names = about.value?.branches ?? []
  if (here === undefined && names.length === 0) return null
  return (
    <nav aria-label="Branches">
      {here === undefined ? (
        names.map((name) => (
          <a key={name} href={`branches/${name}/`}>
            {name}
          </a>
        ))
      ) : (
        <>
          <a href="../../">receiver</a>
          <a href="./" aria-current="page">
            {here}
          </a>
        </>
      )}
    </nav>
  )
}

function Count(): JSX.Element | null {
  const many = stats.value === undefined ? 0 : deadEverywhere(stats.value)
  return many === 0 ? null : <span class="count">{numberOf(many)}</span>
}

/** Whether the page is connected to the receiver, and the rate of messages. */
function Pulse(): JSX.Element {
  const words = { open: 'Connected', connecting: 'Connecting', lost: 'Reconnecting' }[connection.value]
  return (
    <span class={`pulse ${connection.value}`}>
      <span class="figures">{rate.value === undefined ? '' : `${numberOf(Math.round(rate.value * 10) / 10)}/s`}</span>
      <span role="status">{words}</span>
    </span>
  )
}

function Gone(): JSX.Element | null {
  if (lost.value === undefined) return null
  const { at, text } = lost.value
  return (
    <p class="gone" role="alert">
      <b>The receiver is gone: no answer since {timeOf(at)} UTC</b> ({text}). The page reconnects by itself. What you
      see is from before. If it does not come back, look at the log of its process.
    </p>
  )
}

function Door(): JSX.Element {
  const field = useRef<HTMLInputElement>(null)
  const enter = (event: Event): void => {
    event.preventDefault()
    if (field.current !== null && field.current.value !== '') useSecret(field.current.value.trim())
  }
  return (
    <main class="door">
      <form onSubmit={enter}>
        <h1>fleethook inspector</h1>
        {isRefused.value && (
          <p class="error" role="alert">
            The receiver refused this secret. Use the one that <code>inspectorRoutes</code> was mounted with, not the
            secret of the webhook. With <code>npx fleethook inspect</code>, open the address that the command printed
            last.
          </p>
        )}
        <label>
          Secret
          <input ref={field} type="password" autocomplete="current-password" required />
        </label>
        <button class="primary">Open</button>
        <p class="quiet">
          The secret stays in this tab. It is sent to this receiver only, in the header Authorization.
        </p>
      </form>
    </main>
  )
}

function Help(): JSX.Element {
  return (
    <Dialog
      title="Keys"
      isOpen={isHelpOpen.value}
      close={() => (isHelpOpen.value = false)}
      actions={<button onClick={forgetSecret}>Forget the secret</button>}
    >
      <Facts of={keys.map(([key, what]) => [<kbd>{key}</kbd>, what])} />
    </Dialog>
  )
}
