/** One clock for all texts that say how long ago or when: the server's, so that a wrong clock here does not matter. */
import { useSyncExternalStore } from 'react'
import { clockOffset } from './api/requests'

export function now(): number {
  return Date.now() / 1000 + clockOffset()
}

const listeners = new Set<() => void>()
let timer: ReturnType<typeof setInterval> | undefined

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  timer ??= setInterval(() => {
    for (const each of listeners) each()
  }, 1000)
  return () => {
    listeners.delete(listener)
    if (listeners.size === 0) {
      clearInterval(timer)
      timer = undefined
    }
  }
}

/** The time, as it changes in steps of so many seconds: a component renders again with each step. */
export function useNow(step = 10): number {
  return useSyncExternalStore(subscribe, () => Math.floor(now() / step) * step)
}
