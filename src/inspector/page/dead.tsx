import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { LetterSummary } from '../../operator/app.ts'
import { Detail } from './detail.tsx'
import { countOf } from './format.ts'
import { List } from './list.tsx'
import { MessageFilters, useFilter } from './live.tsx'
import { Dialog, Empty, Facts, Failed, useReading } from './parts.tsx'
import { post, read } from './receiver.ts'
import { linkTo, queryOf, route, setQuery } from './route.ts'
import { rowOfLetter } from './rows.ts'
import { replay, say, stats } from './store.ts'

/** The most dead letters in one answer of the route, oldest first. */
const mostLetters = 1_000

/** The selection of the filters, as the routes want it. `datetime-local` has no zone, and all times are in UTC. */
function selection(): Readonly<Record<string, string>> {
  const { vin = '', topic = '', from = '', to = '' } = route.value.query
  const given = { vin, topic, from: from && `${from}Z`, to: to && `${to}Z` }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== ''))
}

export function Dead(): JSX.Element {
  const { parts, query } = route.value
  const [opened] = parts
  const which = selection()
  const isFiltered = Object.keys(which).length > 0
  const [replays, setReplays] = useState(0)
  const [asked, setAsked] = useState<number>()
  const reading = useReading(
    [JSON.stringify(which), replays, stats.value?.deadLettered, stats.value?.inbox.deadLetters],
    (signal) =>
      read<{ letters: readonly LetterSummary[]; next: string | null }>(
        `dead?${queryOf({ ...which, limit: mostLetters })}`,
        signal,
      ),
  )
  const { data, error } = reading
  const rows = (data?.letters ?? []).map(rowOfLetter).sort((a, b) => b.atMs - a.atMs)
  const replayed = (): void => setReplays((before) => before + 1)
  const ask = async (): Promise<void> => {
    try {
      setAsked((await post<{ messages: number }>('dead/replay', { ...which, dryRun: true })).messages)
    } catch (failure) {
      say(failure instanceof Error ? failure.message : 'The receiver does not answer.')
    }
  }

  return (
    <div class={opened === undefined ? 'panes' : 'panes open'}>
      <section class="pane" aria-label="Dead letters">
        <div class="bar">
          <MessageFilters vinId="search" />
          <Moment name="from" label="Received from" />
          <Moment name="to" label="to" />
          <span class="grow" />
          <button class="primary" disabled={rows.length === 0} onClick={() => void ask()}>
            {isFiltered ? 'Replay these…' : 'Replay all…'}
          </button>
        </div>
        <List
          label="Dead letters, newest first"
          rows={rows}
          opened={opened}
          linkOf={(row) => linkTo('dead', [row.key], query)}
        >
          <Failed of={reading} />
          {error === undefined && data !== undefined && rows.length === 0 && <NoLetters isFiltered={isFiltered} />}
          {rows.length > 0 && (
            <p class="foot">
              {countOf(rows.length, 'dead letter')}, times in UTC
              {data?.next != null && '. There are more: choose a time to see them.'}
            </p>
          )}
        </List>
      </section>
      {opened !== undefined && <Detail id={opened} closeTo={linkTo('dead', [], query)} onReplayed={replayed} />}
      <Confirm many={asked} which={which} close={() => setAsked(undefined)} onReplayed={replayed} />
    </div>
  )
}

function NoLetters({ isFiltered }: { readonly isFiltered: boolean }): JSX.Element {
  return (
    <Empty title={isFiltered ? 'No dead letter matches the filters' : 'No dead letters'}>
      {isFiltered ? (
        <button onClick={() => setQuery({ vin: '', topic: '', from: '', to: '' })}>Clear the filters</button>
      ) : (
        <p>
          A message becomes a dead letter when one of its handlers has failed in every attempt. You replay it from here.
        </p>
      )}
    </Empty>
  )
}

function Moment({ name, label }: { readonly name: 'from' | 'to'; readonly label: string }): JSX.Element {
  return (
    <label class="moment">
      {label} (UTC)
      <input {...useFilter(name)} type="datetime-local" step="1" />
    </label>
  )
}

interface ConfirmProps {
  /** The number of dead letters that match. `undefined`: no dialog is open. */
  readonly many: number | undefined
  readonly which: Readonly<Record<string, string>>
  readonly close: () => void
  readonly onReplayed: () => void
}

/** Shows the number of dead letters and asks before it replays them. */
function Confirm({ many, which, close, onReplayed }: ConfirmProps): JSX.Element {
  const run = (): void => {
    close()
    void replay('dead/replay', which).then((isDone) => isDone && onReplayed())
  }
  return (
    <Dialog
      title={`Replay ${countOf(many ?? 0, 'dead letter')}?`}
      isOpen={many !== undefined}
      close={close}
      actions={
        <button class="primary" onClick={run} disabled={many === 0}>
          Replay
        </button>
      }
    >
      <p>All of their handlers run again, including those that succeeded.</p>
      <Facts of={Object.entries(which)} />
    </Dialog>
  )
}
