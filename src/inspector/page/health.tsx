import type { ComponentChildren, JSX } from 'preact'
import type { Sample } from '../../operator/samples.ts'
import type { Stats, StoredMessage } from './answers.ts'
import { bytesOf, countOf, durationOf, momentOf, numberOf, timeOf } from './format.ts'
import { Empty, Failed, Table, useReading } from './parts.tsx'
import { read } from './receiver.ts'
import { linkTo } from './route.ts'
import { about, lost, samples, stats } from './store.ts'

export function Health(): JSX.Element {
  const now = stats.value
  return (
    <section class="page health" aria-label="Health">
      {now === undefined ? <Empty title="No figures yet" /> : <Checks stats={now} />}
      <Charts all={samples.value} />
      <Gaps open={now?.openGaps ?? 0} />
      {now !== undefined && <Drift stats={now} />}
      {now !== undefined && <MissingFields stats={now} />}
    </section>
  )
}

/** The values of a chart, one per sample. `undefined`: the sample has none. */
type Points = readonly (number | undefined)[]

/** The growth of a count per second since the sample before. */
function perSecond(all: readonly Sample[], name: 'received' | 'refused' | 'dead'): Points {
  return all.map((sample, index) => {
    const before = all[index - 1]
    if (before === undefined || sample[name] < before[name]) return undefined
    return ((sample[name] - before[name]) * 1_000) / Math.max(1, Date.parse(sample.at) - Date.parse(before.at))
  })
}

const eachSecond = (n: number): string => `${numberOf(n)}/s`

function Charts({ all }: { readonly all: readonly Sample[] }): JSX.Element {
  return (
    <div class="charts">
      <Chart title="Received" all={all} points={perSecond(all, 'received')} unit={eachSecond} />
      <Chart title="Acknowledged, p99" all={all} points={all.map(({ ack }) => ack?.p99)} unit={durationOf} />
      <Chart title="Backlog" all={all} points={all.map(({ waiting }) => waiting)} unit={numberOf} />
      <Chart title="Oldest waiting" all={all} points={all.map(({ oldestMs = 0 }) => oldestMs)} unit={durationOf} />
      <Chart title="Refused" tone="bad" all={all} points={perSecond(all, 'refused')} unit={eachSecond} />
      <Chart title="Dead letters" tone="bad" all={all} points={perSecond(all, 'dead')} unit={eachSecond} />
    </div>
  )
}

interface ChartProps {
  readonly title: string
  readonly all: readonly Sample[]
  readonly points: Points
  readonly unit: (value: number) => string
  readonly tone?: 'bad'
}

const chartWidth = 180
const chartHeight = 48

function Chart({ title, all, points, unit, tone }: ChartProps): JSX.Element {
  const known = points.filter((point) => point !== undefined)
  const most = Math.max(0, ...known)
  const newest = points.at(-1)
  const place = (value: number, index: number): string =>
    `${((index * chartWidth) / Math.max(1, points.length - 1)).toFixed(1)},${(chartHeight - 2 - (most === 0 ? 0 : (value / most) * (chartHeight - 6))).toFixed(1)}`
  const line = points
    .map((point, index) =>
      point === undefined ? '' : `${points[index - 1] === undefined ? 'M' : 'L'}${place(point, index)}`,
    )
    .join('')
  const since = all[0]?.at
  return (
    <figure class={tone === 'bad' && most > 0 ? 'chart bad' : 'chart'}>
      <figcaption>{title}</figcaption>
      <p>
        <b>{newest === undefined ? '–' : unit(newest)}</b>
        <span class="quiet">{known.length > 1 ? `max ${unit(most)}` : ''}</span>
      </p>
      <svg
        viewBox={`0 0 ${chartWidth} ${chartHeight}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title} since ${since === undefined ? 'now' : timeOf(since)}`}
      >
        <path d={line} />
      </svg>
    </figure>
  )
}

interface HealthRow {
  readonly name: string
  readonly value: string
  /** What to do. Left out or `false`: nothing. */
  readonly todo?: ComponentChildren
}

/** Dead letters of the receiver and its branches: the page of the receiver lists all of them. */
export function deadEverywhere({ inbox, deadLettered, branches = {} }: Stats): number {
  const own = inbox.deadLetters ?? deadLettered
  return Object.values(branches).reduce((sum, branch) => sum + deadEverywhere(branch), own)
}

/** Whether messages come, and are taken. */
function checksOfWay({ secrets, refused, lastReceivedAtMs, draining }: Stats): readonly HealthRow[] {
  const ready = about.value?.ready
  const gone = lost.value
  const silentMs = lastReceivedAtMs === undefined ? undefined : Math.max(0, Date.now() - lastReceivedAtMs)
  const refusals = Object.entries(refused).filter(([reason, count]) => count > 0 && reason !== 'test')
  return [
    {
      name: 'Receiver',
      value: gone
        ? 'Not answering'
        : draining
          ? 'Draining'
          : ready?.ready === false
            ? 'Not ready'
            : 'Accepting messages',
      todo: gone
        ? `The figures are from before ${timeOf(gone.at)} UTC.`
        : ready?.ready === false && (ready.reason ?? 'See its log.'),
    },
    {
      name: 'Last message',
      value: silentMs === undefined ? 'none since the start' : `${durationOf(silentMs)} ago`,
      todo: (silentMs === undefined || silentMs > 900_000) && (
        <>
          Run <code>npx fleethook doctor --url …</code> to test the way from the service.
        </>
      ),
    },
    {
      name: 'Refused requests',
      value: numberOf(refusals.reduce((sum, [, count]) => sum + count, 0)),
      todo: refusals.length > 0 && (
        <>
          {refusals.map(([reason, count]) => `${reason} ${numberOf(count)}`).join(', ')}.{' '}
          <a href={linkTo('live', [], { outcome: 'refused' })}>See why</a>
        </>
      ),
    },
    ...(secrets.length < 2
      ? []
      : [
          {
            name: 'Secrets',
            value: secrets.map((count, place) => `secret[${place}] ${numberOf(count)}`).join(', '),
            todo: 'Requests with each secret. Remove an old one when its number no longer grows.',
          },
        ]),
  ]
}

/** Whether they are handled. */
function checksOfHandling(stats: Stats): readonly HealthRow[] {
  const { paused } = stats
  const deadLetters = deadEverywhere(stats)
  const failing = Object.entries({ '': stats, ...stats.branches }).flatMap(([branch, { failing: found }]) =>
    (found?.handlers ?? []).map((each) => ({ ...each, branch })),
  )
  return [
    {
      name: 'Dead letters',
      value: numberOf(deadLetters),
      todo: deadLetters > 0 && <a href={linkTo('dead')}>Look at the errors, fix the handler, replay</a>,
    },
    {
      name: 'Lost',
      value: numberOf(stats.lost),
      todo: stats.lost > 0 && 'These messages were never handled. The gaps below say which time to refill.',
    },
    {
      name: 'Handlers',
      value: `${paused.length || 'none'} paused`,
      todo:
        paused.length > 0 &&
        paused.map(
          ({ handler, since, nextTryAt }) =>
            `${handler} has failed for every vehicle since ${timeOf(since)} UTC. Next try: ${timeOf(nextTryAt)} UTC. `,
        ),
    },
    {
      name: 'Failing now',
      value: numberOf(failing.reduce((sum, { messages }) => sum + messages, 0)),
      todo:
        failing.length > 0 &&
        failing.map(
          ({ handler, branch, messages, vehicles, since, error }) =>
            `${branch} ${handler}: ${messages} of ${vehicles} vehicles since ${timeOf(since)} UTC, ${error}. `,
        ),
    },
  ]
}

/** What waits. */
function checksOfBacklog({ pending, inbox, backlog }: Stats): readonly HealthRow[] {
  const { mostMessages, bytes } = inbox
  return [
    ...(backlog?.unhandledPartitions === undefined
      ? []
      : [
          {
            name: 'All processes',
            value: `${numberOf(backlog.messages)} wait`,
            todo:
              backlog.processes === 0
                ? 'No process runs handlers.'
                : (backlog.oldestMs ?? 0) > 60_000 && `The oldest waits for ${durationOf(backlog.oldestMs ?? 0)}.`,
          },
        ]),
    {
      name: 'Backlog',
      value: `${numberOf(pending.messages)}${mostMessages === undefined ? '' : ` of ${numberOf(mostMessages)}`}`,
      todo:
        mostMessages !== undefined &&
        pending.messages > mostMessages * 0.8 &&
        'A full inbox refuses messages. Make handlers faster, or raise `concurrency`.',
    },
    ...(bytes === undefined ? [] : [{ name: 'Inbox', value: bytesOf(bytes) }]),
  ]
}

/** The figures that an operator looks at first, each with what to do. */
function Checks({ stats }: { readonly stats: Stats }): JSX.Element {
  const checks = [checksOfWay, checksOfHandling, checksOfBacklog].flatMap((rows) => rows(stats))
  return (
    <>
      <h2>Health</h2>
      <ul class="checks">
        {checks.map(({ name, value, todo }) => (
          <li key={`${name} ${value}`} class={todo ? 'look' : 'fine'}>
            <span class="name">{name}</span>
            <b>{value}</b>
            <span class="todo">{todo || (lost.value ? '' : name === 'Receiver' ? 'healthy' : 'OK')}</span>
          </li>
        ))}
      </ul>
    </>
  )
}

function Gaps({ open }: { readonly open: number }): JSX.Element {
  const reading = useReading([open], (signal) =>
    read<{ messages: readonly StoredMessage[] }>('messages?topic=gap&limit=50', signal),
  )
  const { data, error } = reading
  const gaps = data?.messages ?? []
  return (
    <>
      <h2>Gaps</h2>
      {open > 0 && <p>{countOf(open, 'gap')} will be reported when the inbox has room.</p>}
      <Failed of={reading} />
      {error === undefined && gaps.length === 0 && open === 0 && (
        <p class="quiet">No message is missing, as far as the receiver knows.</p>
      )}
      {gaps.length > 0 && (
        <Table
          name="Gaps"
          head={['From (UTC)', 'To (UTC)', 'Vehicle', 'Reason', 'Missing#']}
          rows={gaps.map(({ id, event: { from, to, vin, reason, missed } }) => [
            <a href={linkTo('live', [id])}>{momentOf(String(from)).slice(0, 19)}</a>,
            ...[timeOf(String(to)), vin ?? 'any', String(reason), missed === 0 ? 'not known' : String(missed)],
          ])}
        />
      )}
    </>
  )
}

function Drift({ stats: { drift, drifted } }: { readonly stats: Stats }): JSX.Element {
  return (
    <>
      <h2>Drift</h2>
      {drift.length === 0 ? (
        <p class="quiet">Every value is as the catalogue says.</p>
      ) : (
        <>
          <p class="quiet">
            {countOf(drifted, 'value')} did not have the type of the catalogue (<code>event.undecoded</code>) or cannot
            be true.
          </p>
          <Table
            name="Drift"
            head={['Field', 'Came as', 'Why', 'Values#']}
            rows={drift.slice(0, 200).map(({ field, seen, reason, count }) => [field, seen, reason, numberOf(count)])}
          />
        </>
      )}
    </>
  )
}

function MissingFields({ stats: { fieldsMissing } }: { readonly stats: Stats }): JSX.Element | null {
  if (fieldsMissing.length === 0) return null
  return (
    <>
      <h2>Fields that do not come</h2>
      <p class="quiet">Rules name them. Add them to the config of the vehicles, or take them out of the rules.</p>
      <Table
        name="Fields that do not come"
        head={['Field', 'Rules', 'Last', 'Never sent by#']}
        rows={fieldsMissing.map(({ field, edges, lastAtMs, heard, never }) => [
          field,
          edges.join(', '),
          lastAtMs === undefined ? 'never' : new Date(lastAtMs).toISOString().slice(0, 16),
          `${numberOf(never)} of ${numberOf(heard)}`,
        ])}
      />
    </>
  )
}
