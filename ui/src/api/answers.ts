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
  path: string | null
  data: T | undefined
  error: ApiError | undefined
  loading: boolean
}

/** The answer at `path`, asked for again every so many seconds; null asks nothing. */
export function useAnswer<T>(path: string | null, everySeconds = 0): Answer<T> {
  const begin = (): Held<T> => ({
    path,
    data: path === null ? undefined : (remembered.get(path) as T | undefined),
    error: undefined,
    loading: path !== null,
  })
  const [held, setHeld] = useState(begin)
  const [round, setRound] = useState(0)
  const again = useCallback(() => setRound((before) => before + 1), [])
  if (held.path !== path) setHeld(begin())

  useEffect(() => {
    if (path === null) return
    const stopping = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const ask = async () => {
      try {
        const data = await request<T>(path, { signal: stopping.signal })
        remember(path, data)
        setHeld({ path, data, error: undefined, loading: false })
        if (everySeconds) timer = setTimeout(() => void ask(), everySeconds * 1000)
      } catch (error) {
        if (stopping.signal.aborted) return
        const told = error instanceof ApiError ? error : new ApiError(String(error), 0)
        setHeld((before) => ({ ...before, error: told, loading: false }))
        const retry = told.status === 429 ? (told.retryAfter ?? 5) : told.status >= 500 || told.status === 0 ? 10 : 0
        if (retry) timer = setTimeout(() => void ask(), retry * 1000)
      }
    }
    void ask()
    return () => {
      stopping.abort()
      clearTimeout(timer)
    }
  }, [path, everySeconds, round])

  return { data: held.data, error: held.error, loading: held.loading, again }
}
