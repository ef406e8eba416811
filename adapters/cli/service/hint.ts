/** What to do about an answer of the service, in the words of the command line. The client speaks to who writes a program. */
const hints: Readonly<Record<string, string>> = {
  invalid_webhook_url:
    'Give a URL that the internet can reach. For a sandbox that was started with --allow-local, add --allow-local here too.',
  unauthorized: 'Is SERVICE_API_KEY a key of this business, for the service at SERVICE_URL?',
  webhook_not_found: '`fleethook webhook set --url <url>` sets one.',
  config_not_found: 'The vehicle does not stream: `fleethook config patch <vin> <settings>` lets it.',
  unreachable: 'Is SERVICE_URL right, and can this machine reach it?',
  timeout: 'Raise --timeout, or try again later.',
  answer_unreadable: 'Is SERVICE_URL the address of the service? If so, a newer fleethook may know this answer.',
  vehicle_not_found: '`fleethook products` lists what is shared with this business.',
}

/** The hint for a code on the command line; the client's own where there is no better one. */
export function hintFor(code: string, given: string | undefined): string | undefined {
  return hints[code] ?? given
}

/** A text of the client, with its options under the names that they have on the command line. */
export function inItsWords(text: string, given: { readonly service?: string }): string {
  return text
    .replaceAll(/(Option )?`baseUrl`( of createClient)?/g, given.service === undefined ? 'SERVICE_URL' : '--service')
    .replaceAll(/(Option )?`apiKey`( of createClient)?/g, 'SERVICE_API_KEY')
}
