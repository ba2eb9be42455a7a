/** The cluster as it is now. One stream feeds one store; a component selects what it shows. */
import { useCallback, useSyncExternalStore } from 'react'
import { apiUrl } from './requests'
import { afterChange, afterSnapshot, NOTHING, type LiveState, type Table } from './rows'
import type { ChangeMessage, Kind, RowTypes, SnapshotMessage, Trouble } from './types'

const RETRY_AFTER = 3000

class LiveStore {
  private state = NOTHING
  private source: EventSource | null = null
  private retry: ReturnType<typeof setTimeout> | undefined
  private readonly listeners = new Set<() => void>()
  onExpired: () => void = () => undefined
  onRefused: () => void = () => undefined

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }
  readonly get = (): LiveState => this.state

  /** Follow a namespace ("" = the whole cluster). */
  follow(namespace: string): void {
    if (this.source && this.state.namespace === namespace) return
    this.stop()
    this.set({ ...NOTHING, namespace })
    this.connect()
  }

  stop(): void {
    clearTimeout(this.retry)
    this.source?.close()
    this.source = null
  }

  private connect(): void {
    const source = new EventSource(apiUrl(`api/live?namespace=${encodeURIComponent(this.state.namespace ?? '')}`))
    this.source = source
    const on = (name: string, act: (message: unknown) => void) =>
      source.addEventListener(name, (event) => {
        if (this.source === source) act(JSON.parse((event as MessageEvent<string>).data))
      })
    on('snapshot', (message) => this.set(afterSnapshot(this.state, message as SnapshotMessage)))
    on('change', (message) => this.set(afterChange(this.state, message as ChangeMessage)))
    on('beat', (message) => this.set({ ...this.state, at: (message as { at: number }).at }))
    on('trouble', (message) => {
      const trouble = message as Trouble
      this.set({ ...this.state, trouble })
      if (trouble.kind === 'Expired') {
        this.stop()
        this.onExpired()
      }
    })
    source.onerror = () => {
      if (this.source !== source) return
      this.set({ ...this.state, trouble: { kind: 'Unreachable', error: 'The dashboard’s server does not answer.' } })
      // the browser itself goes on trying after a broken connection, but gives up after a refusal
      if (source.readyState === EventSource.CLOSED) {
        this.stop()
        this.retry = setTimeout(() => this.connect(), RETRY_AFTER)
        this.onRefused()
      }
    }
  }

  private set(state: LiveState): void {
    this.state = state
    for (const listener of this.listeners) listener()
  }
}

export const live = new LiveStore()

export function useLive<T>(select: (state: LiveState) => T): T {
  return useSyncExternalStore(live.subscribe, () => select(live.get()))
}

const selectors = {
  jobs: (state: LiveState) => state.tables.jobs,
  queues: (state: LiveState) => state.tables.queues,
  nodes: (state: LiveState) => state.tables.nodes,
  runs: (state: LiveState) => state.tables.runs,
}

export function useTable<K extends Kind>(kind: K): Table<RowTypes[K]> {
  return useLive(selectors[kind] as (state: LiveState) => Table<RowTypes[K]>)
}

export function useIsLoading(): boolean {
  return useLive((state) => state.at === 0)
}

export function useRow<K extends Kind>(kind: K, find: (row: RowTypes[K]) => boolean): RowTypes[K] | undefined {
  const select = useCallback(
    (state: LiveState) => (state.tables[kind].list).find(find),
    [kind, find],
  )
  return useLive(select)
}
