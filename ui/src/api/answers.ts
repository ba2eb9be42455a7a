/** Answers that are asked for when a page shows them. */
import { useCallback, useEffect, useState } from 'react'
import { ApiError, request } from './requests'

export interface Answer<T> {
  data: T | undefined
  error: ApiError | undefined
  loading: boolean
  again: () => void
}

/** What earlier answers said: shown at once while the new answer is on its way. */
const remembered = new Map<string, unknown>()
const MOST_REMEMBERED = 60

function remember(path: string, value: unknown): void {
  remembered.delete(path)
  remembered.set(path, value)
  const [oldest] = remembered.keys()
  if (remembered.size > MOST_REMEMBERED && oldest !== undefined) remembered.delete(oldest)
}

interface Held<T> {
  key: string | null
  data: T | undefined
  error: ApiError | undefined
  loading: boolean
}

/**
 * What `ask` returns, asked for again every so many seconds, and sooner after a failure that may pass. `key` names what is asked for: null
 * asks nothing. `known`: what earlier answers said of a key. `ask` has to be the same function for as long as it asks the same.
 */
export function usePolled<T>(key: string | null, known: (key: string) => T | undefined, ask: (signal: AbortSignal) => Promise<T>, everySeconds = 0): Answer<T> {
  const begin = (): Held<T> => ({ key, data: key === null ? undefined : known(key), error: undefined, loading: key !== null })
  const [held, setHeld] = useState(begin)
  const [round, setRound] = useState(0)
  const again = useCallback(() => setRound((before) => before + 1), [])
  if (held.key !== key) setHeld(begin())

  useEffect(() => {
    if (key === null) return
    const stopping = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const next = async () => {
      try {
        const data = await ask(stopping.signal)
        setHeld({ key, data, error: undefined, loading: false })
        if (everySeconds) timer = setTimeout(() => void next(), everySeconds * 1000)
      } catch (error) {
        if (stopping.signal.aborted) return
        const failure = error instanceof ApiError ? error : new ApiError(String(error), 0)
        setHeld((before) => ({ ...before, error: failure, loading: false }))
        const retry = failure.status === 429 ? (failure.retryAfter ?? 5) : failure.status >= 500 || failure.status === 0 ? 10 : 0
        if (retry) timer = setTimeout(() => void next(), retry * 1000)
      }
    }
    void next()
    return () => {
      stopping.abort()
      clearTimeout(timer)
    }
  }, [key, ask, everySeconds, round])

  return { data: held.data, error: held.error, loading: held.loading, again }
}

/** The answer at `path`, asked for again every so many seconds; null asks nothing. */
export function useAnswer<T>(path: string | null, everySeconds = 0): Answer<T> {
  const ask = useCallback(
    async (signal: AbortSignal) => {
      const data = await request<T>(path ?? '', { signal })
      remember(path ?? '', data)
      return data
    },
    [path],
  )
  return usePolled(path, (known) => remembered.get(known) as T | undefined, ask, everySeconds)
}
