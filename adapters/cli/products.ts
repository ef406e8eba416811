import type { Command } from 'commander'
import { columns } from './service/columns.ts'
import { asks, statuses } from './service/command.ts'

/** `fleethook products` */
export function define(command: Command): void {
  command
    .description('Lists the vehicles and energy sites that customers have shared, with the customer behind each.')
    .addHelpText('after', statuses)
  asks(command, async ({ client, signal, print }) => {
    const products = await client.products({ signal })
    const rows = products.map(({ product_type: type, product_id: id, customer, granted_at: since }) => [
      type,
      id,
      customer?.ref ?? customer?.id ?? '',
      since ?? '',
    ])
    print(products, () => (rows.length === 0 ? 'Nothing is shared.' : columns(rows)))
  })
}
