import type { ComponentChildren, JSX, TargetedEvent } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { countOf, durationOf, timeOf } from './format.ts'
import { goTo } from './route.ts'
import { Badge, useSize } from './parts.tsx'
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

/** Scrolls until the row is in sight. */
function show(scroller: HTMLElement | null, top: number, rowPx: number): void {
  if (top < 0 || scroller === null) return
  const { scrollTop, clientHeight } = scroller
  scroller.scrollTop = Math.min(top, Math.max(scrollTop, top + rowPx - clientHeight))
}

/** Notes why the reader is busy with the list. */
function useHold(busy: Signal<boolean> | undefined): (why: 'pointer' | 'focus' | 'scroll', isOn: boolean) => void {
  const isIn = useRef(new Set<string>())
  useEffect(() => () => void (busy === undefined ? undefined : (busy.value = false)), [])
  return (why, isOn) => {
    if (isOn) isIn.current.add(why)
    else isIn.current.delete(why)
    if (busy !== undefined) busy.value = isIn.current.size > 0
  }
}

/** Draws only the rows that are in sight, so that a list of any length costs the same. */
export function List(props: ListProps): JSX.Element {
  const { label, rows, opened, linkOf, measureOf = lagOf, busy, hasVin = true, children } = props
  const scroller = useRef<HTMLDivElement>(null)
  const [top, setTop] = useState(0)
  const { width, height } = useSize(scroller)
  const rowPx = width < narrowPx ? twoLinesPx : oneLinePx

  active = { rows, linkOf, opened }
  useEffect(() => () => void (active = undefined), [])

  const wanted = opened ?? marked.value
  useEffect(() => show(scroller.current, rows.findIndex(({ key }) => key === wanted) * rowPx, rowPx), [wanted, rowPx])

  const hold = useHold(busy)
  const scrolled = ({ currentTarget }: TargetedEvent<HTMLDivElement>): void => {
    setTop(currentTarget.scrollTop)
    hold('scroll', currentTarget.scrollTop > rowPx)
  }

  const first = Math.max(0, Math.floor(top / rowPx) - 4)
  const inSight = rows.slice(first, first + Math.ceil(height / rowPx) + 8)
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
