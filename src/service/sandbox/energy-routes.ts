import type { JsonObject } from '../../wire/record.ts'
import { readOptionalBody, refuse, refuseBody, refuseMethod, refusePath, refuseProduct } from './answers.ts'
import { energyCommands, problemWithCommand } from './commands.ts'
import { calendarHistory, changeSite, type EnergySite, liveStatus, siteInfo, telemetryHistory } from './energy-site.ts'
import type { World } from './world.ts'

export async function answerSite(world: World, id: string, rest: string, request: Request): Promise<Response> {
  const site = world.site(id)
  if (site === undefined) return refuseProduct(id)
  const { method } = request
  const isRead = method === 'GET' || method === 'HEAD'
  const read = Object.hasOwn(reads, rest) ? reads[rest] : undefined
  if (read !== undefined) {
    if (!isRead) return refuseMethod('GET')
    const answer = read(site, world.now(), new URL(request.url).searchParams)
    return answer instanceof Response ? answer : Response.json({ response: answer })
  }
  if (isRead) return Object.hasOwn(energyCommands, rest) ? refuseMethod('POST') : refusePath()
  if (method !== 'POST') return refuseMethod(rest === '' ? 'GET' : 'POST')
  if (!world.settings.commands.energy) {
    return refuse('insufficient_scope', 'This business did not ask for command access to energy sites.')
  }
  const body = await readOptionalBody(request)
  if (body === undefined) return refuseBody()
  const problem = problemWithCommand(energyCommands, rest, body)
  if (problem !== undefined) return refuse('invalid_command', problem)
  world.changeSite(site, changeSite(site, rest, body))
  return Response.json({ response: { result: true, reason: '', code: 201, message: 'Updated' } })
}

type SiteRead = (site: EnergySite, now: number, query: URLSearchParams) => JsonObject | Response

const kinds = ['energy', 'backup']
const periods = ['day', 'week', 'month', 'year', 'lifetime']

const reads: Readonly<Record<string, SiteRead>> = {
  site_info: (site) => siteInfo(site),
  live_status: liveStatus,
  calendar_history(site, now, query) {
    const kind = query.get('kind') ?? 'energy'
    const period = query.get('period') ?? 'day'
    if (!kinds.includes(kind)) return refuse('invalid_request', `\`kind\` must be one of ${kinds.join(', ')}.`)
    if (!periods.includes(period)) return refuse('invalid_request', `\`period\` must be one of ${periods.join(', ')}.`)
    return calendarHistory(site, now, kind, period)
  },
  telemetry_history(_site, now, query) {
    const kind = query.get('kind') ?? 'charge'
    return kind === 'charge' ? telemetryHistory(now) : refuse('invalid_request', '`kind` must be charge.')
  },
  programs: () => ({ programs: [] }),
}
