import type { JSX, RefObject, TargetedEvent } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { wireTopics } from '../../wire/envelope.ts'
import { Detail } from './detail.tsx'
import { numberOf } from './format.ts'
import { List } from './list.tsx'
import { Empty } from './parts.tsx'
import { linkTo, route, setQuery } from './route.ts'
import { type RowStatus, type ListRow, rowOf, textOf } from './rows.ts'
import { isBusy, isHeld, isLoading, isPaused, missed, readOlder, say, shown, unseen } from './store.ts'

const topics: readonly string[] = [...wireTopics, 'unknown', 'gap', 'malformed']
const outcomes: readonly RowStatus[] = [
  ...(['waiting', 'handled', 'failed', 'dead', 'refused', 'lost', 'duplicate', 'gap', 'test'] as const),
]

export function Live(): JSX.Element {
  const { parts, query } = route.value
  const [opened] = parts
  const { vin = '', topic = '', outcome = '', text = '' } = query
  const [all, loadOlder] = useRows(vin, topic)
  const words = text.toLowerCase()
  const rows = all.filter(
    (row) =>
      (outcome === '' || row.outcome === outcome) &&
      (words === '' || `${row.vin} ${row.topic} ${textOf(row)} ${row.key}`.toLowerCase().includes(words)),
  )
  const isFiltered = vin !== '' || topic !== '' || outcome !== '' || text !== ''

  return (
    <div class={opened === undefined ? 'panes' : 'panes open'}>
      <section class="pane" aria-label="Messages">
        <div class="bar">
          <input
            type="search"
            id="search"
            placeholder="Search"
            aria-label="Search in the list"
            value={text}
            onInput={({ currentTarget }) => setQuery({ text: currentTarget.value })}
          />
          <MessageFilters />
          <Choice name="outcome" values={outcomes} />
          <span class="grow" />
          <Progress />
        </div>
        <List
          label="Messages, newest first"
          rows={rows}
          opened={opened}
          busy={isBusy}
          linkOf={(row) => linkTo('live', [row.key], query)}
        >
          {rows.length > 0 && (
            <p class="foot">
              {numberOf(rows.length)} {isFiltered ? 'shown' : 'newest'}, times in UTC
              {loadOlder && <button onClick={() => void loadOlder()}>Show older messages</button>}
            </p>
          )}
          {rows.length === 0 && !isLoading.value && (isFiltered ? <NoMatch onOlder={loadOlder} /> : <Nothing />)}
        </List>
      </section>
      {opened !== undefined && <Detail id={opened} closeTo={linkTo('live', [], query)} />}
    </div>
  )
}

/** The newest rows and the older ones that were loaded, and what loads more. `undefined`: there are no more. */
function useRows(vin: string, topic: string): readonly [readonly ListRow[], (() => Promise<void>) | undefined] {
  const [older, setOlder] = useState<readonly ListRow[]>([])
  const [hasOlder, setHasOlder] = useState(true)
  useEffect(() => {
    setOlder([])
    setHasOlder(true)
  }, [vin, topic])

  const newest = shown.value
  const keys = new Set(older.length === 0 ? [] : newest.map(({ key }) => key))
  const all = [...newest, ...older.filter(({ key }) => !keys.has(key))]
  const loadOlder = async (): Promise<void> => {
    const oldest = all.findLast(({ id }) => id !== undefined)?.id
    if (oldest === undefined) return
    try {
      const { messages, next } = await readOlder(oldest)
      setOlder((before) => [...before, ...messages.map(rowOf)])
      setHasOlder(next !== null)
    } catch (error) {
      say(error instanceof Error ? error.message : 'The inbox does not answer.')
    }
  }
  return [all, hasOlder ? loadOlder : undefined]
}

/** Whether the list follows new rows, and the number of rows that it does not show. */
function Progress(): JSX.Element {
  const held = isHeld()
  const follow = (): void => {
    isPaused.value = false
    document.querySelector('.scroll')?.scrollTo({ top: 0 })
  }
  return (
    <>
      {missed.value > 0 && (
        <span class="quiet" title="They arrived faster than the feed sends. The inbox has them.">
          {numberOf(missed.value)} not shown
        </span>
      )}
      <button class={unseen.value > 0 && held ? 'news some' : 'news'} disabled={unseen.value === 0} onClick={follow}>
        {held ? `${numberOf(unseen.value)} new` : 'Live'}
      </button>
      <button aria-pressed={isPaused.value} onClick={() => (isPaused.value = !isPaused.value)}>
        {isPaused.value ? 'Resume' : 'Pause'}
      </button>
    </>
  )
}

function Nothing(): JSX.Element {
  return (
    <Empty title="No message has arrived yet">
      <p>Post one to the receiver:</p>
      <pre>npx fleethook send --url http://localhost:3000/</pre>
      <p>
        If the service should already be sending, run <code>npx fleethook doctor</code> to find the cause.
      </p>
    </Empty>
  )
}

function NoMatch({ onOlder }: { readonly onOlder: (() => Promise<void>) | undefined }): JSX.Element {
  return (
    <Empty title="No row matches the filters">
      <p class="actions">
        <button onClick={() => setQuery({ vin: '', topic: '', outcome: '', text: '' })}>Clear the filters</button>
        {onOlder !== undefined && <button onClick={() => void onOlder()}>Search older messages</button>}
      </p>
    </Empty>
  )
}

export function MessageFilters({ vinId }: { readonly vinId?: string }): JSX.Element {
  return (
    <>
      <input
        {...useFilter('vin')}
        id={vinId}
        class="vin-filter"
        placeholder="VIN"
        aria-label="Only this VIN"
        spellcheck={false}
      />
      <Choice name="topic" values={topics} />
    </>
  )
}

interface FilterInput {
  readonly ref: RefObject<HTMLInputElement | null>
  readonly onChange: (event: TargetedEvent<HTMLInputElement>) => void
}

/** Filters after the reader has finished typing. The input gets no `value`, because each render would undo what was typed since. */
export function useFilter(name: 'vin' | 'from' | 'to'): FilterInput {
  const ref = useRef<HTMLInputElement>(null)
  const value = route.value.query[name] ?? ''
  useLayoutEffect(() => {
    if (ref.current !== null) ref.current.value = value
  }, [value])
  return { ref, onChange: ({ currentTarget }) => setQuery({ [name]: currentTarget.value.trim() }) }
}

interface ChoiceProps {
  readonly name: 'topic' | 'outcome'
  readonly values: readonly string[]
}

function Choice({ name, values }: ChoiceProps): JSX.Element {
  return (
    <select
      aria-label={name === 'topic' ? 'Topic' : 'Outcome'}
      value={route.value.query[name] ?? ''}
      onChange={({ currentTarget }) => setQuery({ [name]: currentTarget.value })}
    >
      <option value="">{`All ${name}s`}</option>
      {values.map((each) => (
        <option key={each} value={each}>
          {each}
        </option>
      ))}
    </select>
  )
}
