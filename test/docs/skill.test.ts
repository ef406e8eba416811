import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { parse } from 'yaml'

const [folder = ''] = readdirSync('skills')
const text = readFileSync(`skills/${folder}/SKILL.md`, 'utf8')
const [, head = '', body = ''] = /^---\n([\s\S]+?)\n---\n([\s\S]+)$/.exec(text) ?? []

test('the skill has the form of agentskills.io, and is short enough to be read whole', () => {
  const { name, description, license, ...others } = parse(head)
  expect(name).toBe(folder)
  expect(name).toMatch(/^[a-z\d]+(-[a-z\d]+)*$/)
  expect(description.length).toBeGreaterThan(100)
  expect(description.length).toBeLessThanOrEqual(1024)
  expect([license, others]).toEqual(['MIT', {}])
  expect(text.split('\n').length).toBeLessThanOrEqual(150)
})

test('every command of the skill is one of the command line, and every template exists', () => {
  const commands = [...body.matchAll(/`npx fleethook (\w+)/g)].map(([, command = '']) => command)
  expect(new Set(commands).size).toBeGreaterThanOrEqual(9)
  const main = readFileSync('adapters/cli/main.ts', 'utf8')
  expect(commands.filter((command) => !main.includes(`  ${command}: [`))).toEqual([])
  const [, templates = ''] = /begin with a program that runs: (.*?), …/.exec(body) ?? []
  const named = templates.split(', ').map((name) => name.replaceAll('`', ''))
  expect(named.length).toBeGreaterThan(5)
  expect(named.filter((name) => !readdirSync('examples').includes(name))).toEqual([])
})

test('AGENTS.md is 15 lines at most, and points to CONTRIBUTING.md', () => {
  const agents = readFileSync('AGENTS.md', 'utf8')
  expect(agents.trimEnd().split('\n').length).toBeLessThanOrEqual(15)
  expect(agents).toContain('(CONTRIBUTING.md)')
})
