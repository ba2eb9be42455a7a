/** Past runs that a job may be compared with. The forecast knows more of a job than its name; this is for the eye. */
import type { Job, PastRun } from './api/types'

/** A name without what tells one run from the next: numbers, hashes, dates. */
export function stem(name: string): string {
  const parts = name.split(/[-_.]/)
  while (parts.length > 1 && /\d|^[a-f]{5,}$/.test(parts[parts.length - 1] ?? '')) parts.pop()
  return parts.join('-')
}

const MOST = 150
const ENOUGH = 3

export function similarRuns(job: Job, past: readonly PastRun[]): { runs: PastRun[]; words: string } {
  const ran = past.filter((run) => !run.hidden && run.ranSeconds !== null)
  const wanted = stem(job.jobName)
  const named = ran.filter((run) => stem(run.jobName) === wanted)
  if (named.length >= ENOUGH || !job.user) return { runs: named.slice(0, MOST), words: `of jobs named like it (${wanted})` }
  const hers = ran.filter((run) => run.user === job.user && run.gpus === job.gpus)
  return { runs: hers.slice(0, MOST), words: `of ${job.user} with as many GPUs` }
}
