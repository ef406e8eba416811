import { any, episode, is, span } from 'fleethook/when'
import { expect, test } from 'vitest'
import { episodeScene } from './episodes-scene.ts'

const trip = episode('trip', {
  during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
  joins: { minutes: 3 },
  silence: { hours: 1 },
  measures: { odometer: span('Odometer'), energy: span('EnergyRemaining') },
})

test('a trip is told once it is over and its values of the end are there', async () => {
  const { say, told, until } = episodeScene(trip)
  await say(
    [-600, { Gear: 'P' }],
    [-590, { Odometer: 1000 }],
    [-580, { EnergyRemaining: 50 }],
    [0, { Gear: 'D' }],
    [300, { Odometer: 1004.2 }],
    [600, { Gear: 'P' }],
    [630, { Odometer: 1013 }],
    [645, { EnergyRemaining: 46.5 }],
  )
  await until(10_000)
  expect(told).toMatchObject([
    { odometer: { from: 1000, to: 1013 }, energy: { from: 50, to: 46.5 }, missing: [], acrossGap: false },
  ])
})
