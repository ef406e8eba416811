// Runs cases on one face, on any runtime: `campaign.ts <normalizer|http> <run> <from> <cases>`. Prints the result as
// one line of JSON. With a single case it also prints the content of that case.
import { argv } from 'node:process'
import { runCases } from './cases.ts'
import { createHttpFace } from './http-face.ts'
import { mutatedText, randomOfCase } from './mutation.ts'
import { normalizerFace } from './normalizer-face.ts'

const [, , face, ...numbers] = argv
const [run = Number.NaN, from = Number.NaN, cases = Number.NaN] = numbers.map(Number)
if ((face !== 'normalizer' && face !== 'http') || ![run, from, cases].every(Number.isInteger)) {
  throw new Error('Say which cases: campaign.ts <normalizer|http> <run> <from> <cases>.')
}
if (cases === 1) console.error(JSON.stringify(mutatedText(randomOfCase(run, from))))
console.log(JSON.stringify(await runCases(face === 'http' ? createHttpFace() : normalizerFace, { run, from, cases })))
