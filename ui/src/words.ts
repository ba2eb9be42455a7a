/** How the dashboard words durations, instants, amounts and states: as the command line does. */
import type { Interval, Job, JobState, Node } from './api/types'

/** A duration as kubectl prints it: 42s, 3m12s, 47m, 5h10m, 3d4h, 12d. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.trunc(seconds))
  const [minutes, hours, days] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86400)]
  if (s < 120) return `${s}s`
  if (minutes < 10) return s % 60 ? `${minutes}m${s % 60}s` : `${minutes}m`
  if (hours < 3) return `${minutes}m`
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`
  if (hours < 48) return `${hours}h`
  if (days < 8) return hours % 24 ? `${days}d${hours % 24}h` : `${days}d`
  return `${days}d`
}

/** `20m – 47m`, or one duration where both are the same. */
export function durations(p50: number, p90: number | null): string {
  const first = duration(p50)
  if (p90 === null) return `${first} or later`
  const last = duration(p90)
  return first === last ? first : `${first} – ${last}`
}

export function inInterval(interval: Interval | null, now: number): string {
  if (!interval) return ''
  if (interval.p50 - now < 1 && interval.p90 !== null && interval.p90 - now < 1) return 'now'
  return `in ${durations(interval.p50 - now, interval.p90 === null ? null : interval.p90 - now)}`
}

const clockOf = (options: Intl.DateTimeFormatOptions) => {
  const format = new Intl.DateTimeFormat('en-GB', { hourCycle: 'h23', ...options })
  return (seconds: number) => format.format(seconds * 1000)
}
const timeOfDay = clockOf({ hour: '2-digit', minute: '2-digit' })
const timeWithSeconds = clockOf({ hour: '2-digit', minute: '2-digit', second: '2-digit' })
const dayAndTime = clockOf({ weekday: 'short', hour: '2-digit', minute: '2-digit' })
const dateAndTime = clockOf({ day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' })
const dateOnly = clockOf({ day: 'numeric', month: 'short' })
const inFull = clockOf({ dateStyle: 'medium', timeStyle: 'medium' })

export const day = dateOnly
export const fullTime = inFull
export const clockSeconds = timeWithSeconds

/** An instant, as short as the distance from now allows. */
export function clock(at: number, now: number): string {
  const distance = Math.abs(at - now)
  if (distance < 86400 && new Date(at * 1000).getDate() === new Date(now * 1000).getDate()) return timeOfDay(at)
  return distance < 6 * 86400 ? dayAndTime(at) : dateAndTime(at)
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const oneDigit = new Intl.NumberFormat('en', { maximumFractionDigits: 1 })

export function number(value: number): string {
  return whole.format(value)
}

export function decimal(value: number): string {
  return Math.abs(value) >= 100 ? whole.format(value) : oneDigit.format(value)
}

export function percent(part: number, digits = 0): string {
  return `${(part * 100).toFixed(digits)} %`
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${number(n)} ${n === 1 ? one : many}`
}

export function gpus(n: number): string {
  return count(n, 'GPU')
}

export function ordinal(n: number): string {
  const teen = n % 100 >= 11 && n % 100 <= 13
  const suffix = teen ? 'th' : (['th', 'st', 'nd', 'rd'][n % 10] ?? 'th')
  return `${number(n)}${suffix}`
}

export function list(words: readonly string[]): string {
  if (words.length < 2) return words[0] ?? ''
  return `${words.slice(0, -1).join(', ')} and ${words[words.length - 1] ?? ''}`
}

const SUFFIXES: Record<string, number> = {
  m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50,
}

/** The number of a Kubernetes quantity: 8, 500m, 64Gi. 0 where it can't be read. */
export function quantity(text: string | undefined): number {
  const found = /^([+-]?[\d.]+(?:e[+-]?\d+)?)(m|[kMGTP]i?|Ki)?$/.exec(text ?? '')
  return found ? Number(found[1]) * (found[2] ? (SUFFIXES[found[2]] ?? 1) : 1) : 0
}

// as the engine tells accelerators from other resources
const ACCELERATOR =
  /gpu(?![-_.]?(?:mem|core|percent|milli))|\/(?:mig-|[tnh]pu|mlu|dcu|gaudi|neuron|i915|xe$|ascend)|furiosa\.ai\/|rebellions\.ai\//i

export function isAccelerator(resource: string): boolean {
  return ACCELERATOR.test(resource)
}

export function accelerators(amounts: Record<string, string>): number {
  let sum = 0
  for (const [resource, amount] of Object.entries(amounts)) {
    if (!resource.includes('#') && isAccelerator(resource)) sum += quantity(amount)
  }
  return sum
}

// --- states ---

/** States as filters and lights name them: a job that never fits waits in vain, so it has a word of its own. */
export type ShownState = JobState | 'Never fits'

export const STATES: readonly ShownState[] = [
  'Running', 'Starting', 'Reserved', 'Stopping', 'Pending', 'Never fits', 'Inactive', 'Not queued', 'Not managed', 'Failed', 'Succeeded',
]

export function shownState(job: Job): ShownState {
  return job.neverFits && job.state === 'Pending' ? 'Never fits' : job.state
}

export const STATE_WORDS: Record<ShownState, { word: string; means: string }> = {
  Pending: { word: 'Pending', means: 'The job waits in its queue.' },
  Reserved: { word: 'Reserved', means: 'The job holds quota and waits for its admission checks.' },
  Starting: { word: 'Starting', means: 'The job is admitted, and its pods are not all ready yet.' },
  Running: { word: 'Running', means: 'All pods of the job are ready.' },
  Stopping: { word: 'Stopping', means: 'The job was evicted, and its pods still exist.' },
  Succeeded: { word: 'Succeeded', means: 'The job has finished.' },
  Failed: { word: 'Failed', means: 'The job has failed.' },
  Inactive: { word: 'On hold', means: 'The job is deactivated: it is not admitted until it is released.' },
  'Not queued': { word: 'Not queued', means: 'Gangline holds the job, and cannot queue it as it is.' },
  'Not managed': { word: 'Not managed', means: 'Gangline leaves the job alone: it takes no quota.' },
  'Never fits': { word: 'Never fits', means: 'The job asks for more than its queue can ever give.' },
}

export const HOLDING: ReadonlySet<JobState> = new Set(['Reserved', 'Starting', 'Running', 'Stopping'])
export const WAITING: ReadonlySet<JobState> = new Set(['Pending'])
export const OVER: ReadonlySet<JobState> = new Set(['Succeeded', 'Failed'])

/** A job as it is named in lists: `gpujob/pretrain`, or its label where it is of another team. */
export function jobLabel(row: Pick<Job, 'hidden' | 'jobName' | 'jobKind'>): string {
  return row.hidden || !row.jobKind ? row.jobName : `${row.jobKind.toLowerCase()}/${row.jobName}`
}

/** The kinds of decisions of the engine, in a reader's words. */
const DECISIONS: Record<string, string> = {
  Admit: 'Admit', CompleteAdmission: 'Start', AskChecks: 'Ask checks', Preempt: 'Preempt', Evict: 'Evict', Withdraw: 'Give back', Requeue: 'Queue again', ReportPending: 'Wait', Swap: 'Move', Heal: 'Heal', Warn: 'Warn',
}
export const decisionWord = (kind: string): string => DECISIONS[kind] ?? kind

/** By which rule one job gives way to another. */
export const RULES: Record<string, string> = {
  InClusterQueue: 'priority within the queue', InCohortReclamation: 'the cohort reclaims lent quota', InCohortFairSharing: 'fair sharing within the cohort', InCohortReclaimWhileBorrowing: 'reclaims while borrowing',
  prioritization: 'priority within the queue', reclamation: 'the cohort reclaims lent quota',
}

// --- nodes ---

/** Leaving is somebody's wish, or announced; everything else that keeps work off a node is a fault or its aftermath. */
export type Health = 'ready' | 'leaving' | 'soaking' | 'faulty'

const LEAVING: Record<string, string> = {
  Cordoned: 'Somebody cordoned the node.',
  Vacated: 'Gangs are moved off the node.',
  ImpendingTermination: 'The cloud is about to end the node.',
  SpotInterruption: 'The cloud takes the spot node back.',
  ScaleDown: 'The cluster autoscaler removes the node.',
  Disrupted: 'Karpenter replaces the node.',
  Maintenance: 'The node is under maintenance.',
  MaintenanceDue: 'The node’s maintenance is due soon.',
}

const FAULTS: Record<string, string> = {
  NotReady: 'The node’s kubelet says that it is not ready.',
  NotReadyTaint: 'The node’s kubelet says that it is not ready.',
  Unreachable: 'The node’s kubelet does not answer.',
  UnreachableTaint: 'The node’s kubelet does not answer.',
  Silent: 'The node has not been heard of for a time.',
  Deleted: 'The Node object was deleted.',
  Unknown: 'The Node object was never seen.',
  OutOfService: 'Somebody marked the node as out of service.',
  Quarantined: 'A health checker quarantined the node.',
  DevicesMissing: 'The node offers fewer GPUs than are bound there.',
  StuckTerminating: 'Pods on the node do not end.',
  PodsFailed: 'Pods failed by the node’s fault.',
  KernelDeadlock: 'The node’s kernel is stuck.',
  ReadonlyFilesystem: 'The node’s file system is read-only.',
}

export function healthOf(node: Node): Health {
  if (!node.trouble) return 'ready'
  if (node.trouble in LEAVING) return 'leaving'
  return node.trouble === 'Soaking' ? 'soaking' : 'faulty'
}

export const HEALTH_WORDS: Record<Health, { word: string; means: string }> = {
  ready: { word: 'Ready', means: 'The node takes new work.' },
  leaving: { word: 'Leaving', means: 'The node is cordoned or about to leave. It takes no new work.' },
  soaking: { word: 'Soaking', means: 'The node came back, and is watched for a time before it is used again.' },
  faulty: { word: 'Faulty', means: 'The node has a fault. It takes no new work.' },
}

export type WindowState = 'open' | 'emptying' | 'ahead'

/** How far the next window on a node is; null: it is in none. */
export function windowOf({ window }: Node, now: number): WindowState | null {
  if (!window || window.to <= now) return null
  if (window.from <= now) return 'open'
  return window.announced <= now && !window.soft ? 'emptying' : 'ahead'
}

/** The next window on a node as a sentence, "" = it is in none. */
export function windowWords(node: Node, now: number): string {
  const state = windowOf(node, now)
  const window = node.window
  if (!state || !window) return ''
  const what = window.maintenance ? 'In maintenance' : window.soft ? 'Kept for others who need it' : 'Kept for others'
  const when = state === 'open' ? `until ${clock(window.to, now)}` : `from ${clock(window.from, now)} to ${clock(window.to, now)}`
  return `${what} ${when} (Reservation ${window.reservation})${state === 'emptying' ? '; it is being emptied' : ''}.`
}

export function healthReason(node: Node): string {
  const health = healthOf(node)
  return LEAVING[node.trouble] ?? FAULTS[node.trouble] ?? HEALTH_WORDS[health].means
}
