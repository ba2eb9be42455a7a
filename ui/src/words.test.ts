import { describe, expect, it } from 'vitest'
import { accelerators, duration, durations, healthOf, inInterval, isAccelerator, list, ordinal, quantity, windowOf, windowWords } from './words'
import type { Node } from './api/types'

describe('durations', () => {
  it.each([
    [0, '0s'], [42, '42s'], [119.9, '119s'], [192, '3m12s'], [180, '3m'], [47 * 60, '47m'], [179 * 60, '179m'], [5 * 3600 + 600, '5h10m'],
    [30 * 3600, '30h'], [76 * 3600, '3d4h'], [12 * 86400, '12d'], [-5, '0s'],
  ])('%d s reads %s, as on the command line', (seconds, words) => expect(duration(seconds)).toBe(words))

  it('say a range, or one value where both are the same', () => {
    expect(durations(60, 144)).toBe('60s – 2m24s')
    expect(durations(3600 * 30, 3600 * 30 + 5)).toBe('30h')
    expect(durations(60, null)).toBe('60s or later')
  })

  it('say when something starts', () => {
    expect(inInterval(null, 0)).toBe('')
    expect(inInterval({ p50: 100, p90: 100 }, 100)).toBe('now')
    expect(inInterval({ p50: 700, p90: 4300 }, 100)).toBe('in 10m – 70m')
  })
})

describe('amounts', () => {
  it.each([['8', 8], ['500m', 0.5], ['1Ti', 2 ** 40], ['2k', 2000], ['1e3', 1000], ['', 0], ['eight', 0], [undefined, 0]])('%s is %d', (text, n) => expect(quantity(text)).toBe(n))

  it('count accelerators of all makers, and neither their memory nor other devices', () => {
    expect(['nvidia.com/gpu', 'amd.com/gpu', 'nvidia.com/mig-1g.5gb', 'google.com/tpu', 'habana.ai/gaudi', 'aws.amazon.com/neuron'].every(isAccelerator)).toBe(true)
    expect(['cpu', 'memory', 'nvidia.com/gpumem', 'nvidia.com/gpu-core', 'rdma/hca'].some(isAccelerator)).toBe(false)
    expect(accelerators({ cpu: '64', 'nvidia.com/gpu': '8', 'amd.com/gpu': '2' })).toBe(10)
  })
})

it('ordinals and lists read as English', () => {
  expect([1, 2, 3, 4, 11, 12, 13, 21, 43, 111].map(ordinal)).toEqual(['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '43rd', '111th'])
  expect([list([]), list(['a']), list(['a', 'b']), list(['a', 'b', 'c'])]).toEqual(['', 'a', 'a and b', 'a, b and c'])
})

it('a node’s health follows from the reason in a word', () => {
  const health = (trouble: string) => healthOf({ trouble } as Node)
  expect([health(''), health('Cordoned'), health('Vacated'), health('Soaking'), health('NotReady'), health('SomethingNew')]).toEqual(['ready', 'leaving', 'leaving', 'soaking', 'faulty', 'faulty'])
})

describe('the window of a node', () => {
  const window = { reservation: 'weekly', maintenance: true, soft: false, announced: 1000, from: 2000, to: 3000 }
  const node = (rest: object = {}) => ({ window: { ...window, ...rest } }) as unknown as Node

  it('is ahead, empties the node, is open, and is over', () => {
    expect([999, 1000, 2000, 3000].map((now) => windowOf(node(), now))).toEqual(['ahead', 'emptying', 'open', null])
    expect(windowOf(node({ soft: true }), 1500)).toBe('ahead')
    expect(windowOf({} as Node, 1500)).toBeNull()
  })

  it('is said in a sentence', () => {
    expect(windowWords(node(), 1500)).toMatch(/^In maintenance from .* to .* \(Reservation weekly\); it is being emptied\.$/)
    expect(windowWords(node({ maintenance: false }), 2500)).toMatch(/^Kept for others until .* \(Reservation weekly\)\.$/)
    expect(windowWords(node({ maintenance: false, soft: true }), 500)).toMatch(/^Kept for others who need it from /)
    expect(windowWords({} as Node, 0)).toBe('')
  })
})
