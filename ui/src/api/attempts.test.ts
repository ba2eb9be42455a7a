import { describe, expect, it } from 'vitest'
import { withNewer } from './attempts'
import type { Attempt } from './types'

const attempt = (workload: string, reserved: number, ended: number | null): Attempt => ({ namespace: 'a', workload, reserved, ended }) as Attempt
const names = (rows: Attempt[]) => rows.map((each) => `${each.workload} ${each.ended ?? 'runs'}`)

describe('attempts that are known, with newer ones', () => {
  it('end where they have ended, and begin where they are new', () => {
    const known = [attempt('one', 10, null), attempt('two', 5, 50), attempt('old', 1, 9)]
    const newer = [attempt('three', 90, null), attempt('one', 10, 80)]
    expect(names(withNewer(known, newer, 20))).toEqual(['three runs', 'one 80', 'two 50'])
  })

  it('are gone where they are told of no more and had no end', () => {
    expect(names(withNewer([attempt('one', 10, null), attempt('two', 5, 50)], [], 0))).toEqual(['two 50'])
  })

  it('of one job are several', () => {
    const known = [attempt('one', 10, 40)]
    expect(names(withNewer(known, [attempt('one', 60, null)], 0))).toEqual(['one runs', 'one 40'])
  })
})
