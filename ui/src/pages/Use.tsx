/** Who used what: GPU-hours of runs that have ended. */
import { useMemo } from 'react'
import { Link } from 'react-router'
import uPlot from 'uplot'
import { useAnswer } from '../api/answers'
import type { Listed, PastRun } from '../api/types'
import { useNow } from '../clock'
import { csv, usageBy, usageByDay, type UsageBy, type UseRow } from '../figures'
import { Bar, Legend } from '../parts/bars'
import { Chart, timeAxis, type Palette } from '../parts/chart'
import { Empty, Panel, Told } from '../parts/panel'
import { DataTable, type Column } from '../parts/table'
import { useLinks, useNamespace, useView } from '../view'
import { count, day, decimal, duration, number, percent } from '../words'

const BY: readonly [UsageBy, string][] = [['clusterQueue', 'ClusterQueue'], ['localQueue', 'LocalQueue'], ['namespace', 'Namespace'], ['user', 'User'], ['flavor', 'Flavor'], ['jobKind', 'Kind of job']]
const DAYS = [1, 7, 30]
const MOST = 5000

export function Use() {
  const view = useView()
  const namespace = useNamespace()
  const days = DAYS.find((each) => String(each) === view.get('days')) ?? 7
  const by = BY.find(([id]) => id === view.get('by'))?.[0] ?? 'clusterQueue'
  const answer = useAnswer<Listed<PastRun>>(`api/past?namespace=${encodeURIComponent(namespace)}&since=${days * 86400}&limit=${MOST}`, 300)
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
        <Downloads runs={answer.data?.items ?? []} by={by} days={days} />
      </div>
      <Told answer={answer}>{(data) => <Sums runs={data.items} more={data.more ?? false} by={by} days={days} />}</Told>
    </>
  )
}

function Sums({ runs, more, by, days }: { runs: PastRun[]; more: boolean; by: UsageBy; days: number }) {
  const rows = useMemo(() => usageBy(runs, by), [runs, by])
  const sum = (of: (row: UseRow) => number) => rows.reduce((all, row) => all + of(row), 0)
  const hours = sum((row) => row.gpuHours)
  const failed = sum((row) => row.failedHours)
  if (!runs.length) return <Empty>No run ended within {count(days, 'day')}.</Empty>
  return (
    <>
      {more && <p className="notice">Only the last {number(runs.length)} runs are counted. A shorter time shows all of its runs.</p>}
      <div className="tiles">
        <div className="tile">
          <div className="tile-name">GPU-hours</div>
          <div className="tile-value">{decimal(hours)}</div>
          <div className="tile-note">of {count(runs.length, 'run')} that ended</div>
        </div>
        <div className="tile">
          <div className="tile-name">Useful</div>
          <div className="tile-value">{hours ? percent(1 - failed / hours) : '–'}</div>
          <div className="tile-note">in runs that did not fail</div>
        </div>
        <div className="tile">
          <div className="tile-name">In failed runs</div>
          <div className="tile-value">{decimal(failed)}</div>
          <div className="tile-note">GPU-hours</div>
        </div>
        <div className="tile">
          <div className="tile-name">Waited for</div>
          <div className="tile-value">{decimal(sum((row) => row.waitedHours))}</div>
          <div className="tile-note">GPU-hours in queues, as asked for</div>
        </div>
        <div className="tile">
          <div className="tile-name">Preemptions</div>
          <div className="tile-value">{number(sum((row) => row.preemptions))}</div>
          <div className="tile-note">of runs that are remembered in full</div>
        </div>
      </div>
      <Panel title="GPU-hours by day" aside={<Legend parts={[{ name: 'did not fail', fill: 'used' }, { name: 'failed', fill: 'bad' }]} />}>
        <Days runs={runs} days={days} />
      </Panel>
      <Panel title={`By ${BY.find(([id]) => id === by)?.[1] ?? by}`} flush>
        <Rows rows={rows} by={by} />
      </Panel>
      <p className="quiet small">
        A run counts from its last start. What it ran before a preemption is part of its wait. Runs whose Workload is deleted do not say whether they failed.
      </p>
    </>
  )
}

const bars = uPlot.paths.bars?.({ size: [0.62, 60], align: 0 })

const drawDays = (colours: Palette) => ({
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
  series: [
    {},
    { fill: colours.bad, width: 0, ...(bars ? { paths: bars } : {}), points: { show: false } },
    { fill: colours.used, width: 0, ...(bars ? { paths: bars } : {}), points: { show: false } },
  ],
})

function Days({ runs, days }: { runs: PastRun[]; days: number }) {
  const now = useNow(3600)
  const data = useMemo(() => {
    const found = usageByDay(runs, now, days)
    const middle = found.days.map((at) => at + 43200)
    // the sum is drawn first, in the failed runs' colour; what did not fail covers all but its top
    return [middle, found.good.map((n, i) => n + (found.failed[i] ?? 0)), found.good] as uPlot.AlignedData
  }, [runs, now, days])
  const text = (data[0] as number[]).map((at, i) => `${day(at)}: ${decimal((data[1] as number[])[i] ?? 0)}`).join('; ')
  return <Chart data={data} options={drawDays} height={150} label={`GPU-hours by day. ${text}`} />
}

function Rows({ rows, by }: { rows: UseRow[]; by: UsageBy }) {
  const view = useView()
  const links = useLinks()
  const most = Math.max(1, ...rows.map((row) => row.gpuHours))
  const columns = useMemo((): Column<UseRow>[] => {
    const query = { clusterQueue: 'cq', localQueue: 'queue', user: 'user' }[by as string]
    return [
      {
        id: 'name', header: BY.find(([id]) => id === by)?.[1] ?? by, value: (row) => row.name, width: 12,
        cell: (row) => (query && !row.name.startsWith('not ') ? <Link to={links.jobs({ [query]: row.name })}>{row.name}</Link> : row.name),
      },
      {
        id: 'bar', header: 'Share', value: (row) => row.gpuHours, from: 44, largestFirst: true,
        cell: (row) => (
          <div className="use-bar" style={{ width: `${(100 * row.gpuHours) / most}%` }}>
            <Bar label={row.name} total={row.gpuHours} parts={[{ name: 'did not fail', amount: row.gpuHours - row.failedHours, fill: 'used' }, { name: 'failed', amount: row.failedHours, fill: 'bad' }]} />
          </div>
        ),
      },
      { id: 'hours', header: 'GPU-hours', value: (row) => row.gpuHours, cell: (row) => decimal(row.gpuHours), number: true, width: 6, largestFirst: true },
      { id: 'failed', header: 'Failed', value: (row) => row.failedHours, cell: (row) => decimal(row.failedHours), number: true, width: 5, from: 34, largestFirst: true, title: 'GPU-hours of runs that failed' },
      { id: 'waited', header: 'Waited for', value: (row) => row.waitedHours, cell: (row) => decimal(row.waitedHours), number: true, width: 6, from: 52, largestFirst: true, title: 'GPUs that were asked for, times the wait' },
      { id: 'median', header: 'Median wait', value: (row) => row.medianWait, cell: (row) => (row.medianWait === null ? '' : duration(row.medianWait)), number: true, width: 6.5, from: 40, largestFirst: true },
      { id: 'runs', header: 'Runs', value: (row) => row.runs, number: true, width: 5, largestFirst: true },
      { id: 'preemptions', header: 'Preempted', value: (row) => row.preemptions, number: true, width: 6.4, from: 60, largestFirst: true },
    ]
  }, [by, links, most])
  return <DataTable label="Use" rows={rows} id={(row) => row.name} columns={columns} sort={view.get('sort')} onSort={(sort) => view.set({ sort })} />
}

function Downloads({ runs, by, days }: { runs: PastRun[]; by: UsageBy; days: number }) {
  const save = (name: string, text: string) => {
    const url = URL.createObjectURL(new Blob([text], { type: 'text/csv' }))
    const link = document.createElement('a')
    link.href = url
    link.download = name
    link.click()
    setTimeout(() => URL.revokeObjectURL(url), 10_000)
  }
  const sums = () =>
    save(`gangline-use-${by}-${days}d.csv`, csv([by, 'runs', 'gpuHours', 'failedGpuHours', 'waitedGpuHours', 'medianWaitSeconds', 'preemptions'], usageBy(runs, by).map((row) => [row.name, row.runs, row.gpuHours, row.failedHours, row.waitedHours, row.medianWait, row.preemptions])))
  const all = () =>
    save(
      `gangline-runs-${days}d.csv`,
      csv(
        ['namespace', 'job', 'kind', 'user', 'localQueue', 'clusterQueue', 'flavor', 'gpus', 'pods', 'submitted', 'started', 'ended', 'waitedSeconds', 'ranSeconds', 'gpuHours', 'state', 'preemptions'],
        runs.map((run) => [run.namespace, run.jobName, run.jobKind, run.user, run.localQueue, run.clusterQueue, run.flavor, run.gpus, run.pods, instant(run.submitted), instant(run.started), instant(run.ended), run.waitedSeconds, run.ranSeconds, run.gpuHours, run.state, run.preemptions]),
      ),
    )
  return (
    <>
      <button type="button" className="button" disabled={!runs.length} onClick={sums}>
        Sums as CSV
      </button>
      <button type="button" className="button" disabled={!runs.length} onClick={all}>
        Runs as CSV
      </button>
    </>
  )
}

function instant(at: number | null): string | null {
  return at === null ? null : new Date(at * 1000).toISOString()
}
