/** Who ran, runs and will run, by queue or by node, over time. The view is kept in the address. */
import { useCallback, useMemo } from 'react'
import { useNavigate } from 'react-router'
import { useAnswer } from '../api/answers'
import { useLive } from '../api/live'
import type { Listed, PastRun } from '../api/types'
import { useNow } from '../clock'
import { Timeline as Chart, type View } from '../timeline/Timeline'
import { useLinks, useNamespace, useView } from '../view'

/** seconds of the past that are loaded */
const PAST = 7 * 86_400
const FIELDS = ['group', 'span', 'start', 'cursor', 'focus', 'find', 'table'] as const

export function Timeline() {
  const namespace = useNamespace()
  const address = useView()
  const links = useLinks()
  const navigate = useNavigate()
  const now = useNow()
  const tables = useLive((state) => state.tables)
  const trouble = useLive((state) => state.trouble)
  const live = useMemo(
    () => ({ jobs: tables.jobs.byId, queues: tables.queues.byId, nodes: tables.nodes.byId, runs: tables.runs.byId }),
    [tables],
  )
  const past = useAnswer<Listed<PastRun>>(
    `api/past?namespace=${encodeURIComponent(namespace)}&since=${PAST}&limit=1000`,
    300,
  ).data?.items
  // only the first view is read from the address: from then on the timeline leads
  // eslint-disable-next-line react-hooks/exhaustive-deps
  const view = useMemo(() => Object.fromEntries(FIELDS.map((name) => [name, address.get(name)])), [])
  const keep = useCallback(
    (changed: View) => {
      address.set(Object.fromEntries(FIELDS.map((name) => [name, addressed(changed[name])])))
    },
    [address],
  )
  return (
    <div className="timeline-page">
      <h1>Timeline</h1>
      <Chart
        live={live as never}
        past={past}
        pastSince={Math.floor(now / 300) * 300 - PAST}
        now={now}
        stale={trouble !== null}
        view={view}
        onViewChange={keep}
        onOpen={(job) => {
          void navigate(links.job({ namespace: job.namespace, jobKind: job.kind, jobName: job.name }))
        }}
      />
    </div>
  )
}

function addressed(value: string | number | boolean | null): string {
  return value === null || value === false ? '' : String(value)
}
