import { spawn } from 'node:child_process'
import { setTimeout } from 'node:timers/promises'
import { keyOf, dataIn, type SentMessage, type Session } from './session.ts'
import { type Asked, type Check, isInOrder, noList } from './checks.ts'

const vehicles = 32
/** Between two messages of a vehicle. */
const pauseMs = 10
/** A restart may take as long. */
const longestMs = 60_000

/** What was posted while the receiver was killed. */
interface Load {
  readonly acknowledged: SentMessage[]
  /** Posts without an answer, or with another one than a 2xx. */
  refused: number
  isOver: boolean
}

/** Kills the receiver under load, and looks for each message that it had acknowledged. */
export async function killChecks(session: Session, { restarting }: Asked): Promise<readonly Check[]> {
  const about = { group: 'kills', name: 'what was acknowledged' } as const
  const unchecked = (detail: string): readonly Check[] => [{ ...about, aspect: 'handled', result: 'unchecked', detail }]
  if (restarting === undefined) return unchecked('no --restart')
  if (session.handled === undefined) return unchecked(noList)
  const load: Load = { acknowledged: [], refused: 0, isOver: false }
  const vins = new Set(Array.from({ length: vehicles }, () => session.vin()))
  const lanes = [...vins].map((vin) => drive(session, vin, load))
  const seen = new Set<string>()
  let problem: string | undefined
  for (let kill = 0; kill < restarting.kills && problem === undefined; kill++) {
    // It must be anywhere in its work.
    await setTimeout(300 + Math.random() * 700)
    for (const message of await listedIn(session)) if (vins.has(message.vin)) seen.add(keyOf(message))
    problem = await restarted(session, restarting.command, load)
  }
  if (problem === undefined) await setTimeout(300)
  load.isOver = true
  await Promise.all(lanes)
  const again: Check =
    problem === undefined
      ? { group: 'kills', name: 'it takes messages again', aspect: 'answer', result: 'pass' }
      : { group: 'kills', name: 'it takes messages again', aspect: 'answer', result: 'fail', detail: problem }
  if (problem !== undefined) return [again, ...unchecked(problem)]
  return [again, ...(await lookedUp(session, load, seen, restarting.kills))]
}

/** A list that the receiver itself serves is away while it restarts. */
const listedIn = (session: Session): ReturnType<Session['read']> => session.read().catch(() => [])

/** The messages of one vehicle, each sent once. */
async function drive(session: Session, vin: string, load: Load): Promise<void> {
  while (!load.isOver) {
    const sent = session.message(vin)
    const { status } = await session.post({ body: JSON.stringify(dataIn('service', sent)) })
    if (status >= 200 && status < 300) load.acknowledged.push(sent)
    else load.refused++
    await setTimeout(pauseMs)
  }
}

/** Runs the command, and resolves when the receiver has taken messages after it. To a text: what went wrong. */
async function restarted(session: Session, command: string, load: Load): Promise<string | undefined> {
  const child = spawn('sh', ['-c', command], { stdio: 'ignore', detached: true })
  let status: number | null | undefined
  child.once('exit', (code) => (status = code))
  child.once('error', () => (status = 127))
  child.unref()
  const refused = load.refused
  const untilMs = Date.now() + longestMs
  while (Date.now() < untilMs) {
    if (status !== undefined && status !== 0) return `the command of --restart ended with status ${status}`
    // The command ends when the receiver runs again, or it is the receiver, which was away for a moment.
    if (status === 0 || load.refused > refused) {
      const answered = load.acknowledged.length
      await setTimeout(200)
      if (load.acknowledged.length > answered + vehicles) return undefined
    }
    await setTimeout(50)
  }
  return `it took no message within ${longestMs / 1_000} s of --restart`
}

async function lookedUp(
  session: Session,
  { acknowledged, refused }: Load,
  seen: ReadonlySet<string>,
  kills: number,
): Promise<readonly Check[]> {
  const about = { group: 'kills', aspect: 'handled' } as const
  const lost = { ...about, name: 'what was acknowledged' }
  const order = { ...about, name: 'in order per vehicle' }
  const vins = new Set(acknowledged.map(({ vin }) => vin))
  const handled = (await session.settled(acknowledged)).filter(({ vin }) => vins.has(vin))
  const keys = new Set(handled.map(keyOf))
  const detail = [...seen].some((key) => !keys.has(key))
    ? 'the list forgot what it had shown before a kill: it must outlive the receiver'
    : refused === 0
      ? 'each post got a 2xx: --restart does not kill the receiver, or something in front of it waits'
      : session.blind
  if (detail !== undefined) return [lost, order].map((each): Check => ({ ...each, result: 'unchecked', detail }))
  const missing = acknowledged.filter((message) => !keys.has(keyOf(message))).length
  const repeated = handled.length - keys.size
  const figures = `${acknowledged.length} acknowledged, ${kills} kills, ${repeated} entries of a message handled again`
  return [
    missing === 0
      ? { ...lost, result: 'pass', detail: figures }
      : { ...lost, result: 'fail', detail: `${missing} of them were never handled (${figures})` },
    isInOrder(handled)
      ? { ...order, result: 'pass' }
      : { ...order, result: 'fail', detail: 'the messages of a vehicle were handled in another order' },
  ]
}
