import type { Clock } from '../base/clock.ts'

/** When handlers may start: in tasks of their own, and never so many in one task that answers wait for them. */
export interface Tasks {
  /**
   * Calls `run` in a new task, so that a handler that burns CPU delays no answer that is about to leave. `own`: the
   * runtime ends the timers of a request with it, so this one may not rely on one that another request has set.
   */
  later(own: boolean): void
  /** Whether one handler more may start in this task. If not, `run` is called in a new one. */
  goOn(): boolean
}

/** How long handlers may start one after another before whatever else the process has to do gets its turn. */
const sliceMs = 10

export function createTasks(clock: Clock, run: () => void): Tasks {
  let wanted = false
  let armed = false
  let startedAt = 0
  let owned = false

  /** While this timer is out, everything happens in the task that set it, or in ones that followed without a pause. */
  function arm(): void {
    armed = true
    startedAt = clock.now()
    setTimeout(() => {
      armed = false
      if (!wanted) return
      wanted = false
      run()
    }, 0)
  }

  return {
    later(own) {
      if (own) {
        owned = true
        setTimeout(run, 0)
        return
      }
      wanted = true
      if (!armed) arm()
    },

    goOn() {
      // Where timers die with their request, the time that a request may burn is the runtime's to bound.
      if (owned) return true
      if (!armed) arm()
      else if (clock.now() - startedAt >= sliceMs) {
        wanted = true
        return false
      }
      return true
    },
  }
}
