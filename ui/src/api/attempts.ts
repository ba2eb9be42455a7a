/** Attempts of a time: asked for in whole once, then only what is new, so that an open page costs the operator little. */
import { useCallback, useEffect, useState } from 'react'
import { now } from '../clock'
import { withNewer } from '../figures'
import type { Answer } from './answers'
import { ApiError, request } from './requests'
import type { Attempt, Listed } from './types'

export const MOST_ATTEMPTS = 5000
/** An attempt may be told of some time after its end. */
const OVERLAP = 180
const EVERY = 60
const KEPT_VIEWS = 4

interface Kept {
  at: number
  told: Listed<Attempt>
}
const kept = new Map<string, Kept>()

function keep(path: string, value: Kept): void {
  kept.delete(path)
  kept.set(path, value)
  const [oldest] = kept.keys()
  if (kept.size > KEPT_VIEWS && oldest !== undefined) kept.delete(oldest)
}

/** The attempts of the last `since` seconds that a namespace may see; "" = the whole cluster. */
export function useAttempts(namespace: string, since: number): Answer<Listed<Attempt>> {
  const path = `api/attempts?namespace=${encodeURIComponent(namespace)}`
  const view = `${path}&since=${since}`
  const [held, setHeld] = useState<{ view: string; data: Listed<Attempt> | undefined; error: ApiError | undefined }>({ view, data: kept.get(view)?.told, error: undefined })
  const [round, setRound] = useState(0)
  const again = useCallback(() => setRound((before) => before + 1), [])
  if (held.view !== view) setHeld({ view, data: kept.get(view)?.told, error: undefined })

  useEffect(() => {
    const stopping = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const asked = async (): Promise<Listed<Attempt>> => {
      const before = kept.get(view)
      const at = now()
      const back = before ? Math.ceil(at - before.at) + OVERLAP : since
      const ask = (seconds: number) => request<Listed<Attempt>>(`${path}&since=${Math.min(since, seconds)}&limit=${MOST_ATTEMPTS}`, { signal: stopping.signal })
      let told = await ask(back)
      if (before && back < since) {
        const items = withNewer(before.told.items, told.items, at - since)
        // so much has come that the list is not whole: it is asked for anew
        told = told.more ? await ask(since) : { items: items.slice(0, MOST_ATTEMPTS), more: (before.told.more ?? false) || items.length > MOST_ATTEMPTS }
      }
      keep(view, { at, told })
      return told
    }
    const ask = async () => {
      try {
        const data = await asked()
        setHeld({ view, data, error: undefined })
        timer = setTimeout(() => void ask(), EVERY * 1000)
      } catch (error) {
        if (stopping.signal.aborted) return
        const told = error instanceof ApiError ? error : new ApiError(String(error), 0)
        setHeld((before) => ({ ...before, error: told }))
        const retry = told.status === 429 ? (told.retryAfter ?? 5) : told.status >= 500 || told.status === 0 ? 10 : 0
        if (retry) timer = setTimeout(() => void ask(), retry * 1000)
      }
    }
    void ask()
    return () => {
      stopping.abort()
      clearTimeout(timer)
    }
  }, [path, view, since, round])

  return { data: held.data, error: held.error, loading: held.data === undefined && held.error === undefined, again }
}
