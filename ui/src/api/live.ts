/**
 * The cluster's rows as they are now. One stream feeds one store; a component selects what it shows.
 * Rows that say the same stay the same object, so that memoised rows of tables are not rendered again.
 */
import { useCallback, useSyncExternalStore } from 'react'
import { apiUrl } from './requests'
import { KINDS, type ChangeMessage, type Kind, type RowTypes, type SnapshotMessage, type Trouble } from './types'

export interface Table<T> {
  readonly byId: ReadonlyMap<string, T>
  readonly list: readonly T[]
  readonly ids: readonly string[]
}

export type Tables = { readonly [K in Kind]: Table<RowTypes[K]> }

export interface LiveState {
  readonly namespace: string | null
  readonly revision: number
  /** of the leader's last look; 0 before the first snapshot */
  readonly at: number
  readonly trouble: Trouble | null
  readonly tables: Tables
}

const EMPTY_TABLE: Table<never> = { byId: new Map<string, never>(), list: [], ids: [] }
const NO_ROWS: Tables = { jobs: EMPTY_TABLE, queues: EMPTY_TABLE, nodes: EMPTY_TABLE, runs: EMPTY_TABLE }
export const NOTHING: LiveState = { namespace: null, revision: 0, at: 0, trouble: null, tables: NO_ROWS }

/** The old value wherever the new one says the same, at every depth. */
export function shared<T>(old: unknown, next: T): T {
  if (Object.is(old, next)) return next
  if (typeof old !== 'object' || typeof next !== 'object' || old === null || next === null) return next
  if (Array.isArray(old) !== Array.isArray(next)) return next
  const before = old as Record<string, unknown>
  const after = next as Record<string, unknown>
  const keys = Object.keys(after)
  let same = keys.length === Object.keys(before).length
  for (const key of keys) {
    const value = shared(before[key], after[key])
    if (!Object.is(value, after[key])) after[key] = value
    if (same && !(key in before && Object.is(value, before[key]))) same = false
  }
  return same ? (old as T) : next
}

function tableOf<T>(byId: Map<string, T>): Table<T> {
  return { byId, list: [...byId.values()], ids: [...byId.keys()] }
}

function replaced<T>(old: Table<T>, rows: Record<string, T>): Table<T> {
  const byId = new Map<string, T>()
  let same = true
  for (const [id, row] of Object.entries(rows)) {
    const before = old.byId.get(id)
    const kept = shared(before, row)
    same &&= kept === before
    byId.set(id, kept)
  }
  return same && byId.size === old.byId.size ? old : tableOf(byId)
}

function changed<T>(old: Table<T>, put: Record<string, T> | undefined, gone: string[] | undefined): Table<T> {
  if (!put && !gone) return old
  const byId = new Map(old.byId)
  let same = true
  for (const [id, row] of Object.entries(put ?? {})) {
    const before = byId.get(id)
    const kept = shared(before, row)
    same &&= kept === before
    byId.set(id, kept)
  }
  for (const id of gone ?? []) same = !byId.delete(id) && same
  return same ? old : tableOf(byId)
}

function perKind(make: <K extends Kind>(kind: K) => Table<RowTypes[K]>): Tables {
  return { jobs: make('jobs'), queues: make('queues'), nodes: make('nodes'), runs: make('runs') }
}

export function afterSnapshot(state: LiveState, message: SnapshotMessage): LiveState {
  const tables = perKind(<K extends Kind>(kind: K) =>
    replaced<RowTypes[K]>(state.tables[kind], (message.rows[kind] ?? {})),
  )
  return { ...state, revision: message.revision, at: message.at, trouble: null, tables }
}

export function afterChange(state: LiveState, message: ChangeMessage): LiveState {
  const tables = perKind(<K extends Kind>(kind: K) =>
    changed<RowTypes[K]>(
      state.tables[kind],
      message.put?.[kind],
      message.gone?.[kind],
    ),
  )
  const same = KINDS.every((kind) => tables[kind] === state.tables[kind])
  return { ...state, revision: message.revision, at: message.at, tables: same ? state.tables : tables }
}

class LiveStore {
  private state = NOTHING
  private source: EventSource | null = null
  private retry: ReturnType<typeof setTimeout> | undefined
  private readonly listeners = new Set<() => void>()
  onExpired: () => void = () => undefined

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
        this.retry = setTimeout(() => this.connect(), 3000)
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
