import { FleethookError } from '../../base/errors.ts'

export const maxVins = 1_000_000

// A VIN has no I, O or Q. The values of S to Z begin at 2.
const rows = ['ABCDEFGH', 'JKLMN P R', ' STUVWXYZ']

function valueOf(character: string): number {
  const row = rows.find((letters) => letters.includes(character))
  return row === undefined ? Number(character) : row.indexOf(character) + 1
}

const weights = [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2]

/** The ninth character of a VIN, computed from the sixteen others (ISO 3779, 49 CFR 565). */
export function checkDigit(vin: string): string {
  let sum = 0
  for (let place = 0; place < weights.length; place++) {
    const character = vin[place] ?? '0'
    sum += valueOf(character) * (weights[place] ?? 0)
  }
  return sum % 11 === 10 ? 'X' : String(sum % 11)
}

export type Model = '3' | 'Y' | 'S' | 'X'

const models: readonly Model[] = ['3', 'Y', 'S', 'X']

export function modelOf(index: number): Model {
  return models[index % models.length] ?? '3'
}

/** A VIN with a valid check digit, in a region that does not exist. Its fourth character stands for the model. */
export function syntheticVin(index: number): string {
  if (!Number.isInteger(index) || index < 0 || index >= maxVins) {
    throw new FleethookError('option_invalid', `The index of a synthetic VIN is ${index}.`, {
      hint: `Give a whole number from 0 to ${maxVins - 1}.`,
    })
  }
  const serial = String(index).padStart(6, '0')
  const start = `0FL${modelOf(index)}EETV`
  return `${start}${checkDigit(`${start}0T0${serial}`)}T0${serial}`
}
