/** The answer of every server: the same bytes, so that only the work before it differs. */
export const answerBody = '{"text":"Success","code":0}'
export const answerType = 'application/json'

/** The secret of all servers that check one. */
export const secret = 'bench-0f6f2a7d8c1e4b9fa35d'
