/** The tree of cohorts and ClusterQueues: who owns, uses, borrows and lends what, and who is next. */
import { useMemo } from 'react'
import { Link } from 'react-router'
import { useAnswer } from '../api/answers'
import { useIsLoading, useTable } from '../api/live'
import type { Job, Listed, Queue, Quota, UsageSum } from '../api/types'
import { useNow } from '../clock'
import { cohortTree, lentShares, plannedGpus, queuesBelow, sharesOfTrees, type CohortTree } from '../figures'
import { modeWords } from '../lights'
import { AsOfField, AsOfPanels, useAsOf } from '../parts/asof'
import { Bar, Legend, type BarPart } from '../parts/bars'
import { CloseButton } from '../parts/dialogs'
import { FirstJob } from '../parts/first'
import { JobLink } from '../parts/jobs'
import { Panel, Scroll } from '../parts/panel'
import { useLinks, useNamespace, useView } from '../view'
import { clock, count, decimal, duration, gpus, inInterval, isAccelerator, number, percent, quantity } from '../words'

export function Queues() {
  const view = useView()
  const table = useTable('queues')
  const jobs = useTable('jobs')
  const loading = useIsLoading()
  const tree = useMemo(() => cohortTree(table.list), [table])
  const lent = useMemo(() => lentShares(table.list), [table])
  const next = useMemo(() => firstInLine(jobs.list), [jobs])
  const all = useMemo(() => queuesBelow(tree), [tree])
  const shares = useShares(table.list)
  const asOf = useAsOf()
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
        <AsOfField asOf={asOf} />
        <span className="space" />
        <Legend
          parts={[
            { name: 'used of its own', fill: 'used' }, { name: 'lent', fill: 'lent' }, { name: 'idle', fill: 'free' }, { name: 'borrowed', fill: 'borrowed' },
          ]}
        />
      </div>
      <AsOfPanels asOf={asOf} quotas />
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
                  <th scope="col" title="Its part of what its cohort’s queues use: now, and over half-lives of 1, 7 and 30 days. The line is the part that its weight gives it.">Over time</th>
                  <th scope="col" className="number" title="Its place among the queues of its cohort, the lowest share first">Rank</th>
                  <th scope="col">Next in line</th>
                </tr>
              </thead>
              <tbody>
                <TreeRows tree={tree} depth={0} most={most} lent={lent} next={next} shares={shares} chosen={chosen?.name ?? ''} />
              </tbody>
            </table>
          </Scroll>
        </section>
        {chosen && <QueueDetail queue={chosen} rows={table.list} jobs={jobs.list} lent={lent.get(chosen.name) ?? 0} shares={shares.get(chosen.name)} onClose={() => view.set({ queue: '' })} />}
      </div>
      {!chosen && <p className="quiet small">A queue’s name opens its flavors, LocalQueues, users and the head of its line.</p>}
    </>
  )
}

// --- what a queue used over time, beside what its weight gives it ---

const HALF_LIVES: readonly [string, number][] = [['1 day', 1], ['7 days', 7], ['30 days', 30]]
/** After so many half-lives, use counts for nothing. */
const HALVES = 6
const LONGEST = 180

interface Shares {
  /** by its weight */
  fair: number
  /** now, and over each half-life; null where it is not known */
  parts: { name: string; share: number | null }[]
}

/** Each answer is asked for once the one before has come: an operator that has none is asked once. */
function useShares(queues: readonly Queue[]): Map<string, Shares> {
  const namespace = useNamespace()
  const path = (days: number) => `api/usage?namespace=${encodeURIComponent(namespace)}&by=clusterQueue&since=${Math.min(LONGEST, days * HALVES) * 86400}&halfLife=${days * 86400}`
  const day = useAnswer<Listed<UsageSum>>(path(1), 300).data
  const week = useAnswer<Listed<UsageSum>>(day ? path(7) : null, 300).data
  const month = useAnswer<Listed<UsageSum>>(week ? path(30) : null, 300).data
  return useMemo(() => {
    const fair = sharesOfTrees(queues, (queue) => quantity(queue.weight) || 0)
    const found = [day, week, month].map((answer) => {
      const hours = new Map(answer?.items.map((row) => [row.name, row.weightedGpuHours ?? 0]))
      return answer ? sharesOfTrees(queues, (queue) => hours.get(queue.name) ?? 0) : null
    })
    const instant = sharesOfTrees(queues, (queue) => queue.usedGpus)
    return new Map(
      [...fair].map(([name, share]) => [
        name,
        { fair: share, parts: [{ name: 'now', share: instant.get(name) ?? null }, ...HALF_LIVES.map(([word], i) => ({ name: word, share: found[i]?.get(name) ?? null }))] },
      ]),
    )
  }, [queues, day, week, month])
}

function shareWords({ fair, parts }: Shares): string {
  return `${parts.map(({ name, share }) => `${name} ${share === null ? 'not known' : percent(share)}`).join(', ')}; its weight gives it ${percent(fair)}`
}

function ShareBars({ name, shares }: { name: string; shares: Shares | undefined }) {
  if (!shares) return <span className="quiet" title="It has no cohort, so it shares with nobody">–</span>
  const most = Math.max(shares.fair, ...shares.parts.map((part) => part.share ?? 0), 0.01)
  return (
    <span className="shares" role="img" aria-label={`Share of ${name}: ${shareWords(shares)}`} title={shareWords(shares)}>
      {shares.parts.map((part) => (
        <i key={part.name} className={part.name === 'now' ? 'fill-used' : 'fill-plan'} style={{ height: `${(100 * (part.share ?? 0)) / most}%` }} />
      ))}
      <b style={{ bottom: `${(100 * shares.fair) / most}%` }} />
    </span>
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
  shares: Map<string, Shares>
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
          <td colSpan={4} />
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

function QueueRow({ queue, depth, most, lent, next, shares, chosen }: { queue: Queue } & TreeProps) {
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
      <td className="number">
        {number(nominal)}
        <Planned queue={queue} />
      </td>
      <td className="number" title={`${count(queue.waiting, 'job')} that ask for ${gpus(queue.pendingGpus)}`}>
        {number(queue.waiting)}
      </td>
      <td className="number">{queue.share === null ? '' : decimal(queue.share)}</td>
      <td><ShareBars name={queue.name} shares={shares.get(queue.name)} /></td>
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

/** Below what a queue owns now: what its spec says, and what it owns next, where a plan gives it its quota. */
function Planned({ queue }: { queue: Queue }) {
  const now = useNow(30)
  const found = plannedGpus(queue)
  if (!found) return null
  const at = queue.plan?.changesAt ?? null
  return (
    <div className="quiet small nowrap">
      {found.written !== (queue.nominalGpus ?? 0) && <div>{number(found.written)} in its spec</div>}
      {found.next !== null && at !== null && <div>{`${number(found.next)} from ${clock(at, now)}`}</div>}
    </div>
  )
}

interface DetailProps {
  queue: Queue
  rows: readonly Queue[]
  jobs: readonly Job[]
  lent: number
  shares: Shares | undefined
  onClose: () => void
}

function QueueDetail({ queue, rows, jobs, lent, shares, onClose }: DetailProps) {
  const links = useLinks()
  const now = useNow(30)
  const waiting = jobs.filter((job) => job.clusterQueue === queue.name && job.position !== null && job.state === 'Pending')
  const line = [...waiting].sort((a, b) => (a.position ?? 0) - (b.position ?? 0)).slice(0, 6)
  const away = jobs.find((job) => job.clusterQueue === queue.name && job.fallenBack)?.fallenBack
  const below = rows.filter((row) => row.clusterQueue === queue.name && row.level !== 'ClusterQueue')
  const planned = queue.quotas.some((quota) => quota.written !== undefined)
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
            {queue.plan && (
              <>
                <dt>Quota plan</dt>
                <dd>
                  {queue.plan.name}
                  {queue.plan.activeOverrides.length > 0 && `, now ${queue.plan.activeOverrides.join(', ')}`}
                  {queue.plan.changesAt !== null &&
                    `. It changes at ${clock(queue.plan.changesAt, now)}: ${queue.plan.nextQuotas.map((quota) => `${quota.nominalQuota} ${quota.resource} of ${quota.flavor}`).join(', ')}`}
                </dd>
              </>
            )}
          </dl>
          {shares && (
            <div>
              <h3>Its part of the cohort’s use</h3>
              <Scroll label="Share over time">
                <table className="plain">
                  <thead>
                    <tr>
                      <th scope="col">Half-life</th>
                      <th scope="col" className="bar-cell">Share</th>
                      <th scope="col" className="number">Part</th>
                    </tr>
                  </thead>
                  <tbody>
                    {shares.parts.map((part) => (
                      <tr key={part.name}>
                        <th scope="row">{part.name}</th>
                        <td className="bar-cell">
                          <Bar label={`Share, ${part.name}, in per cent`} total={100} mark={shares.fair * 100} parts={[{ name: 'its part', amount: (part.share ?? 0) * 100, fill: part.name === 'now' ? 'used' : 'plan' }]} />
                        </td>
                        <td className="number">{part.share === null ? '?' : percent(part.share)}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </Scroll>
              <p className="quiet small">The mark is the part that its weight gives it: {percent(shares.fair)}. A GPU-hour counts half after each half-life.</p>
            </div>
          )}
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
                  {planned && <th scope="col" className="number" title="The nominal quota of the ClusterQueue’s spec">In its spec</th>}
                  {planned && <th scope="col" className="number">Next</th>}
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
                      {planned && <td className="number">{quota.written ?? ''}</td>}
                      {planned && <td className="number">{quota.next ?? ''}</td>}
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
