/** One job: why it is where it is, when it starts, how long it runs, and what may be done. */
import { useCallback, useMemo, useState } from 'react'
import { Link, useParams } from 'react-router'
import uPlot from 'uplot'
import { useAnswer } from '../api/answers'
import { useRow } from '../api/live'
import type { Attempt, DecisionList, Job, JobAnswer, JobPromise, KubeEvent, Listed, PastRun, Pod, Remedies, Verb, Victims } from '../api/types'
import { useNow } from '../clock'
import { AttemptsOf } from '../parts/attempts'
import { ActionButton, Actions, MissingRights, suits, targetOf, useRights } from '../parts/actions'
import { Badge, JobState, type Tone } from '../parts/badges'
import type { IconName } from '../parts/icons'
import { Chart, timeAxis, type Palette } from '../parts/chart'
import { Commands, quoted } from '../parts/commands'
import { DecisionWord, InputsButton, InputsDialog, inputsOfAttempt } from '../parts/decision'
import { Answered, Failure, Panel, Scroll, AnswerContent } from '../parts/panel'
import { similarRuns } from '../similar'
import { useLinks, useView } from '../view'
import { clock, count, duration, durations, fullTime, gpus, HOLDING, inInterval, jobLabel, number, ordinal, OVER, percent } from '../words'

const VERBS: readonly Verb[] = ['hold', 'release', 'move', 'top', 'cancel']
const MONTH = 30 * 86400

export function JobPage() {
  const params = useParams()
  const [namespace, kind, name] = [params['namespace'] ?? '', params['kind'] ?? '', params['name'] ?? '']
  const path = `api/job/${[namespace, kind, name].map(encodeURIComponent).join('/')}`
  const answer = useAnswer<JobAnswer>(path, 15)
  const row = useRow('jobs', useCallback((job: Job) => job.namespace === namespace && job.jobName === name && job.jobKind.toLowerCase() === kind, [namespace, kind, name]))
  // the stream is newer than the answer, and lacks jobs of namespaces that are not looked at
  const job = row ?? answer.data?.job
  const links = useLinks()
  if (!job) {
    return (
      <>
        <h1>
          {kind}/{name}
        </h1>
        {answer.error ? <Failure error={answer.error} again={answer.again} /> : <p className="quiet">The answer is on its way.</p>}
        {answer.error?.status === 404 && (
          <p>
            The job may have ended and been deleted. <Link to={links.to('/use')}>The page Use counts past runs.</Link>
          </p>
        )}
      </>
    )
  }
  return (
    <Actions onDone={answer.again}>
      <Head job={job} />
      <div className="grid wide">
        <div className="stack">
          <Answered title="Why" answer={answer}>
            {({ why }) => !why ? <p className="quiet">The operator has no explanation for such a job.</p> : (
              <dl className="facts why">
                {why.lines.map((line, index) => (
                  <Fact key={index} name={line.label} warn={line.label === 'warning'}>
                    {line.text}
                  </Fact>
                ))}
              </dl>
            )}
          </Answered>
          <Start job={job} answer={answer.data} />
          <RunTime job={job} />
          <Attempts path={path} />
          {job.state === 'Pending' && <Earlier path={path} job={job} />}
          <Logs path={path} job={job} />
        </div>
        <div className="stack">
          <Facts job={job} />
          <Answered title="Story" aside={<span className="quiet small">as far as the leader remembers</span>} answer={answer}>
            {({ story }) => <Story events={story?.events ?? []} />}
          </Answered>
          {(HOLDING.has(job.state) || OVER.has(job.state)) && <Pods path={path} />}
          <Decisions job={job} />
          <Events path={path} workload={job.name} />
          <Panel title="Commands">
            <Commands texts={commandsFor(job)} />
          </Panel>
        </div>
      </div>
      <InputsDialog />
    </Actions>
  )
}

function Fact({ name, children, warn = false }: { name: string; children: React.ReactNode; warn?: boolean }) {
  return (
    <>
      <dt>{warn ? <Badge tone="warn" icon="warn" word={name} /> : name}</dt>
      <dd>{children}</dd>
    </>
  )
}

function Head({ job }: { job: Job }) {
  const now = useNow(10)
  const rights = useRights(job.namespace)
  const verbs = VERBS.filter((verb) => suits(verb, job))
  return (
    <>
      <div className="page-head">
        <h1>{jobLabel(job)}</h1>
        <JobState job={job} />
        <span className="quiet">for {duration(now - (job.state === 'Pending' ? job.created : job.since))}</span>
        <span className="space" />
        <div className="toolbar">
          {verbs.map((verb) => (
            <ActionButton key={verb} verb={verb} rights={rights} targets={[targetOf(job)]} />
          ))}
        </div>
      </div>
      <MissingRights verbs={verbs} rights={rights} />
    </>
  )
}

function Facts({ job }: { job: Job }) {
  const links = useLinks()
  const now = useNow(60)
  return (
    <Panel title="Facts">
      <dl className="facts">
        <Fact name="Asks for">
          {gpus(job.gpus)} in {count(job.pods, 'pod')}
        </Fact>
        <Fact name="Amounts">
          {Object.entries(job.amounts)
            .map(([resource, amount]) => `${amount} ${resource}`)
            .join(', ')}
        </Fact>
        {job.held.length > 0 && <Fact name="Holds">{job.held.map((each) => `${each.amount} ${each.resource} of ${each.flavor}`).join(', ')}</Fact>}
        <Fact name="LocalQueue">{job.queue ? <Link to={links.jobs({ queue: job.queue })}>{job.queue}</Link> : 'none'}</Fact>
        <Fact name="ClusterQueue">{job.clusterQueue ? <Link to={links.to('/queues', { queue: job.clusterQueue })}>{job.clusterQueue}</Link> : 'none'}</Fact>
        {job.position !== null && <Fact name="Position">{ordinal(job.position + 1)} of those that wait in its ClusterQueue</Fact>}
        <Fact name="Priority">{number(job.priority)}</Fact>
        {job.user && (
          <Fact name="User">
            <Link to={links.jobs({ user: job.user })}>{job.user}</Link>
          </Fact>
        )}
        <Fact name="Namespace">{job.namespace}</Fact>
        <Fact name="Submitted">
          <span title={fullTime(job.created)}>{clock(job.created, now)}</span>
        </Fact>
        <Fact name="Workload">{job.name}</Fact>
        {job.evicted && <Fact name="Was stopped">{job.evicted}</Fact>}
      </dl>
    </Panel>
  )
}

// --- the start, and what was promised ---

const stepped = uPlot.paths.stepped?.({ align: 1 })

const drawPromises = (colours: Palette) => ({
  padding: [8, 8, 0, 0] as uPlot.Padding,
  axes: [timeAxis, { ...timeAxis, size: 56 }],
  scales: { y: { time: true, range: (_: uPlot, min: number, max: number): [number, number] => [min - (max - min) * 0.06, max + (max - min) * 0.06] } },
  bands: [{ series: [2, 1] as [number, number], fill: `${colours.plan}99` }],
  series: [
    {},
    { stroke: colours.accent, width: 2, ...(stepped ? { paths: stepped } : {}), points: { show: false } },
    { stroke: colours.plan, width: 1, ...(stepped ? { paths: stepped } : {}), points: { show: false } },
    { stroke: colours.quiet, width: 1, dash: [3, 3], points: { show: false }, auto: false },
  ],
})

function Start({ job, answer }: { job: Job; answer: JobAnswer | undefined }) {
  const now = useNow(30)
  const promised = answer?.promises
  const promises = promised?.promises
  const until = promised?.started ?? now
  const data = useMemo(() => {
    const rows = (promises ?? []).filter((each) => each.at <= until)
    const last = rows[rows.length - 1]
    const all = last ? [...rows, { ...last, at: Math.max(until, last.at + 1) }] : []
    return [all.map((each) => each.at), all.map((each) => each.p50), all.map((each) => each.p90), all.map((each) => each.at)] as uPlot.AlignedData
  }, [promises, until])
  if (job.state !== 'Pending' && !promises?.length) return null
  const start = job.expectedStart
  return (
    <Panel title={job.state === 'Pending' ? 'Start' : 'What was promised'} aside={promised?.record ? <span className="quiet small">{recordWords(promised.record)}</span> : undefined}>
      <div className="stack">
        {job.state === 'Pending' &&
          (start ? (
            <p>
              The job starts <strong>{inInterval(start, now)}</strong>: as likely as not by <span title={fullTime(start.p50)}>{clock(start.p50, now)}</span>
              {start.p90 !== null && <>, nine times in ten by <span title={fullTime(start.p90)}>{clock(start.p90, now)}</span></>}
              {job.because && <>, {job.because}</>}.
            </p>
          ) : (
            <p>{job.neverFits ? 'The job never starts as it is: it asks for more than its queue can give.' : 'No start can be predicted.'}</p>
          ))}
        {promised?.started != null && promises?.[0] && <p>{cameTrue(promises[0], promised.started)}</p>}
        {data[0].length > 1 && (
          <figure>
            <Chart data={data} options={drawPromises} height={150} label={`The promised start over time. It was promised ${count(promises?.length ?? 0, 'time')}; the list below has each.`} />
            <figcaption className="quiet small">Across: when it was said. Upwards: the start that was said, p50 to p90. At the dotted line, where it is in view, the start meets the clock.</figcaption>
          </figure>
        )}
        {promises && promises.length > 0 && <PromiseList promises={promises} now={now} />}
      </div>
    </Panel>
  )
}

function recordWords(record: { starts: number; withinP90: number }): string {
  return `In this queue p90 held for ${percent(record.withinP90)} of ${count(record.starts, 'start')}.`
}

function cameTrue(first: JobPromise, started: number): string {
  const late = started - (first.p90 ?? first.p50)
  if (late > 0) return `It started ${duration(late)} after the ${first.p90 === null ? 'p50' : 'p90'} that was promised first.`
  return started <= first.p50 ? `It started ${duration(first.p50 - started)} before the p50 that was promised first.` : 'It started between the p50 and the p90 that were promised first.'
}

function PromiseList({ promises, now }: { promises: JobPromise[]; now: number }) {
  return (
    <Scroll label="Promises">
    <table className="plain">
      <thead>
        <tr>
          <th scope="col">Said at</th>
          <th scope="col">Start, p50 – p90</th>
          <th scope="col">Because</th>
        </tr>
      </thead>
      <tbody>
        {promises.slice(-8).map((each) => (
          <tr key={each.at}>
            <td className="nowrap" title={fullTime(each.at)}>
              {clock(each.at, now)}
            </td>
            <td className="nowrap">
              {clock(each.p50, now)} – {each.p90 === null ? '?' : clock(each.p90, now)}
            </td>
            <td className="words">{each.cause || each.because}</td>
          </tr>
        ))}
      </tbody>
    </table>
    </Scroll>
  )
}

// --- the run time ---

function RunTime({ job }: { job: Job }) {
  const now = useNow(30)
  const past = useAnswer<Listed<PastRun>>(job.namespace ? `api/past?namespace=${encodeURIComponent(job.namespace)}&since=${MONTH}&limit=1000` : null).data?.items
  const similar = useMemo(() => similarRuns(job, past ?? []), [job, past])
  if (!job.forecast && similar.runs.length === 0) return null
  const forecast = job.forecast
  const elapsed = job.state === 'Running' || job.state === 'Starting' ? now - job.since : null
  return (
    <Panel title="Run time">
      <div className="stack">
        {forecast && (
          <p>
            The forecast is <strong>{durations(forecast.p50, forecast.p90)}</strong>
            {forecast.flavor && ` on ${forecast.flavor}`}. It comes from {SOURCES[forecast.source] ?? `source ${forecast.source}`}
            {forecast.samples > 0 && ` and ${count(forecast.samples, 'finished run')}`}.
            {elapsed !== null && job.end !== null && ` The job has run for ${duration(elapsed)}, and ends in ${durations(job.end - now, job.latestEnd === null ? null : job.latestEnd - now)}.`}
          </p>
        )}
        {similar.runs.length > 0 && (
          <figure>
            <RunStrip job={job} runs={similar.runs} elapsed={elapsed} />
            <figcaption className="quiet small">
              Each dot is one of {count(similar.runs.length, 'past run')} {similar.words} within 30 days; a red square failed. The band is the forecast, p50 to p90.
              {elapsed !== null && ' The green line is this run so far.'}
            </figcaption>
          </figure>
        )}
      </div>
    </Panel>
  )
}

const SOURCES: Record<string, string> = { hint: 'the author’s hint', limit: 'the limit', history: 'earlier runs like it', model: 'the trained model', kept: 'declared run times that were kept' }
const TICKS = [10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400]

function RunStrip({ job, runs, elapsed }: { job: Job; runs: PastRun[]; elapsed: number | null }) {
  const lengths = runs.map((run) => Math.max(1, run.ranSeconds ?? 1))
  const all = [...lengths, ...(job.forecast ? [job.forecast.p50, job.forecast.p90] : []), ...(elapsed ? [elapsed] : [])]
  const [low, high] = [Math.log(Math.min(...all) * 0.8), Math.log(Math.max(...all) * 1.25)]
  const place = (seconds: number) => `${Math.min(100, Math.max(0, (100 * (Math.log(Math.max(1, seconds)) - low)) / (high - low)))}%`
  const ticks = TICKS.filter((tick) => Math.log(tick) > low + (high - low) * 0.04 && Math.log(tick) < high - (high - low) * 0.04)
  const sorted = [...lengths].sort((a, b) => a - b)
  const middle = sorted[Math.floor(sorted.length / 2)] ?? 0
  return (
    <div className="strip" role="img" aria-label={`Past runs took ${duration(sorted[0] ?? 0)} to ${duration(sorted[sorted.length - 1] ?? 0)}, half of them at most ${duration(middle)}.`}>
      {job.forecast && <span className="band" style={{ left: place(job.forecast.p50), right: `calc(100% - ${place(job.forecast.p90)})` }} />}
      {runs.map((run, index) => (
        <i key={index} className={run.state === 'Failed' ? 'dot failed' : 'dot'} style={{ left: place(run.ranSeconds ?? 1), bottom: `${1.5 + (index % 4) * 0.42}rem` }} title={`${run.jobName}: ${duration(run.ranSeconds ?? 0)}`} />
      ))}
      {elapsed !== null && <span className="elapsed" style={{ left: place(elapsed) }} />}
      <span className="axis" />
      {ticks.map((tick) => (
        <span key={tick} className="tick" style={{ left: place(tick) }}>
          {duration(tick)}
        </span>
      ))}
    </div>
  )
}

// --- answers that cost a simulation ---

function Earlier({ path, job }: { path: string; job: Job }) {
  const [asked, setAsked] = useState<'' | 'remedies' | 'victims'>('')
  const remedies = useAnswer<Remedies>(asked === 'remedies' ? `${path}/remedies` : null)
  const victims = useAnswer<Victims>(asked === 'victims' ? `${path}/victims` : null)
  return (
    <Panel title="What if">
      <div className="stack">
        <div className="toolbar">
          <button type="button" className="button" aria-pressed={asked === 'remedies'} onClick={() => setAsked('remedies')}>
            What would let it start earlier?
          </button>
          <button type="button" className="button" aria-pressed={asked === 'victims'} onClick={() => setAsked('victims')}>
            Whom would it preempt?
          </button>
        </div>
        {asked === '' && <p className="quiet small">Gangline plays the cluster forward for each answer, which takes some seconds. Nothing is changed.</p>}
        {asked === 'remedies' && (remedies.data ? <RemedyList answer={remedies.data} /> : remedies.error ? <Failure error={remedies.error} again={remedies.again} /> : <p className="quiet">Gangline plays the cluster forward.</p>)}
        {asked === 'victims' && (victims.data ? <VictimList answer={victims.data} job={job} /> : victims.error ? <Failure error={victims.error} again={victims.again} /> : <p className="quiet">Gangline plays one round of its decisions.</p>)}
      </div>
    </Panel>
  )
}

function RemedyList({ answer }: { answer: Remedies }) {
  if (!answer.remedies.length) return <p>{answer.obstacle || 'No single change lets it start earlier by a minute or more.'}</p>
  return (
    <Scroll label="Changes that let it start earlier">
    <table className="plain">
      <thead>
        <tr>
          <th scope="col">Change</th>
          <th scope="col">By</th>
          <th scope="col">Starts</th>
          <th scope="col" className="number">Gains</th>
        </tr>
      </thead>
      <tbody>
        {answer.remedies.map((each) => (
          <tr key={each.kind}>
            <td className="words">{each.change}</td>
            <td>{each.by === 'user' ? 'its author' : 'an administrator'}</td>
            <td className="nowrap">{each.startsInSeconds ? `in ${durations(each.startsInSeconds.p50, each.startsInSeconds.p90)}` : '?'}</td>
            <td className="number nowrap">{each.gainedHours === null ? 'it starts at all' : duration(each.gainedHours * 3600)}</td>
          </tr>
        ))}
      </tbody>
    </table>
    </Scroll>
  )
}

function VictimList({ answer, job }: { answer: Victims; job: Job }) {
  if (!answer.victims.length) return <p>{answer.obstacle || (answer.starts ? 'It would start without preempting any job.' : 'It would preempt no job.')}</p>
  return (
    <>
      <p>
        Were {jobLabel(job)} next, it would preempt {count(answer.victims.length, 'job')}.
      </p>
      <Scroll label="Jobs that it would preempt">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col" className="number">GPUs</th>
            <th scope="col">Rule</th>
            <th scope="col" className="number">Has run</th>
            <th scope="col" className="number">Loses</th>
          </tr>
        </thead>
        <tbody>
          {answer.victims.map((each) => (
            <tr key={each.job}>
              <td>
                {each.job} {each.user && <span className="quiet">{each.user}</span>}
              </td>
              <td className="number">{number(each.gpus)}</td>
              <td>{each.reason}</td>
              <td className="number">{duration(each.ranSeconds)}</td>
              <td className="number nowrap">{each.lostGpuHours.toFixed(1)} GPU-hours</td>
            </tr>
          ))}
        </tbody>
      </table>
      </Scroll>
    </>
  )
}

// --- its attempts, and the decisions about it ---

function Attempts({ path }: { path: string }) {
  const view = useView()
  const answer = useAnswer<{ attempts: Attempt[] }>(`${path}/attempts`, 60)
  const open = useCallback((each: Attempt) => view.set({ inputs: inputsOfAttempt(each) }), [view])
  // a job that has held nothing yet
  if (answer.error?.status === 404 || answer.data?.attempts.length === 0) return null
  return <Answered title="Attempts" answer={answer}>{(data) => <AttemptsOf attempts={data.attempts} open={open} />}</Answered>
}

const LONGEST_RECORD = 180 * 86400
const MOST_DECISIONS = 5000
const SHOWN_DECISIONS = 30

function Decisions({ job }: { job: Job }) {
  const now = useNow(60)
  const since = Math.min(LONGEST_RECORD, Math.ceil((Date.now() / 1000 - job.created + 60) / 600) * 600)
  const query = new URLSearchParams({ namespace: job.namespace, workload: job.name, since: String(since), limit: String(MOST_DECISIONS) })
  const answer = useAnswer<DecisionList>(job.namespace ? `api/decisions?${query}` : null, 60)
  if (!job.namespace || answer.error?.status === 404) return null
  return (
    <Answered title="Decisions" aside={<span className="quiet small">of the engine, as its record has them</span>} answer={answer}>
      {(data) => {
        const own = data.items.filter((row) => row.workload === job.name).reverse()
        if (!data.record) return <p className="quiet">This operator keeps no record of its decisions.</p>
        if (!own.length) return <p className="quiet">The engine has not decided about the job yet, or its record has forgotten it.</p>
        return (
          <>
            <ol className="story">
              {own.slice(0, SHOWN_DECISIONS).map((row) => (
                <li key={row.number}>
                  <DecisionWord decision={row.decision} /> <span className="quiet" title={fullTime(row.at)}>{clock(row.at, now)}</span> {!row.hidden && <InputsButton decision={row.number} />}
                  {row.text && <div className="quiet small">{row.text}</div>}
                </li>
              ))}
            </ol>
            {(own.length > SHOWN_DECISIONS || data.more) && <p className="quiet small">{own.length > SHOWN_DECISIONS ? `The last ${number(SHOWN_DECISIONS)} of ${number(own.length)} are listed.` : `Only ${number(data.items.length)} decisions of that time are looked at.`}</p>}
          </>
        )
      }}
    </Answered>
  )
}

// --- what happened, and where it runs ---

function Story({ events }: { events: NonNullable<JobAnswer['story']>['events'] }) {
  const now = useNow(60)
  if (!events.length) return <p className="quiet">The leader remembers no change of its state.</p>
  return (
    <ol className="story">
      {events.map((event, index) => (
        <li key={index}>
          <span className="strong">{event.state}</span> <span className="quiet" title={event.at === null ? undefined : fullTime(event.at)}>{event.at === null ? 'just now' : clock(event.at, now)}</span>
          {event.cause && <div className="quiet small">{event.cause}</div>}
        </li>
      ))}
    </ol>
  )
}

function Pods({ path }: { path: string }) {
  const links = useLinks()
  const now = useNow(60)
  const answer = useAnswer<{ pods: Pod[] }>(`${path}/pods`, 30)
  return (
    <Answered title="Pods" answer={answer}>
      {({ pods }) =>
        pods.length === 0 ? (
          <p className="quiet">The job has no pods.</p>
        ) : (
          <Scroll label="Pods">
            <table className="plain">
              <thead>
                <tr>
                  <th scope="col">Pod</th>
                  <th scope="col" className="number">Rank</th>
                  <th scope="col">Node</th>
                  <th scope="col">State</th>
                  <th scope="col" className="number">Age</th>
                </tr>
              </thead>
              <tbody>
                {pods.map((pod) => (
                  <tr key={pod.name}>
                    <td className="nowrap">{pod.name}</td>
                    <td className="number">{pod.rank}</td>
                    <td>{pod.node ? <Link to={links.node(pod.node)}>{pod.node}</Link> : ''}</td>
                    <td>
                      <PodState state={pod.state} />
                      {pod.obstacle && <div className="quiet small">{pod.obstacle}</div>}
                    </td>
                    <td className="number nowrap">{duration(now - pod.created)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )
      }
    </Answered>
  )
}

const POD_LOOKS: Record<Pod['state'], [Tone, IconName]> = {
  Gated: ['wait', 'ring'], Unscheduled: ['warn', 'hourglass'], Starting: ['busy', 'half'], Ready: ['good', 'play'], Stopping: ['idle', 'stop'], Succeeded: ['good', 'check'], Failed: ['bad', 'cross'],
}

function PodState({ state }: { state: Pod['state'] }) {
  const [tone, icon] = POD_LOOKS[state]
  return <Badge tone={tone} icon={icon} word={state} />
}

/** Of more pods the events are not asked for. */
const MOST_ABOUT = 10

function Events({ path, workload }: { path: string; workload: string }) {
  const now = useNow(60)
  const pods = useAnswer<{ pods: Pod[] }>(`${path}/pods`, 30).data?.pods ?? []
  const about = [workload, ...pods.slice(0, MOST_ABOUT).map((pod) => pod.name)].map((name) => `about=${encodeURIComponent(name)}`)
  const answer = useAnswer<{ events: KubeEvent[] }>(`${path}/events?${about.join('&')}`, 60)
  return (
    <Answered title="Kubernetes events" answer={answer}>
      {({ events }) =>
        events.length === 0 ? (
          <p className="quiet">There are no events.</p>
        ) : (
          <ol className="story">
            {events.map((event, index) => (
              <li key={index}>
                {event.type === 'Warning' ? <Badge tone="warn" icon="warn" word={event.reason} /> : <span className="strong">{event.reason}</span>}{' '}
                <span className="quiet" title={fullTime(event.at)}>
                  {clock(event.at, now)}
                  {event.count > 1 && `, ${number(event.count)} times`}
                </span>{' '}
                <span className="quiet small">{event.about}</span>
                <div className="quiet small">{event.note}</div>
              </li>
            ))}
          </ol>
        )
      }
    </Answered>
  )
}

function Logs({ path, job }: { path: string; job: Job }) {
  const holds = HOLDING.has(job.state) || OVER.has(job.state)
  const pods = useAnswer<{ pods: Pod[] }>(holds ? `${path}/pods` : null).data?.pods ?? []
  const [chosen, setChosen] = useState('')
  const [container, setContainer] = useState('')
  const [lines, setLines] = useState(200)
  const pod = chosen || pods[0]?.name || ''
  const answer = useAnswer<{ lines: string[] }>(holds && pod ? `${path}/logs?pod=${encodeURIComponent(pod)}&container=${encodeURIComponent(container)}&lines=${lines}` : null)
  if (!holds || pods.length === 0) return null
  return (
    <Panel
      title="Logs"
      aside={
        <div className="toolbar">
          <label className="field">
            <span className="unseen">Pod</span>
            <select className="select" value={pod} onChange={(event) => setChosen(event.target.value)}>
              {pods.map((each) => (
                <option key={each.name}>{each.name}</option>
              ))}
            </select>
          </label>
          <label className="field">
            <span className="unseen">Container</span>
            <input className="input" size={12} placeholder="container" value={container} onChange={(event) => setContainer(event.target.value)} />
          </label>
          <label className="field">
            <span className="unseen">Lines</span>
            <select className="select" value={lines} onChange={(event) => setLines(Number(event.target.value))}>
              {[50, 200, 500].map((each) => (
                <option key={each} value={each}>
                  the last {each} lines
                </option>
              ))}
            </select>
          </label>
          <button type="button" className="button" onClick={answer.again}>
            Read again
          </button>
        </div>
      }
    >
      <AnswerContent answer={answer}>
        {(data) => (
          <pre className="log" tabIndex={0} aria-label={`Logs of pod ${pod}`} ref={toEnd}>
            {data.lines.join('\n') || 'The container has written nothing.'}
          </pre>
        )}
      </AnswerContent>
    </Panel>
  )
}

function toEnd(element: HTMLPreElement | null): void {
  if (element) element.scrollTop = element.scrollHeight
}

function commandsFor(job: Job): string[] {
  const name = quoted(`${job.jobKind.toLowerCase()}/${job.jobName}`)
  const where = `-n ${quoted(job.namespace)}`
  const found = [`gangline why ${name} ${where}`]
  if (job.state === 'Pending') found.push(`gangline eta ${name} --history ${where}`, `gangline top ${name} ${where} --dry-run`)
  if (job.state === 'Inactive') found.push(`gangline release ${name} ${where}`)
  if (HOLDING.has(job.state)) found.push(`kubectl get pods ${where} -o wide`)
  found.push(`kubectl describe workload ${quoted(job.name)} ${where}`)
  return found
}

