import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SymbolFlags } from 'typescript/unstable/sync'
import { beforeAll, expect, inject, test } from 'vitest'
import { sourceFile, withProject } from '../house/project.ts'

/** The public names. A name that is added or removed is a change for users, and belongs in the changelog. */
const pinned: Readonly<Record<string, { readonly values: string; readonly types: string }>> = {
  fleethook: {
    values: `
      Discard FleethookError Retry createReceiver memoryInbox summarize`,
    types: `
      Ack Alert AlertOccurrence AlertsEvent Answer BatchContext BatchHandler BatchOptions Bounds BuiltInFields Change Claim Clock
      Condition ConnectivityEvent DataEvent DeadLetter DeadLetterReason DeadLetters DeadMessage Delivery Door Doors
      DrainOptions DrainResult Durability Edge EdgeBatchHandler EdgeHandler EdgeMemory EdgeResult EdgeStep EdgeTopic ErrorCode ErrorDetails ErrorsEvent EventOf ExecutionContext ExtendedBy
      FieldCatalogue FieldName FieldType FieldValue FieldValues FleetEvent Format GapEvent GapReason
      GivenMessage Handler HandlerContext HandlerFilter Happening Histogram Inbox InboxFactory InboxGap InboxMessage
      InboxSettings InboxStats Json KeptGap ListedMessage Listing Location Log MalformedBody MessageRecord MessageSelection Messages Meta NextAttempt
      ObservedRun Observer Occurrence OpenOptions Opened OperatorApi OtherField Readiness Receiver ReceiverOptions RefusalError RefusedHandler
      RefusedRequest RelayInbox ReplaySelection RunEnd RuntimeRefusal Secret Selection SettledMessage Source StateEvent Stats StoredVehicle Subject TestMessage
      TimeOfDay Timer Tires Topic UnknownEvent UnopenedInbox VehicleDataEvent VehicleError VehicleStore VehicleView Vehicles VehiclesOptions
      VehiclesStats Waiting WireEvent`,
  },
  'fleethook/normalize': {
    values: 'FleethookError builtInFields checkEnvelope createNormalizer encode normalize split splitValue',
    types: `
      Alert AlertsEvent BuiltInFields ConnectivityEvent DataEvent Doors Encodable EnumType EnvelopeFault ErrorCode
      ErrorsEvent EventBase ExtendedBy FieldCatalogue FieldName FieldType FieldValue FieldValues FleetEvent Format GapEvent GapReason
      Json Location Meta NormalizeOptions Normalizer NormalizerOptions OtherField Piece Split StateEvent TimeOfDay Tires Topic
      UnknownEvent UnknownReason ValueOf ValuePiece VehicleDataEvent VehicleError WireEvent WireTopic`,
  },
  'fleethook/schemas': {
    values: `
      alertsEvent connectivityEvent dataEvent errorsEvent eventCollectorMessage fleetEvent gapEvent serviceMessage stateEvent
      unknownEvent vehicleDataEvent vehicleMakerMessage wireMessage`,
    types: '',
  },
  'fleethook/client': {
    values: 'ServiceError createClient',
    types: `
      CallOptions Client ClientOptions CommandResult ConfigChange ConfigEvent ConfigResource ConfigResult DefaultConfigResource Document EnergyCommand
      EnergySiteResource EventStream Fetch FieldSetting FieldSettingOf FieldSettings Product Query ReadOptions Refill RefillOptions Refillable
      ServiceErrorCode ServiceErrorDetails SiteEvent SiteTopic StoredConfig StoredWebhook StreamEvent StreamGap StreamMessage StreamOptions StreamTopic
      StreamingConfig VehicleCommand VehicleImage VehicleResource VehicleSummary Webhook WebhookResource`,
  },
  'fleethook/otel': { values: 'otel', types: 'OtelOptions' },
  'fleethook/inspector': { values: 'inspectorRoutes', types: 'InspectorOptions' },
  'fleethook/operator': {
    values: 'operatorRoutes',
    types:
      'FieldReport KnownVehicle KnownVehicles Letter LetterSummary OperatorApi OperatorOptions VehicleReport VehicleSummary',
  },
  'fleethook/sandbox': {
    values: 'createSandbox',
    types: `
      ActivityLine CommandAccess Failure FailureKind KeptFields KeptSetting KeptVehicle KeptWebhook OutgoingMessage PostMessage
      Sandbox SandboxOptions SandboxState SandboxStore StreamFault`,
  },
  'fleethook/testing': {
    values:
      'deliver fakeClock inboxConformance message receiverConformance relayConformance vehicle vehiclesConformance',
    types: `
      Conformance DeliverOptions Deliverable Delivered FakeClock GivenAlert GivenError HandledEvent InboxUnderTest MessageDetails
      MessageFactories MessageOf ReceiverUnderTest RelayUnderTest TestVehicle`,
  },
  'fleethook/when': {
    values: `
      above alertEnds alertStarts all any becomes below between ceases changed circle comesOnline crosses ends enters falls fallsAsleep
      goesOffline inside is leaves not polygon rises rulesFor starts`,
    types: `
      AlertOccurrence AnyField AnyVehicleView Area Bounds Change Circle Condition ConstantOf DeltaOption Edge EdgeMemory EdgeResult EdgeStep
      EdgeTopic FirstOption InvalidOption Limit MarginOption NumberField Occurrence Rules VehicleEdge VehicleView`,
  },
  'fleethook/node': {
    values: 'exitWithError serve',
    types: 'Listening NodeServeOptions ServeOptions Served Server Signal',
  },
  'fleethook/bun': { values: 'serve', types: 'BunServeOptions ServeOptions Served Server Signal' },
  'fleethook/deno': { values: 'serve', types: 'ServeOptions Served Server Signal' },
  'fleethook/workers': { values: 'worker', types: 'KeptBatch KeptMessage Worker WorkerServed' },
  'fleethook/inbox/sqlite': { values: 'sqliteInbox', types: 'Retention SqliteInboxOptions' },
  'fleethook/inbox/durable-object': {
    values: 'durableObjectInbox inboxObject',
    types: `
      DurableObjectInboxOptions InboxObject InboxObjectClass ObjectNamespace ObjectSql ObjectState ObjectStorage ObjectStub
      Retention SqlValue`,
  },
  'fleethook/inbox/kafka': { values: 'kafkaInbox', types: 'KafkaInboxOptions KafkaSasl KafkaTls' },
  'fleethook/inbox/queue': { values: 'queueInbox', types: 'QueueBinding QueueInboxOptions QueuedMessage' },
}

interface Name {
  readonly name: string
  readonly documented: boolean
}

const entries = Object.keys(pinned)

/** What the declarations of each entry of the installed package export, types included. */
let declared: Readonly<Record<string, readonly Name[]>>
/** What a program that imports an entry gets. */
let imported: Readonly<Record<string, readonly string[]>>

beforeAll(() => {
  declared = readDeclared()
  imported = readImported()
})

test.each(Object.entries(pinned))('%s has exactly these names', (entry, { values, types }) => {
  const real = found(imported[entry])
  expect(real).toEqual(words(values))
  expect(found(declared[entry]).flatMap(({ name }) => (real.includes(name) ? [] : [name]))).toEqual(words(types))
})

test.each(entries)('every name of %s says what it is', (entry) => {
  const names = found(declared[entry])
  expect(names.length).toBeGreaterThan(0)
  expect(names.filter(({ documented }) => !documented)).toEqual([])
})

function readDeclared(): Readonly<Record<string, readonly Name[]>> {
  const folder = inject('consumer')
  writeFileSync(
    join(folder, 'names.ts'),
    entries.map((entry, at) => `import * as entry${at} from '${entry}'\nexport { entry${at} }\n`).join(''),
  )
  const options = { module: 'nodenext', types: [], strict: true }
  writeFileSync(join(folder, 'tsconfig.names.json'), JSON.stringify({ compilerOptions: options, files: ['names.ts'] }))
  return withProject(
    'tsconfig.names.json',
    (project) => {
      const { checker } = project
      const specifiers = sourceFile(project, join(folder, 'names.ts')).imports
      const namesOf = (at: number): readonly Name[] =>
        checker
          .getExportsOfModule(found(checker.getSymbolAtLocation(found(specifiers[at]))))
          .map((symbol) => {
            const meant = (symbol.flags & SymbolFlags.Alias) === 0 ? symbol : checker.getAliasedSymbol(symbol)
            return { name: symbol.name, documented: checker.getDocumentationCommentOfSymbol(meant) !== '' }
          })
          .toSorted((a, b) => (a.name < b.name ? -1 : 1))
      return Object.fromEntries(entries.map((entry, at) => [entry, namesOf(at)]))
    },
    folder,
  )
}

function readImported(): Readonly<Record<string, readonly string[]>> {
  const script = `
    const names = async (entry) => [entry, Object.keys(await import(entry)).sort()]
    console.log(JSON.stringify(Object.fromEntries(await Promise.all(${JSON.stringify(entries)}.map(names)))))`
  return JSON.parse(
    execFileSync(process.execPath, ['--input-type=module', '-e', script], {
      cwd: inject('consumer'),
      encoding: 'utf8',
      stdio: 'pipe',
    }),
  )
}

function words(text: string): readonly string[] {
  return text.split(/\s+/).filter((word) => word !== '')
}

function found<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('The compiler did not find it.')
  return value
}
