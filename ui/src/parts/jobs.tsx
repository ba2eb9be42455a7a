/** Jobs as they are named wherever they appear. */
import { Link } from 'react-router'
import type { Job, JobEvent } from '../api/types'
import { useLinks } from '../view'
import { gpus, jobLabel, STATE_WORDS, type ShownState } from '../words'
import { Badge, StateBadge, type Tone } from './badges'
import type { IconName } from './icons'

export function JobLink({ job }: { job: Pick<Job, 'hidden' | 'namespace' | 'jobKind' | 'jobName'> }) {
  const links = useLinks()
  if (job.hidden || !job.jobKind) return <span title={job.hidden ? 'A job of a namespace that you may not read' : undefined}>{jobLabel(job)}</span>
  return (
    <Link to={links.job(job)} title={jobLabel(job)}>
      <span className="kind">{job.jobKind.toLowerCase()}/</span>
      {job.jobName}
    </Link>
  )
}

/** A link to a job that is known by its label only, such as `gpujob/pretrain`. */
export function NamedJob({ namespace, job, hidden }: { namespace: string; job: string; hidden: boolean }) {
  const links = useLinks()
  const [kind, name] = job.split('/')
  if (hidden || !kind || !name || !namespace) return <span>{job}</span>
  return <Link to={links.job({ namespace, jobKind: kind, jobName: name })}>{job}</Link>
}

const EVENT_LOOKS: Record<string, [Tone, IconName, string]> = {
  Submitted: ['wait', 'right', 'Submitted'],
  Deleted: ['idle', 'close', 'Deleted'],
  Recovered: ['good', 'check', 'Recovered'],
  StartMoved: ['wait', 'hourglass', 'Start moved'],
}

export function EventWord({ event }: { event: string }) {
  if (event in STATE_WORDS) return <StateBadge state={event as ShownState} />
  const [tone, icon, word] = EVENT_LOOKS[event] ?? ['idle', 'dash', event]
  return <Badge tone={tone} icon={icon} word={word} />
}

export function EventRow({ event, at }: { event: JobEvent; at: string }) {
  return (
    <li className="event-row">
      <span className="quiet nowrap">{at}</span>
      <EventWord event={event.event} />
      <span className="clip" title={event.text}>
        <JobLink job={event} /> <span className="quiet">{gpus(event.gpus)}{event.text && `: ${event.text}`}</span>
      </span>
    </li>
  )
}
