/** Changes to jobs and nodes: what one may do, a preview, and what came of it. */
import { createContext, use, useEffect, useMemo, useState, type ReactNode } from 'react'
import { useAnswer } from '../api/answers'
import { useTable } from '../api/live'
import { ApiError, request } from '../api/requests'
import type { ActionResult, Job, Rights, Target, Verb } from '../api/types'
import { count, HOLDING, OVER } from '../words'
import { DialogBox } from './dialogs'
import { ToneIcon } from './badges'

export const MOST_TARGETS = 200

export const VERB_WORDS: Record<Verb, { doing: string; means: string }> = {
  hold: { doing: 'Hold', means: 'The job is not admitted until it is released.' },
  release: { doing: 'Release', means: 'The job is queued again.' },
  cancel: { doing: 'Cancel', means: 'The job is deleted, with its pods.' },
  move: { doing: 'Move', means: 'The job goes to another LocalQueue. Its age goes with it.' },
  top: { doing: 'To the top', means: 'The job gets the lowest priority class with which it precedes all others of its LocalQueue.' },
  cordon: { doing: 'Cordon', means: 'The node takes no new work. What runs there goes on.' },
  uncordon: { doing: 'Uncordon', means: 'The node takes new work again.' },
}

/** Whether the verb can mean anything for a job in its state. */
export function suits(verb: Verb, job: Job): boolean {
  if (job.hidden) return false
  switch (verb) {
    case 'hold':
      return job.state === 'Pending' || HOLDING.has(job.state)
    case 'release':
      return job.state === 'Inactive'
    case 'cancel':
      return !OVER.has(job.state)
    case 'move':
    case 'top':
      return job.state === 'Pending'
    default:
      return false
  }
}

export function targetOf(job: Job): Target {
  return { namespace: job.namespace, kind: job.jobKind, name: job.jobName }
}

export function useRights(namespace: string): Rights {
  return useAnswer<Rights>(`api/rights?namespace=${encodeURIComponent(namespace)}`, 300).data ?? {}
}

interface Wish {
  verb: Verb
  targets: Target[]
}

const Ask = createContext<(wish: Wish) => void>(() => undefined)

/** Gives the page below it a dialog in which an action is previewed and confirmed. */
export function Actions({ children, onDone }: { children: ReactNode; onDone?: () => void }) {
  const [wish, setWish] = useState<Wish | null>(null)
  return (
    <Ask value={setWish}>
      {children}
      {wish && <ActionDialog wish={wish} onClose={() => setWish(null)} onDone={onDone} />}
    </Ask>
  )
}

/** A button of an action; nothing where nobody knows of the right, and which right is missing where it is missing. */
export function ActionButton({ verb, targets, rights, disabled = false }: { verb: Verb; targets: Target[]; rights: Rights; disabled?: boolean }) {
  const ask = use(Ask)
  const right = rights[verb]
  if (!right) return null
  const words = VERB_WORDS[verb]
  if (!right.allowed) {
    const why = right.missing ? `You lack the right to ${right.missing}.` : 'You lack the right to do this.'
    return (
      <button type="button" className="button" aria-disabled="true" title={why}>
        {words.doing}
        <span className="unseen">: {why}</span>
      </button>
    )
  }
  return (
    <button type="button" className={verb === 'cancel' ? 'button danger' : 'button'} disabled={disabled || targets.length === 0} title={words.means} onClick={() => ask({ verb, targets })}>
      {words.doing} …
    </button>
  )
}

export function MissingRights({ verbs, rights }: { verbs: readonly Verb[]; rights: Rights }) {
  const missing = [...new Set(verbs.map((verb) => rights[verb]).flatMap((right) => (right && !right.allowed && right.missing ? [right.missing] : [])))]
  return missing.length ? <p className="quiet small">You lack the right to {missing.join(', and to ')}.</p> : null
}

function useResults(wish: Wish, queue: string) {
  const [results, setResults] = useState<ActionResult[] | null>(null)
  const [error, setError] = useState<ApiError | null>(null)
  const [busy, setBusy] = useState(false)
  const send = useMemo(
    () => async (preview: boolean, signal?: AbortSignal) => {
      setBusy(true)
      setError(null)
      try {
        const body = { verb: wish.verb, targets: wish.targets.slice(0, MOST_TARGETS), preview, ...(wish.verb === 'move' ? { queue } : {}) }
        const answer = await request<{ results: ActionResult[] }>('api/actions', { method: 'POST', body, ...(signal ? { signal } : {}) })
        setResults(answer.results)
        return true
      } catch (failure) {
        if (!signal?.aborted) setError(failure instanceof ApiError ? failure : new ApiError(String(failure), 0))
        return false
      } finally {
        if (!signal?.aborted) setBusy(false)
      }
    },
    [wish, queue],
  )
  return { results, error, busy, send }
}

function ActionDialog({ wish, onClose, onDone }: { wish: Wish; onClose: () => void; onDone: (() => void) | undefined }) {
  const queues = useQueuesFor(wish)
  const [queue, setQueue] = useState(queues[0] ?? '')
  const [done, setDone] = useState(false)
  const { results, error, busy, send } = useResults(wish, queue)
  const words = VERB_WORDS[wish.verb]
  const what = 'node' in (wish.targets[0] ?? {}) ? 'node' : 'job'
  const able = results?.filter((each) => each.ok).length ?? 0
  const needsQueue = wish.verb === 'move'

  useEffect(() => {
    if (needsQueue && !queue) return
    const stopping = new AbortController()
    void send(true, stopping.signal)
    return () => stopping.abort()
  }, [send, needsQueue, queue])

  const confirm = async () => {
    if (await send(false)) {
      setDone(true)
      onDone?.()
    }
  }
  return (
    <DialogBox title={`${words.doing}: ${count(wish.targets.length, what)}`} open onClose={onClose} alert={wish.verb === 'cancel'}>
      <p>{words.means}</p>
      {wish.targets.length > MOST_TARGETS && <p className="notice">One action takes {MOST_TARGETS} targets at most. The first {MOST_TARGETS} are taken.</p>}
      {needsQueue && !done && (
        <label className="field">
          <span>To LocalQueue</span>
          <select className="select" value={queue} onChange={(event) => setQueue(event.target.value)}>
            {queues.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
      )}
      {needsQueue && queues.length === 0 && <p>No other LocalQueue of this namespace is known.</p>}
      {error && (
        <p className="notice bad" role="alert">
          {error.message} {error.missing && `You lack the right to ${error.missing}.`}
        </p>
      )}
      {results && (
        <>
          <h3>{done ? 'What was done' : 'What would happen'}</h3>
          <ul className="results" tabIndex={0} aria-label={done ? 'What was done' : 'What would happen'}>
            {results.map((each, index) => (
              <li key={index}>
                <ToneIcon tone={each.ok ? 'good' : 'warn'} icon={each.ok ? 'check' : 'warn'} />
                <span>
                  {!each.ok && <b>{targetWords(each.target)}: </b>}
                  {each.text}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
      {busy && !results && <p className="quiet">The server looks what would happen.</p>}
      <footer>
        <button type="button" className="button" onClick={onClose}>
          {done ? 'Close' : 'Change nothing'}
        </button>
        {!done && (
          <button type="button" className={wish.verb === 'cancel' ? 'button danger main-action' : 'button main-action'} disabled={busy || !results || able === 0} onClick={() => void confirm()}>
            {words.doing} {count(able, what)}
          </button>
        )}
      </footer>
    </DialogBox>
  )
}

function targetWords(target: Target): string {
  return 'node' in target ? target.node : `${target.kind.toLowerCase()}/${target.name}`
}

/** LocalQueues of the jobs' namespaces; those in which no job is stand first. */
function useQueuesFor(wish: Wish): string[] {
  const queues = useTable('queues')
  const jobs = useTable('jobs')
  return useMemo(() => {
    const spaces = new Set(wish.targets.map((target) => ('namespace' in target ? target.namespace : '')))
    const names = new Set(wish.targets.map((target) => ('namespace' in target ? `${target.namespace}/${target.name}` : '')))
    const now = new Set(jobs.list.flatMap((job) => (names.has(`${job.namespace}/${job.jobName}`) ? [job.queue] : [])))
    const found = queues.list.filter((row) => row.level === 'LocalQueue' && !row.hidden && spaces.has(row.namespace))
    return [...new Set(found.map((row) => row.name))].sort((a, b) => Number(now.has(a)) - Number(now.has(b)) || a.localeCompare(b))
  }, [queues, jobs, wish])
}
