// `fleethook conform` with what takes longer: kills under load, and each answer and event of ours.
import { createReceiver } from 'fleethook'
import { serve } from 'fleethook/node'
import { describe, expect, test } from 'vitest'
import { byHand, conform, handledBy, secret, withResult } from '../../cli/conforming.ts'
import { freePort } from '../../conformance/spawn.ts'

const kills = ['--only', 'kills', '--patience', '5', '--kills', '4']

describe('fleethook conform under kills', () => {
  test('finds nothing in a receiver that stores first', async () => {
    await using receiver = await byHand('')
    const report = await conform(
      receiver.url,
      '--handled',
      handledBy(receiver),
      '--restart',
      receiver.restart,
      ...kills,
    )
    expect(withResult(report, 'fail')).toEqual([])
    expect(report).toMatchObject({ status: 0, pass: 3, unchecked: 0 })
  })

  test('names a receiver that acknowledges before it stores', async () => {
    await using receiver = await byHand('ack-first')
    const report = await conform(
      receiver.url,
      '--handled',
      handledBy(receiver),
      '--restart',
      receiver.restart,
      ...kills,
    )
    expect(report.status).toBe(1)
    expect(withResult(report, 'fail').join()).toMatch(/\d+ of them were never handled \(\d+ acknowledged, 4 kills/)
  })

  test('a command that kills nothing proves nothing', async () => {
    await using receiver = await byHand('')
    const report = await conform(receiver.url, '--handled', handledBy(receiver), '--restart', 'true', ...kills)
    expect(report).toMatchObject({ status: 0, fail: 0, unchecked: 2 })
    expect(withResult(report, 'unchecked')[0]).toMatch(/--restart does not kill the receiver/)
  })

  test('a command that fails falls short, with its status', async () => {
    await using receiver = await byHand('')
    const report = await conform(receiver.url, '--handled', handledBy(receiver), '--restart', 'exit 7', ...kills)
    expect(report.status).toBe(1)
    expect(withResult(report, 'fail')).toEqual([
      'kills, it takes messages again (answer): the command of --restart ended with status 7',
    ])
  })

  test('a list that forgets proves nothing', async () => {
    await using receiver = await byHand('')
    const newest = `cmd:tail -n 50 ${handledBy(receiver)} || true`
    const report = await conform(receiver.url, '--handled', newest, '--restart', receiver.restart, ...kills)
    expect(withResult(report, 'unchecked')[0]).toMatch(/the list forgot what it had shown before a kill/)
  })
})

describe('fleethook conform for longer', () => {
  test('without a list of what was handled, no check of it has passed', async () => {
    await using receiver = await byHand('batch-first,order,repeats')
    const report = await conform(receiver.url)
    expect(report).toMatchObject({ status: 0, fail: 0 })
    const ofHandled = report.checks.filter(({ aspect }) => aspect === 'handled')
    expect(ofHandled.length).toBeGreaterThan(20)
    expect(new Set(ofHandled.map(({ result }) => result))).toEqual(new Set(['unchecked']))
  })

  test('a receiver of fleethook that posts on what it handled has every answer and event of ours', async () => {
    const sink = `http://127.0.0.1:${await freePort()}`
    const receiver = createReceiver({ secret }).on('*', async (event) => {
      await fetch(sink, { method: 'POST', body: JSON.stringify(event) })
    })
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', announce: false, signals: false })
    const report = await conform(server.url, '--sink', new URL(sink).port, '--strict', '--at-least-once')
    await server.close()
    expect(withResult(report, 'fail')).toEqual([])
    const passed = (of: string): number =>
      report.checks.filter(({ group, result }) => group === of && result === 'pass').length
    expect(passed('relays')).toBeGreaterThan(15)
    expect(passed('answers')).toBeGreaterThan(100)
    expect(withResult(report, 'unchecked').join('\n')).toContain('it was handled 2 times, and --at-least-once says')
  })
})
