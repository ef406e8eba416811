import type { JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import type { EpisodeReport, VehicleReport, VehicleSummary } from '../../operator/app.ts'
import type { Location } from '../../events/values.ts'
import { placeOf } from '../../wire/record.ts'
import type { StoredMessage } from './answers.ts'
import { Detail } from './detail.tsx'
import { countOf, durationOf, momentOf, valueOf } from './format.ts'
import { List } from './list.tsx'
import { type Marker, PlainMap } from './map.tsx'
import { Empty, Failed, Table, useReading } from './parts.tsx'
import { read, RequestError } from './receiver.ts'
import { goTo, linkTo, queryOf, route, setQuery } from './route.ts'
import { rowOf } from './rows.ts'
import { about, shown } from './store.ts'

const refreshMs = 5_000

function useRefresh(): number {
  const [times, setTimes] = useState(0)
  useEffect(() => {
    const timer = setInterval(
      () => document.visibilityState === 'visible' && setTimes((before) => before + 1),
      refreshMs,
    )
    return () => clearInterval(timer)
  }, [])
  return times
}

export function Vehicles(): JSX.Element {
  const [vin, message] = route.value.parts
  return vin === undefined ? <Fleet /> : <OneVehicle key={vin} vin={vin} opened={message} />
}

/** Every vehicle, on a map and as a list. */
function Fleet(): JSX.Element {
  const words = (route.value.query['text'] ?? '').toLowerCase()
  const times = useRefresh()
  const reading = useReading([times], async (signal) => {
    const all: VehicleSummary[] = []
    for (let after: string | undefined, isMore = true; isMore && all.length < 5_000;) {
      const { vehicles, next }: { vehicles: readonly VehicleSummary[]; next: string | null } = await read(
        `vehicles?${queryOf({ limit: 1000, after })}`,
        signal,
      )
      all.push(...vehicles)
      after = next ?? undefined
      isMore = next !== null
    }
    return all
  })
  const { data, error } = reading
  const found = (data ?? []).filter(({ vin }) => vin.toLowerCase().includes(words))
  // There can be thousands of markers, so they are rendered only when they have changed.
  const drawn = useMemo(() => <Found vehicles={found} />, [data, words])
  const isOff = error instanceof RequestError && (error.code === 'option_invalid' || about.value?.vehicles === false)
  return (
    <section class="page" aria-label="Vehicles">
      <div class="bar">
        <input
          type="search"
          id="search"
          placeholder="VIN"
          aria-label="Find a VIN"
          spellcheck={false}
          value={route.value.query['text'] ?? ''}
          onInput={({ currentTarget }) => setQuery({ text: currentTarget.value })}
          onKeyDown={({ key, currentTarget }) =>
            key === 'Enter' &&
            currentTarget.value !== '' &&
            goTo(linkTo('vehicles', [found[0]?.vin ?? currentTarget.value.trim()]))
          }
        />
        <span class="quiet">{data !== undefined && countOf(found.length, 'vehicle')}</span>
      </div>
      {isOff ? <Off /> : <Failed of={reading} />}
      {error === undefined && data?.length === 0 && (
        <Empty title="No vehicle yet">
          <p>A vehicle is here after its first message.</p>
        </Empty>
      )}
      {drawn}
    </section>
  )
}

function Off(): JSX.Element {
  return (
    <Empty title="This receiver keeps no state of vehicles">
      <p>Turn it on to see the newest value of each field, and the vehicles on a map:</p>
      <pre>{"createReceiver({ …, parts: [vehicles({ fields: ['Location', 'BatteryLevel', 'Gear'] })] })"}</pre>
      <p>The messages of a vehicle are here without it. Type its VIN above and press Enter.</p>
      <p class="actions">
        {[...new Set(shown.value.map((row) => row.vin))]
          .filter(Boolean)
          .slice(0, 12)
          .map((vin) => (
            <a key={vin} class="button vin" href={linkTo('vehicles', [vin])}>
              {vin}
            </a>
          ))}
      </p>
    </Empty>
  )
}

function Found({ vehicles }: { readonly vehicles: readonly VehicleSummary[] }): JSX.Element {
  const markers = vehicles.flatMap(({ vin, location, online }): readonly Marker[] =>
    location == null ? [] : [{ ...location, label: vin, link: linkTo('vehicles', [vin]), isFaint: online === false }],
  )
  return (
    <>
      {markers.length > 0 && <PlainMap markers={markers} label="The last positions of the vehicles" />}
      {vehicles.length > 0 && (
        <Table
          name="Vehicles"
          head={['VIN', 'Battery#', 'Gear, charge', 'Place', 'State', 'Last heard#']}
          rows={vehicles.slice(0, 500).map((vehicle) => [
            <a class="vin" href={linkTo('vehicles', [vehicle.vin])}>
              {vehicle.vin}
            </a>,
            ...[vehicle.battery === null ? '' : `${Math.round(vehicle.battery)} %`, doingOf(vehicle)],
            vehicle.location === null ? '' : valueOf(vehicle.location),
            ...[stateOf(vehicle), vehicle.seenAt === null ? '' : ago(vehicle.seenAt)],
          ])}
        />
      )}
      {vehicles.length > 500 && <p class="foot">The first 500 are shown. Type a part of a VIN to find others.</p>}
    </>
  )
}

/** Its gear, and its charge when it is plugged in. */
const doingOf = ({ gear, charge }: Pick<VehicleSummary, 'gear' | 'charge'>): string =>
  [gear, charge !== 'Disconnected' && charge].filter(Boolean).join(', ')

const ago = (iso: string): string => `${durationOf(Math.max(0, Date.now() - Date.parse(iso)))} ago`

function stateOf({
  online,
  state,
  isOnlineCertain,
}: Pick<VehicleReport, 'online' | 'state' | 'isOnlineCertain'>): string {
  const words = [state ?? (online === null ? 'not known' : online ? 'online' : 'offline')]
  if (state !== null && online === false && state === 'online') words.push('not connected')
  if (!isOnlineCertain && online !== null) words.push('not certain')
  return words.join(', ')
}

/** The newest state of a vehicle, its positions, and its messages. */
function OneVehicle({ vin, opened }: { readonly vin: string; readonly opened: string | undefined }): JSX.Element {
  const times = useRefresh()
  const state = useReading([times], (signal) => read<VehicleReport>(`vehicles/${encodeURIComponent(vin)}`, signal))
  const history = useReading([times], (signal) =>
    read<{ messages: readonly StoredMessage[] }>(`messages?${queryOf({ vin, limit: 200 })}`, signal),
  )
  const vehicle = state.data
  const messages = history.data?.messages ?? []
  const path = messages.flatMap(({ event }) => placeOf(event.data?.['Location']) ?? [])
  const place = placeOf(vehicle?.fields['Location']?.value) ?? path[0]
  return (
    <div class={opened === undefined ? 'panes vehicle' : 'panes vehicle open'}>
      <section class="pane" aria-label="Vehicle">
        <header class="bar">
          <a class="button" href={linkTo('vehicles')}>
            ← Vehicles
          </a>
          <h2 class="vin">{vin}</h2>
          <span class="quiet">
            {vehicle !== undefined &&
              `${stateOf(vehicle)}${vehicle.seenAt === null ? '' : `, heard ${ago(vehicle.seenAt)}`}`}
          </span>
        </header>
        <div class="halves">
          <div class="body" tabIndex={0} role="region" aria-label="Newest state">
            {place !== undefined && (
              <PlainMap markers={[{ ...place, label: vin }]} path={path} label={`Where ${vin} was`} />
            )}
            {vehicle !== undefined && <Episodes of={vehicle.episodes} />}
            {vehicle !== undefined && <State vehicle={vehicle} />}
            {vehicle === undefined && <Failed of={state} />}
          </div>
          <List
            label="Messages of this vehicle, newest first"
            rows={messages.map(rowOf)}
            opened={opened}
            hasVin={false}
            linkOf={(row) => linkTo('vehicles', [vin, row.key])}
            measureOf={() => ''}
          >
            {history.data !== undefined && messages.length === 0 && (
              <Empty title="The inbox has no message of this vehicle">
                <p>It keeps settled messages for the time that its option `retention` sets.</p>
              </Empty>
            )}
            <Failed of={history} />
          </List>
        </div>
      </section>
      {opened !== undefined && <Detail id={opened} closeTo={linkTo('vehicles', [vin])} />}
    </div>
  )
}

function State({ vehicle }: { readonly vehicle: VehicleReport }): JSX.Element {
  const fields = Object.entries(vehicle.fields)
  return (
    <>
      <Table
        name="Newest state"
        head={['Field', 'Newest value', 'Age#']}
        rows={fields.map(([name, { value, ageMs, isCertain, invalidSince }]) => [
          name,
          <>
            <code>{value === undefined ? 'hidden' : valueOf(value)}</code>
            {invalidSince !== undefined && <b class="note"> not reported since {momentOf(invalidSince)} UTC</b>}
            {!isCertain && <b class="note"> not certain</b>}
          </>,
          durationOf(ageMs),
        ])}
      />
      {vehicle.facts !== undefined && (
        <Table
          name="Facts"
          head={['Fact', 'Value', 'Since (UTC)', 'Next (UTC)']}
          rows={vehicle.facts.map(({ name, value, since, nextAt }) => [
            name,
            <code>{value === null ? 'none' : valueOf(value)}</code>,
            since === null ? '' : momentOf(since),
            nextAt === undefined ? '' : momentOf(nextAt),
          ])}
        />
      )}
      {vehicle.timers.length > 0 && (
        <Table
          name="What rules wait for"
          head={['Rule', 'Since (UTC)', 'Due (UTC)']}
          rows={vehicle.timers.map(({ edge, since, dueAt }) => [edge, momentOf(since), momentOf(dueAt)])}
        />
      )}
      {fields.length === 0 && <p class="quiet">No field has a value yet.</p>}
      {fields.some(([, { isCertain }]) => !isCertain) && (
        <p class="quiet">Not certain: a gap came after the value, so a newer one may be missing.</p>
      )}
    </>
  )
}

/** What lasts, and what was last: trips, charges. */
function Episodes({ of }: { readonly of: readonly EpisodeReport[] }): JSX.Element | false {
  return (
    of.length > 0 && (
      <Table
        name="Episodes"
        head={['Episode', 'Began (UTC)#', 'Lasted#', 'Values', 'Route']}
        rows={of.map(({ name, startedAt, endedAt, durationMs, missing, acrossGap, measures }) => [
          <>
            {name}
            {endedAt === null && <b class="note"> lasts</b>}
          </>,
          momentOf(startedAt).slice(5, 16),
          durationOf(durationMs),
          <>
            {Object.entries(measures)
              .map(([measure, value]) => `${measure} ${measured(value)}`)
              .join(', ')}
            {missing.length > 0 && <b class="note"> not certain: {missing.join(', ')}</b>}
            {acrossGap && <b class="note"> messages may be missing</b>}
          </>,
          <Line points={Object.values(measures).flatMap(pointsIn)} />,
        ])}
      />
    )
  )
}

/** The value at both ends, the range, the length of the way, or how much it grew. */
function measured(value: unknown): string {
  if (typeof value !== 'object' || value === null) return known(value)
  if ('meters' in value) return typeof value.meters === 'number' ? `${(value.meters / 1_000).toFixed(1)} km` : '?'
  if ('least' in value && 'most' in value) return `${known(value.least)} to ${known(value.most)}`
  return 'from' in value && 'to' in value ? `${known(value.from)} → ${known(value.to)}` : ''
}

const known = (value: unknown): string =>
  value === null ? '?' : typeof value === 'number' ? String(Math.round(value * 100) / 100) : valueOf(value)

const pointsIn = (value: unknown): readonly Location[] =>
  typeof value === 'object' && value !== null && 'points' in value && Array.isArray(value.points)
    ? value.points.flatMap((point) => placeOf(point) ?? [])
    : []

const [lineWidth, lineHeight] = [72, 24]

/** A small line of where it went, north is up. */
function Line({ points }: { readonly points: readonly Location[] }): JSX.Element | false {
  const [first] = points
  if (first === undefined || points.length < 2) return false
  const narrowing = Math.cos((first.latitude * Math.PI) / 180)
  const xs = points.map(({ longitude }) => longitude * narrowing)
  const ys = points.map(({ latitude }) => -latitude)
  const [left, top] = [Math.min(...xs), Math.min(...ys)]
  const scale = Math.min(
    (lineWidth - 4) / Math.max(1e-6, Math.max(...xs) - left),
    (lineHeight - 4) / Math.max(1e-6, Math.max(...ys) - top),
  )
  const line = xs.map(
    (x, at) => `${(2 + (x - left) * scale).toFixed(1)},${(2 + ((ys[at] ?? 0) - top) * scale).toFixed(1)}`,
  )
  return (
    <svg class="line" width={lineWidth} height={lineHeight} role="img" aria-label="Route">
      <polyline points={line.join(' ')} />
    </svg>
  )
}
