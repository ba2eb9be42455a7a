import { describe, expect, it } from 'vitest'
import { afterChange, afterSnapshot, NOTHING, shared } from './rows'
import type { Job, SnapshotMessage } from './types'

const job = (name: string, gpus = 8): Job => ({ name, gpus, warnings: [], amounts: { 'nvidia.com/gpu': String(gpus) } }) as unknown as Job
const snapshot = (...names: string[]): SnapshotMessage => ({ revision: 1, at: 100, rows: { jobs: Object.fromEntries(names.map((name) => [name, job(name)])) } })

describe('shared', () => {
  it('keeps the old object where the new one says the same', () => {
    const old = { a: [1, { b: 'x' }], c: null }
    expect(shared(old, structuredClone(old))).toBe(old)
  })

  it('keeps the parts that say the same', () => {
    const old = { same: { x: 1 }, other: { y: 1 } }
    const next = shared<typeof old>(old, { same: { x: 1 }, other: { y: 2 } })
    expect(next).not.toBe(old)
    expect(next.same).toBe(old.same)
    expect(next.other).toEqual({ y: 2 })
  })

  it('sees a key that is gone, one that is new, and a list that became an object', () => {
    expect(shared({ a: 1, b: 2 }, { a: 1 })).toEqual({ a: 1 })
    expect(shared({ a: 1 }, { a: 1, b: undefined })).toHaveProperty('b')
    expect(shared([], {})).toEqual({})
  })
})

describe('the live rows', () => {
  it('keep a row’s object when another row changes', () => {
    const before = afterSnapshot(NOTHING, snapshot('a', 'b'))
    const after = afterChange(before, { revision: 2, at: 102, put: { jobs: { b: job('b', 16) } } })
    expect(after.tables.jobs.byId.get('a')).toBe(before.tables.jobs.byId.get('a'))
    expect(after.tables.jobs.byId.get('b')?.gpus).toBe(16)
    expect(after.tables.nodes).toBe(before.tables.nodes)
    expect(after.at).toBe(102)
  })

  it('keep the whole table when a change says nothing new', () => {
    const before = afterSnapshot(NOTHING, snapshot('a'))
    const after = afterChange(before, { revision: 2, at: 102, put: { jobs: { a: job('a') } }, gone: { nodes: ['never seen'] } })
    expect(after.tables).toBe(before.tables)
  })

  it('keep it when a snapshot comes again after a broken stream', () => {
    const before = afterSnapshot(NOTHING, snapshot('a', 'b'))
    const broken = { ...before, trouble: { kind: 'NoLeader' as const, error: 'Nobody leads.' } }
    const after = afterSnapshot(broken, snapshot('a', 'b'))
    expect(after.tables.jobs).toBe(before.tables.jobs)
    expect(after.trouble).toBeNull()
  })

  it('lose rows that are gone', () => {
    const before = afterSnapshot(NOTHING, snapshot('a', 'b'))
    expect(afterChange(before, { revision: 2, at: 1, gone: { jobs: ['a'] } }).tables.jobs.ids).toEqual(['b'])
    expect(afterSnapshot(before, snapshot('b')).tables.jobs.ids).toEqual(['b'])
  })
})
