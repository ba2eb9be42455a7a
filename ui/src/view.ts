/** Every view is an address: pages read and write their filters, order and selection here. */
import { useCallback, useMemo } from 'react'
import { useSearchParams } from 'react-router'
import { useSession } from './api/session'
import { namespaceOf } from './namespace'

/** The namespace that is looked at; "" is the whole cluster. */
export function useNamespace(): string {
  const session = useSession()
  const [params] = useSearchParams()
  return namespaceOf(params, session)
}

export interface View {
  get: (name: string) => string
  list: (name: string) => string[]
  /** "" and empty lists are left out of the address */
  set: (changes: Record<string, string | readonly string[]>) => void
}

export function useView(): View {
  const [params, setParams] = useSearchParams()
  const set = useCallback(
    (changes: Record<string, string | readonly string[]>) => {
      setParams(
        (before) => {
          const next = new URLSearchParams(before)
          for (const [name, value] of Object.entries(changes)) {
            const text = typeof value === 'string' ? value : value.join(',')
            if (text) next.set(name, text)
            else next.delete(name)
          }
          return next
        },
        { replace: true },
      )
    },
    [setParams],
  )
  return useMemo(
    () => ({
      get: (name) => params.get(name) ?? '',
      list: (name) => (params.get(name) ?? '').split(',').filter(Boolean),
      set,
    }),
    [params, set],
  )
}

/** Addresses of other views, which keep the namespace. */
export function useLinks() {
  const [params] = useSearchParams()
  const space = params.get('ns')
  return useMemo(() => {
    const to = (path: string, query: Record<string, string> = {}): string => {
      const found = new URLSearchParams(space === null ? {} : { ns: space })
      for (const [name, value] of Object.entries(query)) found.set(name, value)
      const text = found.toString()
      return text ? `${path}?${text}` : path
    }
    return {
      to,
      jobs: (query: Record<string, string> = {}) => to('/jobs', query),
      job: (job: { namespace: string; jobKind: string; jobName: string }) =>
        to(`/jobs/${[job.namespace, job.jobKind.toLowerCase(), job.jobName].map(encodeURIComponent).join('/')}`),
      node: (name: string) => to('/nodes', { node: name }),
    }
  }, [space])
}
