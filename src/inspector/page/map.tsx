import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Location } from '../../events/values.ts'
import { useSize } from './parts.tsx'
import { goTo } from './route.ts'

export interface Marker extends Location {
  readonly label: string
  readonly link?: string
  readonly isFaint?: boolean
}

const margin = 28
/** The smallest width of the map, in degrees: for a single vehicle. */
const leastDegrees = 0.02

/** Where the outline of land is, from the page: a path in tenths of a degree, with south below. The build sets it. */
declare const landAddress: string

let loaded: Promise<string> | undefined

/** The outline of land, which is loaded with the first map. Without it, the map has no land. */
function useLand(): string {
  const [land, setLand] = useState('')
  useEffect(() => {
    loaded ??= fetch(landAddress).then((answer) => (answer.ok ? answer.text() : ''))
    loaded.then(setLand, () => (loaded = undefined))
  }, [])
  return land
}

/** The possible distances of grid lines, in degrees. The map picks a distance that gives three to eight lines. */
const steps = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 45]

/** How degrees become pixels, and where the lines of the grid are. */
interface Projection {
  readonly x: (longitude: number) => number
  readonly y: (latitude: number) => number
  /** As `x`, for degrees that go on beyond the date line. */
  readonly across: (degrees: number) => number
  /** The number of pixels in a degree, from west to east and from north to south. */
  readonly scale: readonly [number, number]
  readonly parallels: readonly number[]
  readonly meridians: readonly number[]
  readonly digits: number
}

/** Shows all of these places. Longitudes are shortened by the cosine of the middle latitude, so shapes are right. */
function projectionOf(all: readonly Location[], width: number, height: number): Projection {
  const [south, north] = boundsOf(all.map(({ latitude }) => latitude))
  const longitudes = all.map(({ longitude }) => longitude)
  const [here, around] = [boundsOf(longitudes), boundsOf(longitudes.map(eastward))]
  // A fleet on both sides of the date line is near it, and not at both edges of the world.
  const crosses = around[1] - around[0] < here[1] - here[0]
  const [west, east] = crosses ? around : here
  const middle = (south + north) / 2
  const center = (west + east) / 2
  const narrowing = Math.max(0.05, Math.cos((middle * Math.PI) / 180))
  const perDegree = Math.min(
    (height - 2 * margin) / Math.max(leastDegrees, north - south),
    (width - 2 * margin) / Math.max(leastDegrees, (east - west) * narrowing),
  )
  const perLongitude = narrowing * perDegree
  const grid = steps.find((step) => step * perLongitude >= 80) ?? 90
  const across = (degrees: number): number => width / 2 + (degrees - center) * perLongitude
  return {
    x: (longitude) => across(crosses ? eastward(longitude) : longitude),
    y: (latitude) => height / 2 - (latitude - middle) * perDegree,
    across,
    scale: [perLongitude, perDegree],
    parallels: linesOf(middle, height / perDegree, grid).filter((latitude) => Math.abs(latitude) <= 90),
    meridians: linesOf(center, width / perLongitude, grid),
    digits: grid < 0.01 ? 3 : grid < 0.1 ? 2 : grid < 1 ? 1 : 0,
  }
}

interface MapProps {
  readonly markers: readonly Marker[]
  readonly path?: readonly Location[]
  readonly label: string
}

/** Land and a grid of degrees, no tiles. */
export function PlainMap({ markers, path = [], label }: MapProps): JSX.Element {
  const frame = useRef<HTMLDivElement>(null)
  const { width } = useSize(frame)
  const height = Math.max(220, Math.min(400, width * 0.45))
  const land = useLand()
  const { x, y, across, scale, parallels, meridians, digits } = projectionOf([...markers, ...path], width, height)
  return (
    <div class="map" ref={frame}>
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label={label}>
        {[-360, 0, 360].map((turn) => (
          <path
            key={`l${turn}`}
            class="land"
            d={land}
            transform={`translate(${across(turn)} ${y(0)}) scale(${scale.map((px) => px / 10).join(' ')})`}
          />
        ))}
        {parallels.map((latitude) => (
          <g key={`p${latitude}`}>
            <line x1={0} x2={width} y1={y(latitude)} y2={y(latitude)} />
            <text x={6} y={y(latitude) - 4}>
              {degreesOf(latitude, digits, 'N', 'S')}
            </text>
          </g>
        ))}
        {/* They go on beyond the date line. */}
        {meridians.map((degrees) => (
          <g key={`m${degrees}`}>
            <line y1={0} y2={height} x1={across(degrees)} x2={across(degrees)} />
            <text x={across(degrees) + 4} y={height - 6}>
              {degreesOf(degrees > 180 ? degrees - 360 : degrees < -180 ? degrees + 360 : degrees, digits, 'E', 'W')}
            </text>
          </g>
        ))}
        {path.length > 1 && (
          <polyline
            points={path
              .map(({ latitude, longitude }) => `${x(longitude).toFixed(1)},${y(latitude).toFixed(1)}`)
              .join(' ')}
          />
        )}
        {markers.map((marker) => dotOf(marker, x(marker.longitude), y(marker.latitude)))}
      </svg>
    </div>
  )
}

function dotOf({ label, link, isFaint }: Marker, cx: number, cy: number): JSX.Element {
  return (
    <circle
      key={label}
      cx={cx}
      cy={cy}
      r={6}
      class={isFaint === true ? 'faint' : ''}
      {...(link !== undefined && {
        role: 'link',
        tabIndex: 0,
        'aria-label': label,
        onClick: () => goTo(link),
        onKeyDown: ({ key }: KeyboardEvent) => key === 'Enter' && goTo(link),
      })}
    >
      <title>{label}</title>
    </circle>
  )
}

function boundsOf(values: readonly number[]): readonly [number, number] {
  return [values.reduce((a, b) => Math.min(a, b), 360), values.reduce((a, b) => Math.max(a, b), -180)]
}

const eastward = (longitude: number): number => (longitude < 0 ? longitude + 360 : longitude)

function degreesOf(degrees: number, digits: number, positive: string, negative: string): string {
  return `${Math.abs(degrees).toFixed(digits)}° ${degrees < 0 ? negative : positive}`
}

function linesOf(middle: number, span: number, step: number): readonly number[] {
  const first = Math.ceil((middle - span / 2) / step)
  const last = Math.floor((middle + span / 2) / step)
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => (first + index) * step)
}
