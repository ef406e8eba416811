// `fleethook conform --restart`: it kills the receiver under load, and looks for what was acknowledged.
import { describe, expect, test } from 'vitest'
import { byHand, conform, handledBy, withResult } from '../../cli/conforming.ts'

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
