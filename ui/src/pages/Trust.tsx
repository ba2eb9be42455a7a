/** Whether Gangline does as it says: forecasts, promised starts, reservations, preemptions, swaps. */
import { useMemo } from 'react'
import { useAnswer } from '../api/answers'
import type { Accuracy, Audit, JobEvent, Listed, PromiseRecord, Swap } from '../api/types'
import { useNow } from '../clock'
import { Badge } from '../parts/badges'
import { Bar } from '../parts/bars'
import { NamedJob, JobLink } from '../parts/jobs'
import { Empty, Panel, Scroll, Told } from '../parts/panel'
import { DataTable, type Column } from '../parts/table'
import { useLinks, useNamespace, useView } from '../view'
import { clock, count, duration, fullTime, gpus, list, number, percent } from '../words'
import { Link } from 'react-router'
import { promisesKept } from './Now'

const DAY = 86400

export function Trust() {
  const namespace = useNamespace()
  const where = `namespace=${encodeURIComponent(namespace)}`
  const accuracy = useAnswer<Accuracy>(`api/accuracy?${where}`, 60)
  const audits = useAnswer<Listed<Audit>>(`api/audits?${where}`, 60)
  const swaps = useAnswer<Listed<Swap>>(`api/swaps?${where}`, 60)
  const events = useAnswer<Listed<JobEvent>>(`api/events?${where}&since=${DAY}`, 60)
  const now = useNow(60)
  return (
    <>
      <div className="page-head">
        <h1>Trust</h1>
        <span className="quiet">Does Gangline do as it says?</span>
      </div>
      <Sums accuracy={accuracy.data} audits={audits.data?.items ?? []} events={events.data?.items ?? []} now={now} />
      <div className="grid halves">
        <Panel title="Promised starts, by queue" aside={<span className="quiet small">p90 should hold nine times in ten</span>}>
          <Told answer={accuracy}>{(data) => <Promises queues={data.queues} />}</Told>
        </Panel>
        <Panel title="Forecasts of run times, by source" aside={<span className="quiet small">{accuracy.data?.since ? `counted since ${clock(accuracy.data.since, now)}` : ''}</span>}>
          <Told answer={accuracy}>{(data) => <Forecasts accuracy={data} />}</Told>
        </Panel>
        <Panel className="across" title="Reserved starts" aside={<span className="quiet small">since this leader began</span>}>
          <Told answer={audits}>{(data) => <Audits audits={data.items} now={now} />}</Told>
        </Panel>
        <Panel className="across" title="Preemptions" aside={<span className="quiet small">of the last day, as far as the leader remembers</span>}>
          <Told answer={events}>{(data) => <Preemptions events={data.items} />}</Told>
        </Panel>
        <Panel className="across" title="Swaps" aside={<span className="quiet small">gangs that lost nodes, and how long each stage took</span>}>
          <Told answer={swaps}>{(data) => <Swaps swaps={data.items} now={now} />}</Told>
        </Panel>
      </div>
    </>
  )
}

function Sums({ accuracy, audits, events, now }: { accuracy: Accuracy | undefined; audits: Audit[]; events: JobEvent[]; now: number }) {
  const kept = promisesKept(accuracy)
  const promised = audits.reduce((sum, each) => sum + each.promised, 0)
  const late = audits.reduce((sum, each) => sum + each.late, 0)
  const starts = accuracy?.starts
  const stopped = preemptions(events).length
  return (
    <div className="tiles">
      <div className="tile">
        <div className="tile-name">p90 held</div>
        <div className="tile-value">{kept ? percent(kept.held) : '–'}</div>
        <div className="tile-note">{kept ? `of ${count(kept.starts, 'start')}` : 'No promise is over yet'}</div>
      </div>
      <div className="tile">
        <div className="tile-name">p50 held</div>
        <div className="tile-value">{starts?.starts ? percent(starts.withinP50) : '–'}</div>
        <div className="tile-note">{starts?.starts ? `The median error is ${duration(starts.medianErrorSeconds)}` : 'No start is checked yet'}</div>
      </div>
      <div className="tile">
        <div className="tile-name">Reserved jobs late</div>
        <div className="tile-value">
          {number(late)} <small>of {number(promised)}</small>
        </div>
        <div className="tile-note">since this leader began</div>
      </div>
      <div className="tile">
        <div className="tile-name">Preemptions</div>
        <div className="tile-value">{number(stopped)}</div>
        <div className="tile-note">within a day</div>
      </div>
      <div className="tile">
        <div className="tile-name">Forecast model</div>
        <div className="tile-value">{accuracy?.model ? (accuracy.model.used ? 'in use' : 'off') : '–'}</div>
        <div className="tile-note clip" title={accuracy?.model?.reason}>
          {accuracy?.since ? `counted for ${duration(now - accuracy.since)}` : ''}
        </div>
      </div>
    </div>
  )
}

/** A share against its aim: below, at or above it. */
function Held({ name, share, aim, starts }: { name: string; share: number; aim: number; starts: number }) {
  // with so few cases a share is not known better than this
  const error = 2 * Math.sqrt((aim * (1 - aim)) / Math.max(1, starts))
  const low = share < aim - error
  return (
    <div className="held">
      <Bar label={`${name}, in per cent`} total={100} mark={aim * 100} parts={[{ name: 'held', amount: share * 100, fill: low ? 'bad' : 'used' }, { name: 'not held', amount: 100 - share * 100, fill: 'free' }]} />
      <span className="number">{percent(share)}</span>
    </div>
  )
}

function Promises({ queues }: { queues: Record<string, PromiseRecord> }) {
  const links = useLinks()
  const rows = Object.entries(queues).sort((a, b) => b[1].starts - a[1].starts)
  if (!rows.length) return <Empty>No promised start is over yet.</Empty>
  return (
    <Scroll label="Promised starts">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">ClusterQueue</th>
            <th scope="col" className="number">Starts</th>
            <th scope="col">p50 held</th>
            <th scope="col">p90 held</th>
            <th scope="col" className="number" title="The median error of p50, as a part of the wait">Error</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([queue, record]) => (
            <tr key={queue}>
              <th scope="row">
                <Link to={links.to('/queues', { queue })}>{queue}</Link>
              </th>
              <td className="number">{number(record.starts)}</td>
              <td><Held name="p50 held" share={record.withinP50} aim={0.5} starts={record.starts} /></td>
              <td><Held name="p90 held" share={record.withinP90} aim={0.9} starts={record.starts} /></td>
              <td className="number">{percent(record.medianError)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  )
}

const SOURCES: Record<string, string> = { hint: 'the author’s hint', limit: 'the limit', history: 'earlier runs', model: 'the model', kept: 'kept declarations' }

function Forecasts({ accuracy }: { accuracy: Accuracy }) {
  if (!accuracy.items.length) return <Empty>No forecast can be checked yet: no job has finished.</Empty>
  return (
    <>
      <Scroll label="Forecasts">
        <table className="plain">
          <thead>
            <tr>
              <th scope="col">Forecast by</th>
              <th scope="col" className="number">Runs</th>
              <th scope="col">Within p50</th>
              <th scope="col">Within p90</th>
              <th scope="col" className="number" title="By which factor the run time typically differs from p50">Factor</th>
            </tr>
          </thead>
          <tbody>
            {accuracy.items.map((row) => (
              <tr key={row.source}>
                <th scope="row">{SOURCES[row.source] ?? row.source}</th>
                <td className="number">{number(row.runs)}</td>
                <td><Held name="within p50" share={row.within['0.5'] ?? 0} aim={0.5} starts={row.runs} /></td>
                <td><Held name="within p90" share={row.within['0.9'] ?? 0} aim={0.9} starts={row.runs} /></td>
                <td className="number">{row.factor.toFixed(2)}×</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {accuracy.model?.reason && <p className="quiet small pad-top">{capital(accuracy.model.reason)}.</p>}
    </>
  )
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, '')
}

const CAUSES: Record<string, string> = {
  backfill: 'backfilled jobs ran too long', loss_budget: 'the loss budget spared backfilled jobs', early_end: 'another run ended early', stopping: 'pods were still ending',
}

function Audits({ audits, now }: { audits: Audit[]; now: number }) {
  const rows = [...audits].sort((a, b) => b.late - a.late || b.promised - a.promised)
  if (!rows.length) return <Empty>No queue gives reservations. The field backfill of a QueuePolicy turns them on.</Empty>
  const starts = rows.flatMap((audit) => audit.starts.map((start) => ({ ...start, queue: audit.clusterQueue }))).sort((a, b) => Number(isLate(b)) - Number(isLate(a)) || b.started - a.started)
  return (
    <div className="grid halves">
      <Scroll label="Reserved starts">
        <table className="plain">
          <thead>
            <tr>
              <th scope="col">ClusterQueue</th>
              <th scope="col" className="number">Promised</th>
              <th scope="col" className="number">Late</th>
              <th scope="col" className="number">By</th>
              <th scope="col">What kept its heads waiting</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((audit) => {
              const causes = Object.entries(audit.delaySeconds).filter(([, seconds]) => seconds >= 1)
              return (
                <tr key={audit.clusterQueue}>
                  <th scope="row">{audit.clusterQueue}</th>
                  <td className="number">{number(audit.promised)}</td>
                  <td className="number">{number(audit.late)}</td>
                  <td className="number">{audit.late ? duration(audit.lateSeconds) : ''}</td>
                  <td className="words">{causes.length ? list(causes.map(([cause, seconds]) => `${duration(seconds)}: ${CAUSES[cause] ?? cause}`)) : <span className="quiet">nothing did</span>}</td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </Scroll>
      {starts.length > 0 && (
        <Scroll label="Last reserved starts">
          <table className="plain">
            <thead>
              <tr>
                <th scope="col">Last reserved starts, late ones first</th>
                <th scope="col">Promised</th>
                <th scope="col">Started</th>
                <th scope="col" className="number">Difference</th>
              </tr>
            </thead>
            <tbody>
              {starts.slice(0, 8).map((start) => {
                const late = start.promised === null ? null : start.started - start.promised
                return (
                  <tr key={`${start.queue}${start.job}${start.started}`}>
                    <td><NamedJob namespace={start.namespace} job={start.job} hidden={!start.namespace} /></td>
                    <td className="nowrap">{start.promised === null ? '?' : clock(start.promised, now)}</td>
                    <td className="nowrap">{clock(start.started, now)}</td>
                    <td className="number nowrap">{late === null ? '' : isLate(start) ? <Badge tone="bad" icon="cross" word={`${duration(late)} late`} /> : <Badge tone="good" icon="check" word={late < -1 ? `${duration(-late)} early` : 'on time'} />}</td>
                  </tr>
                )
              })}
            </tbody>
          </table>
        </Scroll>
      )}
    </div>
  )
}

function isLate(start: Audit['starts'][number]): boolean {
  return start.promised !== null && start.started - start.promised > 1
}

// --- preemptions ---

interface Preemption {
  event: JobEvent
  by: string
  rule: string
}

export function preemptions(events: readonly JobEvent[]): Preemption[] {
  return events.flatMap((event) => {
    if (event.event !== 'Stopping') return []
    const found = /^preempted for (.+?) \(([^()]+)\)/i.exec(event.text)
    if (found) return [{ event, by: found[1] ?? '', rule: found[2] ?? '' }]
    return event.reason === 'Preempted' ? [{ event, by: '', rule: '' }] : []
  })
}

const RULES: Record<string, string> = {
  InClusterQueue: 'priority within the queue', InCohortReclamation: 'the cohort reclaims lent quota', InCohortFairSharing: 'fair sharing within the cohort', InCohortReclaimWhileBorrowing: 'reclaims while borrowing',
  prioritization: 'priority within the queue', reclamation: 'the cohort reclaims lent quota',
}

function Time({ at }: { at: number }) {
  const now = useNow(60)
  return <span title={fullTime(at)}>{clock(at, now)}</span>
}

const LEDGER: readonly Column<Preemption>[] = [
  { id: 'at', header: 'At', value: (row) => row.event.at, cell: (row) => <Time at={row.event.at} />, width: 6.4, largestFirst: true },
  { id: 'job', header: 'Stopped', value: (row) => row.event.jobName, cell: (row) => <JobLink job={row.event} />, width: 15 },
  { id: 'user', header: 'User', value: (row) => row.event.user, width: 6, from: 50 },
  { id: 'gpus', header: 'GPUs', value: (row) => row.event.gpus, number: true, width: 4, largestFirst: true },
  { id: 'queue', header: 'ClusterQueue', value: (row) => row.event.clusterQueue, width: 8, from: 60 },
  { id: 'by', header: 'For', value: (row) => row.by || 'not known', width: 15, from: 36 },
  { id: 'rule', header: 'Rule', value: (row) => RULES[row.rule] ?? row.rule, from: 44 },
]
const idOfPreemption = (row: Preemption) => row.event.metadata.uid

function Preemptions({ events }: { events: JobEvent[] }) {
  const view = useView()
  const rows = useMemo(() => preemptions(events).reverse(), [events])
  if (!rows.length) return <Empty>No job was preempted.</Empty>
  const rules = new Map<string, number>()
  for (const row of rows) rules.set(row.rule, (rules.get(row.rule) ?? 0) + row.event.gpus)
  return (
    <>
      <p className="quiet small">{list([...rules].sort((a, b) => b[1] - a[1]).map(([rule, n]) => `${gpus(n)} by the rule “${RULES[rule] ?? (rule || 'not known')}”`))}.</p>
      <DataTable plain label="Preemptions" rows={rows.slice(0, 50)} id={idOfPreemption} columns={LEDGER} sort={view.get('preempted')} onSort={(preempted) => view.set({ preempted })} />
      {rows.length > 50 && <p className="quiet small">The last 50 of {number(rows.length)} are shown.</p>}
    </>
  )
}

const STAGES: readonly [string, string, string][] = [['decided', 'decide', 'wait'], ['created', 'make pods', 'borrowed'], ['running', 'start pods', 'used']]

function Swaps({ swaps, now }: { swaps: Swap[]; now: number }) {
  if (!swaps.length) return <Empty>No gang lost a node.</Empty>
  const most = Math.max(...swaps.map((swap) => Object.entries(swap.seconds).reduce((sum, [stage, n]) => sum + (stage === 'total' ? 0 : n), 0)), 1)
  return (
    <Scroll label="Swaps">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">At</th>
            <th scope="col">Gang</th>
            <th scope="col" className="number">GPUs</th>
            <th scope="col">State</th>
            <th scope="col">Cause</th>
            <th scope="col">From → to</th>
            <th scope="col" className="bar-cell">Stages</th>
            <th scope="col" className="number">Took</th>
          </tr>
        </thead>
        <tbody>
          {swaps.slice(0, 30).map((swap, index) => {
            const parts = STAGES.map(([stage, name, fill]) => ({ name, amount: swap.seconds[stage] ?? 0, fill }))
            const whole = parts.reduce((sum, part) => sum + part.amount, 0)
            const total = swap.seconds['total']
            return (
              <tr key={index}>
                <td className="nowrap">{swap.times['detected'] ? clock(swap.times['detected'], now) : ''}</td>
                <td className="nowrap"><NamedJob {...swap} /></td>
                <td className="number">{number(swap.gpus)}</td>
                <td>{swap.state === 'Recovered' ? <Badge tone="good" icon="check" word="Recovered" /> : <Badge tone="busy" icon="half" word="Recovering" />}</td>
                <td>{swap.cause}</td>
                <td className="words">{swap.from.length ? `${swap.from.join(', ')} → ${swap.to.join(', ') || '?'}` : ''}</td>
                <td className="bar-cell">
                  <div style={{ width: `${Math.max(3, (100 * whole) / most)}%` }} title={parts.map((part) => `${part.name} ${part.amount.toFixed(1)}s`).join(', ')}>
                    <Bar label={`Seconds of the stages of ${swap.job}`} parts={parts} total={whole} />
                  </div>
                </td>
                <td className="number nowrap">{total === undefined ? '…' : duration(total)}</td>
              </tr>
            )
          })}
        </tbody>
      </table>
    </Scroll>
  )
}
