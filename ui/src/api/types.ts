/** The server's answers. All instants are Unix seconds, all durations seconds; "" and null mean unknown. */

export interface Session {
  user: string
  namespaces: string[]
  namespace: string
  all: boolean
  csrf: string
  cluster: string
  version: string
  login: 'laptop' | 'token' | 'oidc' | 'none'
}

export type JobState =
  | 'Pending'
  | 'Reserved'
  | 'Starting'
  | 'Running'
  | 'Stopping'
  | 'Succeeded'
  | 'Failed'
  | 'Inactive'
  | 'Not queued'
  | 'Not managed'

export interface Interval {
  p50: number
  p90: number | null
}

export interface Forecast {
  p50: number
  p90: number
  source: string
  samples: number
  flavor: string | null
}

export interface Held {
  flavor: string
  resource: string
  amount: string
}

export interface Job {
  namespace: string
  /** of the Workload */
  name: string
  uid: string
  jobKind: string
  jobName: string
  queue: string
  clusterQueue: string
  priority: number
  pods: number
  gpus: number
  amounts: Record<string, string>
  flavors: string[]
  held: Held[]
  created: number
  since: number
  state: JobState
  reason: string
  message: string
  evicted: string
  position: number | null
  warnings: string[]
  obstacle: string
  end: number | null
  latestEnd: number | null
  user: string
  unscheduled: number
  hidden: boolean
  neverFits: boolean
  why: string
  expectedStart: Interval | null
  because: string
  forecast: Forecast | null
  fallenBack: { mode: string; since: number; message: string } | null
}

export interface Quota {
  flavor: string
  resource: string
  nominal: string
  used: string
  borrowed: string
  borrowingLimit: string | null
  lendingLimit: string | null
  /** of a quota that a plan gives: the nominal one of the spec, and the one after the next change, null = none is known */
  written?: string
  next?: string | null
}

export interface Queue {
  level: 'ClusterQueue' | 'LocalQueue' | 'User'
  namespace: string
  name: string
  hidden: boolean
  clusterQueue: string
  localQueue: string
  /** the innermost first */
  cohorts: string[]
  nominalGpus: number | null
  usedGpus: number
  borrowedGpus: number | null
  pendingGpus: number
  running: number
  waiting: number
  share: number | null
  weight: string
  rank: number | null
  fairUsage: number | null
  consumed: Record<string, number>
  consumedAt: number | null
  halfLifeSeconds: number | null
  quotas: Quota[]
  note: string
  /** the QuotaPlan that gives a ClusterQueue its quota */
  plan?: QuotaPlan | null
}

export interface QuotaPlan {
  name: string
  activeOverrides: string[]
  changesAt: number | null
  nextOverrides: string[]
  nextQuotas: { flavor: string; resource: string; nominalQuota?: string; borrowingLimit?: string; lendingLimit?: string }[]
}

export interface Occupant {
  job: string
  namespace: string
  outside: boolean
  hidden: boolean
  pods: number
  amounts: Record<string, string>
}

export interface CardSitter {
  job: string
  namespace: string
  outside: boolean
  hidden: boolean
  pods: number
  milli: number
  memory: string
}

export interface Card {
  uuid: string
  index: number | null
  model: string
  mode: string
  healthy: boolean
  milli: number
  freeMilli: number
  memory: string | null
  freeMemory: string | null
  occupants: CardSitter[]
}

export interface Node {
  metadata: { name: string }
  flavors: string[]
  /** "" while the node takes new work */
  trouble: string
  until: number | null
  capacity: Record<string, string>
  used: Record<string, string>
  occupants: Occupant[]
  awaited: Occupant[]
  cards?: Card[]
  /** the window of a Reservation that it is in, or will be in next */
  window?: NodeWindow
}

/** Times in seconds. From `announced` on jobs that have to leave are told so. */
export interface NodeWindow {
  reservation: string
  maintenance: boolean
  soft: boolean
  announced: number
  from: number
  to: number
}

export interface Run {
  metadata: { namespace?: string; name: string }
  job: string
  jobKind?: string
  hidden: boolean
  user: string
  queue: string
  clusterQueue: string
  state: 'Running' | 'Pending'
  gpus: number
  from: number
  to: number
  after: string[]
  toLatest: number | null
  fromLatest: number | null
  backfilled: boolean
  mustEndBy: number | null
  reserved: boolean
  nodes: string[]
}

export interface RowTypes {
  jobs: Job
  queues: Queue
  nodes: Node
  runs: Run
}
export type Kind = keyof RowTypes
export const KINDS: readonly Kind[] = ['jobs', 'queues', 'nodes', 'runs']

type Rows = { [K in Kind]?: Record<string, RowTypes[K]> }

export interface SnapshotMessage {
  revision: number
  at: number
  rows: Rows
}
export interface ChangeMessage {
  revision: number
  at: number
  put?: Rows
  gone?: Partial<Record<Kind, string[]>>
}
export interface Trouble {
  error: string
  kind: 'NoLeader' | 'Forbidden' | 'Expired' | 'Unreachable'
}

// --- answers on request ---

export interface JobPromise {
  at: number
  p50: number
  p90: number | null
  because: string
  cause: string
}

export interface PromiseRecord {
  starts: number
  withinP50: number
  withinP90: number
  medianError: number
}

export interface JobAnswer {
  job: Job
  /** null, as the other parts, where the operator has none for such a job */
  why: { lines: { label: string; text: string }[] } | null
  promises: { promises: JobPromise[]; started: number | null; record: PromiseRecord | null } | null
  story: { events: { at: number | null; state: string; cause: string; decision: number | null }[] } | null
}

export interface Remedies {
  startsInSeconds: Interval | null
  because: string
  obstacle: string
  remedies: {
    kind: string
    by: 'user' | 'administrator'
    change: string
    startsInSeconds: Interval | null
    gainedHours: number | null
  }[]
  unexamined: number
}

export interface Victims {
  starts: boolean
  victims: {
    job: string
    user: string
    gpus: number
    reason: string
    ranSeconds: number
    unsavedSeconds: number
    lostGpuHours: number
  }[]
  obstacle: string
}

export interface Pod {
  name: string
  podSet: string
  rank: number | null
  node: string
  state: 'Gated' | 'Unscheduled' | 'Starting' | 'Ready' | 'Stopping' | 'Succeeded' | 'Failed'
  created: number
  /** what keeps it from running */
  obstacle: string
}

export interface KubeEvent {
  at: number
  type: string
  reason: string
  note: string
  count: number
  /** kind/name of the object */
  about: string
}

/** What is planned at a time. Of the fields each level fills its own: a queue its quotas, a window its span, a flavor its amounts. */
export interface PlannedCapacity {
  level: 'ClusterQueue' | 'Reservation' | 'Flavor'
  name: string
  plan: string
  overrides: string[]
  /** from when on the changes of the plan are not known any more, if that is before the time */
  knownUntil: number | null
  quotas: { flavor: string; resource: string; nominal: string; nominalNow: string; borrowingLimit: string | null; lendingLimit: string | null }[]
  from: number | null
  to: number | null
  firm: '' | 'Hard' | 'Soft'
  /** none: a maintenance */
  owners: string[]
  nodes: number
  usableNodes: number
  /** at most 1000 */
  nodeNames: string[]
  amounts: { resource: string; total: string; usable: string; usableNow: string; reserved: string; maintenance: string; unusable: string }[]
}

export interface PastRun {
  hidden: boolean
  namespace: string
  jobName: string
  jobKind: string
  user: string
  localQueue: string
  clusterQueue: string
  flavor: string
  gpus: number
  pods: number
  submitted: number
  started: number | null
  ended: number
  waitedSeconds: number | null
  ranSeconds: number | null
  gpuHours: number | null
  state: 'Succeeded' | 'Failed' | 'Ended'
  message: string
  preemptions: number | null
}

export interface Audit {
  clusterQueue: string
  promised: number
  late: number
  lateSeconds: number
  delaySeconds: Record<string, number>
  starts: { job: string; namespace: string; user: string; promised: number | null; started: number }[]
}

export interface Swap {
  hidden: boolean
  namespace: string
  workload: string
  job: string
  user: string
  queue: string
  clusterQueue: string
  gpus: number
  pods: number
  how: string
  cause: string
  from: string[]
  to: string[]
  state: 'Recovering' | 'Recovered'
  times: Record<string, number | null>
  seconds: Record<string, number>
}

export interface Accuracy {
  items: { source: string; runs: number; within: Record<string, number>; factor: number }[]
  since: number | null
  model: { used: boolean; reason: string } | null
  starts: { starts: number; withinP50: number; withinP90: number; medianErrorSeconds: number } | null
  queues: Record<string, PromiseRecord>
}

export interface JobEvent {
  metadata: { name: string; uid: string }
  at: number
  event: string
  reason: string
  text: string
  hidden: boolean
  namespace: string
  workload: string
  jobKind: string
  jobName: string
  user: string
  queue: string
  clusterQueue: string
  gpus: number
  pods: number
  flavors: string[]
}

export interface Move {
  hidden: boolean
  namespace: string
  job: string
  user: string
  queue: string
  clusterQueue: string
  gpus: number
  pods: number
  moves: boolean
  how: string
  to: string[]
  obstacle: string
}

export type LostTo = 'preemption' | 'failure' | 'overrun' | 'cancel' | 'eviction'

/** One stretch in which a job held quota, from its reservation to its release. */
export interface Attempt {
  hidden: boolean
  namespace: string
  workload: string
  jobKind: string
  jobName: string
  user: string
  localQueue: string
  clusterQueue: string
  flavor: string
  gpus: number
  pods: number
  /** counted from 1 */
  attempt: number
  submitted: number
  reserved: number
  /** when it was admitted */
  started: number | null
  /** when its pods were ready */
  ready: number | null
  /** null while it is in progress */
  ended: number | null
  end: '' | 'Succeeded' | 'Failed' | 'Preempted' | 'Evicted' | 'Cancelled' | 'Released'
  /** the rule of a preemption, or the reason of an eviction */
  reason: string
  text: string
  /** the job for which it was preempted */
  by: string
  savedSeconds: number | null
  lostSeconds: number | null
  lostGpuHours: number | null
  gpuHours: number
  startingGpuHours: number | null
  /** null where nothing measures it */
  idleGpuHours: number | null
  usefulGpuHours: number | null
  lostTo: '' | LostTo
  backfilled: boolean
  /** at most 64 */
  nodes: string[]
  nodeCount: number
}

/** Sums of attempts within a time, of one queue, user, day and so on. */
export interface UsageSum {
  name: string
  hidden: boolean
  jobs: number
  attempts: number
  gpuHours: number
  usefulGpuHours: number
  startingGpuHours: number
  idleGpuHours: number | null
  lost: Record<LostTo, number>
  waitedGpuHours: number
  medianWaitSeconds: number | null
  preemptions: number
  /** each GPU-hour halved for each half-life that has passed since; null where none was asked for */
  weightedGpuHours: number | null
}

/** One decision of the engine, as the operator's record has it. */
export interface DecisionRow {
  number: number
  at: number
  round: number
  decision: string
  hidden: boolean
  namespace: string
  workload: string
  jobKind: string
  jobName: string
  user: string
  clusterQueue: string
  gpus: number | null
  reason: string
  /** one sentence that does not name the job */
  text: string
  by: string
  flavors: string[]
  nodes: string[]
  backfilled: boolean
}

export interface DecisionList {
  items: DecisionRow[]
  more?: boolean
  /** the earliest instant of the record */
  from: number | null
  /** whether the operator keeps a record at all */
  record: boolean
}

/** Of a hidden workload only its size, state and position are known. */
export interface KnownWorkload {
  job?: string
  hidden?: boolean
  priority: number | null
  created: number | null
  queue: string
  position: number | null
  gpus: number
  amounts: Record<string, string>
  state: string
  forecast: { p50: number; p90: number | null } | null
  saved: number | null
}

export interface KnownQueue {
  name: string
  cohorts: string[]
  quotas: { flavor: string; resource: string; nominal: string | number; used: string | number; borrowed: string | number; available: string | number }[]
  waiting: number
  head: string
  reservedUntil: number | null
}

/** What the engine knew when it decided, and whether it decides the same again. */
export interface DecisionInputs {
  decision: DecisionRow
  same: boolean
  recorded: string[]
  repeated: string[]
  inputs: {
    workload: KnownWorkload | null
    queue: KnownQueue | null
    by: KnownWorkload | null
    nodes: { free: { gpus: number; nodes: number }[] } | null
    /** What another choice of victims would have lost, where that is less. */
    cheaper?: { chosen: PreemptionLoss; instead: PreemptionLoss; spared: boolean } | null
  }
}

export interface PreemptionLoss {
  workloads: number
  lostGpuHours: number
}

/** The recorded decisions of a time, decided again. */
export interface RecordCheck {
  at: number | null
  from: number | null
  to: number | null
  runs: number
  rounds: number
  decisions: number
  differing: number
  differences: { at: number; recorded: string[]; repeated: string[] }[]
  headsDelayed: number | null
  missed: number | null
  running: boolean
  error: string
}

/** The leading operator. `record`, `history` and what is counted of writes are missing in an older one. */
export interface OperatorState {
  leader: string
  version: string
  since: number | null
  rounds: Mean
  decisions: Mean
  writes: { waiting: number; done?: number; refused?: number }
  known: { workloads: number; clusterQueues: number; nodes: number }
  record?: { kept: boolean; lost: number }
  /** null where no history is kept */
  history?: { waiting: number; error: string } | null
  notListed: string[]
  quarantined: { kind: string; key: string; error: string }[]
}

export interface Mean {
  count: number
  meanSeconds: number | null
}

export interface DoctorFinding {
  level: 'ok' | 'warning' | 'error' | 'skipped'
  name: string
  text: string
  advice: string
  objects: string[]
}

export interface Annotated {
  uid: string
  annotations: Record<string, string>
}

export interface Listed<T> {
  items: T[]
  more?: boolean
}

// --- actions ---

export const VERBS = ['hold', 'release', 'cancel', 'move', 'top', 'cordon', 'uncordon'] as const
export type Verb = (typeof VERBS)[number]
export type Rights = Partial<Record<Verb, { allowed: boolean; missing?: string }>>
export type Target = { namespace: string; kind: string; name: string } | { node: string }
export interface ActionResult {
  target: Target
  ok: boolean
  text: string
}
