import { describe, expect, it } from 'vitest'
import { displayOrder, isAnnotationKey, matches, type Filter } from './filter'
import { lights } from './lights'
import { similarRuns, stem } from './similar'
import { namespaceOf } from './namespace'
import type { Job, Node, PastRun } from './api/types'

const job = (rest: Partial<Job>): Job =>
  ({ hidden: false, namespace: 'n', jobKind: 'Job', jobName: 'a', user: '', queue: 'q', clusterQueue: 'c', flavors: [], why: '', warnings: [], state: 'Pending', priority: 0, since: 0, position: null, created: 0, fallenBack: null, neverFits: false, ...rest }) as Job
const ALL: Filter = { states: new Set(), queue: '', clusterQueue: '', user: '', only: '', words: [] }

describe('the jobs that a view shows', () => {
  it('have the annotations that are asked for, whose values are found by words, too', () => {
    const one = job({ uid: 'u1' })
    const noted = new Map([['u1', { 'example.com/project': 'OCR' }]])
    expect(matches(one, { ...ALL, noted, annotations: [['example.com/project', 'OCR']] })).toBe(true)
    expect(matches(one, { ...ALL, noted, annotations: [['example.com/project', 'speech']] })).toBe(false)
    expect(matches(one, { ...ALL, noted, words: ['ocr'] })).toBe(true)
    expect(matches(job({ uid: 'u2' }), { ...ALL, noted, annotations: [['example.com/project', 'OCR']] })).toBe(false)
  })

  it('have annotations by keys as Kubernetes has them', () => {
    for (const key of ['project', 'example.com/project', 'a.b-c.io/X_y.z']) expect(isAnnotationKey(key)).toBe(true)
    for (const key of ['', 'a/b/c', '/x', 'x/', 'UPPER.com/x', 'a,b', 'x y', '-x', 'x'.repeat(64)]) expect(isAnnotationKey(key)).toBe(false)
  })

  it('match all words, anywhere', () => {
    const one = job({ jobName: 'pretrain', user: 'mira', why: 'WaitingForQuota: 2 more GPUs' })
    expect(matches(one, { ...ALL, words: ['mira', 'pretrain'] })).toBe(true)
    expect(matches(one, { ...ALL, words: ['mira', 'eval'] })).toBe(false)
    expect(matches(one, { ...ALL, queue: 'other' })).toBe(false)
    expect(matches(one, { ...ALL, only: 'warnings' })).toBe(false)
  })

  it('stand in the order of gangline queue', () => {
    const rows = [job({ jobName: 'ended', state: 'Failed' }), job({ jobName: 'second', position: 1 }), job({ jobName: 'first', position: 0 }), job({ jobName: 'runs', state: 'Running' })]
    expect(rows.sort(displayOrder).map((each) => each.jobName)).toEqual(['runs', 'first', 'second', 'ended'])
  })
})

it('lights say what needs a person, each once, and nothing where all is well', () => {
  expect(lights([job({})], [], [], [], 0)).toEqual([])
  const nodes = ['NotReady', 'Cordoned'].map((trouble, i) => ({ metadata: { name: `node-${i}` }, trouble }) as Node)
  const found = lights([job({ neverFits: true }), job({ state: 'Running', warnings: ['it hangs'] })], [], nodes, [], 0)
  expect(found.map((light) => light.text)).toEqual([
    '1 node has a fault: node-0 (NotReady).', '1 job will never fit: job/a.', '1 job carries a warning: job/a.', '1 node takes no new work: node-1 (Cordoned).',
  ])
})

describe('similar runs', () => {
  it.each([['pretrain-7b-00a', 'pretrain'], ['eval-suite', 'eval-suite'], ['train-20261128', 'train'], ['job1', 'job1'], ['sweep.12', 'sweep']])('%s is of %s', (name, of) => expect(stem(name)).toBe(of))

  it('are those of the same name, else of the same size', () => {
    const past = [1, 2, 3].map((n) => ({ hidden: false, jobName: `train-${n}`, user: 'mira', gpus: 8, ranSeconds: 60 * n }) as PastRun)
    expect(similarRuns(job({ jobName: 'train-9' }), past).runs).toHaveLength(3)
    expect(similarRuns(job({ jobName: 'other', user: 'mira', gpus: 8 }), past).runs).toHaveLength(3)
    expect(similarRuns(job({ jobName: 'other', user: 'mira', gpus: 4 }), past).runs).toHaveLength(0)
  })
})

describe('the namespace of a view', () => {
  const of = (query: string, all: boolean) => namespaceOf(new URLSearchParams(query), { all, namespace: 'mine', namespaces: ['mine', 'other'] })
  it('is the whole cluster for who may see it, else the own one', () => expect([of('', true), of('', false)]).toEqual(['', 'mine']))
  it('is what the address says', () => expect([of('ns=other', true), of('ns=other', false)]).toEqual(['other', 'other']))
  it('is never the whole cluster for who may not see it', () => expect(of('ns=', false)).toBe('mine'))
})
