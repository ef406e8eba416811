import type { ComponentChildren, JSX, TargetedEvent } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { countOf, durationOf, timeOf } from './format.ts'
import { goTo } from './route.ts'
import { Badge } from './parts.tsx'
import { type ListRow, textOf } from './rows.ts'
import { Signal } from './signal.ts'

/** The list in which the keys move. */
interface Active {
  readonly rows: readonly ListRow[]
  readonly linkOf: (row: ListRow) => string
  readonly opened: string | undefined
}

let active: Active | undefined

const marked: Signal<string | undefined> = new Signal(undefined)

/** Marks the next or the previous row. If a row is open, opens that row instead. */
export function move(by: 1 | -1): void {
  const list = active
  if (list === undefined || list.rows.length === 0) return
  const at = list.rows.findIndex(({ key }) => key === (list.opened ?? marked.value))
  const next = list.rows[Math.min(list.rows.length - 1, Math.max(0, at + by))]
  if (next === undefined) return
  marked.value = next.key
  if (list.opened !== undefined) goTo(list.linkOf(next))
}

export function openMarked(): void {
  const list = active
  const row = list?.rows.find(({ key }) => key === marked.value)
  if (list !== undefined && row !== undefined) goTo(list.linkOf(row))
}

/** A list narrower than this has two lines for each row. */
const narrowPx = 760
const oneLinePx = 34
const twoLinesPx = 58

interface ListProps {
  readonly label: string
  readonly rows: readonly ListRow[]
  readonly opened: string | undefined
  readonly linkOf: (row: ListRow) => string
  /** The text of the last column, and its label for a screen reader. */
  readonly measureOf?: (row: ListRow) => string
  /** Whether the reader points at the list or has scrolled down in it. */
  readonly busy?: Signal<boolean>
  /** Whether rows show their VIN. The list of one vehicle does not. */
  readonly hasVin?: boolean
  readonly children?: ComponentChildren
}

/** Draws only the rows that are in sight, so that a list of any length costs the same. */
export function List({
  label,
  rows,
  opened,
  linkOf,
  measureOf = lagOf,
  busy,
  hasVin = true,
  children,
}: ListProps): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null)
  const [top, setTop] = useState(0)
  const [size, setSize] = useState({ width: 1_000, height: 800 })
  const rowPx = size.width < narrowPx ? twoLinesPx : oneLinePx

  active = { rows, linkOf, opened }
  useEffect(() => () => void (active = undefined), [])

  useLayoutEffect(() => {
    const { current } = scroller
    if (current === null) return
    const observer = new ResizeObserver(() => setSize({ width: current.clientWidth, height: current.clientHeight }))
    observer.observe(current)
    return () => observer.disconnect()
  }, [])

  const wanted = opened ?? marked.value
  useEffect(() => {
    const at = rows.findIndex(({ key }) => key === wanted)
    const { current } = scroller
    if (at === -1 || current === null) return
    if (at * rowPx < current.scrollTop) current.scrollTop = at * rowPx
    else if ((at + 1) * rowPx > current.scrollTop + current.clientHeight)
      current.scrollTop = (at + 1) * rowPx - current.clientHeight
  }, [wanted, rowPx])

  const isIn = useRef(new Set<'pointer' | 'focus' | 'scroll'>())
  const hold = (why: 'pointer' | 'focus' | 'scroll', isOn: boolean): void => {
    if (isOn) isIn.current.add(why)
    else isIn.current.delete(why)
    if (busy !== undefined) busy.value = isIn.current.size > 0
  }
  useEffect(() => () => void (busy === undefined ? undefined : (busy.value = false)), [])
  const scrolled = ({ currentTarget }: TargetedEvent<HTMLDivElement>): void => {
    setTop(currentTarget.scrollTop)
    hold('scroll', currentTarget.scrollTop > rowPx)
  }

  const first = Math.max(0, Math.floor(top / rowPx) - 4)
  const inSight = rows.slice(first, first + Math.ceil(size.height / rowPx) + 8)
  return (
    <div
      ref={scroller}
      class={`scroll ${rowPx === twoLinesPx ? 'narrow' : ''} ${hasVin ? '' : 'no-vin'}`}
      role="region"
      aria-label={label}
      tabIndex={0}
      onScroll={scrolled}
      onPointerEnter={({ pointerType }) => pointerType === 'mouse' && hold('pointer', true)}
      onPointerLeave={() => hold('pointer', false)}
      onFocusIn={({ target }) => hold('focus', target instanceof HTMLElement && target.matches('a:focus-visible'))}
      onFocusOut={() => hold('focus', false)}
    >
      <ol class="rows" style={{ height: `${rows.length * rowPx}px` }} aria-label={label}>
        {inSight.map((row, index) => (
          // The key is the place, so that nodes are reused for other rows.
          <li key={index} class="row" style={{ transform: `translateY(${(first + index) * rowPx}px)` }}>
            <a
              href={linkOf(row)}
              class={row.key === wanted ? 'marked' : ''}
              aria-current={row.key === opened ? 'true' : undefined}
            >
              <Badge outcome={row.outcome} />
              <time>{timeOf(new Date(row.atMs).toISOString())}</time>
              {hasVin && <span class="vin">{row.vin}</span>}
              <span class="topic">{row.topic}</span>
              <span class="text">{textOf(row)}</span>
              <span class="measure">{measureOf(row)}</span>
            </a>
          </li>
        ))}
      </ol>
      {children}
    </div>
  )
}

function lagOf({ lagMs, outcome, attempts, item }: ListRow): string {
  if (outcome === 'refused') return item?.status === undefined || item.status === 0 ? '' : String(item.status)
  if (outcome === 'failed' || outcome === 'dead') return attempts === undefined ? '' : countOf(attempts, 'run')
  return lagMs === undefined ? '' : durationOf(lagMs)
}
