/** Which jobs a view shows, and in which order. */
import type { Job } from './api/types'
import { HOLDING, jobLabel, OVER } from './words'

/** The order of `gangline queue`: what holds quota, then what waits in its order, then the rest. */
export function displayOrder(a: Job, b: Job): number {
  const rank = (job: Job) => (HOLDING.has(job.state) ? 0 : job.state === 'Pending' ? 1 : OVER.has(job.state) || job.state === 'Inactive' ? 2 : 3)
  const [x, y] = [rank(a), rank(b)]
  if (x !== y) return x - y
  const byQueue = a.clusterQueue < b.clusterQueue ? -1 : a.clusterQueue > b.clusterQueue ? 1 : 0
  if (x === 2) return b.since - a.since
  return byQueue || (x === 0 ? b.priority - a.priority || a.since - b.since : (a.position ?? 1e9) - (b.position ?? 1e9))
}

/** Whether a job passes all filters but that of states, whose chips count what the others leave. */
export function matches(job: Job, filter: Filter): boolean {
  if (filter.queue && job.queue !== filter.queue) return false
  if (filter.clusterQueue && job.clusterQueue !== filter.clusterQueue) return false
  if (filter.user && job.user !== filter.user) return false
  if (filter.only === 'warnings' && job.warnings.length === 0) return false
  const noted = filter.noted?.get(job.uid)
  if (filter.annotations?.some(([key, value]) => noted?.[key] !== value)) return false
  if (!filter.words.length) return true
  const text = `${jobLabel(job)} ${job.namespace} ${job.user} ${job.queue} ${job.clusterQueue} ${job.flavors.join(' ')} ${job.why} ${noted ? Object.values(noted).join(' ') : ''}`.toLowerCase()
  return filter.words.every((word) => text.includes(word))
}

export interface Filter {
  states: ReadonlySet<string>
  queue: string
  clusterQueue: string
  user: string
  only: string
  words: string[]
  /** key and value of annotations that a job must have */
  annotations?: [string, string][]
  /** annotations of jobs, by uid */
  noted?: ReadonlyMap<string, Record<string, string>>
}

/** So many columns the operator answers for. */
export const MOST_KEYS = 4

/** A key of an annotation, as Kubernetes has it: `example.com/project`. */
export function isAnnotationKey(text: string): boolean {
  return text.length <= 317 && /^([a-z0-9]([-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/.test(text)
}
