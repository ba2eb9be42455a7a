import { describe, expect, it } from 'vitest'
import { cohortTree, csv, flavorFigures, largestGangs, lentShares, queuesBelow, usageOverTime, waitingFigures, everyDay, freeNodes, lossesBy, sharesOfTrees, splitOf, sumOfUse, wasteOf, withNewer, plannedGpus } from './figures'
import type { Attempt, Job, Node, PastRun, Queue, Run, UsageSum } from './api/types'

const GPU = 'nvidia.com/gpu'
const node = (name: string, total: number, used: number, rest: Partial<Node> = {}): Node => ({
  metadata: { name }, flavors: ['a100'], trouble: '', until: null, capacity: { [GPU]: String(total) }, used: { [GPU]: String(used) },
  occupants: used ? [{ job: 'job/a', namespace: 'n', outside: false, hidden: false, pods: 1, amounts: { [GPU]: String(used) } }] : [], awaited: [], ...rest,
})
const job = (rest: Partial<Job>): Job => ({ state: 'Running', held: [], gpus: 0, created: 0, neverFits: false, expectedStart: null, ...rest }) as Job

describe('what GPUs do', () => {
  it('counts each GPU once', () => {
    const nodes = [node('a', 8, 5), node('b', 8, 0, { trouble: 'NotReady' }), node('c', 8, 2, { trouble: 'Cordoned' }), node('d', 8, 0, { occupants: [{ job: 'pod/x', namespace: 'm', outside: true, hidden: false, pods: 1, amounts: { [GPU]: '1' } }] })]
    const held = [job({ held: [{ flavor: 'a100', resource: GPU, amount: '11' }] }), job({ state: 'Pending', held: [{ flavor: 'a100', resource: GPU, amount: '99' }] })]
    const [sums] = flavorFigures(nodes, held)
    expect(sums).toMatchObject({ nodes: 4, total: 32, used: 7, outside: 1, held: 4, faulty: 8, leaving: 6, free: 6 })
    if (sums) expect(sums.used + sums.outside + sums.held + sums.free + sums.faulty + sums.leaving + sums.soaking).toBe(sums.total)
  })

  it('leaves nodes without GPUs out', () => expect(flavorFigures([node('a', 0, 0)], [])).toEqual([]))

  it('finds the largest gang for each size of pod', () => {
    const nodes = [node('a', 8, 5), node('b', 8, 0), node('c', 8, 0, { trouble: 'Cordoned' }), node('d', 8, 0, { awaited: [{ job: 'job/b', namespace: 'n', outside: false, hidden: false, pods: 1, amounts: { [GPU]: '4' } }] })]
    expect(largestGangs(nodes)).toEqual([
      { perPod: 1, pods: 15, gpus: 15 }, { perPod: 2, pods: 7, gpus: 14 }, { perPod: 4, pods: 3, gpus: 12 }, { perPod: 8, pods: 1, gpus: 8 },
    ])
  })
})

it('the oldest that waits is one that can start', () => {
  const found = waitingFigures([job({ state: 'Pending', created: 1, neverFits: true, gpus: 99 }), job({ state: 'Pending', created: 5, gpus: 8 }), job({ state: 'Running', created: 0 })])
  expect(found).toMatchObject({ jobs: 2, gpus: 107 })
  expect(found.oldest?.created).toBe(5)
})

it('use over time meets at now', () => {
  const past = [{ started: 10, ended: 50, gpus: 4 }] as PastRun[]
  const runs = [{ from: 40, to: 120, gpus: 8 }, { from: 130, to: 400, gpus: 2 }] as Run[]
  const { times, was, plan } = usageOverTime(past, runs, 100, 100, 100, 20)
  const at = (time: number) => times.indexOf(time)
  expect([was[at(10)], was[at(40)], was[at(60)], was[at(100)]]).toEqual([4, 12, 8, 8])
  expect([plan[at(60)], plan[at(100)], plan[at(120)], plan[at(130)]]).toEqual([null, 8, 0, 2])
})

describe('queues', () => {
  const queue = (name: string, cohorts: string[], nominal: string, used: string, borrowed: string, lendingLimit: string | null = null) =>
    ({ level: 'ClusterQueue', name, cohorts, quotas: [{ flavor: 'a100', resource: GPU, nominal, used, borrowed, borrowingLimit: null, lendingLimit }] }) as unknown as Queue
  const all = [queue('a', ['x', 'root'], '8', '18', '10'), queue('b', ['y', 'root'], '30', '5', '0'), queue('c', ['root'], '30', '30', '0'), queue('d', [], '4', '0', '0'), queue('e', ['root'], '30', '0', '0', '5')]

  it('stand below their cohorts', () => {
    const tree = cohortTree([...all, { level: 'User', cohorts: [] } as unknown as Queue])
    expect(tree.queues.map((each) => each.name)).toEqual(['d'])
    expect(tree.cohorts.map((each) => each.name)).toEqual(['root'])
    expect(queuesBelow(tree).map((each) => each.name).sort()).toEqual(['a', 'b', 'c', 'd', 'e'])
  })

  it('lend in all what is borrowed, within their limits', () => {
    const lent = lentShares(all)
    expect([...lent.values()].reduce((sum, n) => sum + n, 0)).toBeCloseTo(10)
    expect(lent.get('e')).toBeLessThanOrEqual(5)
    expect(lent.has('c') || lent.has('d')).toBe(false)
  })
})

describe('use', () => {
  it('is written as CSV, without formulas', () => {
    expect(csv(['a', 'b'], [['x,"y"', 1.23456], ['=HYPERLINK("h")', null]])).toBe('a,b\r\n"x,""y""",1.235\r\n"\'=HYPERLINK(""h"")",\r\n')
  })
})

const attempt = (workload: string, reserved: number, ended: number | null): Attempt => ({ namespace: 'a', workload, reserved, ended }) as Attempt
const names = (rows: Attempt[]) => rows.map((each) => `${each.workload} ${each.ended ?? 'runs'}`)

describe('attempts that are known, with newer ones', () => {
  it('end where they have ended, and begin where they are new', () => {
    const known = [attempt('one', 10, null), attempt('two', 5, 50), attempt('old', 1, 9)]
    const newer = [attempt('three', 90, null), attempt('one', 10, 80)]
    expect(names(withNewer(known, newer, 20))).toEqual(['three runs', 'one 80', 'two 50'])
  })

  it('are gone where they are listed no more and had no end', () => {
    expect(names(withNewer([attempt('one', 10, null), attempt('two', 5, 50)], [], 0))).toEqual(['two 50'])
  })

  it('of one job are several', () => {
    const known = [attempt('one', 10, 40)]
    expect(names(withNewer(known, [attempt('one', 60, null)], 0))).toEqual(['one runs', 'one 40'])
  })
})

describe('GPU-hours', () => {
  const lost = (rest: Partial<UsageSum['lost']>) => ({ preemption: 0, failure: 0, overrun: 0, cancel: 0, eviction: 0, ...rest })
  const sum = (name: string, rest: Partial<UsageSum>): UsageSum => ({
    name, hidden: false, jobs: 1, attempts: 1, gpuHours: 10, usefulGpuHours: 10, startingGpuHours: 0, idleGpuHours: null, lost: lost({}), waitedGpuHours: 0, medianWaitSeconds: null, preemptions: 0, weightedGpuHours: null, ...rest,
  })

  it('are split into parts that make the whole, and idle time is no use', () => {
    const split = splitOf(sum('a', { usefulGpuHours: 8, startingGpuHours: 1, idleGpuHours: 3, lost: lost({ failure: 1 }) }))
    expect(split).toMatchObject({ useful: 5, starting: 1, idle: 3, lostAll: 1, other: 0 })
    expect(splitOf(sum('b', { usefulGpuHours: 6, lost: lost({ cancel: 1 }) }))).toMatchObject({ useful: 6, lostAll: 1, other: 3 })
  })

  it('of all names are one sum, whose idle time is known if it is of any', () => {
    const all = sumOfUse([sum('a', { lost: lost({ overrun: 2 }) }), sum('b', { idleGpuHours: 2, preemptions: 3 })])
    expect(all).toMatchObject({ jobs: 2, gpuHours: 20, idleGpuHours: 2, preemptions: 3 })
    expect(all.lost.overrun).toBe(2)
    expect(sumOfUse([sum('a', {})]).idleGpuHours).toBeNull()
  })

  it('by day have the days on which nothing ran', () => {
    const now = Date.parse('2026-11-29T03:00:00Z') / 1000
    const rows = everyDay([sum('2026-11-27', {}), sum('2026-11-25', {})], now, 3)
    expect(rows.map((row) => [row.name, row.gpuHours])).toEqual([['2026-11-25', 10], ['2026-11-26', 0], ['2026-11-27', 10], ['2026-11-28', 0], ['2026-11-29', 0]])
  })

  it('are wasted by what was lost and what was idle', () => {
    const row = (jobName: string, lostGpuHours: number | null, idleGpuHours: number | null) => ({ jobName, lostGpuHours, idleGpuHours }) as Attempt
    expect(wasteOf([row('none', 0, null), row('idle', 0, 5), row('lost', 4, null), row('both', 3, 3)], 2).map((each) => each.jobName)).toEqual(['both', 'idle'])
    expect(lossesBy([row('x', 4, null), row('y', 1, null), row('x', null, null)], (each) => each.jobName)).toEqual([{ name: 'x', many: 2, gpuHours: 4 }, { name: 'y', many: 1, gpuHours: 1 }])
  })

  it('of a tree are shared among its queues; one without a cohort shares with nobody', () => {
    const queue = (name: string, cohorts: string[], usedGpus: number) => ({ level: 'ClusterQueue', name, cohorts, usedGpus }) as Queue
    const shares = sharesOfTrees([queue('a', ['in', 'root'], 3), queue('b', ['root'], 1), queue('c', [], 9), queue('d', ['other'], 0)], (each) => each.usedGpus)
    expect([...shares]).toEqual([['a', 0.75], ['b', 0.25]])
  })
})

it('spare nodes take work, have GPUs, and run nothing', () => {
  expect(freeNodes([node('free', 8, 0), node('used', 8, 1), node('ill', 8, 0, { trouble: 'GpuFault' }), node('no-gpu', 0, 0), node('awaited', 8, 0, { awaited: [{ job: 'job/b', namespace: 'n', outside: false, hidden: false, pods: 1, amounts: {} }] })])).toBe(1)
})

describe('what a plan makes of a quota', () => {
  const quota = (nominal: string, rest: object = {}) => ({ flavor: 'a100', resource: GPU, nominal, used: '0', borrowed: '0', borrowingLimit: null, lendingLimit: null, ...rest })
  const queue = (...quotas: object[]) => ({ quotas }) as Queue

  it('is nothing without a plan, or where the plan is about other resources', () => {
    expect(plannedGpus(queue(quota('8')))).toBeNull()
    expect(plannedGpus(queue(quota('8'), quota('8', { resource: 'cpu', written: '4', next: null })))).toBeNull()
  })

  it('sums what the plan is about and what it leaves', () => {
    const both = [quota('8', { written: '32', next: '16' }), quota('4', { flavor: 'h100' })]
    expect(plannedGpus(queue(...both))).toEqual({ written: 36, next: 20 })
    expect(plannedGpus(queue(quota('8', { written: '32', next: null })))).toEqual({ written: 32, next: null })
  })
})
