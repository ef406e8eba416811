/**
 * The zod schemas of events, and of messages as they are posted. This entry needs the package `zod`: `npm install zod`.
 *
 * @module
 */
export {
  alertsEvent,
  connectivityEvent,
  dataEvent,
  errorsEvent,
  fleetEvent,
  gapEvent,
  stateEvent,
  unknownEvent,
  vehicleDataEvent,
} from './events/schemas.ts'
export { eventCollectorMessage, serviceMessage, vehicleMakerMessage, wireMessage } from './events/wire-schemas.ts'
