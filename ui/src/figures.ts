/** Sums over rows: plain functions, so that they can be tested and computed once per change. */
import type { Attempt, Job, LostTo, Node, PastRun, Queue, Quota, Run, UsageSum } from './api/types'
import { accelerators, HOLDING, healthOf, isAccelerator, quantity } from './words'

export interface FlavorFigures {
  flavor: string
  nodes: number
  total: number
  /** by pods of jobs in queues */
  used: number
  /** by pods outside of any queue */
  outside: number
  /** of jobs that hold quota, and have no pod there yet */
  held: number
  faulty: number
  leaving: number
  soaking: number
  free: number
}

export function flavorOf(node: Node): string {
  return node.flavors[0] ?? 'no flavor'
}

/** What each flavor's GPUs do now, the largest flavor first. A node of several flavors counts for its first. */
export function flavorFigures(nodes: readonly Node[], jobs: readonly Job[]): FlavorFigures[] {
  const found = new Map<string, FlavorFigures>()
  for (const node of nodes) {
    const total = accelerators(node.capacity)
    if (!total) continue
    const flavor = flavorOf(node)
    let sums = found.get(flavor)
    if (!sums) {
      sums = { flavor, nodes: 0, total: 0, used: 0, outside: 0, held: 0, faulty: 0, leaving: 0, soaking: 0, free: 0 }
      found.set(flavor, sums)
    }
    let [used, outside] = [0, 0]
    for (const each of node.occupants) {
      if (each.outside) outside += accelerators(each.amounts)
      else used += accelerators(each.amounts)
    }
    const rest = Math.max(0, total - used - outside)
    const health = healthOf(node)
    sums.nodes += 1
    sums.total += total
    sums.used += used
    sums.outside += outside
    if (health === 'ready') sums.free += rest
    else sums[health] += rest
  }
  const held = new Map<string, number>()
  for (const job of jobs) {
    if (!HOLDING.has(job.state)) continue
    for (const { flavor, resource, amount } of job.held) {
      if (isAccelerator(resource)) held.set(flavor, (held.get(flavor) ?? 0) + quantity(amount))
    }
  }
  for (const sums of found.values()) {
    sums.held = Math.min(sums.free, Math.max(0, (held.get(sums.flavor) ?? 0) - sums.used))
    sums.free -= sums.held
  }
  return [...found.values()].sort((a, b) => b.total - a.total)
}

export interface WaitingFigures {
  jobs: number
  gpus: number
  oldest: Job | null
  next: Job[]
}

export function waitingFigures(jobs: readonly Job[]): WaitingFigures {
  const waiting = jobs.filter((job) => job.state === 'Pending')
  let gpus = 0
  let oldest: Job | null = null
  for (const job of waiting) {
    gpus += job.gpus
    if (!job.neverFits && (!oldest || job.created < oldest.created)) oldest = job
  }
  const next = waiting.filter((job) => job.expectedStart).sort((a, b) => (a.expectedStart?.p50 ?? 0) - (b.expectedStart?.p50 ?? 0))
  return { jobs: waiting.length, gpus, oldest, next: next.slice(0, 8) }
}

/** GPUs in use over time: as it was, and as it is planned. Both end and begin at `now`. */
export function usageOverTime(past: readonly PastRun[], runs: readonly Run[], now: number, back: number, ahead: number, points = 192) {
  const changes: [number, number][] = []
  for (const run of past) {
    if (run.started === null) continue
    changes.push([run.started, run.gpus], [run.ended, -run.gpus])
  }
  for (const run of runs) changes.push([run.from, run.gpus], [run.to, -run.gpus])
  changes.sort((a, b) => a[0] - b[0])
  const times: number[] = []
  const was: (number | null)[] = []
  const plan: (number | null)[] = []
  let sum = 0
  let next = 0
  const begin = now - back
  const step = (back + ahead) / points
  const middle = Math.round(back / step)
  for (let i = 0; i <= points; i++) {
    const at = i === middle ? now : begin + i * step
    for (let change = changes[next]; change && change[0] <= at; change = changes[next]) {
      sum += change[1]
      next += 1
    }
    times.push(at)
    was.push(i <= middle ? sum : null)
    plan.push(i >= middle ? sum : null)
  }
  return { times, was, plan }
}

/** For pods of so many GPUs each: how many fit on usable nodes now, so the largest gang that could start. */
export interface Fit {
  perPod: number
  pods: number
  gpus: number
}

export function largestGangs(nodes: readonly Node[]): Fit[] {
  const free: number[] = []
  let most = 0
  for (const node of nodes) {
    const total = accelerators(node.capacity)
    most = Math.max(most, total)
    if (node.trouble) continue
    const taken = accelerators(node.used) + node.awaited.reduce((sum, each) => sum + accelerators(each.amounts), 0)
    free.push(Math.max(0, total - taken))
  }
  const sizes: number[] = []
  for (let size = 1; size < most; size *= 2) sizes.push(size)
  if (most) sizes.push(most)
  return sizes.map((perPod) => {
    const pods = free.reduce((sum, n) => sum + Math.floor(n / perPod), 0)
    return { perPod, pods, gpus: pods * perPod }
  })
}

/** Nodes that take work and run nothing of any queue: where a gang can go that loses a node. */
export function freeNodes(nodes: readonly Node[]): number {
  return nodes.filter((node) => !node.trouble && accelerators(node.capacity) > 0 && accelerators(node.used) === 0 && node.awaited.length === 0).length
}

// --- queues ---

export interface CohortTree {
  name: string
  cohorts: CohortTree[]
  queues: Queue[]
}

/** The GPUs of a queue by its spec, and after the next change by its plan (null: none is known); null where no plan gives it a quota of them. */
export function plannedGpus(queue: Queue): { written: number; next: number | null } | null {
  const devices = queue.quotas.filter((quota) => isAccelerator(quota.resource))
  if (!devices.some((quota) => quota.written !== undefined)) return null
  const sum = (of: (quota: Quota) => string) => devices.reduce((all, quota) => all + quantity(of(quota)), 0)
  const changes = devices.some((quota) => quota.next != null)
  return { written: sum((quota) => quota.written ?? quota.nominal), next: changes ? sum((quota) => quota.next ?? quota.nominal) : null }
}

/** ClusterQueues below their cohorts. Those without one stand at the root, whose name is "". */
export function cohortTree(queues: readonly Queue[]): CohortTree {
  const root: CohortTree = { name: '', cohorts: [], queues: [] }
  for (const queue of queues) {
    if (queue.level !== 'ClusterQueue') continue
    let place = root
    for (const name of [...queue.cohorts].reverse()) {
      let below = place.cohorts.find((each) => each.name === name)
      if (!below) {
        below = { name, cohorts: [], queues: [] }
        place.cohorts.push(below)
      }
      place = below
    }
    place.queues.push(queue)
  }
  return root
}

export function queuesBelow(tree: CohortTree): Queue[] {
  return [...tree.queues, ...tree.cohorts.flatMap(queuesBelow)]
}

// --- attempts ---

const attemptKey = (each: Attempt): string => `${each.namespace}/${each.workload}/${each.reserved}`

/** What is known, with what has come since: all attempts in progress, and those that have ended. The latest end comes first. */
export function withNewer(known: readonly Attempt[], newer: readonly Attempt[], from: number): Attempt[] {
  const fresh = new Set(newer.map(attemptKey))
  // one in progress that is not listed any more has no end that is known: it is gone
  const rest = known.filter((each) => each.ended !== null && each.ended >= from && !fresh.has(attemptKey(each)))
  const all = [...newer, ...rest]
  return all.sort((a, b) => (b.ended ?? Infinity) - (a.ended ?? Infinity) || b.reserved - a.reserved)
}

export interface Losses {
  name: string
  many: number
  gpuHours: number
}

/** What attempts lost, by anything: the costliest first. */
export function lossesBy(attempts: readonly Attempt[], by: (attempt: Attempt) => string): Losses[] {
  const found = new Map<string, Losses>()
  for (const each of attempts) {
    const name = by(each)
    const row = found.get(name) ?? { name, many: 0, gpuHours: 0 }
    row.many += 1
    row.gpuHours += each.lostGpuHours ?? 0
    found.set(name, row)
  }
  return [...found.values()].sort((a, b) => b.gpuHours - a.gpuHours || b.many - a.many)
}

// --- use ---

export const LOST_TO: readonly LostTo[] = ['preemption', 'failure', 'overrun', 'cancel', 'eviction']

/** GPU-hours split so that the parts make the whole: what is idle is no use, and what nobody accounts for is `other`. */
export interface Split {
  useful: number
  starting: number
  idle: number
  lost: Record<LostTo, number>
  lostAll: number
  other: number
}

export function splitOf(row: UsageSum): Split {
  const idle = row.idleGpuHours ?? 0
  const lost = Object.fromEntries(LOST_TO.map((cause) => [cause, row.lost[cause] || 0])) as Record<LostTo, number>
  const lostAll = LOST_TO.reduce((sum, cause) => sum + lost[cause], 0)
  const useful = Math.max(0, Math.min(row.usefulGpuHours, row.gpuHours - row.startingGpuHours - idle - lostAll))
  const other = row.gpuHours - useful - row.startingGpuHours - idle - lostAll
  // what rounding leaves is nothing
  return { useful, starting: row.startingGpuHours, idle, lost, lostAll, other: other > row.gpuHours * 0.005 ? other : 0 }
}

const NO_USE: Omit<UsageSum, 'name'> = {
  hidden: false, jobs: 0, attempts: 0, gpuHours: 0, usefulGpuHours: 0, startingGpuHours: 0, idleGpuHours: null, lost: { preemption: 0, failure: 0, overrun: 0, cancel: 0, eviction: 0 },
  waitedGpuHours: 0, medianWaitSeconds: null, preemptions: 0, weightedGpuHours: null,
}

/** All sums as one. Idle time is known if it is of any. A median of medians is none. */
export function sumOfUse(rows: readonly UsageSum[]): UsageSum {
  const all: UsageSum = { ...NO_USE, name: '', lost: { ...NO_USE.lost } }
  for (const row of rows) {
    all.jobs += row.jobs
    all.attempts += row.attempts
    all.gpuHours += row.gpuHours
    all.usefulGpuHours += row.usefulGpuHours
    all.startingGpuHours += row.startingGpuHours
    if (row.idleGpuHours !== null) all.idleGpuHours = (all.idleGpuHours ?? 0) + row.idleGpuHours
    for (const cause of LOST_TO) all.lost[cause] += row.lost[cause] || 0
    all.waitedGpuHours += row.waitedGpuHours
    all.preemptions += row.preemptions
  }
  return all
}

const dayName = (at: number): string => new Date(at * 1000).toISOString().slice(0, 10)

/** Sums by day, the oldest first, with the days on which nothing ran. Days are those of UTC. */
export function everyDay(rows: readonly UsageSum[], now: number, days: number): UsageSum[] {
  const known = new Map(rows.map((row) => [row.name, row]))
  const first = rows.reduce((least, row) => (row.name < least ? row.name : least), dayName(now - (days - 1) * 86400))
  const found: UsageSum[] = []
  for (let at = Date.parse(`${first}T12:00:00Z`) / 1000; found.length <= 400; at += 86400) {
    const name = dayName(at)
    if (name > dayName(now)) break
    found.push(known.get(name) ?? { ...NO_USE, name })
  }
  return found
}

/** The attempts that wasted most: what was lost, and what was held idle. */
export function wasteOf(attempts: readonly Attempt[], most: number): Attempt[] {
  const wasted = (each: Attempt) => (each.lostGpuHours ?? 0) + (each.idleGpuHours ?? 0)
  return attempts.filter((each) => wasted(each) >= 0.05).sort((a, b) => wasted(b) - wasted(a)).slice(0, most)
}

/** Each queue's part of what the queues of its tree have; those without a cohort share with nobody. */
export function sharesOfTrees(queues: readonly Queue[], amountOf: (queue: Queue) => number): Map<string, number> {
  const root = (queue: Queue) => queue.cohorts.at(-1) ?? ''
  const sums = new Map<string, number>()
  const own = queues.filter((queue) => queue.level === 'ClusterQueue' && root(queue))
  for (const queue of own) sums.set(root(queue), (sums.get(root(queue)) ?? 0) + amountOf(queue))
  return new Map(own.flatMap((queue) => {
    const all = sums.get(root(queue)) ?? 0
    return all > 0 ? [[queue.name, amountOf(queue) / all] as const] : []
  }))
}

export type UsageBy = 'clusterQueue' | 'localQueue' | 'namespace' | 'user' | 'flavor' | 'jobKind'

/** A CSV file. A cell that a spreadsheet would take for a formula begins with an apostrophe. */
export function csv(header: readonly string[], rows: readonly (readonly (string | number | null)[])[]): string {
  const cell = (value: string | number | null): string => {
    if (typeof value === 'number') return String(Math.round(value * 1000) / 1000)
    const text = value === null ? '' : /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
  }
  return [header, ...rows].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n'
}

/**
 * GPUs of each ClusterQueue that others of its tree use. What is borrowed of a flavor is split among those with idle quota of
 * it, by how much each has idle: Kubernetes records who borrows, and not from whom.
 */
export function lentShares(queues: readonly Queue[]): Map<string, number> {
  interface Pool {
    borrowed: number
    idle: Map<string, number>
  }
  const pools = new Map<string, Pool>()
  for (const queue of queues) {
    const root = queue.cohorts[queue.cohorts.length - 1]
    if (queue.level !== 'ClusterQueue' || root === undefined) continue
    for (const quota of queue.quotas) {
      if (!isAccelerator(quota.resource)) continue
      const key = `${root}/${quota.flavor}/${quota.resource}`
      let pool = pools.get(key)
      if (!pool) {
        pool = { borrowed: 0, idle: new Map() }
        pools.set(key, pool)
      }
      const spare = quantity(quota.nominal) - quantity(quota.used)
      const mayLend = quota.lendingLimit === null ? spare : Math.min(spare, quantity(quota.lendingLimit))
      pool.borrowed += quantity(quota.borrowed)
      if (mayLend > 0) pool.idle.set(queue.name, (pool.idle.get(queue.name) ?? 0) + mayLend)
    }
  }
  const found = new Map<string, number>()
  for (const { borrowed, idle } of pools.values()) {
    const all = [...idle.values()].reduce((sum, n) => sum + n, 0)
    for (const [name, n] of idle) found.set(name, (found.get(name) ?? 0) + Math.min(n, (borrowed * n) / all))
  }
  return found
}
