/** What the engine knew when it decided: the inputs of one decision, beside what it decides from them again. */
import { useMemo } from 'react'
import { useAnswer } from '../api/answers'
import type { Attempt, DecisionInputs, DecisionList, KnownQueue, KnownWorkload } from '../api/types'
import { now as theTime, useNow } from '../clock'
import { useNamespace, useView } from '../view'
import { clock, clockSeconds, count, decisionWord, duration, durations, fullTime, gpus, jobLabel, list, number, ordinal } from '../words'
import { Badge, type Tone } from './badges'
import { DialogBox } from './dialogs'
import type { IconName } from './icons'
import { JobLink } from './jobs'
import { Empty, Scroll, AnswerContent } from './panel'

const LOOKS: Record<string, [Tone, IconName]> = {
  Admit: ['good', 'play'], CompleteAdmission: ['good', 'play'], Preempt: ['warn', 'left'], Evict: ['warn', 'eject'], Withdraw: ['idle', 'stop'], Requeue: ['wait', 'ring'], ReportPending: ['wait', 'hourglass'], Swap: ['busy', 'right'],
  Heal: ['busy', 'half'], Warn: ['warn', 'warn'], AskChecks: ['wait', 'dotRing'],
}

export function DecisionWord({ decision }: { decision: string }) {
  const [tone, icon] = LOOKS[decision] ?? ['idle', 'dash']
  return <Badge tone={tone} icon={icon} word={decisionWord(decision)} />
}

/** The button that opens the inputs of a decision: they stand in the address, so the view can be sent. */
export function InputsButton({ decision, word = 'Inputs' }: { decision: number; word?: string }) {
  const view = useView()
  return (
    <button type="button" className="button small" onClick={() => view.set({ inputs: String(decision) })}>
      {word}
    </button>
  )
}

/** Stands once on a page with decisions: it is open while the address names a decision, or an instant of one. */
export function InputsDialog() {
  const view = useView()
  const namespace = useNamespace()
  const named = view.get('inputs')
  const close = () => view.set({ inputs: '' })
  return (
    <DialogBox title="What the engine knew" open={named !== ''} onClose={close} wide>
      {named !== '' && (named.includes(':') ? <Looked namespace={namespace} wanted={named} /> : <Inputs namespace={namespace} decision={Number(named)} />)}
      <footer>
        <button type="button" className="button" onClick={close}>
          Close
        </button>
      </footer>
    </DialogBox>
  )
}

/** How an address names a decision whose number is not known: `DECISION:INSTANT:WORKLOAD`. */
export function inputsOf(decision: string, at: number, workload: string): string {
  return `${decision}:${Math.round(at)}:${workload}`
}

/** The decision that ended an attempt, or the one that began it where none did. */
export function inputsOfAttempt(attempt: Pick<Attempt, 'end' | 'ended' | 'reserved' | 'workload'>): string {
  const ended = { Preempted: 'Preempt', Evicted: 'Evict' }[attempt.end as string]
  return ended && attempt.ended !== null ? inputsOf(ended, attempt.ended, attempt.workload) : inputsOf('Admit', attempt.reserved, attempt.workload)
}

/** A job keeps its quota until its pods are gone, which may take so long after the decision. */
const STOPPING = 900

/** Finds a decision by its job and about its instant, then shows its inputs. */
function Looked({ namespace, wanted }: { namespace: string; wanted: string }) {
  const [decision = '', instant = '', workload = ''] = wanted.split(':')
  const at = Number(instant)
  const path = useMemo(() => {
    const query = new URLSearchParams({ namespace, workload, since: String(Math.max(1, Math.ceil(theTime() - at + STOPPING))), until: String(Math.max(0, Math.floor(theTime() - at - 60))), limit: '5000' })
    return Number.isFinite(at) ? `api/decisions?${query}` : null
  }, [namespace, workload, at])
  const answer = useAnswer<DecisionList>(path)
  const found = answer.data?.items.filter((row) => (!workload || row.workload === workload) && (!decision || row.decision === decision)).at(-1)
  return (
    <AnswerContent answer={answer}>
      {(data) =>
        found ? (
          <Inputs namespace={namespace} decision={found.number} />
        ) : (
          <Empty>{data.record ? 'The record no longer has this decision, or it was another one than the engine’s.' : 'This operator keeps no record of its decisions.'}</Empty>
        )
      }
    </AnswerContent>
  )
}

function Inputs({ namespace, decision }: { namespace: string; decision: number }) {
  const answer = useAnswer<DecisionInputs>(Number.isSafeInteger(decision) ? `api/decision/${decision}?namespace=${encodeURIComponent(namespace)}` : null)
  if (answer.data === undefined && !answer.error) return <p className="quiet">The operator plays its record up to this decision, which takes some seconds.</p>
  return <AnswerContent answer={answer}>{(data) => <Known answer={data} />}</AnswerContent>
}

function Known({ answer }: { answer: DecisionInputs }) {
  const now = useNow(3600)
  const { decision, inputs } = answer
  return (
    <div className="stack">
      <p>
        <DecisionWord decision={decision.decision} /> <JobLink job={decision} /> at <span title={fullTime(decision.at)}>{clock(decision.at, now)}</span>, in round {number(decision.round)}. {decision.text}
      </p>
      <Again check={answer} />
      <div className="grid">
        {decision.jobName && <KnownJob title={jobLabel(decision)} known={inputs.workload} at={decision.at} />}
        {inputs.by && <KnownJob title={decision.by ? `For ${decision.by}` : 'For the job that preempts it'} known={inputs.by} at={decision.at} />}
      </div>
      {inputs.cheaper && <Cheaper loss={inputs.cheaper} />}
      {inputs.queue && <KnownQuota queue={inputs.queue} at={decision.at} />}
      <FreeNodes free={inputs.nodes?.free ?? []} />
    </div>
  )
}

/** That fewer GPU-hours would have been lost by another choice of victims. */
function Cheaper({ loss: { chosen, instead } }: { loss: NonNullable<DecisionInputs['inputs']['cheaper']> }) {
  return (
    <p>
      {number(chosen.workloads)} preempted, {number(chosen.lostGpuHours)} GPU-hours lost. With preemption.victims: LeastLostWork it would have been {number(instead.workloads)} preempted and {number(instead.lostGpuHours)} GPU-hours lost.
    </p>
  )
}

/** Whether the same inputs give the same decisions. */
export function Again({ check }: { check: Pick<DecisionInputs, 'same' | 'recorded' | 'repeated'> }) {
  return (
    <div className={check.same ? 'notice' : 'notice bad'}>
      {check.same ? <Badge tone="good" icon="check" word="Decided again from the same inputs: the same." /> : <Badge tone="bad" icon="cross" word="Decided again from the same inputs: something else." />}
      <Both rounds={check} />
    </div>
  )
}

export function Both({ rounds }: { rounds: Pick<DecisionInputs, 'recorded' | 'repeated'> }) {
  const lists: [string, string[]][] = [['As it was decided', rounds.recorded], ['Decided again', rounds.repeated]]
  return (
    <div className="both">
      {lists.map(([title, lines]) => (
        <div key={title}>
          <h3>{title}</h3>
          {lines.length ? (
            <ul>
              {lines.slice(0, 20).map((line, index) => (
                <li key={index}>{line}</li>
              ))}
              {lines.length > 20 && <li className="quiet">and {number(lines.length - 20)} more</li>}
            </ul>
          ) : (
            <p className="quiet">nothing</p>
          )}
        </div>
      ))}
    </div>
  )
}

function KnownJob({ title, known, at }: { title: string; known: KnownWorkload | null; at: number }) {
  if (!known) return <p className="quiet">Of {title} the record shows nothing that you may see.</p>
  const rows: [string, string][] = [['State', known.state], ['Asks for', gpus(known.gpus)]]
  if (known.priority !== null) rows.push(['Priority', number(known.priority)])
  const amounts = Object.entries(known.amounts).map(([resource, amount]) => `${amount} ${resource}`)
  if (amounts.length) rows.push(['Amounts', amounts.join(', ')])
  if (known.queue) rows.push(['Queue', known.queue])
  if (known.position !== null) rows.push(['Position', `${ordinal(known.position + 1)} in its queue`])
  if (known.created !== null) rows.push(['Waited', duration(at - known.created)])
  if (known.forecast) rows.push(['Forecast', `${durations(known.forecast.p50, known.forecast.p90)} of run time`])
  if (known.saved !== null) rows.push(['Saved', known.saved > 0 ? `${duration(known.saved)} of work in a checkpoint` : 'no work in a checkpoint'])
  return (
    <section>
      <h3>{title}</h3>
      <dl className="facts">
        {rows.map(([name, text]) => (
          <Row key={name} name={name} text={text} />
        ))}
      </dl>
    </section>
  )
}

function Row({ name, text }: { name: string; text: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{text}</dd>
    </>
  )
}

function KnownQuota({ queue, at }: { queue: KnownQueue; at: number }) {
  return (
    <section>
      <h3>ClusterQueue {queue.name}</h3>
      <p className="quiet">
        {number(queue.waiting)} waited{queue.head && `, ${queue.head} first`}
        {queue.reservedUntil !== null && `. Its start was reserved for ${clockSeconds(queue.reservedUntil)}, ${duration(queue.reservedUntil - at)} later`}
        {queue.cohorts.length > 0 && `. Cohort ${queue.cohorts.join(', in ')}`}.
      </p>
      <Scroll label={`Quota of ${queue.name}`}>
        <table className="plain">
          <thead>
            <tr>
              <th scope="col">Flavor</th>
              <th scope="col">Resource</th>
              <th scope="col" className="number">Owned</th>
              <th scope="col" className="number">Used</th>
              <th scope="col" className="number">Borrowed</th>
              <th scope="col" className="number">Available</th>
            </tr>
          </thead>
          <tbody>
            {queue.quotas.map((quota) => (
              <tr key={`${quota.flavor} ${quota.resource}`}>
                <th scope="row">{quota.flavor}</th>
                <td>{quota.resource}</td>
                <td className="number">{quota.nominal}</td>
                <td className="number">{quota.used}</td>
                <td className="number">{quota.borrowed}</td>
                <td className="number">{quota.available}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  )
}

function FreeNodes({ free }: { free: { gpus: number; nodes: number }[] }) {
  if (!free.length) return null
  return (
    <section>
      <h3>Nodes that took new work</h3>
      <p>{list(free.map((each) => `${count(each.nodes, 'node')} with ${gpus(each.gpus)} free`))}.</p>
    </section>
  )
}
