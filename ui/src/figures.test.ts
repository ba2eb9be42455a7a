import { describe, expect, it } from 'vitest'
import { cohortTree, csv, flavorFigures, largestGangs, lentShares, queuesBelow, usageBy, usageByDay, usageOverTime, waitingFigures } from './figures'
import type { Job, Node, PastRun, Queue, Run } from './api/types'

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
  const run = (rest: Partial<PastRun>): PastRun => ({ user: 'mira', gpus: 8, gpuHours: 8, waitedSeconds: 3600, state: 'Ended', preemptions: null, started: 0, ended: 3600, hidden: false, ...rest }) as PastRun

  it('is summed by what is asked for', () => {
    const rows = usageBy([run({}), run({ state: 'Failed', waitedSeconds: 0, preemptions: 2 }), run({ user: '', gpuHours: 1 })], 'user')
    expect(rows).toEqual([
      { name: 'mira', runs: 2, gpuHours: 16, failedHours: 8, waitedHours: 8, medianWait: 3600, preemptions: 2 },
      { name: 'not known', runs: 1, gpuHours: 1, failedHours: 0, waitedHours: 8, medianWait: 3600, preemptions: 0 },
    ])
  })

  it('of a run over midnight belongs to both days', () => {
    const midnight = new Date(2026, 10, 29).getTime() / 1000
    const { good } = usageByDay([run({ started: midnight - 3600, ended: midnight + 7200 })], midnight + 40000, 2)
    expect(good).toEqual([8, 16])
  })

  it('is written as CSV, without formulas', () => {
    expect(csv(['a', 'b'], [['x,"y"', 1.23456], ['=HYPERLINK("h")', null]])).toBe('a,b\r\n"x,""y""",1.235\r\n"\'=HYPERLINK(""h"")",\r\n')
  })
})
