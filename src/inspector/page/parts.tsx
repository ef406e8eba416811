import type { ComponentChildren, JSX, RefObject } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { RowStatus } from './rows.ts'

export function Badge({ outcome }: { readonly outcome: RowStatus }): JSX.Element {
  return <span class={`badge ${outcome}`}>{outcome}</span>
}

/** Shown in place of missing data, with what to do next. */
export function Empty({
  title,
  children,
}: {
  readonly title: string
  readonly children?: ComponentChildren
}): JSX.Element {
  return (
    <div class="empty">
      <p class="title">{title}</p>
      {children}
    </div>
  )
}

interface Reading<Data> {
  readonly data: Data | undefined
  readonly error: Error | undefined
}

/** Reads again when one of `inputs` changes, and keeps the last data until then. */
export function useReading<Data>(
  inputs: readonly unknown[],
  run: (signal: AbortSignal) => Promise<Data>,
): Reading<Data> {
  const [reading, setReading] = useState<Reading<Data>>({ data: undefined, error: undefined })
  useEffect(() => {
    const ended = new AbortController()
    const set = (news: Partial<Reading<Data>>): void => {
      if (!ended.signal.aborted) setReading(({ data }) => ({ data, error: undefined, ...news }))
    }
    run(ended.signal).then(
      (data) => set({ data }),
      (error: unknown) => set({ error: error instanceof Error ? error : new Error(String(error)) }),
    )
    return () => ended.abort()
  }, inputs)
  return reading
}

export function Failed({ of: { error } }: { readonly of: Reading<unknown> }): JSX.Element | null {
  return error === undefined ? null : (
    <Empty title="Could not load this">
      <p>{error.message}</p>
    </Empty>
  )
}

interface TableProps {
  readonly name: string
  /** The headings. A heading that ends with `#` is over figures. */
  readonly head: readonly string[]
  /** The cells of each row. The first one names the row. */
  readonly rows: readonly (readonly ComponentChildren[])[]
  /** Whether a row needs attention. */
  readonly marked?: (index: number) => boolean
}

export function Table({ name, head, rows, marked = () => false }: TableProps): JSX.Element {
  const kinds = head.map((title) => (title.endsWith('#') ? 'number' : ''))
  const titles = head.map((title) => title.replace('#', ''))
  // On a phone, a row is a card, and each cell shows the title of its column.
  return (
    <table aria-label={name}>
      <thead>
        <tr>
          {titles.map((title, column) => (
            <th scope="col" class={kinds[column]}>
              {title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map(([first, ...others], index) => (
          <tr class={marked(index) ? 'undecoded' : ''}>
            <th scope="row">{first}</th>
            {others.map((cell, column) => (
              <td class={kinds[column + 1]} data-title={titles[column + 1]}>
                {cell}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  )
}

interface DialogProps {
  readonly title: string
  readonly isOpen: boolean
  readonly close: () => void
  readonly children: ComponentChildren
  /** The buttons after the close button, which has the focus. */
  readonly actions?: ComponentChildren
}

export function Dialog({ title, isOpen, close, children, actions }: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => (isOpen ? dialog.current?.showModal() : dialog.current?.close()), [isOpen])
  return (
    <dialog ref={dialog} aria-label={title} onClose={close}>
      <h2>{title}</h2>
      {children}
      <p class="actions">
        <button onClick={close}>Close</button>
        {actions}
      </p>
    </dialog>
  )
}

export const Facts = ({
  of: facts,
}: {
  readonly of: readonly (readonly [name: ComponentChildren, value: ComponentChildren])[]
}): JSX.Element => (
  <dl class="facts">
    {facts.map(
      ([name, value]) =>
        value !== undefined && (
          <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ),
    )}
  </dl>
)

/** The size of an element, as long as it is there. */
export function useSize(element: RefObject<HTMLElement | null>): { readonly width: number; readonly height: number } {
  const [size, setSize] = useState({ width: 800, height: 800 })
  useLayoutEffect(() => {
    const { current } = element
    if (current === null) return undefined
    const measure = new ResizeObserver(() =>
      setSize({ width: current.clientWidth || 800, height: current.clientHeight }),
    )
    measure.observe(current)
    return () => measure.disconnect()
  }, [])
  return size
}
