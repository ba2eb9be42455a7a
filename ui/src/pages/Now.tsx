/** The cluster at a glance: what the GPUs do, what waits, what needs a person. */
import { useMemo } from 'react'
import { Link } from 'react-router'
import type uPlot from 'uplot'
import { useAnswer } from '../api/answers'
import { useIsLoading, useTable } from '../api/live'
import { useSession } from '../api/session'
import type { Accuracy, Audit, Job, JobEvent, Listed, PastRun, Queue } from '../api/types'
import { useNow } from '../clock'
import { flavorFigures, usageOverTime, waitingFigures, type FlavorFigures } from '../figures'
import { lights } from '../lights'
import { ToneIcon } from '../parts/badges'
import { Bar, Legend, type BarPart } from '../parts/bars'
import { Chart, timeAxis, type Palette } from '../parts/chart'
import { FirstJob } from '../parts/first'
import { EventRow, JobLink } from '../parts/jobs'
import { Empty, Panel } from '../parts/panel'
import { useLinks, useNamespace } from '../view'
import { clock, count, duration, gpus, inInterval, number, percent } from '../words'

const DAY = 86400
const NONE: never[] = []

export function Now() {
  const namespace = useNamespace()
  const jobs = useTable('jobs')
  const nodes = useTable('nodes')
  const queues = useTable('queues')
  const loading = useIsLoading()
  const now = useNow(30)
  const flavors = useMemo(() => flavorFigures(nodes.list, jobs.list), [nodes, jobs])
  const waiting = useMemo(() => waitingFigures(jobs.list), [jobs])
  const audits = useAnswer<Listed<Audit>>(`api/audits?namespace=${encodeURIComponent(namespace)}`, 120).data?.items ?? NONE
  const accuracy = useAnswer<Accuracy>(`api/accuracy?namespace=${encodeURIComponent(namespace)}`, 120).data
  const found = useMemo(() => lights(jobs.list, queues.list, nodes.list, audits, now), [jobs, queues, nodes, audits, now])
  if (loading) return <h1>Now</h1>
  const running = jobs.list.filter((job) => job.state === 'Running').length
  return (
    <>
      <h1 className="unseen">Now</h1>
      <Tiles flavors={flavors} queues={queues.list} waiting={waiting} running={running} accuracy={accuracy} now={now} />
      {jobs.list.length === 0 && <FirstJob />}
      <div className="grid wide">
        <div className="stack">
          {flavors.length > 0 && <Flavors flavors={flavors} />}
          {jobs.list.length > 0 && <UseChart namespace={namespace} capacity={flavors.reduce((sum, each) => sum + each.total, 0)} />}
          <Lately namespace={namespace} now={now} />
        </div>
        <div className="stack">
          <Panel title="What needs a person">
            {found.length === 0 ? (
              <Empty>Nothing needs a person now.</Empty>
            ) : (
              <ul className="lights">
                {found.map((light) => (
                  <LightRow key={light.text} light={light} />
                ))}
              </ul>
            )}
          </Panel>
          {jobs.list.length > 0 && <NextStarts jobs={waiting.next} now={now} />}
        </div>
      </div>
    </>
  )
}

function LightRow({ light }: { light: ReturnType<typeof lights>[number] }) {
  const links = useLinks()
  return (
    <li>
      <ToneIcon tone={light.tone} icon={light.icon} />
      <span>{light.text}</span>
      <Link to={links.to(light.page, light.query)} aria-label={`Show: ${light.text}`}>
        Show
      </Link>
    </li>
  )
}

interface TilesProps {
  flavors: FlavorFigures[]
  queues: readonly Queue[]
  waiting: ReturnType<typeof waitingFigures>
  running: number
  accuracy: Accuracy | undefined
  now: number
}

function Tiles({ flavors, queues, waiting, running, accuracy, now }: TilesProps) {
  const links = useLinks()
  const sum = (of: (each: FlavorFigures) => number) => flavors.reduce((all, each) => all + of(each), 0)
  const clusterQueues = queues.filter((queue) => queue.level === 'ClusterQueue')
  // without a right to see nodes, quota is all that is known
  const total = sum((each) => each.total) || clusterQueues.reduce((all, queue) => all + (queue.nominalGpus ?? 0), 0)
  const used = flavors.length ? sum((each) => each.used + each.outside) : clusterQueues.reduce((all, queue) => all + queue.usedGpus, 0)
  const unusable = sum((each) => each.faulty + each.leaving + each.soaking)
  const kept = promisesKept(accuracy)
  return (
    <div className="tiles">
      <Link className="tile" to={links.to('/nodes')}>
        <div className="tile-name">GPUs in use</div>
        <div className="tile-value">
          {number(used)} <small>of {number(total)}</small>
        </div>
        <div className="tile-note">{total ? percent(used / total) : 'No GPU is known'}</div>
      </Link>
      <Link className="tile" to={links.to('/nodes')}>
        <div className="tile-name">GPUs free</div>
        <div className="tile-value">{number(sum((each) => each.free))}</div>
        <div className="tile-note">{unusable ? `${number(unusable)} more are on nodes that take no work` : 'on nodes that take work'}</div>
      </Link>
      <Link className="tile" to={links.jobs({ state: 'Running' })}>
        <div className="tile-name">Running</div>
        <div className="tile-value">
          {number(running)} <small>{running === 1 ? 'job' : 'jobs'}</small>
        </div>
        <div className="tile-note">{sum((each) => each.held) ? `${gpus(sum((each) => each.held))} held but not used yet` : 'all that is held is used'}</div>
      </Link>
      <Link className="tile" to={links.jobs({ state: 'Pending' })}>
        <div className="tile-name">Waiting</div>
        <div className="tile-value">
          {number(waiting.jobs)} <small>{waiting.jobs === 1 ? 'job' : 'jobs'}</small>
        </div>
        <div className="tile-note">They ask for {gpus(waiting.gpus)}</div>
      </Link>
      <Link className="tile" to={links.jobs({ state: 'Pending', sort: 'created' })}>
        <div className="tile-name">Oldest waits for</div>
        <div className="tile-value">{waiting.oldest ? duration(now - waiting.oldest.created) : '–'}</div>
        <div className="tile-note clip">{waiting.oldest ? `${waiting.oldest.jobName}, ${gpus(waiting.oldest.gpus)}` : 'Nothing waits'}</div>
      </Link>
      <Link className="tile" to={links.to('/trust')}>
        <div className="tile-name">Starts as promised</div>
        <div className="tile-value">{kept ? percent(kept.held) : '–'}</div>
        <div className="tile-note">{kept ? `p90 of ${count(kept.starts, 'start')}; the aim is 90 %` : 'No promise is over yet'}</div>
      </Link>
    </div>
  )
}

export function promisesKept(accuracy: Accuracy | undefined): { starts: number; held: number } | null {
  const records = Object.values(accuracy?.queues ?? {})
  const starts = records.reduce((sum, record) => sum + record.starts, 0)
  return starts ? { starts, held: records.reduce((sum, record) => sum + record.withinP90 * record.starts, 0) / starts } : null
}

function partsOf(each: FlavorFigures): BarPart[] {
  return [
    { name: 'used', amount: each.used, fill: 'used' },
    { name: 'outside of queues', amount: each.outside, fill: 'outside' },
    { name: 'held, not used yet', amount: each.held, fill: 'held' },
    { name: 'free', amount: each.free, fill: 'free' },
    { name: 'soaking', amount: each.soaking, fill: 'wait' },
    { name: 'on leaving nodes', amount: each.leaving, fill: 'leaving' },
    { name: 'on faulty nodes', amount: each.faulty, fill: 'bad' },
  ]
}

function Flavors({ flavors }: { flavors: FlavorFigures[] }) {
  const legend = partsOf(flavors[0] as FlavorFigures).map((part, index) => ({
    ...part, amount: flavors.reduce((sum, each) => sum + (partsOf(each)[index]?.amount ?? 0), 0),
  }))
  const largest = Math.max(...flavors.map((each) => each.total))
  return (
    <Panel title="GPUs by flavor">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">Flavor</th>
            <th scope="col" className="wide-cell">What its GPUs do</th>
            <th scope="col" className="number">Used</th>
            <th scope="col" className="number">Free</th>
            <th scope="col" className="number">All</th>
          </tr>
        </thead>
        <tbody>
          {flavors.map((each) => (
            <tr key={each.flavor}>
              <th scope="row" className="nowrap">{each.flavor}</th>
              <td className="wide-cell">
                <div style={{ width: `${(100 * each.total) / largest}%` }}>
                  <Bar tall label={each.flavor} total={each.total} parts={partsOf(each)} />
                </div>
              </td>
              <td className="number">{number(each.used + each.outside)}</td>
              <td className="number">{number(each.free)}</td>
              <td className="number">{number(each.total)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <div className="pad-top">
        <Legend parts={legend.filter((part) => part.amount > 0)} />
      </div>
    </Panel>
  )
}

const drawUse = (colours: Palette) => ({
  padding: [8, 18, 0, 0] as uPlot.Padding,
  scales: { y: { range: (_: uPlot, _min: number, max: number): [number, number] => [0, Math.max(1, max * 1.06)] } },
  axes: [timeAxis, { size: 44 }],
  series: [
    {},
    { stroke: colours.used, fill: `${colours.used}55`, width: 1.5, points: { show: false } },
    { stroke: colours.used, fill: `${colours.used}22`, width: 1.5, dash: [4, 4], points: { show: false } },
    { stroke: colours.quiet, width: 1, dash: [2, 3], points: { show: false } },
  ],
  hooks: {
    draw: [
      (plot: uPlot) => {
        const times = plot.data[0]
        const plan = plot.data[2] as (number | null)[]
        const index = plan.findIndex((value) => value !== null)
        const at = times[index]
        if (at === undefined) return
        const x = Math.round(plot.valToPos(at, 'x', true))
        plot.ctx.save()
        plot.ctx.fillStyle = colours.text
        plot.ctx.fillRect(x, plot.bbox.top, devicePixelRatio, plot.bbox.height)
        plot.ctx.restore()
      },
    ],
  },
})

function UseChart({ namespace, capacity }: { namespace: string; capacity: number }) {
  const runs = useTable('runs')
  const past = useAnswer<Listed<PastRun>>(`api/past?namespace=${encodeURIComponent(namespace)}&since=${DAY}&limit=5000`, 300).data?.items
  const now = useNow(300)
  const data = useMemo(() => {
    const own = namespace ? runs.list.filter((run) => run.metadata.namespace === namespace) : runs.list
    const { times, was, plan } = usageOverTime(past ?? [], own, now, DAY, DAY)
    return [times, was, plan, times.map(() => (namespace || !capacity ? null : capacity))] as uPlot.AlignedData
  }, [past, runs, now, namespace, capacity])
  const peak = Math.max(0, ...(data[2] as (number | null)[]).map((value) => value ?? 0))
  const title = namespace ? `GPUs in use by namespace ${namespace}` : 'GPUs in use'
  return (
    <Panel title={title} aside={<span className="quiet small">the last 24 hours, and the next 24 as planned</span>}>
      <Chart data={data} options={drawUse} height={170} label={`${title}: at most ${number(peak)} are planned within the next 24 hours. The timeline page has the runs.`} />
      <p className="quiet small">The plan takes the median length of each run, and assumes that nothing new is submitted.</p>
    </Panel>
  )
}

function NextStarts({ jobs, now }: { jobs: Job[]; now: number }) {
  const links = useLinks()
  return (
    <Panel title="Next to start" aside={<Link to={links.jobs({ state: 'Pending', sort: 'start' })}>All that wait</Link>}>
      {jobs.length === 0 ? (
        <Empty>No start is expected.</Empty>
      ) : (
        <ul className="rows">
          {jobs.map((job) => (
            <li key={job.uid || job.name}>
              <span className="clip">
                <JobLink job={job} /> <span className="quiet">{gpus(job.gpus)}{job.user && `, ${job.user}`}</span>
              </span>
              <span className="nowrap">{inInterval(job.expectedStart, now)}</span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  )
}

function Lately({ namespace, now }: { namespace: string; now: number }) {
  const session = useSession()
  const answer = useAnswer<Listed<JobEvent>>(`api/events?namespace=${encodeURIComponent(namespace)}&since=1800&limit=1000`, 20)
  const latest = (answer.data?.items ?? NONE).slice(-9).reverse()
  if (!latest.length) return null
  return (
    <Panel title="What happened lately" aside={<span className="quiet small">{namespace || session.cluster}</span>}>
      <ul className="rows">
        {latest.map((event) => (
          <EventRow key={event.metadata.uid} event={event} at={clock(event.at, now)} />
        ))}
      </ul>
    </Panel>
  )
}
