/** Gangline itself: who leads, how fresh the data are, and what this page knows. */
import { useState, type ReactNode } from 'react'
import { useAnswer } from '../api/answers'
import { useLive } from '../api/live'
import { useSession } from '../api/session'
import type { DoctorFinding, Listed, OperatorState } from '../api/types'
import { useNow } from '../clock'
import { Badge, type Tone } from '../parts/badges'
import { Commands } from '../parts/commands'
import type { IconName } from '../parts/icons'
import { Failure, Panel } from '../parts/panel'
import { useNamespace } from '../view'
import { clock, count, duration, number } from '../words'

export function Operator() {
  const session = useSession()
  const namespace = useNamespace()
  const state = useLive((each) => each)
  const now = useNow(1)
  const answer = useAnswer<OperatorState>('api/operator', 15)
  const status = answer.error?.status
  const refused = status === 404 || status === 403
  const age = state.at ? now - state.at : null
  const { tables } = state
  return (
    <>
      <h1>Operator</h1>
      <div className="grid">
        <Panel title="The data of this page">
          <dl className="facts">
            <dt>State</dt>
            <dd>
              {state.trouble ? (
                <Badge tone="bad" icon="cross" word={state.trouble.error} />
              ) : age !== null && age > 15 ? (
                <Badge tone="warn" icon="warn" word="stale" />
              ) : (
                <Badge tone="good" icon="check" word="up to date" />
              )}
            </dd>
            <dt>Age</dt>
            <dd>{age === null ? 'no data yet' : duration(age)}</dd>
            <dt>Revision</dt>
            <dd>{number(state.revision)}</dd>
            <dt>Known</dt>
            <dd>
              {number(tables.jobs.list.length)} jobs, {number(tables.queues.list.filter((row) => row.level === 'ClusterQueue').length)} ClusterQueues, {number(tables.nodes.list.length)} nodes,{' '}
              {number(tables.runs.list.length)} runs now and planned
            </dd>
            <dt>View</dt>
            <dd>{namespace ? `namespace ${namespace}` : 'the whole cluster'}</dd>
            <dt>Cluster</dt>
            <dd>{session.cluster}</dd>
            <dt>You</dt>
            <dd>{session.user}</dd>
            <dt>Dashboard</dt>
            <dd>version {session.version}</dd>
          </dl>
        </Panel>
        {!refused && (
          <Panel title="The leading operator">
            {answer.data ? <Leader state={answer.data} now={now} /> : answer.error ? <Failure error={answer.error} again={answer.again} /> : <p className="quiet">The answer is on its way.</p>}
          </Panel>
        )}
        {status === 403 && (
          <Panel title="The leading operator">
            <p className="quiet">{answer.error?.missing ? `You lack the right to ${answer.error.missing}.` : 'Your rights do not show it.'}</p>
          </Panel>
        )}
        <Doctor />
        <Panel title="Commands">
          <Commands texts={['gangline admin doctor --cluster', 'kubectl get lease -n kueue-system', 'kubectl logs -n gangline-system deploy/gangline-operator']} />
        </Panel>
      </div>
    </>
  )
}

// --- what doctor finds ---

const LEVELS: Record<DoctorFinding['level'], [Tone, IconName, string]> = { error: ['bad', 'cross', 'Error'], warning: ['warn', 'warn', 'Warning'], ok: ['good', 'check', 'In order'], skipped: ['idle', 'dash', 'Skipped'] }
const ORDER = Object.keys(LEVELS)

/** It looks at much of the cluster with the reader's rights: only when it is asked to. */
function Doctor() {
  const [asked, setAsked] = useState(false)
  const answer = useAnswer<Listed<DoctorFinding>>(asked ? 'api/doctor' : null)
  const busy = answer.loading
  const run = () => {
    if (asked) answer.again()
    else setAsked(true)
  }
  const items = [...(answer.data?.items ?? [])].sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level))
  const wrong = items.filter((each) => each.level === 'error' || each.level === 'warning').length
  const skipped = items.filter((each) => each.level === 'skipped').length
  return (
    <Panel
      className="across" title="Doctor"
      aside={
        <button type="button" className="button" onClick={run} disabled={busy}>
          {busy ? 'Doctor is looking …' : asked ? 'Run doctor again' : 'Run doctor'}
        </button>
      }
    >
      <div className="stack" aria-live="polite">
        {!asked && <p className="quiet">Doctor checks the installation, queues, webhooks and rights, as gangline admin doctor does. It uses your rights, changes nothing, and takes up to half a minute.</p>}
        {busy && <p className="quiet">Doctor looks at the cluster, which takes up to half a minute.</p>}
        {answer.error && !busy && <Failure error={answer.error} again={answer.again} />}
        {answer.data && !busy && <p>{wrong ? `${count(wrong, 'finding')} of ${count(items.length, 'check')} ${wrong === 1 ? 'needs' : 'need'} a person.` : `Nothing needs a person${skipped ? `; ${count(skipped, 'check')} of ${number(items.length)} ${skipped === 1 ? 'was' : 'were'} skipped` : ` in ${count(items.length, 'check')}`}.`}</p>}
        {answer.data && (
          <ul className="findings">
            {items.map((each, index) => {
              // a newer server may have levels that this page does not know
              const [tone, icon, word] = (LEVELS as Partial<typeof LEVELS>)[each.level] ?? (['idle', 'dash', each.level] as const)
              return (
                <li key={index}>
                  <Badge tone={tone} icon={icon} word={word} />
                  <div>
                    <span className="strong">{each.name}</span>
                    {each.text && <span>: {each.text}</span>}
                    {each.advice && <div className="quiet">{each.advice}</div>}
                    {each.objects.length > 0 && (
                      <div className="quiet small">
                        {each.objects.slice(0, 10).join(', ')}
                        {each.objects.length > 10 && ` and ${number(each.objects.length - 10)} more`}
                      </div>
                    )}
                  </div>
                </li>
              )
            })}
          </ul>
        )}
      </div>
    </Panel>
  )
}

function Leader({ state, now }: { state: OperatorState; now: number }) {
  const { rounds, decisions, writes, known, record, history } = state
  return (
    <dl className="facts">
      <Row name="Leader">{state.leader}</Row>
      <Row name="Version">{state.version}</Row>
      <Row name="Leads since">{state.since === null ? 'not yet' : `${clock(state.since, now)} (for ${duration(now - state.since)})`}</Row>
      <Row name="Rounds">
        {number(rounds.count)}, {milliseconds(rounds.meanSeconds)} each, of which {milliseconds(decisions.meanSeconds)} to decide
      </Row>
      <Row name="Writes">
        {writes.done === undefined ? '' : `${number(writes.done)} done, ${number(writes.refused ?? 0)} refused, `}
        {number(writes.waiting)} waiting
      </Row>
      <Row name="Knows">
        {count(known.workloads, 'Workload')}, {count(known.clusterQueues, 'ClusterQueue')}, {count(known.nodes, 'node')}
      </Row>
      {record && (
        <Row name="Record">
          {!record.kept ? 'Decisions are not recorded' : record.lost ? <Badge tone="warn" icon="warn" word={`${count(record.lost, 'entry', 'entries')} could not be written`} /> : <Badge tone="good" icon="check" word="complete" />}
        </Row>
      )}
      {history !== undefined && (
        <Row name="History">
          {history === null ? 'There is none' : history.error ? <Badge tone="warn" icon="warn" word={`${history.error}; ${count(history.waiting, 'run')} wait`} /> : <Badge tone="good" icon="check" word="written" />}
        </Row>
      )}
      {state.notListed.length > 0 && <Row name="Not listed yet">{state.notListed.join(', ')}</Row>}
      <Row name="Left out">
        {state.quarantined.length === 0 ? (
          'No object'
        ) : (
          <ul className="bare">
            {state.quarantined.map((each) => (
              <li key={`${each.kind} ${each.key}`}>
                <Badge tone="warn" icon="warn" word={`${each.kind} ${each.key}`} />
                <div className="quiet small">{each.error}</div>
              </li>
            ))}
          </ul>
        )}
      </Row>
    </dl>
  )
}

function milliseconds(seconds: number | null): string {
  return seconds === null ? '–' : `${(seconds * 1000).toFixed(1)} ms`
}

function Row({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  )
}
