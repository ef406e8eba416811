import type { Format } from '../events/event.ts'

/**
 * The `Authorization` header of a message: for the collector's format a secret without a scheme gets the scheme word.
 *
 * Specification: "Authentication of outgoing webhook messages".
 */
export function authorization(secret: string, format: Format): string {
  return format === 'event_collector' && !secret.includes(' ') ? `Splunk ${secret}` : secret
}
