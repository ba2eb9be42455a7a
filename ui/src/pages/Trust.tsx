/** Whether Gangline does as it says: forecasts, promised starts, reservations, preemptions, swaps. */
import { useMemo } from 'react'
import { useAnswer } from '../api/answers'
import { MOST_ATTEMPTS, useAttempts } from '../api/attempts'
import { useSession } from '../api/session'
import type { Accuracy, Attempt, Audit, Listed, PromiseRecord, RecordCheck, Swap } from '../api/types'
import { useNow } from '../clock'
import { lossesBy } from '../figures'
import { Badge } from '../parts/badges'
import { Bar } from '../parts/bars'
import { Both, InputsDialog, inputsOf, inputsOfAttempt } from '../parts/decision'
import { NamedJob, JobLink } from '../parts/jobs'
import { Answered, Empty, Panel, Scroll, AnswerContent } from '../parts/panel'
import { Swaps } from '../parts/swaps'
import { DataTable, type Column } from '../parts/table'
import { useLinks, useNamespace, useView } from '../view'
import { clock, count, decimal, duration, fullTime, jobLabel, list, number, percent, RULES } from '../words'
import { Link } from 'react-router'
import { promisesKept } from './Now'

const DAY = 86400
const WEEK = 7 * DAY

export function Trust() {
  const namespace = useNamespace()
  const where = `namespace=${encodeURIComponent(namespace)}`
  const accuracy = useAnswer<Accuracy>(`api/accuracy?${where}`, 60)
  const audits = useAnswer<Listed<Audit>>(`api/audits?${where}`, 60)
  const swaps = useAnswer<Listed<Swap>>(`api/swaps?${where}`, 60)
  const attempts = useAttempts(namespace, WEEK)
  const { all } = useSession()
  const checks = useAnswer<Listed<RecordCheck>>(all ? `api/check?${where}` : null, 30)
  const now = useNow(60)
  const ledger = useMemo(() => attempts.data?.items.filter((each) => each.end === 'Preempted'), [attempts.data])
  return (
    <>
      <div className="page-head">
        <h1>Trust</h1>
        <span className="quiet">Does Gangline do as it says?</span>
      </div>
      <Sums accuracy={accuracy.data} audits={audits.data?.items ?? []} stopped={ledger} check={checks.data?.items[0]} now={now} />
      <div className="grid halves">
        <Answered title="Promised starts, by queue" aside={<span className="quiet small">p90 should hold nine times in ten</span>} answer={accuracy}>
          {(data) => <Promises queues={data.queues} />}
        </Answered>
        <Answered title="Forecasts of run times, by source" aside={<span className="quiet small">{accuracy.data?.since ? `counted since ${clock(accuracy.data.since, now)}` : ''}</span>} answer={accuracy}>
          {(data) => <Forecasts accuracy={data} />}
        </Answered>
        <Answered className="across" title="Reserved starts" aside={<span className="quiet small">since this leader began</span>} answer={audits}>
          {(data) => <Audits audits={data.items} now={now} />}
        </Answered>
        {all && (
          <Panel className="across" title="Decided again" aside={<span className="quiet small">the operator plays its record and compares each decision</span>}>
            {checks.error?.status === 404 ? (
              <Empty>This operator does not check its record by itself. The command gangline admin audit does.</Empty>
            ) : (
              <AnswerContent answer={checks}>{(data) => <Checks checks={data.items} now={now} />}</AnswerContent>
            )}
          </Panel>
        )}
        <Panel className="across" title="Preemptions" aside={<span className="quiet small">of the last week</span>}>
          <AnswerContent answer={attempts}>{() => <Ledger rows={ledger ?? []} more={attempts.data?.more ?? false} />}</AnswerContent>
        </Panel>
        <Answered className="across" title="Swaps" aside={<span className="quiet small">gangs that lost nodes, and how long each stage took</span>} answer={swaps}>
          {(data) => <Swaps swaps={data.items} />}
        </Answered>
      </div>
      <InputsDialog />
    </>
  )
}

function Sums({ accuracy, audits, stopped, check, now }: { accuracy: Accuracy | undefined; audits: Audit[]; stopped: Attempt[] | undefined; check: RecordCheck | undefined; now: number }) {
  const kept = promisesKept(accuracy)
  const promised = audits.reduce((sum, each) => sum + each.promised, 0)
  const late = audits.reduce((sum, each) => sum + each.late, 0)
  const starts = accuracy?.starts
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
        <div className="tile-value">{stopped ? number(stopped.length) : '–'}</div>
        <div className="tile-note">{stopped ? `within a week, ${decimal(stopped.reduce((sum, each) => sum + (each.lostGpuHours ?? 0), 0))} GPU-hours lost` : ''}</div>
      </div>
      {check && check.at !== null && (
        <div className="tile">
          <div className="tile-name">Decided again</div>
          <div className="tile-value">
            {number(check.differing)} <small>of {number(check.decisions)} differ</small>
          </div>
          <div className="tile-note">{check.running ? 'A check is in progress' : `checked ${duration(now - check.at)} ago`}</div>
        </div>
      )}
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

function Time({ at }: { at: number }) {
  const now = useNow(60)
  return <span title={fullTime(at)}>{clock(at, now)}</span>
}

// --- the ledger: what each preemption cost ---

const ruleWords = (rule: string): string => RULES[rule] ?? (rule || 'not known')

const LEDGER: readonly Column<Attempt>[] = [
  { id: 'at', header: 'At', value: (row) => row.ended, cell: (row) => (row.ended === null ? null : <Time at={row.ended} />), width: 6.4, largestFirst: true },
  { id: 'job', header: 'Stopped', value: jobLabel, cell: (row) => <JobLink job={row} />, width: 14 },
  { id: 'user', header: 'User', value: (row) => row.user, width: 5.5, from: 88 },
  { id: 'gpus', header: 'GPUs', value: (row) => row.gpus, number: true, width: 4.4, largestFirst: true, from: 30 },
  { id: 'queue', header: 'ClusterQueue', value: (row) => row.clusterQueue, width: 8, from: 72 },
  { id: 'by', header: 'For', value: (row) => row.by || 'not known', width: 13, from: 36 },
  { id: 'rule', header: 'Rule', value: (row) => ruleWords(row.reason), from: 48 },
  { id: 'ran', header: 'Ran', value: (row) => (row.ended === null ? null : row.ended - row.reserved), cell: (row) => (row.ended === null ? '' : duration(row.ended - row.reserved)), number: true, width: 5, from: 96, largestFirst: true },
  { id: 'lost', header: 'Lost', value: (row) => row.lostSeconds, cell: (row) => (row.lostSeconds === null ? '' : duration(row.lostSeconds)), number: true, width: 5, from: 54, largestFirst: true, title: 'The work since its last checkpoint' },
  { id: 'hours', header: 'GPU-hours', value: (row) => row.lostGpuHours, cell: (row) => (row.lostGpuHours === null ? '?' : decimal(row.lostGpuHours)), number: true, width: 6.4, largestFirst: true, title: 'GPU-hours of work that was lost' },
  { id: 'inputs', header: 'Inputs', value: () => null, cell: (row) => <OpenInputs attempt={row} />, width: 5.6 },
]
const idOfAttempt = (row: Attempt) => `${row.namespace}/${row.workload}/${row.reserved}`

function OpenInputs({ attempt }: { attempt: Attempt }) {
  const view = useView()
  return (
    <button type="button" className="button small" aria-label={`Inputs of the decision to stop ${jobLabel(attempt)}`} onClick={() => view.set({ inputs: inputsOfAttempt(attempt) })}>
      Inputs
    </button>
  )
}

const SHOWN = 50

function Ledger({ rows, more }: { rows: Attempt[]; more: boolean }) {
  const view = useView()
  const byRule = useMemo(() => lossesBy(rows, (row) => ruleWords(row.reason)), [rows])
  const byQueue = useMemo(() => lossesBy(rows, (row) => row.clusterQueue || 'not known'), [rows])
  if (!rows.length) return <Empty>No job was preempted within a week.</Empty>
  return (
    <div className="stack">
      <div className="grid halves">
        <Losses title="Rule" rows={byRule} />
        <Losses title="ClusterQueue of the stopped job" rows={byQueue} />
      </div>
      <DataTable plain label="Preemptions" rows={rows.slice(0, SHOWN)} id={idOfAttempt} columns={LEDGER} sort={view.get('preempted')} onSort={(preempted) => view.set({ preempted })} />
      {(rows.length > SHOWN || more) && (
        <p className="quiet small">
          {rows.length > SHOWN && `The last ${number(SHOWN)} of ${number(rows.length)} are listed. `}
          {more && `Only the last ${number(MOST_ATTEMPTS)} attempts of the week are looked at.`}
        </p>
      )}
    </div>
  )
}

function Losses({ title, rows }: { title: string; rows: ReturnType<typeof lossesBy> }) {
  const most = Math.max(1e-9, ...rows.map((row) => row.gpuHours))
  return (
    <Scroll label={`Preemptions by ${title}`}>
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">{title}</th>
            <th scope="col" className="number">Stopped</th>
            <th scope="col" className="bar-cell">Cost</th>
            <th scope="col" className="number">GPU-hours</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <td className="words">{row.name}</td>
              <td className="number">{number(row.many)}</td>
              <td className="bar-cell">
                <Bar label={row.name} total={most} parts={[{ name: 'GPU-hours lost', amount: row.gpuHours, fill: 'bad' }]} />
              </td>
              <td className="number">{decimal(row.gpuHours)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  )
}

// --- decisions decided again ---

function Checks({ checks, now }: { checks: RecordCheck[]; now: number }) {
  const check = checks[0]
  if (!check) return <Empty>This operator keeps no record of its decisions.</Empty>
  if (check.at === null && !check.error) return <Empty>The operator has not checked its record yet.{check.running && ' The first check is in progress.'}</Empty>
  return (
    <div className="stack">
      <p>
        {check.error ? (
          <Badge tone="warn" icon="warn" word="The check failed" />
        ) : check.differing ? (
          <Badge tone="bad" icon="cross" word={`${number(check.differing)} of ${number(check.decisions)} differ`} />
        ) : (
          <Badge tone="good" icon="check" word={`${number(check.differing)} of ${number(check.decisions)} differ`} />
        )}{' '}
        {check.error || (
          <span className="quiet">
            {count(check.rounds, 'round')}
            {check.from !== null && check.to !== null && ` from ${clock(check.from, now)} to ${clock(check.to, now)}`}
            {check.at !== null && `, checked ${duration(now - check.at)} ago`}.{check.running && ' A new check is in progress.'}
          </span>
        )}
      </p>
      {check.headsDelayed !== null && check.missed !== null && !check.error && (
        <p className="quiet small">
          {check.headsDelayed > 0 ? `Backfilled jobs delayed reserved heads by ${duration(check.headsDelayed)} more than the policies allow.` : 'No backfilled job delayed a reserved head by more than the policies allow.'}{' '}
          {check.missed > 0 ? `${count(check.missed, 'start')} could have been earlier.` : 'No start was missed.'}
        </p>
      )}
      {check.differences.map((each) => (
        <section key={each.at} className="difference">
          <h3>
            <Time at={each.at} /> <OpenDifference at={each.at} lines={each.recorded.length ? each.recorded : each.repeated} />
          </h3>
          <Both rounds={each} />
        </section>
      ))}
      {check.differing > check.differences.length && <p className="quiet small">The first {number(check.differences.length)} differences are listed.</p>}
    </div>
  )
}

/** The inputs of the first decision of a round that differs: a line such as `Admit team-a/job-train`. */
function OpenDifference({ at, lines }: { at: number; lines: string[] }) {
  const view = useView()
  const [decision = '', key = ''] = (lines[0] ?? '').split(' ')
  return (
    <button type="button" className="button small" onClick={() => view.set({ inputs: inputsOf(decision, at, key.slice(key.indexOf('/') + 1)) })}>
      Inputs
    </button>
  )
}
