/** The page around the timeline: its rows, the past, and its view in the address. */
import { useCallback, useMemo } from 'react'
import { useNavigate } from 'react-router'
import { useAnswer } from '../api/answers'
import { useIsLoading, useLive, useTable } from '../api/live'
import { request } from '../api/requests'
import type { JobEvent, Listed, PastRun, Queue } from '../api/types'
import { Timeline, type Outcome, type Question } from '../timeline/Timeline'
import { useLinks, useNamespace, useView } from '../view'

const WEEK = 7 * 86400
const MOST = 5000
const VIEW = ['group', 'span', 'start', 'cursor', 'focus', 'find', 'table'] as const
/** What the timeline shows by itself does not stand in the address. */
const USUAL: Record<string, string> = { group: 'queues', span: '86400', table: 'false' }
const STALE = 15

/** The LocalQueue by which a namespace reaches a ClusterQueue. */
function localQueue(queues: readonly Queue[], namespace: string, clusterQueue: string): string {
  const found = queues.find((row) => row.level === 'LocalQueue' && row.namespace === namespace && row.clusterQueue === clusterQueue)
  if (!found) throw new Error(`No LocalQueue of namespace ${namespace} leads to ClusterQueue ${clusterQueue}.`)
  return found.name
}

/** What happened, as one line below the axis. */
function eventText(event: JobEvent): string {
  const job = event.hidden ? event.jobName : `${event.jobKind.toLowerCase()}/${event.jobName}`
  return `${event.event}: ${job}${event.text ? `, ${event.text}` : ''}`
}

/** The answer counts from now; the timeline's instants are Unix seconds. */
function inTime(interval: Outcome['before'], at: number): Outcome['before'] {
  return interval && { p50: at + interval.p50, p90: interval.p90 === null ? null : at + interval.p90 }
}

export function TimelinePage() {
  const namespace = useNamespace()
  const address = useView()
  const links = useLinks()
  const navigate = useNavigate()
  const loading = useIsLoading()
  const revision = useLive((state) => state.revision)
  const at = useLive((state) => state.at)
  const trouble = useLive((state) => state.trouble !== null)
  const [jobs, queues, nodes, runs] = [useTable('jobs'), useTable('queues'), useTable('nodes'), useTable('runs')]
  const live = useMemo(() => ({ jobs: jobs.byId, queues: queues.byId, nodes: nodes.byId, runs: runs.byId }), [jobs, queues, nodes, runs])
  const answer = useAnswer<Listed<PastRun>>(`api/past?namespace=${encodeURIComponent(namespace)}&since=${WEEK}&limit=${MOST}`, 60)
  const past = answer.data?.items
  const events = useAnswer<Listed<JobEvent>>(`api/events?namespace=${encodeURIComponent(namespace)}&since=${WEEK}&limit=1000`, 60).data?.items
  const decisions = useMemo(() => (events ?? []).map((event) => ({ at: event.at, text: eventText(event) })), [events])
  const oldest = past?.[past.length - 1]
  const since = oldest && answer.data?.more ? oldest.ended : at - WEEK

  const view = useMemo(() => Object.fromEntries(VIEW.flatMap((name) => (address.get(name) ? [[name, address.get(name)]] : []))), [address])
  const onViewChange = useCallback(
    (next: object) => {
      const values = next as Record<string, string | number | boolean | null>
      address.set(Object.fromEntries(VIEW.map((name) => [name, String(values[name] ?? '') === USUAL[name] ? '' : String(values[name] ?? '')])))
    },
    [address],
  )
  const onOpen = useCallback((job: { namespace: string; name: string; kind: string }) => void navigate(links.job({ namespace: job.namespace, jobKind: job.kind, jobName: job.name })), [navigate, links])

  const onWhatIf = useCallback(
    async ({ job, change }: Question): Promise<Outcome> => {
      const { queue, ...rest } = change
      const asked = { kind: job.kind, name: job.name, ...rest, ...(queue ? { queue: localQueue(queues.list, job.namespace, queue) } : {}) }
      const told = await request<Outcome>('api/whatif', { method: 'POST', body: { namespace: job.namespace, change: asked } })
      return { ...told, before: inTime(told.before, at), after: inTime(told.after, at) }
    },
    [queues, at],
  )

  return (
    <div className="timeline-page">
      <h1 className="unseen">Timeline</h1>
      {!loading && (
        <Timeline live={live} revision={revision} past={past ?? []} decisions={decisions} pastSince={since} now={at} view={view} onViewChange={onViewChange} onOpen={onOpen} onWhatIf={onWhatIf} stale={trouble || Date.now() / 1000 - at > STALE * 4} label="Timeline" />
      )}
    </div>
  )
}
