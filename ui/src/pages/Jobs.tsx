/** All jobs of the view: filtered, grouped, sorted, and changed many at a time. Everything but the selection is in the address. */
import { useDeferredValue, useEffect, useMemo, useState } from 'react'
import { useLocation, useNavigate } from 'react-router'
import { useAnswer } from '../api/answers'
import { useIsLoading, useTable } from '../api/live'
import type { Annotated, Job, Listed, Verb } from '../api/types'
import { useNow } from '../clock'
import { displayOrder, isAnnotationKey, matches, MOST_KEYS, type Filter } from '../filter'
import { ActionButton, Actions, MissingRights, suits, targetOf, useRights } from '../parts/actions'
import { JobState, StateBadge } from '../parts/badges'
import { DialogBox, MenuButton } from '../parts/dialogs'
import { FirstJob } from '../parts/first'
import { JobLink } from '../parts/jobs'
import { DataTable, type Column } from '../parts/table'
import { useNamespace, useView, type View } from '../view'
import { clock, count, duration, durations, fullTime, gpus, inInterval, jobLabel, number, shownState, STATES, type ShownState } from '../words'

/** Rows that change have the same place among states, however their words sort. */
const STATE_ORDER = new Map(STATES.map((state, index) => [state, index]))

function Waited({ job }: { job: Job }) {
  const now = useNow(10)
  return <span title={`since ${fullTime(sinceOf(job))}`}>{duration(now - sinceOf(job))}</span>
}

function sinceOf(job: Job): number {
  return job.state === 'Pending' ? job.created : job.since
}

function StartOrEnd({ job }: { job: Job }) {
  const now = useNow(10)
  if (job.state === 'Pending') {
    if (!job.expectedStart) return <span className="quiet" title="No start can be predicted">?</span>
    const { p50, p90 } = job.expectedStart
    return <span title={`p50 ${clock(p50, now)}, p90 ${p90 === null ? 'not known' : clock(p90, now)}${job.because && `, ${job.because}`}`}>{inInterval(job.expectedStart, now)}</span>
  }
  if (job.end === null || (job.state !== 'Running' && job.state !== 'Starting')) return null
  return <span className="quiet">ends in {durations(job.end - now, job.latestEnd === null ? null : job.latestEnd - now)}</span>
}

const COLUMNS: readonly Column<Job>[] = [
  { id: 'state', header: 'State', value: (job) => STATE_ORDER.get(shownState(job)), cell: (job) => <JobState job={job} />, width: 8.7 },
  { id: 'job', header: 'Job', value: jobLabel, cell: (job) => <JobLink job={job} />, width: 16.5 },
  { id: 'user', header: 'User', value: (job) => job.user, width: 6, from: 62 },
  { id: 'gpus', header: 'GPUs', value: (job) => job.gpus, number: true, width: 5, largestFirst: true },
  { id: 'position', header: 'Position', value: (job) => (job.position === null ? null : job.position + 1), number: true, width: 5.4, from: 44, title: 'The place among those that wait in its ClusterQueue' },
  { id: 'start', header: 'Starts or ends', value: (job) => job.expectedStart?.p50 ?? job.end, cell: (job) => <StartOrEnd job={job} />, width: 12.6, from: 34, title: 'When the job starts, or ends if it runs: p50 – p90' },
  { id: 'since', header: 'For', value: sinceOf, cell: (job) => <Waited job={job} />, number: true, width: 5.2, from: 44, title: 'How long the job has waited, or been in its state' },
  { id: 'queue', header: 'LocalQueue', value: (job) => job.queue, width: 8.4, from: 68 },
  { id: 'clusterQueue', header: 'ClusterQueue', value: (job) => job.clusterQueue, width: 7.6, from: 84 },
  { id: 'namespace', header: 'Namespace', value: (job) => job.namespace, width: 9.5, from: 96 },
  { id: 'flavor', header: 'Flavor', value: (job) => job.flavors.join(', '), width: 6.5, from: 112 },
  { id: 'priority', header: 'Priority', value: (job) => job.priority, number: true, width: 5.6, from: 104, largestFirst: true },
  { id: 'pods', header: 'Pods', value: (job) => job.pods, number: true, width: 4.8, from: 140, largestFirst: true },
  { id: 'created', header: 'Submitted', value: (job) => job.created, cell: (job) => <Submitted job={job} />, number: true, width: 7, from: 150 },
  { id: 'why', header: 'Why', value: (job) => job.warnings[0] ?? job.why, cell: (job) => <Why job={job} />, from: 56 },
]
const COLUMN_IDS = COLUMNS.map((column) => column.id)

function Submitted({ job }: { job: Job }) {
  const now = useNow(60)
  return <span title={fullTime(job.created)}>{clock(job.created, now)}</span>
}

function Why({ job }: { job: Job }) {
  const text = [...job.warnings, job.why].filter(Boolean).join(' · ')
  return <span className="why" title={text}>{text}</span>
}

const GROUPS: readonly [string, string][] = [['', 'no groups'], ['stateWord', 'state'], ['user', 'user'], ['queue', 'LocalQueue'], ['clusterQueue', 'ClusterQueue'], ['namespace', 'namespace'], ['flavor', 'flavor']]
const GROUPED: Column<Job> = { id: 'stateWord', header: 'State', value: (job) => shownState(job), from: 9999 }
const ALL_COLUMNS = [...COLUMNS, GROUPED]

const idOf = (job: Job) => job.uid || `${job.namespace}/${job.name}`
const nameOf = (job: Job) => (job.namespace ? `${jobLabel(job)} in ${job.namespace}` : jobLabel(job))
const isSelectable = (job: Job) => !job.hidden && job.jobKind !== ''

const NOTES: readonly ShownState[] = ['Running', 'Pending']

function groupNote(jobs: Job[]): string {
  const sums = new Map<ShownState, number>()
  for (const job of jobs) sums.set(shownState(job), (sums.get(shownState(job)) ?? 0) + job.gpus)
  const notes = NOTES.flatMap((state) => (sums.has(state) ? [`${gpus(sums.get(state) ?? 0)} ${state.toLowerCase()}`] : []))
  return [count(jobs.length, 'job'), ...notes].join(', ')
}

// --- columns by annotation ---

type Noted = ReadonlyMap<string, Record<string, string>>
const NOTHING_NOTED: Noted = new Map()
const NOTED_EVERY = 30

/** The keys in the address that can be keys of annotations, and the column of each. */
function keysOf(view: View): string[] {
  return [...new Set(view.list('annotations'))].filter(isAnnotationKey).slice(0, MOST_KEYS)
}
const columnOf = (key: string): string => `annotation:${key}`

/** The annotations of all jobs by these keys: the same object while they say the same. */
function useNoted(keys: readonly string[], namespace: string): Noted {
  const path = keys.length ? `api/annotations?namespace=${encodeURIComponent(namespace)}&keys=${encodeURIComponent(keys.join(','))}` : null
  const items = useAnswer<Listed<Annotated>>(path, NOTED_EVERY).data?.items
  const text = useMemo(() => (items ? JSON.stringify(items.map((each) => [each.uid, each.annotations])) : ''), [items])
  return useMemo(() => (text ? new Map(JSON.parse(text) as [string, Record<string, string>][]) : NOTHING_NOTED), [text])
}

function notedColumn(key: string, noted: Noted): Column<Job> {
  return { id: columnOf(key), header: key.slice(key.indexOf('/') + 1), title: `The annotation ${key}, or the label where there is none`, value: (job) => noted.get(job.uid)?.[key] ?? null, width: 9 }
}

function useFilter(view: View, keys: readonly string[], noted: Noted): Filter {
  const wanted = keys.map((key) => view.get(columnOf(key))).join('\n')
  const [states, queue, clusterQueue, user, only, text] = [view.get('state'), view.get('queue'), view.get('cq'), view.get('user'), view.get('only'), view.get('q')]
  return useMemo(
    () => ({
      states: new Set(states.split(',').filter(Boolean)), queue, clusterQueue, user, only, words: text.toLowerCase().split(/\s+/).filter(Boolean), noted,
      annotations: wanted.split('\n').flatMap((value, i): [string, string][] => (value && keys[i] !== undefined ? [[keys[i], value]] : [])),
    }),
    [states, queue, clusterQueue, user, only, text, wanted, keys, noted],
  )
}

const VERBS: readonly Verb[] = ['hold', 'release', 'move', 'top', 'cancel']

export function Jobs() {
  const view = useView()
  const namespace = useNamespace()
  const table = useTable('jobs')
  const loading = useIsLoading()
  const listed = view.get('annotations')
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the address of other parts of the view may change
  const keys = useMemo(() => keysOf(view), [listed])
  const noted = useNoted(keys, namespace)
  const columns = useMemo(() => [...ALL_COLUMNS.slice(0, 2), ...keys.map((key) => notedColumn(key, noted)), ...ALL_COLUMNS.slice(2)], [keys, noted])
  const filter = useFilter(view, keys, noted)
  const list = useDeferredValue(table.list)
  const rows = useMemo(() => [...list].sort(displayOrder), [list])
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set())

  const rest = useMemo(() => rows.filter((job) => matches(job, filter)), [rows, filter])
  const shown = useMemo(() => (filter.states.size ? rest.filter((job) => filter.states.has(shownState(job))) : rest), [rest, filter])
  const chosen = useMemo(() => (selected.size ? rows.filter((job) => selected.has(idOf(job))) : []), [rows, selected])
  const sum = shown.reduce((all, job) => all + job.gpus, 0)

  if (loading) return <h1>Jobs</h1>
  if (table.list.length === 0) {
    return (
      <>
        <h1>Jobs</h1>
        <FirstJob />
      </>
    )
  }
  return (
    <Actions onDone={() => setSelected(new Set())}>
      <div className="tall">
        <div className="page-head">
          <h1>Jobs</h1>
          <span className="quiet">
            {number(shown.length)} of {count(rows.length, 'job')}, {gpus(sum)}
          </span>
          <span className="space" />
          <SavedViews />
        </div>
        <Toolbar view={view} jobs={rows} rest={rest} keys={keys} noted={noted} />
        {chosen.length > 0 && <SelectionBar jobs={chosen} namespace={namespace} onClear={() => setSelected(new Set())} />}
        <DataTable
          fill label="Jobs" rows={shown} id={idOf} name={nameOf} columns={columns} sort={view.get('sort')} onSort={(sort) => view.set({ sort })} group={view.get('group')} groupNote={groupNote}
          shown={chosenColumns(view, keys)} selected={selected} onSelect={setSelected} selectable={isSelectable}
          empty={<>No job matches these filters. <button type="button" className="button" onClick={() => view.set({ state: '', queue: '', cq: '', user: '', only: '', q: '', ...Object.fromEntries(keys.map((key) => [columnOf(key), ''])) })}>Show all jobs</button></>}
        />
      </div>
    </Actions>
  )
}

/** Columns by annotation are shown because they were asked for. */
function chosenColumns(view: View, keys: readonly string[]): string[] {
  const chosen = view.list('cols')
  return chosen.length ? [...chosen, ...keys.map(columnOf)] : []
}

function SelectionBar({ jobs, namespace, onClear }: { jobs: Job[]; namespace: string; onClear: () => void }) {
  const rights = useRights(namespace)
  return (
    <div className="selection-bar" role="group" aria-label="Actions for the selected jobs">
      <strong>{count(jobs.length, 'job')} selected</strong>
      <span className="quiet">{gpus(jobs.reduce((sum, job) => sum + job.gpus, 0))}</span>
      {VERBS.map((verb) => (verb === 'top' && jobs.length > 1 ? null : <ActionButton key={verb} verb={verb} rights={rights} targets={jobs.filter((job) => suits(verb, job)).map(targetOf)} />))}
      <button type="button" className="button plain" onClick={onClear}>
        Select none
      </button>
      <MissingRights verbs={VERBS} rights={rights} />
    </div>
  )
}

function Toolbar({ view, jobs, rest, keys, noted }: { view: View; jobs: readonly Job[]; rest: readonly Job[]; keys: readonly string[]; noted: Noted }) {
  const [choosing, setChoosing] = useState(false)
  const states = new Set(view.list('state'))
  const counts = useMemo(() => {
    const found = new Map<ShownState, number>()
    for (const job of rest) found.set(shownState(job), (found.get(shownState(job)) ?? 0) + 1)
    return found
  }, [rest])
  const names = useMemo(() => {
    const of = (value: (job: Job) => string) => [...new Set(jobs.map(value))].filter(Boolean).sort()
    return { queue: of((job) => job.queue), cq: of((job) => job.clusterQueue), user: of((job) => job.user) }
  }, [jobs])
  const toggle = (state: string) => {
    const next = new Set(states)
    if (!next.delete(state)) next.add(state)
    view.set({ state: [...next] })
  }
  const columns = new Set(view.list('cols'))
  return (
    <>
      <div className="toolbar">
        <Search view={view} />
        <Pick name="LocalQueue" value={view.get('queue')} values={names.queue} onPick={(queue) => view.set({ queue })} />
        <Pick name="ClusterQueue" value={view.get('cq')} values={names.cq} onPick={(cq) => view.set({ cq })} />
        <Pick name="User" value={view.get('user')} values={names.user} onPick={(user) => view.set({ user })} />
        {keys.map((key) => (
          <Pick key={key} name={key.slice(key.indexOf('/') + 1)} value={view.get(columnOf(key))} values={valuesOf(jobs, key, noted)} onPick={(value) => view.set({ [columnOf(key)]: value })} />
        ))}
        <label className="field">
          <span>Groups</span>
          <select className="select" value={view.get('group')} onChange={(event) => view.set({ group: event.target.value })}>
            {[...GROUPS, ...keys.map((key) => [columnOf(key), key] as const)].map(([id, word]) => (
              <option key={id} value={id}>{word}</option>
            ))}
          </select>
        </label>
        <MenuButton
          name="Columns" label="Columns" chosen={columns.size ? columns : new Set(['auto'])}
          choices={[{ id: 'auto', word: 'As there is room', text: 'As there is room' }, ...COLUMNS.map((column) => ({ id: column.id, word: column.header, text: column.header })), { id: 'annotations', word: 'Annotations', text: 'By annotation …', closes: true }]}
          onChoose={(id) => {
            if (id === 'annotations') { setChoosing(true); return; }
            if (id === 'auto') { view.set({ cols: '' }); return; }
            const next = columns.size ? new Set(columns) : new Set(COLUMNS.filter((column) => (column.from ?? 0) < 84).map((column) => column.id))
            if (!next.delete(id)) next.add(id)
            view.set({ cols: COLUMN_IDS.filter((each) => next.has(each)) })
          }}
        />
      </div>
      <KeysDialog view={view} keys={keys} open={choosing} onClose={() => setChoosing(false)} />
      <div className="chips" role="group" aria-label="States">
        {STATES.map((state) =>
          counts.has(state) || states.has(state) ? (
            <button key={state} type="button" className="chip" aria-pressed={states.has(state)} onClick={() => toggle(state)}>
              <StateBadge state={state} />
              <span className="quiet">{number(counts.get(state) ?? 0)}</span>
            </button>
          ) : null,
        )}
        <button type="button" className="chip" aria-pressed={view.get('only') === 'warnings'} onClick={() => view.set({ only: view.get('only') ? '' : 'warnings' })}>
          with warnings
        </button>
      </div>
    </>
  )
}

const MOST_VALUES = 200

function valuesOf(jobs: readonly Job[], key: string, noted: Noted): string[] {
  const found = new Set<string>()
  for (const job of jobs) {
    const value = noted.get(job.uid)?.[key]
    if (value) found.add(value)
  }
  return [...found].sort().slice(0, MOST_VALUES)
}

/** Which annotations are columns. */
function KeysDialog({ view, keys, open, onClose }: { view: View; keys: readonly string[]; open: boolean; onClose: () => void }) {
  const [text, setText] = useState('')
  const key = text.trim()
  const wrong = key !== '' && !isAnnotationKey(key)
  const full = keys.length >= MOST_KEYS
  const set = (next: readonly string[]) => view.set({ annotations: next, ...Object.fromEntries(keys.filter((each) => !next.includes(each)).map((each) => [columnOf(each), ''])) })
  return (
    <DialogBox title="Columns by annotation" open={open} onClose={onClose}>
      <p>
        Each key of an annotation, such as <code>example.com/project</code>, is a column that can be sorted, filtered and grouped. A label of that key counts where a job has no such annotation.
      </p>
      {keys.length > 0 && (
        <ul className="rows">
          {keys.map((each) => (
            <li key={each}>
              <code>{each}</code>
              <button type="button" className="button small" aria-label={`Take away the column ${each}`} onClick={() => set(keys.filter((other) => other !== each))}>
                Take away
              </button>
            </li>
          ))}
        </ul>
      )}
      <form
        className="toolbar"
        onSubmit={(event) => {
          event.preventDefault()
          if (!key || wrong || full || keys.includes(key)) return
          set([...keys, key])
          setText('')
        }}
      >
        <input className="input wide-input" aria-label="Key of an annotation" placeholder="example.com/project" value={text} onChange={(event) => setText(event.target.value)} aria-invalid={wrong} aria-describedby="key-note" />
        <button type="submit" className="button main-action" disabled={!key || wrong || full}>Add</button>
      </form>
      <p id="key-note" className="quiet small" role="status">
        {full ? `There are at most ${MOST_KEYS} such columns.` : wrong ? 'A key has letters, digits, dashes, underscores and dots, and a domain with a slash before it if it has one.' : 'The columns stand in the address, so a saved view has them, too.'}
      </p>
      <footer>
        <button type="button" className="button" onClick={onClose}>Close</button>
      </footer>
    </DialogBox>
  )
}

function Search({ view }: { view: View }) {
  const asked = view.get('q')
  const [text, setText] = useState(asked)
  const [known, setKnown] = useState(asked)
  if (asked !== known) {
    setKnown(asked)
    setText(asked)
  }
  useEffect(() => {
    if (text === asked) return
    const timer = setTimeout(() => view.set({ q: text }), 150)
    return () => clearTimeout(timer)
  }, [text, asked, view])
  return <input type="search" className="input" placeholder="Search (press /)" aria-label="Search jobs by name, user, queue or reason" value={text} onChange={(event) => setText(event.target.value)} />
}

function Pick({ name, value, values, onPick }: { name: string; value: string; values: string[]; onPick: (value: string) => void }) {
  if (values.length < 2 && !value) return null
  return (
    <label className="field">
      <span>{name}</span>
      <select className="select" value={value} onChange={(event) => onPick(event.target.value)}>
        <option value="">all</option>
        {(values.includes(value) || !value ? values : [value, ...values]).map((each) => (
          <option key={each}>{each}</option>
        ))}
      </select>
    </label>
  )
}

// --- saved views ---

const READY: readonly [string, string][] = [
  ['Next to start', 'state=Pending&sort=start'],
  ['Waiting longest', 'state=Pending&sort=created'],
  ['Largest running', 'state=Running&sort=-gpus'],
  ['Running by user', 'state=Running&group=user'],
  ['Waiting by queue', 'state=Pending&group=queue'],
  ['With warnings', 'only=warnings'],
]
const KEY = 'gangline.views'

function saved(): [string, string][] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? '[]')
    return Array.isArray(found) ? (found as [string, string][]).filter((each) => typeof each[0] === 'string' && typeof each[1] === 'string') : []
  } catch {
    return []
  }
}

function SavedViews() {
  const navigate = useNavigate()
  const { search } = useLocation()
  const [own, setOwn] = useState(saved)
  const [naming, setNaming] = useState(false)
  const [name, setName] = useState('')
  const keep = (next: [string, string][]) => {
    setOwn(next)
    try {
      localStorage.setItem(KEY, JSON.stringify(next))
    } catch {
      // the address remains
    }
  }
  const here = search.replace(/^\?/, '')
  const mine = own.find(([, query]) => query === here)
  const space = new URLSearchParams(here).get('ns')
  const go = (query: string) => {
    const next = new URLSearchParams(query)
    if (space !== null && !next.has('ns')) next.set('ns', space)
    void navigate({ search: next.toString() })
  }
  const views = [...own, ...READY]
  return (
    <>
      <MenuButton
        name="Views" label="Views"
        choices={[
          ...views.map(([word], index) => ({ id: String(index), word, text: word })),
          mine ? { id: 'forget', word: 'Forget this view', text: `Forget “${mine[0]}”` } : { id: 'save', word: 'Save this view', text: 'Save this view …' },
        ]}
        onChoose={(id) => {
          if (id === 'save') setNaming(true)
          else if (id === 'forget') keep(own.filter((each) => each !== mine))
          else go(views[Number(id)]?.[1] ?? '')
        }}
      />
      <DialogBox title="Save this view" open={naming} onClose={() => setNaming(false)}>
        <p>This browser keeps the view under a name. To share it, send its address.</p>
        <form
          className="toolbar"
          onSubmit={(event) => {
            event.preventDefault()
            if (name.trim()) keep([[name.trim(), here], ...own])
            setName('')
            setNaming(false)
          }}
        >
          <input className="input" aria-label="Name of the view" value={name} onChange={(event) => setName(event.target.value)} />
          <button type="submit" className="button main-action" disabled={!name.trim()}>Save</button>
        </form>
      </DialogBox>
    </>
  )
}
