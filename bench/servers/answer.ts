/** What every server answers: the same bytes, so that only the way to them differs. */
export const answerBody = '{"text":"Success","code":0}'
export const answerType = 'application/json'

/** The secret that every server that has one expects. */
export const secret = 'bench-0f6f2a7d8c1e4b9fa35d'
