/** Gangline itself: who leads, how fresh the data are, and what this page knows. */
import { useState } from 'react'
import { useAnswer } from '../api/answers'
import { useLive } from '../api/live'
import { useSession } from '../api/session'
import type { DoctorFinding, Listed } from '../api/types'
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
  const answer = useAnswer<Record<string, unknown>>('api/operator', 15)
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
            {answer.data ? <Values value={answer.data} now={now} /> : answer.error ? <Failure error={answer.error} again={answer.again} /> : <p className="quiet">The answer is on its way.</p>}
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

const WORDS: Record<string, string> = { leader: 'Leader', version: 'Version', rounds: 'Rounds', since: 'Leads since', writes: 'Writes', webhooks: 'Webhooks', quarantined: 'Left out' }

function title(name: string): string {
  if (WORDS[name]) return WORDS[name]
  const words = name.replace(/([a-z0-9])([A-Z])/g, '$1 $2').toLowerCase()
  return words.charAt(0).toUpperCase() + words.slice(1)
}

function text(name: string, value: unknown, now: number): string {
  if (value === null || value === undefined || value === '') return 'not known'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'number') {
    if (/^(at|since|until|.*At|.*Since)$/.test(name) && value > 1e9) return `${clock(value, now)} (for ${duration(now - value)})`
    if (/seconds$/i.test(name)) return value < 1 ? `${(value * 1000).toFixed(1)} ms` : duration(value)
    return value < 100 && !Number.isInteger(value) ? value.toFixed(2) : number(value)
  }
  if (Array.isArray(value)) return value.length ? value.map((each) => (typeof each === 'string' ? each : JSON.stringify(each))).join(', ') : 'none'
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function Values({ value, now }: { value: Record<string, unknown>; now: number }) {
  const rows = Object.entries(value).flatMap(([name, each]): [string, string][] => {
    if (each === null || typeof each !== 'object' || Array.isArray(each)) return [[title(name), text(name, each, now)]]
    return Object.entries(each as Record<string, unknown>).map(([inner, one]) => [`${title(name)}: ${title(inner).toLowerCase()}`, text(inner, one, now)])
  })
  return (
    <dl className="facts">
      {rows.map(([name, words]) => (
        <Row key={name} name={name} words={words} />
      ))}
    </dl>
  )
}

function Row({ name, words }: { name: string; words: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{words}</dd>
    </>
  )
}
