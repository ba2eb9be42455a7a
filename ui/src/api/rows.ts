/**
 * Rows of the cluster after each message of the stream. Rows that say the same stay the same object, so that memoised rows of
 * tables are not rendered again.
 */
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
