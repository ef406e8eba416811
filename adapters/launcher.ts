/** The variable that holds the process id of the `fleethook run` that started this process. */
export const launcherVariable = 'FLEETHOOK_RUN_PID'

/** What `serve` tells the `fleethook run` that started its process. */
export interface LauncherMessage {
  /** `opening`: the program runs and is about to open its inbox. `listening`: it takes messages. */
  readonly fleethook: 'opening' | 'listening'
}
