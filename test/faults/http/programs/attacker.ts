// Attacks a receiver until it is stopped: `attacker.ts <kind> <port> <amount>`. Prints "at full strength" when it is.
// On SIGTERM it prints what it did, as one line of JSON.
import { argv } from 'node:process'
import { type Attack, attacks } from './attacks.ts'

const [, , kind = '', port, amount] = argv
const isKind = (name: string): name is keyof typeof attacks => name in attacks
if (!isKind(kind)) throw new Error(`There is no attack called ${kind}.`)

const attack: Attack = await attacks[kind](Number(port), Number(amount))
console.log('at full strength')
process.once('SIGTERM', () => {
  console.log(JSON.stringify(attack.done()))
  process.exit()
})
