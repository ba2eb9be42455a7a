/** Who used what: GPU-hours that were useful, idle or lost, and the attempts that wasted most. */
import { useMemo } from 'react'
import { Link } from 'react-router'
import uPlot from 'uplot'
import { useAnswer } from '../api/answers'
import { MOST_ATTEMPTS } from '../api/attempts'
import type { Attempt, Listed, LostTo, UsageSum } from '../api/types'
import { useNow } from '../clock'
import { csv, everyDay, LOST_TO, splitOf, sumOfUse, wasteOf, type Split, type UsageBy } from '../figures'
import { Badge } from '../parts/badges'
import { AttemptEnd, lostWords } from '../parts/attempts'
import { Bar, Legend, type BarPart } from '../parts/bars'
import { Chart, timeAxis, type Palette } from '../parts/chart'
import { JobLink } from '../parts/jobs'
import { Empty, Panel, AnswerContent } from '../parts/panel'
import { DataTable, type Column } from '../parts/table'
import { useLinks, useNamespace, useView } from '../view'
import { clock, count, day, decimal, duration, jobLabel, number, percent } from '../words'

const BY: readonly [UsageBy, string][] = [['clusterQueue', 'ClusterQueue'], ['localQueue', 'LocalQueue'], ['namespace', 'Namespace'], ['user', 'User'], ['flavor', 'Flavor'], ['jobKind', 'Kind of job']]
const DAYS = [1, 7, 30, 90, 180]
const WORST = 30

export function Use() {
  const view = useView()
  const namespace = useNamespace()
  const days = DAYS.find((each) => String(each) === view.get('days')) ?? 7
  const by = BY.find(([id]) => id === view.get('by'))?.[0] ?? 'clusterQueue'
  const where = `namespace=${encodeURIComponent(namespace)}&since=${days * 86400}`
  const sums = useAnswer<Listed<UsageSum>>(`api/usage?${where}&by=${by}`, 300)
  const byDay = useAnswer<Listed<UsageSum>>(`api/usage?${where}&by=day`, 300)
  const attempts = useAnswer<Listed<Attempt>>(`api/attempts?${where}&limit=${MOST_ATTEMPTS}`, 300)
  return (
    <>
      <div className="page-head">
        <h1>Use</h1>
        <div className="segments" role="group" aria-label="How far back">
          {DAYS.map((each) => (
            <button key={each} type="button" aria-pressed={each === days} onClick={() => view.set({ days: each === 7 ? '' : String(each) })}>
              {count(each, 'day')}
            </button>
          ))}
        </div>
        <label className="field">
          <span>by</span>
          <select className="select" value={by} onChange={(event) => view.set({ by: event.target.value === 'clusterQueue' ? '' : event.target.value })}>
            {BY.map(([id, word]) => (
              <option key={id} value={id}>{word}</option>
            ))}
          </select>
        </label>
        <span className="space" />
        <Downloads sums={sums.data?.items ?? []} attempts={attempts.data?.items ?? []} by={by} days={days} />
      </div>
      <AnswerContent answer={sums}>
        {(data) => (
          <>
            <Tiles rows={data.items} days={days} />
            {data.items.length > 0 && (
              <>
                <AnswerContent answer={byDay}>{(found) => <DaysOfUse rows={found.items} days={days} />}</AnswerContent>
                <Panel title={`By ${BY.find(([id]) => id === by)?.[1] ?? by}`} flush>
                  <SumRows rows={data.items} by={by} />
                </Panel>
                <Panel title="Waste" aside={<span className="quiet small">the attempts that lost most, and those that held GPUs idle</span>}>
                  <AnswerContent answer={attempts}>{(found) => <Waste attempts={found.items} more={found.more ?? false} />}</AnswerContent>
                </Panel>
                <p className="quiet small">
                  An attempt is one stretch in which a job held quota. It is counted for the days on which it did, also while it runs. Days are those of UTC. What a checkpoint kept is not lost. Idle time is
                  counted where telemetry measures it.
                </p>
              </>
            )}
          </>
        )}
      </AnswerContent>
    </>
  )
}

const LOST_FILLS: Record<LostTo, string> = { preemption: 'borrowed', failure: 'bad', overrun: 'wait', cancel: 'outside', eviction: 'leaving' }

function partsOf(split: Split): BarPart[] {
  return [
    { name: 'useful', amount: split.useful, fill: 'used' },
    { name: 'starting', amount: split.starting, fill: 'plan' },
    { name: 'idle', amount: split.idle, fill: 'held' },
    ...LOST_TO.map((cause) => ({ name: `lost to ${lostWords(cause)}`, amount: split.lost[cause], fill: LOST_FILLS[cause] })),
    { name: 'not known', amount: split.other, fill: 'free' },
  ]
}

function Tiles({ rows, days }: { rows: UsageSum[]; days: number }) {
  const all = useMemo(() => sumOfUse(rows), [rows])
  const split = splitOf(all)
  const part = (hours: number) => (all.gpuHours > 0 ? percent(hours / all.gpuHours) : '–')
  if (!rows.length) return <Empty>No job held GPUs within {count(days, 'day')}.</Empty>
  return (
    <>
      <div className="tiles">
        <div className="tile">
          <div className="tile-name">GPU-hours</div>
          <div className="tile-value">{decimal(all.gpuHours)}</div>
          <div className="tile-note">in {count(all.attempts, 'attempt')}</div>
        </div>
        <div className="tile">
          <div className="tile-name">Useful</div>
          <div className="tile-value">{part(split.useful)}</div>
          <div className="tile-note">{decimal(split.useful)} GPU-hours</div>
        </div>
        <div className="tile">
          <div className="tile-name">Lost</div>
          <div className="tile-value">{part(split.lostAll)}</div>
          <div className="tile-note">{decimal(split.lostAll)} GPU-hours of work</div>
        </div>
        <div className="tile">
          <div className="tile-name">Idle</div>
          <div className="tile-value">{all.idleGpuHours === null ? '–' : part(split.idle)}</div>
          <div className="tile-note">{all.idleGpuHours === null ? 'Nothing measures it' : `${decimal(split.idle)} GPU-hours, where measured`}</div>
        </div>
        <div className="tile">
          <div className="tile-name">Starting</div>
          <div className="tile-value">{part(split.starting)}</div>
          <div className="tile-note">{decimal(split.starting)} GPU-hours until pods were ready</div>
        </div>
        <div className="tile">
          <div className="tile-name">Waited for</div>
          <div className="tile-value">{decimal(all.waitedGpuHours)}</div>
          <div className="tile-note">GPU-hours in queues, as asked for</div>
        </div>
      </div>
      <section className="panel padded" aria-label="GPU-hours by what became of them">
        <Bar tall label="GPU-hours" total={all.gpuHours} parts={partsOf(split)} />
        <Legend parts={partsOf(split).filter((each) => each.amount > 0)} />
      </section>
    </>
  )
}

const bars = uPlot.paths.bars?.({ size: [0.62, 60], align: 0 })

const drawUse = (colours: Palette) => ({
  padding: [8, 6, 0, 0] as uPlot.Padding,
  scales: {
    x: { range: (_: uPlot, min: number, max: number): [number, number] => [min - 43200, max + 43200] },
    y: { range: (_: uPlot, _min: number, max: number): [number, number] => [0, Math.max(1, max * 1.08)] },
  },
  axes: [
    {
      ...timeAxis,
      splits: (plot: uPlot) => {
        const times = [...plot.data[0]]
        const each = Math.ceil(times.length / (plot.width / 80))
        return times.filter((_, index) => (times.length - 1 - index) % each === 0)
      },
      values: (_: uPlot, splits: number[]) => splits.map(day),
      grid: { show: false },
    },
    { size: 48 },
  ],
  // each covers all but the top of the one before
  series: [
    {},
    ...[colours.bad, colours.wait, colours.plan, colours.used].map((fill) => ({ fill, width: 0, ...(bars ? { paths: bars } : {}), points: { show: false } })),
  ],
})

function DaysOfUse({ rows, days }: { rows: UsageSum[]; days: number }) {
  const now = useNow(3600)
  const found = useMemo(() => everyDay(rows, now, days).map((row) => ({ at: Date.parse(`${row.name}T12:00:00Z`) / 1000, split: splitOf(row), all: row.gpuHours })), [rows, now, days])
  const data = useMemo(() => {
    const useful = found.map(({ split }) => split.useful + split.other)
    const starting = found.map(({ split }, i) => (useful[i] ?? 0) + split.starting)
    const idle = found.map(({ split }, i) => (starting[i] ?? 0) + split.idle)
    return [found.map(({ at }) => at), found.map(({ split }, i) => (idle[i] ?? 0) + split.lostAll), idle, starting, useful] as uPlot.AlignedData
  }, [found])
  if (days < 2) return null
  const text = found.map(({ at, split, all }) => `${day(at)}: ${decimal(all)}, of which ${decimal(split.lostAll)} lost`).join('; ')
  return (
    <Panel title="GPU-hours by day" aside={<Legend parts={[{ name: 'useful', fill: 'used' }, { name: 'starting', fill: 'plan' }, { name: 'idle', fill: 'wait' }, { name: 'lost', fill: 'bad' }]} />}>
      <Chart data={data} options={drawUse} height={150} label={`GPU-hours by day. ${text}`} />
    </Panel>
  )
}

/** The page of jobs filters by these. */
const FILTERS: Partial<Record<UsageBy, string>> = { clusterQueue: 'cq', localQueue: 'queue', user: 'user' }

function SumRows({ rows, by }: { rows: UsageSum[]; by: UsageBy }) {
  const view = useView()
  const links = useLinks()
  const most = Math.max(1e-9, ...rows.map((row) => row.gpuHours))
  const sorted = useMemo(() => [...rows].sort((a, b) => b.gpuHours - a.gpuHours), [rows])
  const columns = useMemo((): Column<UsageSum>[] => {
    const query = FILTERS[by]
    return [
      {
        id: 'name', header: BY.find(([id]) => id === by)?.[1] ?? by, value: (row) => row.name, width: 12,
        cell: (row) => (query && row.name && !row.hidden ? <Link to={links.jobs({ [query]: row.name.slice(row.name.indexOf('/') + 1) })}>{row.name}</Link> : row.name || <span className="quiet">not known</span>),
      },
      {
        id: 'bar', header: 'What became of them', value: (row) => row.gpuHours, from: 44, largestFirst: true,
        cell: (row) => (
          <div className="use-bar" style={{ width: `${(100 * row.gpuHours) / most}%` }}>
            <Bar label={row.name} total={row.gpuHours} parts={partsOf(splitOf(row))} />
          </div>
        ),
      },
      { id: 'hours', header: 'GPU-hours', value: (row) => row.gpuHours, cell: (row) => decimal(row.gpuHours), number: true, width: 6, largestFirst: true },
      { id: 'useful', header: 'Useful', value: (row) => (row.gpuHours ? splitOf(row).useful / row.gpuHours : null), cell: (row) => (row.gpuHours ? percent(splitOf(row).useful / row.gpuHours) : ''), number: true, width: 5, largestFirst: true },
      { id: 'lost', header: 'Lost', value: (row) => splitOf(row).lostAll, cell: (row) => decimal(splitOf(row).lostAll), number: true, width: 5, largestFirst: true, from: 34, title: 'GPU-hours of work that was lost' },
      { id: 'idle', header: 'Idle', value: (row) => row.idleGpuHours, cell: (row) => (row.idleGpuHours === null ? '' : decimal(row.idleGpuHours)), number: true, width: 4.6, largestFirst: true, from: 58, title: 'GPU-hours that were measured idle' },
      { id: 'waited', header: 'Waited for', value: (row) => row.waitedGpuHours, cell: (row) => decimal(row.waitedGpuHours), number: true, width: 6.2, from: 66, largestFirst: true, title: 'GPUs that were asked for, times the wait' },
      { id: 'median', header: 'Median wait', value: (row) => row.medianWaitSeconds, cell: (row) => (row.medianWaitSeconds === null ? '' : duration(row.medianWaitSeconds)), number: true, width: 6.5, from: 48, largestFirst: true },
      { id: 'jobs', header: 'Jobs', value: (row) => row.jobs, number: true, width: 4.6, from: 40, largestFirst: true },
      { id: 'preemptions', header: 'Preempted', value: (row) => row.preemptions, number: true, width: 6.2, from: 72, largestFirst: true },
    ]
  }, [by, links, most])
  return <DataTable label="Use" rows={sorted} id={(row) => row.name} columns={columns} sort={view.get('sort')} onSort={(sort) => view.set({ sort })} />
}

const WASTE: readonly Column<Attempt>[] = [
  { id: 'job', header: 'Job', value: jobLabel, cell: (row) => <JobLink job={row} />, width: 15 },
  { id: 'user', header: 'User', value: (row) => row.user, width: 6, from: 44 },
  { id: 'queue', header: 'ClusterQueue', value: (row) => row.clusterQueue, width: 8, from: 82 },
  { id: 'gpus', header: 'GPUs', value: (row) => row.gpus, number: true, width: 4.6, largestFirst: true, from: 34 },
  { id: 'ended', header: 'Ended', value: (row) => row.ended, cell: (row) => <Ended at={row.ended} />, width: 8.6, largestFirst: true, from: 56 },
  { id: 'end', header: 'How', value: (row) => row.end, cell: (row) => <AttemptEnd attempt={row} />, width: 8 },
  { id: 'why', header: 'Why', value: (row) => row.text || row.reason, from: 74 },
  { id: 'lost', header: 'Lost', value: (row) => row.lostGpuHours, cell: (row) => decimal(row.lostGpuHours ?? 0), number: true, width: 5, largestFirst: true, title: 'GPU-hours of work that was lost' },
  { id: 'idle', header: 'Idle', value: (row) => row.idleGpuHours, cell: (row) => (row.idleGpuHours === null ? '' : decimal(row.idleGpuHours)), number: true, width: 5, largestFirst: true, from: 50, title: 'GPU-hours that were measured idle' },
  { id: 'hours', header: 'Of GPU-hours', value: (row) => row.gpuHours, cell: (row) => decimal(row.gpuHours), number: true, width: 7, largestFirst: true, from: 38 },
]

function Ended({ at }: { at: number | null }) {
  const now = useNow(60)
  return at === null ? <Badge tone="good" icon="play" word="runs" /> : <span>{clock(at, now)}</span>
}

function Waste({ attempts, more }: { attempts: Attempt[]; more: boolean }) {
  const view = useView()
  const rows = useMemo(() => wasteOf(attempts, WORST), [attempts])
  if (!rows.length) return <Empty>No attempt lost work or held idle GPUs.</Empty>
  return (
    <>
      <DataTable plain label="Waste" rows={rows} id={(row) => `${row.namespace}/${row.workload}/${row.reserved}`} columns={WASTE} sort={view.get('waste')} onSort={(waste) => view.set({ waste })} />
      <p className="quiet small pad-top">
        {rows.length === WORST && `The ${number(WORST)} that wasted most. `}
        {more && `Only the last ${number(attempts.length)} attempts are looked at; the sums above count all.`}
      </p>
    </>
  )
}

function saveFile(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/csv' }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}

function Downloads({ sums, attempts, by, days }: { sums: UsageSum[]; attempts: Attempt[]; by: UsageBy; days: number }) {
  const saveSums = () =>
    saveFile(
      `gangline-use-${by}-${days}d.csv`,
      csv(
        [by, 'jobs', 'attempts', 'gpuHours', 'usefulGpuHours', 'startingGpuHours', 'idleGpuHours', ...LOST_TO.map((cause) => `${cause}LostGpuHours`), 'waitedGpuHours', 'medianWaitSeconds', 'preemptions'],
        sums.map((row) => [row.name, row.jobs, row.attempts, row.gpuHours, row.usefulGpuHours, row.startingGpuHours, row.idleGpuHours, ...LOST_TO.map((cause) => row.lost[cause]), row.waitedGpuHours, row.medianWaitSeconds, row.preemptions]),
      ),
    )
  const saveAttempts = () =>
    saveFile(
      `gangline-attempts-${days}d.csv`,
      csv(
        ['namespace', 'job', 'kind', 'user', 'localQueue', 'clusterQueue', 'flavor', 'gpus', 'pods', 'attempt', 'submitted', 'reserved', 'ready', 'ended', 'end', 'reason', 'by', 'gpuHours', 'usefulGpuHours', 'startingGpuHours', 'idleGpuHours', 'lostGpuHours', 'lostTo'],
        wasteOf(attempts, attempts.length).map((each) => [
          each.namespace, each.jobName, each.jobKind, each.user, each.localQueue, each.clusterQueue, each.flavor, each.gpus, each.pods, each.attempt, instant(each.submitted), instant(each.reserved), instant(each.ready), instant(each.ended),
          each.end, each.reason, each.by, each.gpuHours, each.usefulGpuHours, each.startingGpuHours, each.idleGpuHours, each.lostGpuHours, each.lostTo,
        ]),
      ),
    )
  return (
    <>
      <button type="button" className="button" disabled={!sums.length} onClick={saveSums}>
        Sums as CSV
      </button>
      <button type="button" className="button" disabled={!attempts.length} onClick={saveAttempts}>
        Waste as CSV
      </button>
    </>
  )
}

function instant(at: number | null): string | null {
  return at === null ? null : new Date(at * 1000).toISOString()
}
