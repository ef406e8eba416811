import * as z from 'zod/mini'
import { builtInFields } from './catalogue.generated.ts'
import type { FieldType, FieldValues } from './fields.ts'
import type { Doors, FieldValue, Location, Tires, TimeOfDay } from './values.ts'

/** A schema whose JSON Schema is given, because none can be derived from what it checks. */
function describedAs<Schema extends z.ZodMiniType>(schema: Schema, json: object): Schema {
  schema._zod.toJSONSchema = () => ({ ...json }) // oxlint-disable-line no-underscore-dangle -- zod's name for its internals
  return schema
}

/** A `Date`; as JSON it is the text that `JSON.stringify` writes for it. */
export function date(): z.ZodMiniType<Date, Date> {
  return describedAs(z.date(), { type: 'string', format: 'date-time' })
}

/** Whatever JSON holds. Not walked through: a message can be nested deeper than calls can. */
export function anyValue<Value>(): z.ZodMiniType<Value, Value> {
  return describedAs(z.custom<Value>(), {})
}

const location: z.ZodMiniType<Location> = z.object({ latitude: z.number(), longitude: z.number() })

const doors: z.ZodMiniType<Doors> = z.object({
  driverFront: z.boolean(),
  driverRear: z.boolean(),
  passengerFront: z.boolean(),
  passengerRear: z.boolean(),
  trunkFront: z.boolean(),
  trunkRear: z.boolean(),
})

const tires: z.ZodMiniType<Tires> = z.object({
  frontLeft: z.boolean(),
  frontRight: z.boolean(),
  rearLeft: z.boolean(),
  rearRight: z.boolean(),
  semiMiddleAxleLeft2: z.boolean(),
  semiMiddleAxleRight2: z.boolean(),
  semiRearAxleLeft: z.boolean(),
  semiRearAxleRight: z.boolean(),
  semiRearAxleLeft2: z.boolean(),
  semiRearAxleRight2: z.boolean(),
})

const timeOfDay: z.ZodMiniType<TimeOfDay> = z.object({ hour: z.int(), minute: z.int(), second: z.int() })

/** The schema of a value of this type, without the `null` that every field can be. */
function valueOf(type: FieldType): z.ZodMiniType {
  if (typeof type === 'object') return z.enum([...type.enum])
  switch (type) {
    case 'string':
      return z.string()
    case 'number':
    case 'timestamp':
      return z.number()
    case 'boolean':
      return z.boolean()
    case 'location':
      return location
    case 'doors':
      return doors
    case 'tires':
      return tires
    case 'time':
      return timeOfDay
    default:
      return anyValue<FieldValue>()
  }
}

/** The `data` of a message by the built-in catalogue; names outside it are allowed. */
export function fieldValues(): z.ZodMiniType<FieldValues, FieldValues> {
  const shape: Record<string, z.ZodMiniType> = {}
  for (const [name, type] of Object.entries(builtInFields)) shape[name] = z.exactOptional(z.nullable(valueOf(type)))
  // The shape is made from the catalogue, and so is the type; a compiler sees only one of the two.
  return z.looseObject(shape) as z.ZodMiniType as z.ZodMiniType<FieldValues, FieldValues> // oxlint-disable-line no-unsafe-type-assertion
}
