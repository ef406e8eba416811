import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SymbolFlags } from 'typescript/unstable/sync'
import { beforeAll, expect, inject, test } from 'vitest'
import { sourceFile, withProject } from '../house/project.ts'

/** The public names. A name that is added or removed is a change for users, and belongs in the changelog. */
const pinned: Readonly<Record<string, { readonly values: string; readonly types: string }>> = {
  fleethook: {
    values: 'Discard FleethookError Retry createReceiver dedupe memoryInbox summarize vehicles',
    types: `
      Ack Alert AlertsEvent Answer BatchContext BatchHandler BatchOptions BuiltInFields Clock ConnectivityEvent DataEvent DeadLetters DeadMessage Delivery DrainOptions DrainResult Durability ErrorCode ErrorDetails ErrorsEvent EventOf FieldCatalogue FieldValues FleetEvent Format GapEvent GapReason GivenMessage Handler HandlerContext HandlerFilter KeptMessages Location Log MalformedBody Messages Meta Observer Readiness Receiver ReceiverOptions RefusedRequest Secret StateEvent Stats Subject Topic UnknownEvent VehicleDataEvent VehicleError Vehicles VehiclesOptions WireEvent`,
  },
  'fleethook/extend': {
    values: 'Window',
    types: `
      Archive Claim DeadLetter DeadLetterReason DedupeOptions Door Ended Erased ExecutionContext Histogram Inbox InboxEvent InboxFactory InboxGap InboxHost InboxMessage InboxStats KeptGap ListedMessage MessageRecord MessageSelection MessageView NextAttempt ObservedRun OpenOptions Opened OperatorApi Outcome Part ReaderHost ReadersInMemory ReceiverPart RefusalError ReplaySelection RunEnd RuntimeRefusal Selection Settled SettledMessage Source StoredVehicle TestMessage Timer UnopenedInbox VehicleStore VehiclesPart Waiting WindowHost`,
  },
  'fleethook/normalize': {
    values: 'FleethookError builtInFields checkEnvelope createNormalizer encode normalize split splitValue',
    types: `
      Alert AlertsEvent BuiltInFields ConnectivityEvent DataEvent Doors Encodable EnumType EnvelopeFault ErrorCode
      ErrorsEvent EventBase ExtendedBy FactsEvent FieldCatalogue FieldName FieldType FieldValue FieldValues FleetEvent Format GapEvent GapReason
      Json LimitedType Limits Location Meta NormalizeOptions Normalizer NormalizerOptions OtherField Piece Split StateEvent TimeOfDay TimerEvent Tires Topic
      UnknownEvent UnknownReason ValueOf ValuePiece VehicleDataEvent VehicleError WireEvent WireTopic`,
  },
  'fleethook/branch': { values: 'branch', types: 'Branch BranchOptions' },
  'fleethook/forward': { values: 'forward', types: 'ForwardOptions Forwarding' },
  'fleethook/once': {
    values: 'createOnce',
    types: 'ConnectionOf Once OnceHandler OnceOptions OncePoolOptions PoolConnection TransactionPool',
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
      CallOptions Client ClientOptions CommandResult ConfigChange ConfigEvent ConfigResource ConfigResult Customer CustomerOfVehicle Customers DefaultConfigResource Document EnergyCommand
      EnergySiteResource EventStream Fetch FieldSetting FieldSettingOf FieldSettings HeardVehicle Hearing MissingOptions MissingReason MissingReport
      MissingVehicle MissingVehicles MissingWatch Product Query ReadOptions Refill RefillOptions Refillable
      ServiceErrorCode ServiceErrorDetails SiteEvent SiteTopic StoredConfig StoredWebhook StreamEvent StreamGap StreamMessage StreamOptions StreamTopic
      StreamingConfig VehicleCommand VehicleImage VehicleResource VehicleSummary Webhook WebhookResource`,
  },
  'fleethook/otel': { values: 'otel', types: 'OtelOptions' },
  'fleethook/inspector': { values: 'inspectorRoutes', types: 'InspectorOptions' },
  'fleethook/operator': {
    values: 'operatorRoutes',
    types:
      'FactReport FieldReport KnownVehicle KnownVehicles Letter LetterSummary OperatorApi OperatorOptions TimerReport VehicleReport VehicleSummary',
  },
  'fleethook/sandbox': {
    values: 'createSandbox',
    types: `
      ActivityLine OutgoingMessage PostMessage Sandbox SandboxOptions`,
  },
  'fleethook/testing': {
    values: 'deliver fakeClock inboxConformance message vehicle',
    types: `
      Conformance DeliverOptions Deliverable Delivered FakeClock GivenAlert GivenError InboxUnderTest MessageDetails
      MessageFactories MessageOf TestVehicle VehicleOptions`,
  },
  'fleethook/when': {
    values: `
      above alertEnds alertStarts all any average becomes below between ceases changed circle comesOnline crosses curve drives ends energy enters
      episode fact falls fallsAsleep goesOffline growth has heardAgain hours inside is isAsleep isOnline last leaves metersBetween moves not path polygon range rises rulesFor silent
      span starts upsert`,
    types: `
      AlertOccurrence AnyField AnyVehicleView Area Bounds Change Circle Clockwork Condition ConstantOf Curve CurveOptions CurvePart
      DeltaOption Duration Edge EdgeBatchHandler EdgeHandler EdgeMemory EdgeRecord EdgeResult EdgeStep EdgeTimer EdgeTopic Energy EnergyOptions Episode
      EpisodeEdge EpisodeOccurrence EpisodeOptions EpisodeRow Fact FactChange FactGiven FactTime FactTypes FactsBy FirstOption Followed FreshOption GrowthOptions Happening Heard HoursOptions InvalidOption KnownFact KnownThen Lasted
      LastingEdge Limit MarginOption Measure MeasureRules Measures Missed MovesOptions NumberField NumberOperand Occurrence Path PathOptions PathPoint
      PendingTimer PeriodOptions PlaceField Range RowOf Rules SetAllOptions SetAllResult Silence SilentOptions Span SqlValue SqliteValue Statement Timing TimingHost Trace VehicleEdge
      VehicleView VehiclesStats WithinOption`,
  },
  'fleethook/node': {
    values: 'exitWithError serve',
    types: 'Listening NodeServeOptions ServeOptions Served Server Signal TlsFiles TlsOptions TlsTexts',
  },
  'fleethook/bun': {
    values: 'serve',
    types: 'BunServeOptions ServeOptions Served Server Signal TlsFiles TlsOptions TlsTexts',
  },
  'fleethook/deno': { values: 'serve', types: 'ServeOptions Served Server Signal TlsFiles TlsOptions TlsTexts' },
  'fleethook/workers': { values: 'worker', types: 'Worker WorkerServed' },
  'fleethook/inbox/sqlite': { values: 'sqliteInbox', types: 'Retention SqliteInboxOptions' },
  'fleethook/inbox/durable-object': {
    values: 'durableObjectInbox inboxObject',
    types: `
      DurableObjectInboxOptions InboxObject InboxObjectClass ObjectNamespace ObjectSql ObjectState ObjectStorage ObjectStub
      Retention SqlValue`,
  },
  'fleethook/inbox/kafka': { values: 'kafkaInbox', types: 'KafkaInboxOptions KafkaSasl KafkaTls' },
  'fleethook/inbox/postgres': {
    values: 'handleWaiting postgresInbox',
    types:
      'ConnectionOf ExactlyOnce OnceHandler PoolConnection PostgresClient PostgresInbox PostgresInboxOptions PostgresResult Role RunStatement RunTransaction TransactionPool',
  },
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
