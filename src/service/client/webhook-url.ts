import ipaddr from 'ipaddr.js'

/** Names that lead nowhere on the internet, and everything below them. */
const localNames = ['localhost', 'localdomain', 'local', 'internal', 'home.arpa', 'lan']

/**
 * Why the service could not reach this URL from the internet, or nothing. Names are not resolved. What it answers never holds
 * more of the URL than its host.
 *
 * Specification: "Errors", `invalid_webhook_url`.
 */
export function flawOfWebhookUrl(url: string): string | undefined {
  if (!URL.canParse(url)) return 'It is not a URL.'
  // The URL standard has read every spelling of an address by now: 127.1, 0x7f000001, 0177.1, full-width digits.
  const { protocol, hostname } = new URL(url)
  if (protocol !== 'https:' && protocol !== 'http:') return `It begins with ${protocol} and not with https: or http:.`
  if (hostname.startsWith('[')) return flawOfAddress(hostname.slice(1, -1))
  const name = hostname.replace(/\.+$/, '')
  if (ipaddr.IPv4.isValidFourPartDecimal(name)) return flawOfAddress(name)
  if (localNames.some((local) => name === local || name.endsWith(`.${local}`))) {
    return `The name ${name} leads nowhere outside of your own network.`
  }
  if (!name.includes('.')) return `The name "${name}" is known in your own network at most: it has no dot.`
  return undefined
}

/** Whether a host is this machine itself: the one place to which a key may travel without encryption. */
export function isLoopback(hostname: string): boolean {
  const name = hostname.replace(/^\[|\]$/g, '').replace(/\.+$/, '')
  if (name === 'localhost' || name.endsWith('.localhost')) return true
  return ipaddr.isValid(name) && rangeOf(ipaddr.parse(name)) === 'loopback'
}

function flawOfAddress(text: string): string | undefined {
  const range = rangeOf(ipaddr.parse(text))
  return range === 'unicast' ? undefined : `The address ${text} is no public one: it is in the range "${range}".`
}

/** The range of an address; of one that carries an IPv4 address, the range of that. */
function rangeOf(address: ipaddr.IPv4 | ipaddr.IPv6): string {
  if (address instanceof ipaddr.IPv4) return address.range()
  const range = address.range()
  const parts = address.parts
  switch (range) {
    case 'ipv4Mapped':
    case 'rfc6052':
    case 'rfc6145':
      return carried(parts[6], parts[7])
    case '6to4':
      return carried(parts[1], parts[2])
    case 'unicast':
      // Only 2000::/3 is given out. Beyond it are the former site-local and IPv4-compatible addresses.
      return ((parts[0] ?? 0) & 0xe000) === 0x2000 ? range : 'reserved'
    default:
      return range
  }
}

function carried(high = 0, low = 0): string {
  return new ipaddr.IPv4([high >> 8, high & 255, low >> 8, low & 255]).range()
}
