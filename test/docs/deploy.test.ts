/* What is copied to a server lets strangers and the process itself do as little as possible. */
import { execFileSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'

const examples = join(import.meta.dirname, '../../examples')
const read = (path: string): string => readFileSync(join(examples, path), 'utf8')

test('each Compose file publishes its ports to this machine only, and the socket of systemd listens there', () => {
  const files = globSync('*/compose.yaml', { cwd: examples })
  const ports = files.flatMap((file) => {
    const { services }: { services: Record<string, { ports?: readonly string[] }> } = parse(read(file))
    return Object.values(services).flatMap((service) => service.ports ?? [])
  })
  expect(ports.length).toBeGreaterThan(6)
  expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([])
  expect(read('deploy/systemd/fleethook.socket')).toMatch(/^ListenStream=127\.0\.0\.1:3000$/m)
  for (const page of globSync('*/README.md', { cwd: examples })) expect(read(page)).not.toMatch(/ -p \d+:/)
})

/** A container that receives, with what is mounted in it. */
interface Receiving {
  readonly name: string
  readonly mounts: readonly { readonly volume: string; readonly path: string }[]
}

/** The receivers of a Compose file. */
function composed(file: string): readonly Receiving[] {
  interface Service {
    readonly build?: string
    readonly volumes?: readonly string[]
  }
  const { services }: { services: Record<string, Service> } = parse(read(file), { merge: true })
  return Object.entries(services).flatMap(([name, { build, volumes = [] }]) => {
    const mounts = volumes.map((text) => {
      const [volume = '', path = ''] = text.split(':')
      return { volume, path }
    })
    return build === undefined || !name.startsWith('receiver') ? [] : [{ name, mounts }]
  })
}

interface Pods {
  readonly kind: string
  readonly metadata: { readonly name: string }
  readonly spec: {
    readonly template: {
      readonly spec: {
        readonly securityContext?: { readonly fsGroup?: number }
        readonly containers: readonly [
          { readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[] },
        ]
      }
    }
    readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[]
  }
}

const meanwhile = globSync('*/Dockerfile', { cwd: examples }).flatMap((file) => {
  const path = /^ENV FLEETHOOK_MEANWHILE=(?<folder>.+)\/[^/]+$/m.exec(read(file))?.groups?.['folder']
  return path === undefined ? [] : [{ template: file.split('/')[0] ?? '', folder: path }]
})

test('each container that keeps messages while its server is away has a volume of its own for them', () => {
  expect(meanwhile.map(({ template }) => template).toSorted()).toEqual(['kafka', 'logbook', 'postgres'])
  for (const { template, folder } of meanwhile) {
    const receivers = composed(`${template}/compose.yaml`)
    const kept = receivers.map(({ mounts }) => mounts.find(({ path }) => path === folder)?.volume)
    expect(kept, template).not.toContain(undefined)
    expect(new Set(kept).size, template).toBe(receivers.length)
    expect(receivers.length).toBeGreaterThan(0)
  }
})

test.each(globSync('*/kubernetes.yaml', { cwd: examples }))(
  'each pod of %s that receives has a volume of its own, to which its user may write',
  (file) => {
    const pods = parseAllDocuments(read(file)).map((one): Pods => one.toJS())
    const receiver = pods.find(({ kind, metadata: { name } }) => kind !== 'Service' && name === 'receiver')
    const { template, volumeClaimTemplates = [] } = receiver?.spec ?? {}
    const { containers: [container] = [{}], securityContext } = template?.spec ?? {}
    const folder = meanwhile.find((one) => file.startsWith(`${one.template}/`))?.folder ?? '/data'
    const mounted = container.volumeMounts?.find(({ mountPath }) => mountPath === folder)?.name
    expect(mounted).toBeDefined()
    expect(securityContext?.fsGroup).toBe(1000)
    if (receiver?.kind === 'StatefulSet')
      expect(volumeClaimTemplates.map(({ metadata: { name } }) => name)).toContain(mounted)
    // Pods of a Deployment share their volume, and only one may open the file.
    else expect(receiver).toMatchObject({ spec: { replicas: 1, strategy: { type: 'Recreate' } } })
  },
)

test('the pods of the template for Postgres get commands and variables that exist', () => {
  const documents = parseAllDocuments(read('postgres/kubernetes.yaml'))
  expect(documents.flatMap(({ errors }) => errors)).toEqual([])
  const text = read('postgres/kubernetes.yaml')
  const compose = parse(read('postgres/compose.yaml'), { merge: true })
  expect(`sh -c '${/command: \[sh, -c, (.*)\]/.exec(text)?.[1]}'`).toBe(compose.services.migrate.command)
  const programs = ['server.ts', 'migrate.ts'].map((file) => read(`postgres/${file}`)).join('')
  const named = [...text.matchAll(/- name: ([A-Z_]+)$/gm)].map(([, name = '']) => name)
  expect(new Set(named)).toEqual(new Set(['DATABASE_URL', 'WEBHOOK_SECRET']))
  for (const name of named) expect(programs).toContain(name)
})

const hasSystemd = ((): boolean => {
  try {
    return Number(/\d+/.exec(execFileSync('systemd-analyze', ['--version'], { encoding: 'utf8' }))?.[0]) >= 250
  } catch {
    return false
  }
})()

test.skipIf(!hasSystemd)('the service of systemd has an exposure below 3, and lets Node compile and write', () => {
  const unit = join(examples, 'deploy/systemd/fleethook.service')
  const said = execFileSync('systemd-analyze', ['security', '--offline=true', unit], { encoding: 'utf8' })
  expect(Number(/exposure level for \S+: ([\d.]+)/.exec(said)?.[1])).toBeLessThan(3)
  const settings = read('deploy/systemd/fleethook.service')
  expect(settings).not.toMatch(/^MemoryDenyWriteExecute=(yes|true)/m)
  expect(settings).toMatch(/^StateDirectory=fleethook$/m)
  expect(settings).toMatch(/^Environment=FLEETHOOK_INBOX=\/var\/lib\/fleethook\//m)
})
