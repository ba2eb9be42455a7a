/** What the timeline shows: live rows and past attempts become bars and lanes. */
import { isAccelerator, quantity } from "../words";

// ---- What comes in: the parts of the server's rows that the timeline reads. Instants are Unix seconds, durations seconds. ----

export interface JobRow {
  namespace?: string;
  name?: string;
  jobKind?: string;
  jobName?: string;
  queue?: string;
  clusterQueue?: string;
  priority?: number | null;
  gpus?: number;
  flavors?: readonly string[];
  created?: number | null;
  since?: number | null;
  state?: string;
  position?: number | null;
  end?: number | null;
  latestEnd?: number | null;
  user?: string;
  hidden?: boolean;
  why?: string;
  elapsedSeconds?: number | null;
  expectedStart?: { p50?: number | null; p90?: number | null } | null;
  forecast?: { p50?: number | null; p90?: number | null } | null;
}

export interface QueueRow {
  level?: string;
  name?: string;
  hidden?: boolean;
  cohorts?: readonly string[];
  nominalGpus?: number | null;
  usedGpus?: number | null;
  waiting?: number;
  quotas?: readonly { flavor?: string; resource?: string; nominal?: string; used?: string }[];
}

export interface NodeRow {
  metadata?: { name?: string };
  flavors?: readonly string[];
  trouble?: string;
  until?: number | null;
  capacity?: Readonly<Record<string, unknown>>;
  occupants?: readonly { job?: string; namespace?: string; outside?: boolean; hidden?: boolean }[];
}

export interface RunRow {
  job?: string;
  jobKind?: string;
  namespace?: string;
  metadata?: { namespace?: string; name?: string };
  hidden?: boolean;
  user?: string;
  queue?: string;
  clusterQueue?: string;
  state?: string;
  gpus?: number;
  from?: number | null;
  fromLatest?: number | null;
  to?: number | null;
  toLatest?: number | null;
  after?: readonly string[];
  backfilled?: boolean;
  mustEndBy?: number | null;
  reserved?: boolean;
  nodes?: readonly string[];
}

export interface PastRun {
  hidden?: boolean;
  namespace?: string;
  jobName?: string;
  jobKind?: string;
  user?: string;
  localQueue?: string;
  clusterQueue?: string;
  gpus?: number;
  submitted?: number | null;
  started?: number | null;
  ended?: number | null;
  state?: string;
  message?: string;
  preemptions?: number | null;
  nodes?: readonly string[];
}

/** One stretch in which a job held quota; `ended` is null while it does. */
export interface AttemptRow {
  hidden?: boolean;
  namespace?: string;
  workload?: string;
  jobKind?: string;
  jobName?: string;
  user?: string;
  localQueue?: string;
  clusterQueue?: string;
  gpus?: number;
  attempt?: number;
  submitted?: number | null;
  reserved?: number | null;
  ready?: number | null;
  ended?: number | null;
  end?: string;
  reason?: string;
  text?: string;
  by?: string;
  lostSeconds?: number | null;
  lostGpuHours?: number | null;
  lostTo?: string;
  backfilled?: boolean;
  nodes?: readonly string[];
  nodeCount?: number;
}

/** What happened at an instant, as a mark below the time axis. */
export interface Mark {
  at: number;
  text: string;
}

/** A decision of the engine, as the operator's record has it. */
export interface Decision extends Mark {
  number: number;
  decision: string;
  namespace: string;
  workload: string;
  /** The job as it is named on the page. */
  job: string;
  hidden: boolean;
  by: string;
}

type Rows<T> = Readonly<Record<string, T>> | ReadonlyMap<string, T>;

export interface LiveRows {
  jobs?: Rows<JobRow>;
  queues?: Rows<QueueRow>;
  nodes?: Rows<NodeRow>;
  runs?: Rows<RunRow>;
}

// ---- What comes out ----

export type BarState =
  | "running"
  | "starting"
  | "stopping"
  | "planned"
  | "reserved"
  | "succeeded"
  | "failed"
  | "preempted"
  | "evicted"
  | "cancelled"
  | "ended";

/** One run of one job, past, present or expected. */
export interface Bar {
  /** Stays the same from one look to the next. */
  id: string;
  label: string;
  namespace: string;
  /** The Workload's name where it is known. */
  workload: string;
  kind: string;
  queue: string;
  localQueue: string;
  user: string;
  state: BarState;
  gpus: number;
  submitted: number | null;
  from: number;
  /** By then it has started, nine times in ten. */
  fromLatest: number;
  to: number;
  /** By then it is over, nine times in ten. */
  toLatest: number;
  /** Nobody can say when it ends. */
  endUnknown: boolean;
  hidden: boolean;
  backfilled: boolean;
  mustEndBy: number | null;
  /** Its pods were ready then; null while they are not, or where nobody knows. */
  ready: number | null;
  /** Seconds before its end whose work was lost. */
  lost: number;
  lostGpuHours: number;
  /** What the work was lost to, as one word; "" where none was. */
  lostTo: string;
  /** Which try of the job this is, counted from 1; 0 where nobody knows. */
  attempt: number;
  /** The job for which it was preempted. */
  by: string;
  nodes: readonly string[];
  nodeCount: number;
  why: string;
  after: readonly string[];
  preemptions: number;
}

/** What a bar has that is neither an attempt nor of a running job. */
const UNTRIED = { ready: null, lost: 0, lostGpuHours: 0, lostTo: "", attempt: 0, by: "" } as const;

export interface GpuQuota {
  flavor: string;
  gpus: number;
  used: number;
}

export type Trouble = "soaking" | "cordoned" | "maintenance" | "spare" | "unhealthy";

export interface Lane {
  id: string;
  kind: "group" | "queue" | "node";
  label: string;
  note: string;
  /** The ClusterQueue whose jobs it shows; "" for a node or a heading. */
  queue: string;
  capacity: number;
  /** A queue's quota of GPUs, the largest first. */
  quotas: readonly GpuQuota[];
  trouble: { kind: Trouble; text: string; from: number; until: number | null } | null;
  bars: Bar[];
}

export interface Model {
  bars: Bar[];
  /** All ClusterQueues by name: a queue's place here gives its colour. */
  queues: string[];
  lanes: Lane[];
  /** The GPU quotas of each ClusterQueue that has any. */
  quotas: ReadonlyMap<string, readonly GpuQuota[]>;
  /** The names of all nodes, in order. */
  nodes: readonly string[];
  capacity: number;
  /** Rows whose times make no sense. */
  refused: number;
  /** Jobs that wait and whose start nobody can predict, by ClusterQueue. */
  withoutStart: ReadonlyMap<string, number>;
  earliest: number;
  latest: number;
}

export const DAY = 86_400;
const YEAR_2000 = 946_684_800;
const YEAR_2100 = 4_102_444_800;
const LONGEST_PAST = 400 * DAY;
export const LONGEST_FUTURE = 60 * DAY;
export const MOST_GPUS = 1_000_000;

/** An instant that can be drawn, or null: records may hold NaN, zero, milliseconds or the year 9999. */
export function instant(value: unknown): number | null {
  return typeof value === "number" && value > YEAR_2000 && value < YEAR_2100 ? value : null;
}

function size(value: unknown): number {
  return typeof value === "number" && value > 0 ? Math.min(Math.round(value), MOST_GPUS) : 0;
}

export function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function names(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string" && each !== "") : [];
}

function entries<T>(rows: Rows<T> | undefined): Iterable<[string, T]> {
  if (!rows) return [];
  return rows instanceof Map ? rows.entries() : Object.entries(rows as Readonly<Record<string, T>>);
}

interface Times {
  from: number;
  fromLatest: number;
  to: number;
  toLatest: number;
  endUnknown: boolean;
}

/** Times in order (start, latest start, end, latest end), or null where they can't be drawn. */
export function orderedTimes(
  now: number,
  from: unknown,
  to: unknown,
  toLatest: unknown,
  fromLatest: unknown,
  goesOn: boolean,
): Times | null {
  const start = instant(from);
  if (start === null || start > now + LONGEST_FUTURE || start < now - LONGEST_PAST) return null;
  const last = now + LONGEST_FUTURE;
  let end = instant(to);
  const endUnknown = end === null;
  if (end === null) {
    if (!goesOn) return null;
    end = start;
  }
  // A run that is still there hasn't ended, whatever was expected.
  end = Math.min(Math.max(end, start, goesOn && start <= now ? now : start), last);
  const latest = Math.min(Math.max(instant(toLatest) ?? end, end), last);
  const latestStart = Math.min(Math.max(instant(fromLatest) ?? start, start), end);
  return { from: start, fromLatest: latestStart, to: end, toLatest: latest, endUnknown };
}

/** Remembers on which nodes runs were seen: the record of past runs doesn't say. */
export class NodesSeen {
  private readonly seen = new Map<string, readonly string[]>();

  put(key: string, nodes: readonly string[]): void {
    if (nodes.length === 0) return;
    this.seen.delete(key);
    this.seen.set(key, nodes);
    if (this.seen.size > 5_000) {
      const oldest = this.seen.keys().next();
      if (!oldest.done) this.seen.delete(oldest.value);
    }
  }

  get(key: string): readonly string[] {
    return this.seen.get(key) ?? [];
  }
}

const sighting = (namespace: string, job: string, from: number): string => `${namespace}/${job}/${Math.round(from)}`;

export interface ModelInput {
  live: LiveRows;
  past: readonly PastRun[];
  /** Where the operator gives attempts, the past is made of them. */
  attempts?: readonly AttemptRow[] | undefined;
  now: number;
  group: "queues" | "nodes";
  seen?: NodesSeen;
}

export function makeModel({ live, past, attempts, now, group, seen }: ModelInput): Model {
  const bars: Bar[] = [];
  let refused = 0;
  const byWorkload = new Map<string, JobRow>();
  const byJob = new Map<string, JobRow>();
  for (const [, job] of entries(live.jobs)) {
    byWorkload.set(`${text(job.namespace)}/${text(job.name)}`, job);
    byJob.set(`${text(job.namespace)}/${text(job.jobName)}`, job);
  }
  const occupied = new Map<string, string[]>();
  for (const [id, node] of entries(live.nodes)) {
    for (const occupant of node.occupants ?? []) {
      if (occupant.outside) continue;
      const key = `${text(occupant.namespace)}/${text(occupant.job)}`;
      const on = occupied.get(key) ?? [];
      on.push(node.metadata?.name ?? id);
      occupied.set(key, on);
    }
  }

  const ended = new Set<string>();
  const used = new Map<string, number>();
  const unique = (id: string): string => {
    const times = used.get(id) ?? 0;
    used.set(id, times + 1);
    return times === 0 ? id : `${id}#${times}`;
  };
  const inProgress = new Map<string, AttemptRow>();
  for (const attempt of attempts ?? []) {
    const namespace = text(attempt.namespace);
    const workload = text(attempt.workload);
    if (attempt.ended === null || attempt.ended === undefined) {
      inProgress.set(`${namespace}/${workload}`, attempt);
      continue;
    }
    const times = orderedTimes(now, attempt.reserved, attempt.ended, null, null, false);
    if (times === null || times.from > now) {
      refused += 1;
      continue;
    }
    const to = Math.min(times.to, now);
    const label = jobName(attempt);
    const nodes = names(attempt.nodes);
    const lost = seconds(attempt.lostSeconds, to - times.from);
    ended.add(sighting(namespace, workload, times.from));
    bars.push({
      ...UNTRIED,
      ...times,
      to,
      toLatest: to,
      endUnknown: false,
      id: unique(`past:${namespace}/${workload || label}/${Math.round(times.from)}`),
      label,
      namespace,
      workload,
      kind: text(attempt.jobKind),
      queue: text(attempt.clusterQueue),
      localQueue: text(attempt.localQueue),
      user: text(attempt.user),
      state: ENDS[text(attempt.end)] ?? "ended",
      gpus: size(attempt.gpus),
      submitted: instant(attempt.submitted),
      ready: within(attempt.ready, times.from, to),
      lost,
      lostGpuHours: typeof attempt.lostGpuHours === "number" && attempt.lostGpuHours > 0 ? attempt.lostGpuHours : 0,
      lostTo: lost > 0 ? text(attempt.lostTo) : "",
      attempt: size(attempt.attempt),
      by: text(attempt.by),
      hidden: attempt.hidden === true,
      backfilled: attempt.backfilled === true,
      mustEndBy: null,
      nodes,
      nodeCount: Math.max(nodes.length, size(attempt.nodeCount)),
      why: text(attempt.text) || text(attempt.reason),
      after: [],
      preemptions: Math.max(0, size(attempt.attempt) - 1),
    });
  }

  // An operator that has been upgraded knows runs from before it knew attempts.
  const firstTry = (attempts ?? []).reduce((first, each) => Math.min(first, instant(each.reserved) ?? Infinity), Infinity);
  for (const run of past) {
    if (attempts && !((instant(run.ended) ?? Infinity) <= firstTry)) continue;
    const times = orderedTimes(now, run.started, run.ended, null, null, false);
    if (times === null || times.from > now) {
      // A run that never started has no bar; one without sense is counted.
      if (run.started !== null && run.started !== undefined) refused += 1;
      continue;
    }
    const label = text(run.jobName);
    const key = sighting(text(run.namespace), label, times.from);
    ended.add(key);
    const nodes = names(run.nodes);
    const state = pastState(run);
    bars.push({
      ...UNTRIED,
      ...times,
      lost: state === "failed" ? times.to - times.from : 0,
      lostTo: state === "failed" ? "failure" : "",
      nodeCount: nodes.length,
      to: Math.min(times.to, now),
      toLatest: Math.min(times.to, now),
      endUnknown: false,
      id: unique(`past:${key}`),
      label,
      namespace: text(run.namespace),
      workload: "",
      kind: text(run.jobKind),
      queue: text(run.clusterQueue),
      localQueue: text(run.localQueue),
      user: text(run.user),
      state,
      gpus: size(run.gpus),
      submitted: instant(run.submitted),
      hidden: run.hidden === true,
      backfilled: false,
      mustEndBy: null,
      nodes: nodes.length > 0 ? nodes : (seen?.get(key) ?? []),
      why: text(run.message),
      after: [],
      preemptions: size(run.preemptions),
    });
  }

  const drawn = new Set<JobRow>();
  const timesRan = new Map<string, number>();
  for (const [, run] of entries(live.runs)) {
    const namespace = text(run.namespace) || text(run.metadata?.namespace);
    const workload = text(run.metadata?.name);
    const named = text(run.job) || workload;
    const job = byWorkload.get(`${namespace}/${workload}`) ?? byJob.get(`${namespace}/${named}`);
    const known = job && job.hidden !== true && text(job.jobName) !== "" ? job : null;
    const label = known ? jobName(known) : jobName({ ...run, hidden: run.hidden === true, jobName: named });
    const running = run.state === "Running";
    // What still waits can't have started: its plan may be some seconds old.
    const start = instant(run.from);
    const times = orderedTimes(
      now,
      running || start === null ? start : Math.max(start, now),
      run.to,
      run.toLatest,
      run.fromLatest,
      true,
    );
    if (job) drawn.add(job);
    if (times === null) {
      refused += 1;
      continue;
    }
    if (running) times.fromLatest = times.from;
    const key = sighting(namespace, label, times.from);
    if (running && (ended.has(key) || ended.has(sighting(namespace, workload, times.from)))) continue;
    const attempt = running ? inProgress.get(`${namespace}/${workload}`) : undefined;
    const nodes = running
      ? names(run.nodes).length > 0
        ? names(run.nodes)
        : (occupied.get(`${namespace}/${label}`) ?? occupied.get(`${namespace}/${named}`) ?? [])
      : [];
    if (running) seen?.put(key, nodes);
    const turn = timesRan.get(`${namespace}/${workload || label}`) ?? 0;
    timesRan.set(`${namespace}/${workload || label}`, turn + 1);
    bars.push({
      ...UNTRIED,
      ...times,
      ready: within(attempt?.ready, times.from, times.to),
      attempt: size(attempt?.attempt),
      nodeCount: nodes.length,
      id: unique(running ? `run:${namespace}/${workload || label}` : `plan:${namespace}/${workload || label}/${turn}`),
      label,
      namespace,
      workload: workload || text(job?.name),
      kind: text(job?.jobKind),
      queue: text(run.clusterQueue),
      localQueue: text(run.queue),
      user: text(run.user) || text(job?.user),
      state: running ? liveState(job) : run.reserved === true ? "reserved" : "planned",
      gpus: size(run.gpus),
      submitted: instant(job?.created),
      hidden: run.hidden === true,
      backfilled: run.backfilled === true,
      mustEndBy: instant(run.mustEndBy),
      nodes,
      why: text(job?.why),
      after: names(run.after),
      preemptions: 0,
    });
  }

  // Jobs that the plan doesn't hold yet: it may be a minute old.
  const withoutStart = new Map<string, number>();
  for (const [, job] of entries(live.jobs)) {
    if (drawn.has(job)) continue;
    const queue = text(job.clusterQueue);
    const running = job.state === "Running" || job.state === "Starting" || job.state === "Stopping";
    const waiting = job.state === "Pending" || job.state === "Reserved";
    if (!running && !waiting) continue;
    const start = running
      ? (instant(job.since) ?? (job.elapsedSeconds ? now - job.elapsedSeconds : null))
      : instant(job.expectedStart?.p50);
    if (start === null) {
      if (waiting) withoutStart.set(queue, (withoutStart.get(queue) ?? 0) + 1);
      continue;
    }
    const length = Number.isFinite(job.forecast?.p50) ? Number(job.forecast?.p50) : null;
    const longest = Number.isFinite(job.forecast?.p90) ? Number(job.forecast?.p90) : length;
    const times = running
      ? orderedTimes(now, start, job.end, job.latestEnd, null, true)
      : orderedTimes(
          now,
          start,
          length === null ? null : start + length,
          longest === null ? null : (instant(job.expectedStart?.p90) ?? start) + longest,
          job.expectedStart?.p90,
          true,
        );
    if (times === null) {
      refused += 1;
      continue;
    }
    const namespace = text(job.namespace);
    const label = jobName(job) || text(job.name);
    const key = sighting(namespace, label, times.from);
    if (running && (ended.has(key) || ended.has(sighting(namespace, text(job.name), times.from)))) continue;
    const nodes = running ? (occupied.get(`${namespace}/${label}`) ?? []) : [];
    bars.push({
      ...UNTRIED,
      ...times,
      id: unique(running ? `run:${namespace}/${text(job.name)}` : `plan:${namespace}/${text(job.name)}/0`),
      label,
      namespace,
      workload: text(job.name),
      kind: text(job.jobKind),
      queue,
      localQueue: text(job.queue),
      user: text(job.user),
      state: running ? liveState(job) : job.state === "Reserved" ? "reserved" : "planned",
      gpus: size(job.gpus),
      submitted: instant(job.created),
      hidden: job.hidden === true,
      backfilled: false,
      mustEndBy: null,
      nodes,
      nodeCount: nodes.length,
      why: text(job.why),
      after: [],
      preemptions: 0,
    });
  }

  bars.sort((a, b) => a.from - b.from || (a.id < b.id ? -1 : 1));
  let earliest = now - 3_600;
  let latest = now + 3_600;
  for (const bar of bars) {
    earliest = Math.min(earliest, bar.from);
    latest = Math.max(latest, bar.toLatest, bar.mustEndBy ?? 0);
  }
  const queues = queueRows(live, bars);
  const lanes =
    group === "nodes" ? lanesOfNodes(live, bars, queues, withoutStart, now) : lanesOfQueues(bars, queues, withoutStart);
  let capacity = 0;
  for (const queue of queues) capacity += queue.capacity;
  return {
    bars,
    queues: queues.map((queue) => queue.name).sort(),
    lanes,
    quotas: new Map(queues.filter((queue) => queue.quotas.length > 0).map((queue) => [queue.name, queue.quotas])),
    nodes: [...entries(live.nodes)].map(([id, row]) => row.metadata?.name ?? id).sort(compare),
    capacity,
    refused,
    withoutStart,
    earliest,
    latest,
  };
}

const ENDS: Readonly<Record<string, BarState>> = {
  Succeeded: "succeeded",
  Failed: "failed",
  Preempted: "preempted",
  Evicted: "evicted",
  Cancelled: "cancelled",
  Released: "ended",
};

function jobName(row: { hidden?: boolean; jobKind?: string; jobName?: string }): string {
  const kind = text(row.jobKind).toLowerCase();
  return row.hidden === true || kind === "" ? text(row.jobName) : `${kind}/${text(row.jobName)}`;
}

/** An instant within a stretch of time; null where there is none. */
function within(value: unknown, from: number, to: number): number | null {
  const at = instant(value);
  return at === null || at > to ? null : Math.max(at, from);
}

function seconds(value: unknown, most: number): number {
  return typeof value === "number" && value > 0 ? Math.min(value, most) : 0;
}

function pastState(run: PastRun): BarState {
  if (run.state === "Succeeded") return "succeeded";
  if (run.state === "Failed") return "failed";
  return /preempt|evict/i.test(text(run.message)) ? "preempted" : "ended";
}

function liveState(job: JobRow | undefined): BarState {
  return job?.state === "Starting" ? "starting" : job?.state === "Stopping" ? "stopping" : "running";
}

interface QueueFacts {
  name: string;
  path: string[];
  capacity: number;
  quotas: GpuQuota[];
}

/** ClusterQueues in the order of their cohorts; those that only bars name come last. */
function queueRows(live: LiveRows, bars: readonly Bar[]): QueueFacts[] {
  const found = new Map<string, QueueFacts>();
  for (const [, row] of entries(live.queues)) {
    const name = text(row.name);
    if (row.level !== "ClusterQueue" || name === "") continue;
    found.set(name, {
      name,
      path: [...names(row.cohorts)].reverse(),
      capacity: size(row.nominalGpus),
      quotas: quotasOf(row),
    });
  }
  for (const bar of bars) {
    if (!found.has(bar.queue)) found.set(bar.queue, { name: bar.queue, path: [], capacity: 0, quotas: [] });
  }
  const place = (facts: QueueFacts): string => (facts.path.length > 0 ? facts.path.join("\u0001") : "\uffff");
  return [...found.values()].sort((a, b) => compare(place(a), place(b)) || compare(a.name, b.name));
}

function quotasOf(row: QueueRow): GpuQuota[] {
  const found: GpuQuota[] = [];
  for (const quota of row.quotas ?? []) {
    if (!isAccelerator(text(quota.resource))) continue;
    found.push({ flavor: text(quota.flavor), gpus: quantity(quota.nominal), used: quantity(quota.used) });
  }
  return found.sort((a, b) => b.gpus - a.gpus);
}

const collator = new Intl.Collator("en", { numeric: true });
const compare = (a: string, b: string): number => collator.compare(a, b);

function laneOfQueue(
  queue: QueueFacts,
  bars: Bar[],
  withoutStart: ReadonlyMap<string, number>,
  prefix = "queue",
): Lane {
  const lost = withoutStart.get(queue.name) ?? 0;
  return {
    id: `${prefix}:${queue.name}`,
    kind: "queue",
    label: queue.name || "no queue",
    note: lost > 0 ? `${lost} without a start` : "",
    queue: queue.name,
    capacity: queue.capacity,
    quotas: queue.quotas,
    trouble: null,
    bars,
  };
}

function heading(id: string, label: string): Lane {
  return { id: `group:${id}`, kind: "group", label, note: "", queue: "", capacity: 0, quotas: [], trouble: null, bars: [] };
}

function byQueue(bars: readonly Bar[]): Map<string, Bar[]> {
  const found = new Map<string, Bar[]>();
  for (const bar of bars) {
    const those = found.get(bar.queue);
    if (those) those.push(bar);
    else found.set(bar.queue, [bar]);
  }
  return found;
}

function lanesOfQueues(
  bars: readonly Bar[],
  queues: readonly QueueFacts[],
  withoutStart: ReadonlyMap<string, number>,
): Lane[] {
  const lanes: Lane[] = [];
  const own = byQueue(bars);
  const cohorts = queues.some((queue) => queue.path.length > 0);
  let last: string | null = null;
  for (const queue of queues) {
    const path = queue.path.length > 0 ? queue.path.join(" / ") : "no cohort";
    if (cohorts && path !== last) lanes.push(heading(path, queue.path.length > 0 ? `cohort ${path}` : path));
    last = path;
    lanes.push(laneOfQueue(queue, own.get(queue.name) ?? [], withoutStart));
  }
  return lanes;
}

export function troubleKind(words: string): Trouble {
  if (/soak/i.test(words)) return "soaking";
  if (/maint/i.test(words)) return "maintenance";
  if (/cordon|unschedulable|drain/i.test(words)) return "cordoned";
  if (/spare/i.test(words)) return "spare";
  return "unhealthy";
}

function gpusOf(capacity: NodeRow["capacity"]): number {
  let gpus = 0;
  for (const [name, amount] of Object.entries(capacity ?? {})) if (isAccelerator(name)) gpus += size(Number(amount));
  return gpus;
}

function lanesOfNodes(
  live: LiveRows,
  bars: readonly Bar[],
  queues: readonly QueueFacts[],
  withoutStart: ReadonlyMap<string, number>,
  now: number,
): Lane[] {
  const nodes = new Map<string, Lane & { flavor: string }>();
  for (const [id, row] of entries(live.nodes)) {
    const name = row.metadata?.name ?? id;
    const outside = (row.occupants ?? []).filter((each) => each.outside === true && text(each.job) !== "").length;
    const trouble = text(row.trouble);
    nodes.set(name, {
      id: `node:${name}`,
      kind: "node",
      label: name,
      note: trouble || (outside > 0 ? `${outside} outside of queues` : ""),
      queue: "",
      capacity: gpusOf(row.capacity),
      quotas: [],
      trouble: trouble ? { kind: troubleKind(trouble), text: trouble, from: now, until: instant(row.until) } : null,
      bars: [],
      flavor: names(row.flavors).join(", "),
    });
  }
  const homeless: Bar[] = [];
  for (const bar of bars) {
    let placed = false;
    for (const name of bar.nodes) {
      const node = nodes.get(name);
      if (!node) continue;
      node.bars.push(bar);
      placed = true;
    }
    if (!placed) homeless.push(bar);
  }
  const lanes: Lane[] = [];
  let flavor: string | null = null;
  for (const node of [...nodes.values()].sort((a, b) => compare(a.flavor, b.flavor) || compare(a.label, b.label))) {
    if (node.flavor !== flavor)
      lanes.push(heading(`flavor ${node.flavor}`, node.flavor ? `flavor ${node.flavor}` : "no flavor"));
    flavor = node.flavor;
    lanes.push(node);
  }
  const own = byQueue(homeless);
  if (homeless.length > 0) {
    lanes.push(heading("without a node", "no node known: planned and past"));
    for (const queue of queues) {
      const those = own.get(queue.name);
      if (those) lanes.push(laneOfQueue(queue, those, withoutStart, "homeless"));
    }
  }
  return lanes;
}

// ---- Sums ----

export interface Moment {
  gpus: number;
  running: number;
  waiting: number;
  /** GPUs in use by lane id. */
  lanes: ReadonlyMap<string, number>;
}

const atWork = (bar: Bar, at: number): boolean => bar.from <= at && (at < bar.to || (bar.endUnknown && bar.from <= at));

/** What runs, or is expected to run, at an instant, and what waits. */
export function momentAt(model: Model, at: number): Moment {
  const lanes = new Map<string, number>();
  let gpus = 0;
  let running = 0;
  let waiting = 0;
  for (const bar of model.bars) {
    if (atWork(bar, at)) {
      gpus += bar.gpus;
      running += 1;
    } else if (bar.submitted !== null && bar.submitted <= at && at < bar.from) {
      waiting += 1;
    }
  }
  for (const lane of model.lanes) {
    let sum = 0;
    for (const bar of lane.bars) {
      if (atWork(bar, at)) sum += lane.kind === "node" ? bar.gpus / Math.max(1, bar.nodeCount) : bar.gpus;
    }
    lanes.set(lane.id, Math.round(sum));
  }
  for (const lost of model.withoutStart.values()) waiting += lost;
  return { gpus, running, waiting, lanes };
}

/** GPUs in use over time, as the mean of each of `count` steps. */
export function profile(bars: readonly Bar[], from: number, to: number, count: number): Float64Array {
  const sums = new Float64Array(count);
  const step = (to - from) / count;
  if (!(step > 0)) return sums;
  for (const bar of bars) {
    const first = Math.max(0, Math.floor((bar.from - from) / step));
    const last = Math.min(count - 1, Math.floor((bar.to - from) / step));
    for (let each = first; each <= last; each++) {
      const begin = from + each * step;
      const part = (Math.min(bar.to, begin + step) - Math.max(bar.from, begin)) / step;
      if (part > 0) sums[each] = (sums[each] ?? 0) + part * bar.gpus;
    }
  }
  return sums;
}

export const isLive = (bar: Bar): boolean =>
  bar.state === "running" || bar.state === "starting" || bar.state === "stopping";
export const isWaiting = (bar: Bar): boolean => bar.state === "planned" || bar.state === "reserved";

// ---- Decisions ----

const NEAR = 120;

/** The bars that a decision concerns: the job that it decides about, and the one for which it does. */
export function barsOf(bars: readonly Bar[], decision: Decision): Set<string> {
  const found = new Set<string>();
  for (const bar of bars) {
    if (bar.from > decision.at + NEAR || bar.to < decision.at - NEAR) {
      // The one for which another gives way starts a while after.
      if (!(decision.by !== "" && bar.label === decision.by && bar.from < decision.at + 10 * NEAR && bar.from > decision.at))
        continue;
    }
    const same = decision.workload !== "" && bar.workload === decision.workload && bar.namespace === decision.namespace;
    if (same || (decision.by !== "" && bar.label === decision.by)) found.add(bar.id);
  }
  return found;
}
