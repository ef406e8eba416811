import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks'
import type { Event, Item, StoredMessage } from './answers.ts'
import { curlOf, isCopyable, testOf } from './copy.ts'
import { countOf, durationOf, momentOf, rawFieldsOf, timeOf, valueOf } from './format.ts'
import { Badge, Empty, Facts, Table, useReading } from './parts.tsx'
import { read } from './receiver.ts'
import { linkTo } from './route.ts'
import { type ListRow, withStored } from './rows.ts'
import { about, isLoading, knownRow, replay, say } from './store.ts'

async function copy(what: string, text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text)
    say(`Copied ${what}.`)
  } catch {
    say('Nothing was copied: browsers give the clipboard to pages on localhost and HTTPS only.')
  }
}

/** The commands of the keys for the open message. */
export const commands: { replay?: () => void; curl?: () => void; test?: () => void } = {}

interface DetailProps {
  readonly id: string
  readonly closeTo: string
  readonly onReplayed?: () => void
}

/** One message, or one item without a message. */
export function Detail({ id, closeTo, onReplayed }: DetailProps): JSX.Element {
  const known = knownRow(id)
  // Read the inbox again when the outcome changes.
  const stored = useReading([id, known?.outcome], async (signal) =>
    known !== undefined && known.id === undefined
      ? undefined
      : read<StoredMessage>(`messages/${encodeURIComponent(id)}`, signal),
  )
  const message = stored.data?.id === id ? stored.data : undefined
  const row = message === undefined ? known : withStored(known, message)
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => heading.current?.focus(), [id])

  return (
    <section class="pane detail" aria-label="Details">
      <header class="bar">
        <h2 ref={heading} tabIndex={-1}>
          {row === undefined ? 'Message' : <Badge outcome={row.outcome} />} {row?.topic}
        </h2>
        {row !== undefined && row.vin !== '' && (
          <a class="vin" href={linkTo('vehicles', [row.vin])}>
            {row.vin}
          </a>
        )}
        <span class="grow" />
        <a class="button" href={closeTo} aria-label="Close" title="Close (Esc)">
          ✕
        </a>
      </header>
      <div class="body" tabIndex={0} role="region" aria-label="Message">
        {row === undefined ? (
          stored.error !== undefined &&
          !isLoading.value && (
            <Empty title="This message is gone">
              <p>{stored.error.message}</p>
              <p>An inbox deletes settled messages after a time that its option `retention` sets.</p>
            </Empty>
          )
        ) : (
          <>
            <Actions id={id} row={row} onReplayed={onReplayed} />
            <Story row={row} />
            {row.event !== undefined && <Payload event={row.event} came={row.text} />}
            {row.item !== undefined && row.item.kind !== 'gap' && <Happened item={row.item} />}
          </>
        )}
      </div>
    </section>
  )
}

interface ActionsProps {
  readonly id: string
  readonly row: ListRow
  readonly onReplayed: (() => void) | undefined
}

/** What can be done with the open message, by buttons and by keys. */
function Actions({ id, row, onReplayed }: ActionsProps): JSX.Element | false {
  const { event, text } = row
  const canCopy = event !== undefined && isCopyable(event)
  const canReplay = row.outcome === 'dead' && row.id !== undefined
  const replayIt = (): void =>
    void replay(`dead/${encodeURIComponent(id)}/replay`).then((isDone) => isDone && onReplayed?.())
  const copyCurl = (): void => void (canCopy && copy('the curl command', curlOf({ ...event, text })))
  const copyTest = (): void => void (canCopy && copy('the test', testOf({ ...event, text })))
  // Before the buttons are seen, and after what the render before left is gone.
  useLayoutEffect(() => {
    if (canReplay) commands.replay = replayIt
    if (canCopy) Object.assign(commands, { curl: copyCurl, test: copyTest })
    return () => Object.keys(commands).forEach((name) => Reflect.deleteProperty(commands, name))
  })
  return (
    (canReplay || canCopy) && (
      <p class="actions">
        {canReplay && (
          <button class="primary" onClick={replayIt}>
            Replay
          </button>
        )}
        {canCopy && (
          <>
            <button onClick={copyCurl}>Copy as curl</button>
            <button onClick={copyTest}>Copy as test</button>
            <button onClick={() => void copy('the message', text ?? JSON.stringify(event.raw, undefined, 2))}>
              Copy JSON
            </button>
          </>
        )}
      </p>
    )
  )
}

/** The history of a message, oldest first. */
function Story({ row }: { readonly row: ListRow }): JSX.Element {
  const { event, failures, handlers, outcome, lagMs, attempts, acknowledgedMs, error, id } = row
  const lateMs = event?.createdAt === undefined ? 0 : Date.parse(event.receivedAt) - Date.parse(event.createdAt)
  const runs = attempts === undefined ? '' : ` in ${countOf(attempts, 'run')}`
  const ends: Readonly<Record<string, string>> = {
    handled: `Handled${lagMs === undefined ? '' : ` ${durationOf(lagMs)} after receipt`}${runs}`,
    dead: `Dead letter after ${attempts === undefined ? 'its runs' : countOf(attempts, 'run')}`,
    duplicate: 'Skipped: the same message was handled before',
    lost: 'Lost: the process ended before it was handled',
    waiting: 'Waits for its handlers',
    failed: 'Waits for its next run',
  }
  return (
    <>
      <h3>History (UTC)</h3>
      <ol class="story">
        {event?.createdAt !== undefined && (
          <Step at={momentOf(event.createdAt)}>
            Sent by the vehicle{lateMs > 60_000 && <b class="note"> {durationOf(lateMs)} before receipt</b>}
          </Step>
        )}
        {event !== undefined && (
          <Step at={momentOf(event.receivedAt)}>
            Received{event.format == null ? '' : ` as ${event.format}`}
            {acknowledgedMs === undefined ? '' : `, acknowledged after ${durationOf(acknowledgedMs)}`}
          </Step>
        )}
        {failures.map(({ at, attempt, handler, error, nextAt }) => (
          <Step key={`${at} ${handler}`} at={momentOf(at)} tone="failed">
            {attempt === undefined ? 'Failed' : `Run ${attempt} failed`}
            {handler !== undefined && <> in {handler}</>}
            {nextAt !== undefined && `, next run at ${timeOf(nextAt)}`}
            <pre class="error">{error}</pre>
          </Step>
        ))}
        {ends[outcome] !== undefined && (
          <Step at="" tone={outcome}>
            {ends[outcome]}
            {outcome === 'dead' && error !== undefined && failures.at(-1)?.error !== error && (
              <pre class="error">{error}</pre>
            )}
          </Step>
        )}
      </ol>
      <Facts
        of={[
          [
            'Handlers',
            handlers?.length === 0 ? 'None is registered for it, so it was settled at once.' : handlers?.join(', '),
          ],
          ['Delivery', id],
        ]}
      />
    </>
  )
}

function Step({
  at,
  tone = '',
  children,
}: {
  readonly at: string
  readonly tone?: string
  readonly children: ComponentChildren
}): JSX.Element {
  return (
    <li class={tone}>
      <time>{at}</time>
      <div>{children}</div>
    </li>
  )
}

/** The raw message beside the event that handlers get. */
function Payload({ event, came }: { readonly event: Event; readonly came: string | undefined }): JSX.Element | null {
  const { topic, data, undecoded = {}, raw, text } = event
  if (topic === 'malformed')
    return (
      <>
        <h3>Raw</h3>
        <pre>{valueOf(text ?? 'Its text is hidden.')}</pre>
      </>
    )
  if (raw === undefined || raw === null)
    return about.value?.payloads === false ? (
      <Empty title="Payloads are hidden">
        <p>{(event.fields ?? []).join(', ')}</p>
        <p>
          These routes were mounted with <code>payloads: false</code>. Mount them without it to see values.
        </p>
      </Empty>
    ) : (
      <Json title="Parsed" value={event} />
    )
  if (topic !== 'data' || data === undefined)
    return (
      <div class="beside">
        <Json title="Raw" value={raw} text={came} />
        <Json title="Parsed" value={withoutRaw(event)} />
      </div>
    )
  const sent = rawFieldsOf(event)
  const fields = Object.entries(data)
  return (
    <>
      <h3>Fields</h3>
      <Table
        name="Fields"
        head={['Field', 'Raw', 'Parsed']}
        marked={(index) => Object.hasOwn(undecoded, fields[index]?.[0] ?? '')}
        rows={fields.map(([field, value]) => [
          field,
          <code>{JSON.stringify(sent.get(field))}</code>,
          <>
            <code>{typeof value === 'string' ? JSON.stringify(value) : valueOf(value)}</code>
            {Object.hasOwn(undecoded, field) && <b class="note"> undecoded</b>}
          </>,
        ])}
      />
      {Object.keys(undecoded).length > 0 && (
        <p class="quiet">
          An undecoded value does not have the type of the catalogue. Handlers get null, and the value in
          event.undecoded.
        </p>
      )}
      <div class="beside">
        <Json title="Raw message" value={raw} text={came} />
        <Json title="Parsed event" value={withoutRaw(event)} />
      </div>
    </>
  )
}

const withoutRaw = (event: Event): object =>
  Object.fromEntries(Object.entries(event).filter(([name]) => name !== 'raw'))

interface JsonProps {
  readonly title: string
  readonly value: unknown
  /** The value as it came. */
  readonly text?: string | undefined
}

function Json({ title, value, text = JSON.stringify(value, undefined, 2) }: JsonProps): JSX.Element {
  return (
    <div>
      <h3>{title}</h3>
      <pre tabIndex={0} role="region" aria-label={title}>
        {text}
      </pre>
    </div>
  )
}

function Happened({ item }: { readonly item: Item }): JSX.Element {
  const {
    kind,
    at,
    error,
    status,
    hint,
    isAuthentic,
    isTest,
    messages = 0,
    vins = [],
    count,
    test,
    bytes,
    encoding,
    headers,
  } = item
  const facts: readonly (readonly [string, string | undefined])[] = [
    ['When', `${momentOf(at)} UTC`],
    ['Reason', error],
    ['Answer', status === undefined ? undefined : status === 0 ? 'none: the connection was closed' : String(status)],
    ['What to do', hint],
    [
      'Secret',
      isAuthentic === undefined || isTest
        ? undefined
        : isAuthentic
          ? 'right: the service has lost a message'
          : 'wrong or not checked: a stranger may have sent it',
    ],
    ['Lost', messages === 0 ? undefined : `${countOf(messages, 'message')} of ${vins.join(', ')}`],
    ['Since the start', count === undefined ? undefined : `${count} for this reason`],
    ['Test message', test],
    ['Size', bytes === undefined ? undefined : `${bytes} bytes`],
    ['Encoding', kind === 'test' ? (encoding ?? 'read by the host') : undefined],
    ['Headers', headers?.map(({ name, length }) => `${name} (${length})`).join(', ')],
  ]
  return (
    <>
      <h3>{kind !== 'refused' ? 'Test message' : isTest ? 'Refused test' : 'Refused request'}</h3>
      <Facts of={facts} />
    </>
  )
}
