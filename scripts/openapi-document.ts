import * as z from 'zod/mini'
import {
  alertsEvent,
  connectivityEvent,
  dataEvent,
  errorsEvent,
  gapEvent,
  stateEvent,
  unknownEvent,
  vehicleDataEvent,
} from '../src/events/schemas.ts'
import { eventCollectorMessage, serviceMessage, vehicleMakerMessage } from '../src/events/wire-schemas.ts'
import {
  alive,
  type Answer,
  healthy,
  notReady,
  readyOrNot,
  refusalErrors,
  refuse,
  success,
  unhealthy,
} from '../src/http/answers.ts'

interface DocumentPart {
  readonly [key: string]: unknown
}

const messages = {
  ServiceMessage: serviceMessage,
  VehicleMakerMessage: vehicleMakerMessage,
  EventCollectorMessage: eventCollectorMessage,
}
const events = {
  DataEvent: dataEvent,
  StateEvent: stateEvent,
  VehicleDataEvent: vehicleDataEvent,
  AlertsEvent: alertsEvent,
  ErrorsEvent: errorsEvent,
  ConnectivityEvent: connectivityEvent,
  UnknownEvent: unknownEvent,
  GapEvent: gapEvent,
}

/** The OpenAPI 3.1 document of a receiver, from the same schemas that the tests check the normalizer against. */
export function openApiDocument(version: string): DocumentPart {
  return {
    openapi: '3.1.0',
    info: {
      title: 'fleethook receiver',
      version,
      summary: 'Receives the telemetry that a shared-vehicle service posts to a webhook.',
      description:
        'Each message is sent once and is not signed; a secret in `Authorization` guards the webhook. ' +
        'Any answer but a 2xx loses the message.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    webhooks: {
      telemetry: { post: taking('postTelemetry', 'One message in any of the three formats', Object.keys(messages)) },
    },
    paths: {
      '/services/collector/event': {
        post: taking('postCollectorEvent', 'Events of the HTTP Event Collector protocol, from relays', [
          'EventCollectorMessage',
        ]),
      },
      '/services/collector/health': {
        get: {
          operationId: 'getCollectorHealth',
          summary: 'Whether the receiver would accept a message now',
          security: [],
          responses: {
            '200': answers('The receiver would accept a message', [healthy]),
            '503': answers('The inbox is full, or the receiver is stopping', [
              unhealthy,
              refuse({ error: 'draining' }),
            ]),
          },
        },
      },
      '/healthz': {
        get: {
          operationId: 'getHealthz',
          summary: 'Whether the process answers',
          security: [],
          responses: { '200': answersInText('The process answers', [alive]) },
        },
      },
      '/readyz': {
        get: {
          operationId: 'getReadyz',
          summary: 'Whether the receiver takes messages now, and why not',
          security: [],
          responses: {
            '200': answersInText('The receiver takes messages', [readyOrNot(undefined)]),
            '503': answersInText('The receiver takes no messages', Object.values(notReady).map(readyOrNot)),
          },
        },
      },
    },
    components: {
      securitySchemes: {
        secret: {
          type: 'apiKey',
          in: 'header',
          name: 'Authorization',
          description:
            'The value that is set as `auth` of the webhook, or `Splunk <value>` when it has no scheme word.',
        },
      },
      schemas: { ...schemas(messages, 'input'), ...schemas(events, 'output'), Answer: answer },
    },
  }
}

const answer: DocumentPart = {
  type: 'object',
  required: ['text', 'code'],
  properties: {
    text: { type: 'string', description: "The collector protocol's words." },
    code: { type: 'integer', description: "The collector protocol's number; 0 is success." },
    error: { type: 'string', enum: refusalErrors, description: 'Stable, for programs.' },
    hint: { type: 'string', description: 'What to do, for people. Never a secret.' },
    'invalid-event-number': {
      type: 'integer',
      description: 'The 0-based number of the first message that was not accepted. The messages before it were.',
    },
  },
}

function taking(operationId: string, summary: string, schemaNames: readonly string[]): DocumentPart {
  const refusals = refusalErrors.map((error) => refuse({ error }))
  const statuses = [...new Set(refusals.map(({ status }) => status))].sort((a, b) => a - b)
  return {
    operationId,
    summary,
    description:
      'One JSON object, several one after another, or a list of objects, without an encoding or with `Content-Encoding: gzip`.',
    security: [{ secret: [] }],
    requestBody: {
      required: true,
      content: {
        'application/json': {
          schema: { anyOf: schemaNames.map((name) => ({ $ref: `#/components/schemas/${name}` })) },
        },
      },
    },
    responses: Object.fromEntries([
      ['200', answers('Accepted', [success])],
      ...statuses.map((status) => [
        status,
        answers(
          'Refused',
          refusals.filter((refusal) => refusal.status === status),
        ),
      ]),
    ]),
  }
}

function answers(description: string, given: readonly Answer[]): DocumentPart {
  const examples = given.map(({ body }) => {
    const value: DocumentPart = JSON.parse(body)
    return [String(value['error'] ?? value['text']).replaceAll(/\W+/g, '_'), { value }]
  })
  return {
    description,
    content: {
      'application/json': { schema: { $ref: '#/components/schemas/Answer' }, examples: Object.fromEntries(examples) },
    },
  }
}

function answersInText(description: string, given: readonly Answer[]): DocumentPart {
  const examples = given.map(({ body }) => [body.trim().replaceAll(/\W+/g, '_'), { value: body }])
  return {
    description,
    content: { 'text/plain': { schema: { type: 'string' }, examples: Object.fromEntries(examples) } },
  }
}

function schemas(named: Readonly<Record<string, z.ZodMiniType>>, io: 'input' | 'output'): DocumentPart {
  return Object.fromEntries(
    Object.entries(named).map(([name, schema]) => {
      const { $schema: _dialect, ...json } = z.toJSONSchema(schema, { io })
      return [name, json]
    }),
  )
}
