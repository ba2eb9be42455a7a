/** What needs a person: each finding with the view that shows it. */
import type { Audit, Job, Node, Queue } from './api/types'
import { count, healthOf, jobLabel, list, shownState } from './words'
import type { Tone } from './parts/badges'
import type { IconName } from './parts/icons'

export interface Light {
  tone: Tone
  icon: IconName
  text: string
  page: string
  query: Record<string, string>
}

const NAMED = 3

function some(names: string[]): string {
  return names.length > NAMED ? `${names.slice(0, NAMED).join(', ')} and ${names.length - NAMED} more` : list(names)
}

export function lights(jobs: readonly Job[], queues: readonly Queue[], nodes: readonly Node[], audits: readonly Audit[], now: number): Light[] {
  const found: Light[] = []
  const add = (tone: Tone, icon: IconName, text: string, page: string, query: Record<string, string> = {}) => found.push({ tone, icon, text, page, query })

  const faulty = nodes.filter((node) => healthOf(node) === 'faulty')
  if (faulty.length) add('bad', 'cross', `${count(faulty.length, 'node')} ${faulty.length === 1 ? 'has' : 'have'} a fault: ${some(faulty.map((node) => `${node.metadata.name} (${node.trouble})`))}.`, '/nodes', { health: 'faulty' })

  const stopped = queues.filter((queue) => queue.level === 'ClusterQueue' && queue.note)
  for (const queue of stopped.slice(0, NAMED)) add('bad', 'warn', `ClusterQueue ${queue.name} admits nothing: ${queue.note}`, '/queues', { queue: queue.name })

  const away = new Map(jobs.flatMap((job) => (job.fallenBack ? [[job.clusterQueue, job.fallenBack] as const] : [])))
  for (const [queue, fallback] of away) add('warn', 'warn', `ClusterQueue ${queue} follows ${modeWords(fallback.mode)} instead of its QueuePolicy.`, '/queues', { queue })

  const by = (state: string) => jobs.filter((job) => shownState(job) === state)
  const never = by('Never fits')
  if (never.length) add('bad', 'never', `${count(never.length, 'job')} will never fit: ${some(never.map(jobLabel))}.`, '/jobs', { state: 'Never fits' })
  const outside = by('Not queued')
  if (outside.length) add('bad', 'warn', `Gangline cannot queue ${count(outside.length, 'job')}: ${some(outside.map(jobLabel))}.`, '/jobs', { state: 'Not queued' })
  const stuck = jobs.filter((job) => job.state === 'Starting' && now - job.since > 300)
  if (stuck.length) add('warn', 'half', `${count(stuck.length, 'job')} ${stuck.length === 1 ? 'has' : 'have'} been starting for more than 5 minutes: ${some(stuck.map(jobLabel))}.`, '/jobs', { state: 'Starting' })
  // a job that waits is warned of its waiting: its row says why
  const warned = jobs.filter((job) => job.warnings.length > 0 && job.state !== 'Starting' && job.state !== 'Pending')
  if (warned.length) add('warn', 'warn', `${count(warned.length, 'job')} ${warned.length === 1 ? 'carries a warning' : 'carry warnings'}: ${some(warned.map(jobLabel))}.`, '/jobs', { only: 'warnings' })
  const failed = jobs.filter((job) => job.state === 'Failed' && now - job.since < 3600)
  if (failed.length) add('warn', 'cross', `${count(failed.length, 'job')} failed within the last hour: ${some(failed.map(jobLabel))}.`, '/jobs', { state: 'Failed', sort: '-since' })

  for (const audit of audits.filter((each) => each.late > 0).slice(0, NAMED)) {
    add('warn', 'hourglass', `ClusterQueue ${audit.clusterQueue} started ${audit.late} of ${count(audit.promised, 'reserved job')} late.`, '/trust', {})
  }
  const leaving = nodes.filter((node) => healthOf(node) === 'leaving')
  if (leaving.length) add('idle', 'pause', `${count(leaving.length, 'node')} ${leaving.length === 1 ? 'takes' : 'take'} no new work: ${some(leaving.map((node) => `${node.metadata.name} (${node.trouble})`))}.`, '/nodes', { health: 'leaving' })
  const held = by('Inactive')
  if (held.length) add('idle', 'pause', `${count(held.length, 'job')} ${held.length === 1 ? 'is' : 'are'} on hold.`, '/jobs', { state: 'Inactive' })
  return found
}

export function modeWords(mode: string): string {
  return { BestEffort: 'best effort', Easy: 'EASY (in order of age, one reservation)' }[mode] ?? mode
}
