// deploy/kubernetes against the schemas of Kubernetes, and against itself: what a manifest names is in its folder.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'

const ROOT = fileURLToPath(new URL('../../deploy/kubernetes', import.meta.url))

interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly labels?: { readonly part?: string } }
  readonly spec: {
    readonly replicas?: number
    readonly strategy?: { readonly type?: string }
    readonly selector?: { readonly matchLabels?: object }
    readonly podSelector?: { readonly matchLabels: object }
    readonly template?: { readonly metadata: { readonly labels: object }; readonly spec: PodSpec }
  }
}

interface PodSpec {
  readonly securityContext: { readonly runAsUser: number }
  readonly volumes: readonly {
    readonly name: string
    readonly persistentVolumeClaim?: { readonly claimName: string }
  }[]
  readonly containers: readonly { readonly volumeMounts: readonly { readonly name: string }[] }[]
}

type Model = new (manifest: object) => { validate(): void }

const inFolder = (folder: string, name: string) => readFileSync(path.join(ROOT, folder, name), 'utf8')

function resourcesOf(folder: string): string[] {
  return (parse(inFolder(folder, 'kustomization.yaml')) as { resources: string[] }).resources
}

function manifestsOf(folder: string): Manifest[] {
  const texts = resourcesOf(folder).map((name) => inFolder(folder, name))
  return texts.flatMap((text) => parseAllDocuments(text).map((document) => document.toJS() as Manifest))
}

describe.each(['sqlite', 'postgres'])('deploy/kubernetes/%s', (folder) => {
  const manifests = manifestsOf(folder)
  const pods = manifests.flatMap(({ spec }) => spec?.template ?? [])

  test('is applied whole', () => {
    const files = readdirSync(path.join(ROOT, folder)).filter((name) => name !== 'kustomization.yaml')
    expect(resourcesOf(folder).sort()).toEqual(files.sort())
  })

  test.each(manifests.map((manifest) => [`${manifest.kind} ${manifest.metadata.name}`, manifest] as const))(
    '%s fits the schema of Kubernetes',
    async (_, manifest) => {
      const models = (await import(`kubernetes-models/${manifest.apiVersion}`)) as Record<string, Model>
      const Kind = models[manifest.kind]
      if (!Kind) throw new Error(`${manifest.apiVersion} has no ${manifest.kind}`)
      new Kind(manifest).validate()
    },
  )

  test('selectors choose pods that there are', () => {
    const labels = pods.map(({ metadata }) => metadata.labels)
    const selectors = manifests.flatMap(({ kind, spec }) =>
      kind === 'Service' ? [spec.selector] : [spec?.selector?.matchLabels, spec?.podSelector?.matchLabels],
    )
    const chosen = selectors.filter((selector) => selector !== undefined)
    expect(chosen.length).toBeGreaterThan(2)
    for (const selector of chosen) expect(labels).toContainEqual(selector)
  })

  test('what each pod reaches, and who reaches it, is limited', () => {
    const limited = manifests.flatMap(({ kind, spec }) =>
      kind === 'NetworkPolicy' ? [spec.podSelector?.matchLabels] : [],
    )
    expect(limited).toEqual(expect.arrayContaining(pods.map(({ metadata }) => metadata.labels)))
  })

  test('what a container mounts is a volume of its pod, and runs as the user of the image', () => {
    const dockerfile = readFileSync(path.join(ROOT, '../docker/Dockerfile'), 'utf8')
    for (const { spec } of pods) {
      const volumes = spec.volumes.map(({ name }) => name).sort()
      const mounted = spec.containers.flatMap(({ volumeMounts }) => volumeMounts.map(({ name }) => name))
      expect(mounted.sort()).toEqual(volumes)
      expect(dockerfile).toContain(`USER ${spec.securityContext.runAsUser}:${spec.securityContext.runAsUser}\n`)
    }
  })
})

test('with SQLite there is never a second pod on the same databases', () => {
  const deployments = manifestsOf('sqlite').filter(({ kind }) => kind === 'Deployment')
  expect(deployments.map(({ spec }) => [spec.replicas, spec.strategy?.type])).toEqual([[1, 'Recreate']])
})

test('the parts that an upgrade applies one after the other are there, and hold all that runs the program', () => {
  const page = readFileSync('docs/operators/data.md', 'utf8')
  const applied = [...page.matchAll(/kubectl apply -k \. -l part=(\w+)/g)].map(([, part]) => part)
  const running = manifestsOf('postgres').filter(({ spec }) => spec?.template)
  expect(running.map(({ metadata }) => metadata.labels?.part)).toEqual([...applied, 'gateway'])
})
