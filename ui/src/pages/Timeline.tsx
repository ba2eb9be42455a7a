/** The page around the timeline: its rows, the past, the record of decisions, and its view in the address. */
import { useCallback, useEffect, useMemo, useRef } from 'react'
import { useNavigate } from 'react-router'
import { useAnswer } from '../api/answers'
import { MOST_ATTEMPTS, useAttempts } from '../api/attempts'
import { useIsLoading, useLive, useTable } from '../api/live'
import { ApiError, request } from '../api/requests'
import type { DecisionList, JobEvent, Listed, PastRun, Queue, Run } from '../api/types'
import { now } from '../clock'
import { InputsDialog } from '../parts/decision'
import { DecisionBook } from '../timeline/record'
import { Timeline, type Outcome, type Question } from '../timeline/Timeline'
import { useLinks, useNamespace, useView } from '../view'
import { jobLabel } from '../words'

const HOUR = 3600
const WEEK = 7 * 86400
const VIEW = ['group', 'span', 'start', 'cursor', 'decision', 'focus', 'find', 'table', 'from'] as const
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
  return `${event.event}: ${jobLabel(event)}${event.text ? `, ${event.text}` : ''}`
}

/** The answer counts from now; the timeline's instants are Unix seconds. */
function inTime(interval: Outcome['before'], at: number): Outcome['before'] {
  return interval && { p50: at + interval.p50, p90: interval.p90 === null ? null : at + interval.p90 }
}

/** The record of a namespace, as the timeline reads it. The server counts both ends of a time back from now. */
function bookOf(namespace: string): DecisionBook {
  return new DecisionBook(async (from, to, limit, signal) => {
    const at = now()
    // whole seconds, and the window is never empty
    const until = Math.max(0, Math.floor(at - to))
    const query = new URLSearchParams({ namespace, since: String(Math.max(until + 1, Math.ceil(at - from))), until: String(until), limit: String(limit) })
    const list = await request<DecisionList>(`api/decisions?${query}`, { signal }).catch((error: unknown) => {
      throw error instanceof ApiError && error.status === 404 ? new Error('This operator does not give its decisions.') : error
    })
    const items = list.items.map((row) => ({
      at: row.at, text: row.text, number: row.number, decision: row.decision, namespace: row.namespace, workload: row.workload, job: jobLabel(row), hidden: row.hidden, by: row.by,
    }))
    return { items, more: list.more ?? false, from: list.from, record: list.record }
  }, now)
}

/** After a run has ended, its attempt is asked for this much later, and not more often. */
const ENDED_MS = 2_000
const SPACED_MS = 20_000

/** Asks for attempts soon after a run has ended: its bar would be gone until the next time. */
function useEnds(runs: readonly Run[], again: () => void): void {
  const before = useRef<ReadonlySet<string>>(new Set())
  const state = useRef({ asked: 0, timer: undefined as ReturnType<typeof setTimeout> | undefined })
  useEffect(() => {
    const running = new Set(runs.filter((run) => run.state === 'Running').map((run) => `${run.metadata.namespace ?? ''}/${run.metadata.name}`))
    const ended = [...before.current].some((key) => !running.has(key))
    before.current = running
    const { current } = state
    if (!ended || current.timer !== undefined) return
    current.timer = setTimeout(() => {
      current.timer = undefined
      current.asked = Date.now()
      again()
    }, Math.max(ENDED_MS, current.asked + SPACED_MS - Date.now()))
  }, [runs, again])
  useEffect(() => {
    const { current } = state
    return () => {
      clearTimeout(current.timer)
      current.timer = undefined
    }
  }, [])
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
  const where = `namespace=${encodeURIComponent(namespace)}`
  const tries = useAttempts(namespace, WEEK)
  useEnds(runs.list, tries.again)
  const attempts = tries.data?.items
  // an operator that has been upgraded lately knows runs from before attempts were kept
  const upgraded = useMemo(() => !tries.data?.more && (attempts ?? []).every((each) => each.reserved > now() - WEEK + HOUR), [attempts, tries.data?.more])
  const runsBefore = useAnswer<Listed<PastRun>>(attempts && upgraded ? `api/past?${where}&since=${WEEK}&limit=${MOST_ATTEMPTS}` : null, 600)
  const past = runsBefore.data?.items
  const events = useAnswer<Listed<JobEvent>>(`api/events?${where}&since=${WEEK}&limit=1000`, 60).data?.items
  const marks = useMemo(() => (events ?? []).map((event) => ({ at: event.at, text: eventText(event) })), [events])
  const book = useMemo(() => bookOf(namespace), [namespace])
  const more = tries.data?.more
  const oldest = attempts?.at(-1)?.ended ?? null
  const since = oldest !== null && more ? oldest : at - WEEK

  const view = useMemo(() => Object.fromEntries(VIEW.flatMap((name) => (address.get(name) ? [[name, address.get(name)]] : []))), [address])
  const onViewChange = useCallback(
    (next: object) => {
      const values = next as Record<string, string | number | boolean | null>
      address.set(Object.fromEntries(VIEW.map((name) => [name, String(values[name] ?? '') === USUAL[name] ? '' : String(values[name] ?? '')])))
    },
    [address],
  )
  const onOpen = useCallback(
    (job: { namespace: string; name: string; kind: string }) => void navigate(links.job({ namespace: job.namespace, jobKind: job.kind, jobName: job.name.slice(job.name.indexOf('/') + 1) })),
    [navigate, links],
  )
  const onOpenLane = useCallback((lane: { node: string } | { queue: string }) => void navigate('node' in lane ? links.node(lane.node) : links.to('/queues', lane)), [navigate, links])
  const onInputs = useCallback((number: number) => address.set({ inputs: String(number) }), [address])

  const onWhatIf = useCallback(
    async (question: Question): Promise<Outcome> => {
      const outcome = await request<Outcome>('api/whatif', { method: 'POST', body: asked(question, namespace, queues.list) })
      return { ...outcome, before: inTime(outcome.before, at), after: inTime(outcome.after, at) }
    },
    [queues, at, namespace],
  )

  return (
    <div className="timeline-page">
      <h1 className="unseen">Timeline</h1>
      {!loading && (
        <Timeline
          live={live} revision={revision} past={past} attempts={attempts} marks={marks} book={book} pastSince={since} now={at} view={view} onViewChange={onViewChange} onOpen={onOpen} onOpenLane={onOpenLane}
          onInputs={onInputs} onWhatIf={onWhatIf} stale={trouble || Date.now() / 1000 - at > STALE * 4} label="Timeline"
        />
      )}
      <InputsDialog />
    </div>
  )
}

function asked(question: Question, namespace: string, queues: readonly Queue[]): { namespace: string; change: object } {
  if ('drain' in question) return { namespace, change: { drain: question.drain } }
  if ('quota' in question) return { namespace, change: question.quota }
  const { queue, ...rest } = question.change
  const { job } = question
  return { namespace: job.namespace, change: { kind: job.kind, name: job.name.slice(job.name.indexOf('/') + 1), ...rest, ...(queue ? { queue: localQueue(queues, job.namespace, queue) } : {}) } }
}
