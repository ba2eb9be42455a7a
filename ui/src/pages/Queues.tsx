/** The tree of cohorts and ClusterQueues: who owns, uses, borrows and lends what, and who is next. */
import { useMemo } from 'react'
import { Link } from 'react-router'
import { useIsLoading, useTable } from '../api/live'
import type { Job, Queue, Quota } from '../api/types'
import { useNow } from '../clock'
import { cohortTree, lentShares, queuesBelow, type CohortTree } from '../figures'
import { modeWords } from '../lights'
import { Bar, Legend, type BarPart } from '../parts/bars'
import { CloseButton } from '../parts/dialogs'
import { FirstJob } from '../parts/first'
import { JobLink } from '../parts/jobs'
import { Panel, Scroll } from '../parts/panel'
import { useLinks, useView } from '../view'
import { clock, count, decimal, duration, gpus, inInterval, isAccelerator, number, quantity } from '../words'

export function Queues() {
  const view = useView()
  const table = useTable('queues')
  const jobs = useTable('jobs')
  const loading = useIsLoading()
  const tree = useMemo(() => cohortTree(table.list), [table])
  const lent = useMemo(() => lentShares(table.list), [table])
  const next = useMemo(() => firstInLine(jobs.list), [jobs])
  const all = useMemo(() => queuesBelow(tree), [tree])
  const most = Math.max(1, ...all.map((queue) => (queue.nominalGpus ?? 0) + (queue.borrowedGpus ?? 0)))
  const chosen = all.find((queue) => queue.name === view.get('queue'))
  if (loading) return <h1>Queues</h1>
  if (all.length === 0) {
    return (
      <>
        <h1>Queues</h1>
        <FirstJob />
      </>
    )
  }
  return (
    <>
      <div className="page-head">
        <h1>Queues</h1>
        <span className="space" />
        <Legend
          parts={[
            { name: 'used of its own', fill: 'used' }, { name: 'lent', fill: 'lent' }, { name: 'idle', fill: 'free' }, { name: 'borrowed', fill: 'borrowed' },
          ]}
        />
      </div>
      <div className={chosen ? 'split' : ''}>
        <section className="panel" aria-label="Cohorts and ClusterQueues">
          <Scroll label="Cohorts and ClusterQueues">
            <table className="queue-table">
              <thead>
                <tr>
                  <th scope="col">ClusterQueue</th>
                  <th scope="col" className="bar-cell">GPUs</th>
                  <th scope="col" className="number">Used</th>
                  <th scope="col" className="number" title="Nominal quota: what the queue owns">Owns</th>
                  <th scope="col" className="number">Waiting</th>
                  <th scope="col" className="number" title="What it borrows of its dominant resource, per thousand of what its cohort can lend, divided by its weight">Share</th>
                  <th scope="col" className="number" title="Its place among the queues of its cohort, the lowest share first">Rank</th>
                  <th scope="col">Next in line</th>
                </tr>
              </thead>
              <tbody>
                <TreeRows tree={tree} depth={0} most={most} lent={lent} next={next} chosen={chosen?.name ?? ''} />
              </tbody>
            </table>
          </Scroll>
        </section>
        {chosen && <QueueDetail queue={chosen} rows={table.list} jobs={jobs.list} lent={lent.get(chosen.name) ?? 0} onClose={() => view.set({ queue: '' })} />}
      </div>
      {!chosen && <p className="quiet small">A queue’s name opens its flavors, LocalQueues, users and the head of its line.</p>}
    </>
  )
}

function firstInLine(jobs: readonly Job[]): Map<string, Job> {
  const found = new Map<string, Job>()
  for (const job of jobs) if (job.position === 0 && job.state === 'Pending') found.set(job.clusterQueue, job)
  return found
}

interface TreeProps {
  tree: CohortTree
  depth: number
  most: number
  lent: Map<string, number>
  next: Map<string, Job>
  chosen: string
}

function TreeRows(props: TreeProps) {
  const { tree, depth } = props
  const below = queuesBelow(tree)
  const sum = (of: (queue: Queue) => number) => below.reduce((all, queue) => all + of(queue), 0)
  return (
    <>
      {tree.name && (
        <tr className="group-row">
          <th scope="row" style={{ paddingLeft: `${0.85 + (depth - 1) * 1.1}rem` }}>
            cohort {tree.name}
          </th>
          <td className="bar-cell">
            <span className="quiet">{count(below.length, 'queue')}</span>
          </td>
          <td className="number">{number(sum((queue) => queue.usedGpus))}</td>
          <td className="number">{number(sum((queue) => queue.nominalGpus ?? 0))}</td>
          <td className="number">{number(sum((queue) => queue.waiting))}</td>
          <td colSpan={3} />
        </tr>
      )}
      {tree.queues.map((queue) => (
        <QueueRow key={queue.name} queue={queue} {...props} />
      ))}
      {tree.cohorts.map((cohort) => (
        <TreeRows key={cohort.name} {...props} tree={cohort} depth={depth + 1} />
      ))}
    </>
  )
}

function quotaParts(used: number, nominal: number, borrowed: number, lent: number): BarPart[] {
  const own = Math.max(0, used - borrowed)
  const idle = Math.max(0, nominal - own)
  return [
    { name: 'used of its own', amount: own, fill: 'used' },
    { name: 'lent', amount: Math.min(lent, idle), fill: 'lent' },
    { name: 'idle', amount: Math.max(0, idle - lent), fill: 'free' },
    { name: 'borrowed', amount: borrowed, fill: 'borrowed' },
  ]
}

function QueueRow({ queue, depth, most, lent, next, chosen }: { queue: Queue } & TreeProps) {
  const links = useLinks()
  const now = useNow(30)
  const job = next.get(queue.name)
  const nominal = queue.nominalGpus ?? 0
  const borrowed = queue.borrowedGpus ?? 0
  const whole = Math.max(nominal, queue.usedGpus - borrowed) + borrowed
  return (
    <tr aria-selected={queue.name === chosen}>
      <th scope="row" style={{ paddingLeft: `${0.85 + depth * 1.1}rem` }}>
        <Link to={links.to('/queues', { queue: queue.name })}>{queue.name}</Link>
        {queue.note && <span className="quiet"> {queue.note}</span>}
      </th>
      <td className="bar-cell">
        <div style={{ width: `${Math.max(2, (100 * whole) / most)}%` }}>
          <Bar label={queue.name} parts={quotaParts(queue.usedGpus, nominal, borrowed, lent.get(queue.name) ?? 0)} total={whole} {...(borrowed ? { mark: nominal } : {})} />
        </div>
      </td>
      <td className="number">{number(queue.usedGpus)}</td>
      <td className="number">{number(nominal)}</td>
      <td className="number" title={`${count(queue.waiting, 'job')} that ask for ${gpus(queue.pendingGpus)}`}>
        {number(queue.waiting)}
      </td>
      <td className="number">{queue.share === null ? '' : decimal(queue.share)}</td>
      <td className="number">{queue.rank}</td>
      <td className="next-cell">
        {job && (
          <span className="clip">
            <JobLink job={job} />{' '}
            <span className="quiet">
              {gpus(job.gpus)} {job.expectedStart && inInterval(job.expectedStart, now)}
            </span>
          </span>
        )}
      </td>
    </tr>
  )
}

interface DetailProps {
  queue: Queue
  rows: readonly Queue[]
  jobs: readonly Job[]
  lent: number
  onClose: () => void
}

function QueueDetail({ queue, rows, jobs, lent, onClose }: DetailProps) {
  const links = useLinks()
  const now = useNow(30)
  const waiting = jobs.filter((job) => job.clusterQueue === queue.name && job.position !== null && job.state === 'Pending')
  const line = [...waiting].sort((a, b) => (a.position ?? 0) - (b.position ?? 0)).slice(0, 6)
  const away = jobs.find((job) => job.clusterQueue === queue.name && job.fallenBack)?.fallenBack
  const below = rows.filter((row) => row.clusterQueue === queue.name && row.level !== 'ClusterQueue')
  const quotas = [...queue.quotas].sort((a, b) => Number(isAccelerator(b.resource)) - Number(isAccelerator(a.resource)))
  return (
    <div className="side stack">
      <Panel title={`ClusterQueue ${queue.name}`} aside={<CloseButton name="Close the queue" onClose={onClose} />}>
        <div className="stack">
          {queue.note && <p className="notice bad">It admits nothing: {queue.note}</p>}
          {away && (
            <p className="notice">
              It follows {modeWords(away.mode)} instead of its QueuePolicy since {clock(away.since, now)}. {away.message}
            </p>
          )}
          <dl className="facts">
            <dt>Runs</dt>
            <dd>
              <Link to={links.jobs({ cq: queue.name, state: 'Running' })}>{count(queue.running, 'job')}</Link> with {gpus(queue.usedGpus)}
            </dd>
            <dt>Waits</dt>
            <dd>
              <Link to={links.jobs({ cq: queue.name, state: 'Pending' })}>{count(queue.waiting, 'job')}</Link> for {gpus(queue.pendingGpus)}
            </dd>
            <dt>Cohort</dt>
            <dd>{queue.cohorts.length ? `${queue.cohorts.join(', in ')}. It borrows ${gpus(queue.borrowedGpus ?? 0)}, and lends ${number(Math.round(lent))}.` : 'None, so it neither borrows nor lends.'}</dd>
            <dt>Weight</dt>
            <dd>{queue.weight}</dd>
          </dl>
          <div>
            <h3>Quota by flavor</h3>
            <Scroll label="Quota by flavor">
            <table className="plain">
              <thead>
                <tr>
                  <th scope="col">Flavor</th>
                  <th scope="col" className="bar-cell">Use</th>
                  <th scope="col" className="number">Used</th>
                  <th scope="col" className="number">Owns</th>
                </tr>
              </thead>
              <tbody>
                {quotas.map((quota) => {
                  const [used, nominal, borrowed] = [quantity(quota.used), quantity(quota.nominal), quantity(quota.borrowed)]
                  return (
                    <tr key={`${quota.flavor} ${quota.resource}`}>
                      <th scope="row" className="nowrap" title={quota.resource}>
                        {quota.flavor}
                        {!isAccelerator(quota.resource) && <span className="quiet"> {quota.resource}</span>}
                      </th>
                      <td className="bar-cell">
                        <Bar label={quota.flavor} parts={quotaParts(used, nominal, borrowed, 0)} total={nominal + borrowed} {...(borrowed ? { mark: nominal } : {})} />
                      </td>
                      <td className="number">{quota.used}</td>
                      <td className="number">{quota.nominal}</td>
                    </tr>
                  )
                })}
              </tbody>
            </table>
            </Scroll>
            {quotas.map((quota) => limitWords(quota) && <p key={`${quota.flavor} ${quota.resource}`} className="quiet small">{limitWords(quota)}</p>)}
          </div>
        </div>
      </Panel>
      {line.length > 0 && (
        <Panel title="Next in line">
          <ol className="rows">
            {line.map((job) => (
              <li key={job.uid || job.name}>
                <span className="clip">
                  {(job.position ?? 0) + 1}. <JobLink job={job} /> <span className="quiet">{gpus(job.gpus)}</span>
                </span>
                <span className="nowrap">{inInterval(job.expectedStart, now) || <span className="quiet">?</span>}</span>
              </li>
            ))}
          </ol>
        </Panel>
      )}
      {below.length > 0 && (
        <Panel title="LocalQueues and users">
          <Scroll label="LocalQueues and users">
            <table className="plain">
              <thead>
                <tr>
                  <th scope="col">Name</th>
                  <th scope="col" className="number">GPUs</th>
                  <th scope="col" className="number">Waiting</th>
                  <th scope="col" className="number" title="Use so far, averaged over the half-life, divided by the weight">So far</th>
                  <th scope="col" className="number" title="Its turn in the ClusterQueue">Turn</th>
                </tr>
              </thead>
              <tbody>
                {below.map((row) => (
                  <tr key={`${row.level} ${row.namespace} ${row.localQueue} ${row.name}`}>
                    <th scope="row" className={row.level === 'User' ? 'indented' : ''}>
                      {row.hidden ? (
                        row.name
                      ) : row.level === 'User' ? (
                        <Link to={links.jobs({ user: row.name, queue: row.localQueue })}>{row.name}</Link>
                      ) : (
                        <>
                          <Link to={links.jobs({ queue: row.name })}>{row.name}</Link> <span className="quiet">{row.namespace}</span>
                        </>
                      )}
                    </th>
                    <td className="number">{number(row.usedGpus)}</td>
                    <td className="number">{number(row.pendingGpus)}</td>
                    <td className="number">{row.fairUsage === null ? '' : decimal(row.fairUsage)}</td>
                    <td className="number">{row.rank}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
          <HalfLife rows={below} />
        </Panel>
      )}
    </div>
  )
}

function limitWords(quota: Quota): string {
  const found = [quota.borrowingLimit === null ? '' : `borrows ${quota.borrowingLimit} at most`, quota.lendingLimit === null ? '' : `lends ${quota.lendingLimit} at most`].filter(Boolean)
  return found.length ? `Of ${quota.flavor} the queue ${found.join(' and ')}.` : ''
}

function HalfLife({ rows }: { rows: Queue[] }) {
  const known = rows.find((row) => row.halfLifeSeconds)?.halfLifeSeconds
  if (!known) return null
  return <p className="quiet small">Use so far counts half after {duration(known)}: who used less gets the next turn.</p>
}
