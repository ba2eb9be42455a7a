/** Attempts of a time: asked for in whole once, then only what is new, so that an open page costs the operator little. */
import { useCallback } from 'react'
import { now } from '../clock'
import { withNewer } from '../figures'
import { usePolled, type Answer } from './answers'
import { request } from './requests'
import type { Attempt, Listed } from './types'

export const MOST_ATTEMPTS = 5000
/** An attempt may be listed some time after its end. */
const OVERLAP = 180
const EVERY = 60
const KEPT_VIEWS = 4

interface Kept {
  at: number
  list: Listed<Attempt>
}
const kept = new Map<string, Kept>()

function keep(path: string, value: Kept): void {
  kept.delete(path)
  kept.set(path, value)
  const [oldest] = kept.keys()
  if (kept.size > KEPT_VIEWS && oldest !== undefined) kept.delete(oldest)
}

const recall = (view: string): Listed<Attempt> | undefined => kept.get(view)?.list

/** The attempts of the last `since` seconds that a namespace may see; "" = the whole cluster. */
export function useAttempts(namespace: string, since: number): Answer<Listed<Attempt>> {
  const path = `api/attempts?namespace=${encodeURIComponent(namespace)}`
  const view = `${path}&since=${since}`
  const ask = useCallback(
    async (signal: AbortSignal): Promise<Listed<Attempt>> => {
      const before = kept.get(view)
      const at = now()
      const back = before ? Math.ceil(at - before.at) + OVERLAP : since
      const asked = (seconds: number) => request<Listed<Attempt>>(`${path}&since=${Math.min(since, seconds)}&limit=${MOST_ATTEMPTS}`, { signal })
      let list = await asked(back)
      if (before && back < since) {
        const items = withNewer(before.list.items, list.items, at - since)
        // so much has come that the list is not whole: it is asked for anew
        list = list.more ? await asked(since) : { items: items.slice(0, MOST_ATTEMPTS), more: (before.list.more ?? false) || items.length > MOST_ATTEMPTS }
      }
      keep(view, { at, list })
      return list
    },
    [path, view, since],
  )
  const answer = usePolled(view, recall, ask, EVERY)
  // what is known is shown while the newest is on its way
  return { ...answer, loading: answer.data === undefined && answer.error === undefined }
}
