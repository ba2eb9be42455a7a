/** What stands beside the timeline's canvas: a job's card, the question "what if", the same data as a table, and the legend. */
import { type ReactNode, useEffect, useId, useMemo, useRef, useState } from "react";
import { Button, Input, Label, NumberField, TextField, ToggleButton } from "react-aria-components";
import { type Stage, drawBars } from "./draw";
import { type Theme } from "./theme";
import { type Bar, type Model, isLive, isWaiting } from "./model";
import { dateFault, written } from "../dates";
import { DateField } from "../parts/asof";
import { type Change, type JobName, type Outcome, type Question, canAsk } from "./view";
import { away, duration, endText, lossText, parseDuration, startText, stateName, when } from "./words";

// ---- A job's card ----

export function JobCard({ bar, now, crowd, actions }: { bar: Bar; now: number; crowd: number; actions?: ReactNode }) {
  const rows: [string, ReactNode][] = [];
  rows.push(["Queue", bar.queue + (bar.localQueue && bar.localQueue !== bar.queue ? ` (${bar.localQueue})` : "")]);
  if (bar.user) rows.push(["User", bar.user]);
  rows.push(["GPUs", String(bar.gpus)]);
  if (isWaiting(bar)) {
    rows.push(["Starts", `${startText(bar, now)} (${away(bar.from, now)})`]);
    rows.push(["Ends", endText(bar, now)]);
    if (bar.submitted !== null)
      rows.push(["Waits since", `${when(bar.submitted, now)} (${duration(now - bar.submitted)})`]);
  } else if (isLive(bar)) {
    rows.push(["Runs since", `${when(bar.from, now)} (${duration(now - bar.from)})`]);
    if (bar.ready !== null) rows.push(["Pods ready", `after ${duration(bar.ready - bar.from)}`]);
    rows.push(["Ends", bar.endUnknown ? "unknown" : `${endText(bar, now)} (${away(bar.to, now)})`]);
  } else {
    rows.push(["Ran", `${startText(bar, now)} – ${when(bar.to, now)} (${duration(bar.to - bar.from)})`]);
    if (bar.ready !== null) rows.push(["Pods ready", `after ${duration(bar.ready - bar.from)}`]);
    if (bar.submitted !== null && bar.from > bar.submitted) rows.push(["Waited", duration(bar.from - bar.submitted)]);
  }
  if (bar.after.length > 0)
    rows.push([
      "After",
      bar.after.slice(0, 3).join(", ") + (bar.after.length > 3 ? ` and ${bar.after.length - 3} more` : ""),
    ]);
  if (bar.nodes.length > 0)
    rows.push([
      "Nodes",
      bar.nodes.slice(0, 3).join(", ") + (bar.nodeCount > 3 ? ` and ${bar.nodeCount - 3} more` : ""),
    ]);
  if (bar.attempt > 1) rows.push(["Attempt", `number ${bar.attempt} of this job`]);
  if (bar.by !== "") rows.push([bar.state === "preempted" ? "Preempted for" : "For", bar.by]);
  if (bar.lost >= 1) rows.push(["Lost", lossText(bar)]);
  if (bar.preemptions > 0 && bar.attempt === 0)
    rows.push(["Preempted", bar.preemptions === 1 ? "once before" : `${bar.preemptions} times before`]);
  return (
    <>
      <p className="tl-card-title">
        <strong>{bar.label || "unnamed job"}</strong>
        <span className={`tl-state tl-state-${bar.state}`}>{stateName(bar)}</span>
      </p>
      {bar.namespace !== "" && <p className="tl-card-sub">{bar.namespace}</p>}
      {bar.hidden && (
        <p className="tl-card-sub">A job of another team: size and times are true, the name is a label.</p>
      )}
      <dl>
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {bar.mustEndBy !== null && (
        <p className="tl-contract">
          Backfilled: must be gone by <strong>{when(bar.mustEndBy, now)}</strong> ({away(bar.mustEndBy, now)}).
        </p>
      )}
      {bar.backfilled && bar.mustEndBy === null && (
        <p className="tl-contract">Backfilled: it {isLive(bar) || isWaiting(bar) ? "runs" : "ran"} ahead of a job that waits for more GPUs.</p>
      )}
      {bar.state === "reserved" && (
        <p className="tl-contract">Its start is reserved: backfilled jobs must be gone by {when(bar.from, now)}.</p>
      )}
      {bar.why !== "" && <p className="tl-why">{bar.why}</p>}
      {crowd > 1 && <p className="tl-card-sub">{crowd} short runs lie here; zoom in to tell them apart.</p>}
      {actions}
    </>
  );
}

// ---- What if ----

/** What a question is about. */
export type Subject = { kind: "job"; bar: Bar } | { kind: "quota"; queue: string } | { kind: "drain"; node: string };

export interface Asking {
  subject: Subject;
  /** Null until something is asked. */
  question: Question | null;
  /** Rises with each question, so that a late answer to an earlier one is dropped. */
  turn: number;
  outcome: Outcome | null;
  error: string;
  busy: boolean;
}

export function jobOf(bar: Bar): JobName {
  return { namespace: bar.namespace, name: bar.label, workload: bar.workload, kind: bar.kind };
}

function changeText(bar: Bar, change: Change): string {
  const parts: string[] = [];
  if (change.durationSeconds !== undefined)
    parts.push(`ran ${duration(change.durationSeconds)} instead of ${duration(bar.to - bar.from)}`);
  if (change.gpus !== undefined) parts.push(`had ${change.gpus} instead of ${bar.gpus} GPUs`);
  if (change.queue !== undefined) parts.push(`waited in ${change.queue} instead of ${bar.queue}`);
  return parts.join(" and ");
}

interface WhatIfProps {
  asking: Asking;
  model: Model;
  now: number;
  /** The date of the field From. */
  from: number | null;
  onFrom: (from: number | null) => void;
  onAsk: (subject: Subject, question: Question) => void;
  onClose: () => void;
  onOpenLane?: ((lane: { node: string } | { queue: string }) => void) | undefined;
}

export function WhatIf({ asking, model, now, from, onFrom, onAsk, onClose, onOpenLane }: WhatIfProps) {
  const { subject, question, outcome, error, busy } = asking;
  return (
    <aside
      className="tl-whatif"
      aria-label={titleOf(subject, null)}
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose();
      }}
    >
      <header>
        <h2>{titleOf(subject, question)}</h2>
        <Button className="tl-button tl-plain" aria-label="Close" onPress={onClose}>
          ✕
        </Button>
      </header>
      {subject.kind === "job" && (
        <JobForm
          key={subject.bar.id}
          bar={subject.bar}
          change={question && "change" in question ? question.change : {}}
          turn={asking.turn}
          queues={model.queues.filter((queue) => queue !== "")}
          busy={busy}
          onAsk={(change) => onAsk(subject, { job: jobOf(subject.bar), change })}
        />
      )}
      {subject.kind === "quota" && (
        <QuotaForm
          queue={subject.queue}
          wanted={question && "quota" in question ? question.quota : null}
          turn={asking.turn}
          quotas={model.quotas}
          busy={busy}
          now={now}
          from={from}
          onFrom={onFrom}
          onAsk={(quota) => onAsk({ kind: "quota", queue: quota.clusterQueue }, { quota })}
        />
      )}
      {subject.kind === "drain" && (
        <DrainForm
          node={subject.node}
          nodes={model.nodes}
          busy={busy}
          onAsk={(node) => onAsk({ kind: "drain", node }, { drain: node })}
        />
      )}
      <div aria-live="polite">
        {busy && <p className="tl-quiet">Simulating …</p>}
        {error !== "" && <p className="tl-error">{error}</p>}
        {outcome && <OutcomeView outcome={outcome} now={now} ofJob={subject.kind === "job"} />}
      </div>
      {onOpenLane && subject.kind === "drain" && subject.node !== "" && (
        <p>
          <button type="button" className="tl-link" onClick={() => onOpenLane({ node: subject.node })}>
            Open node {subject.node}
          </button>
        </p>
      )}
      {onOpenLane && subject.kind === "quota" && subject.queue !== "" && (
        <p>
          <button type="button" className="tl-link" onClick={() => onOpenLane({ queue: subject.queue })}>
            Open queue {subject.queue}
          </button>
        </p>
      )}
      <p className="tl-quiet">Only simulated: nothing has been changed.</p>
    </aside>
  );
}

function titleOf(subject: Subject, question: Question | null): string {
  if (subject.kind === "drain") return subject.node ? `What if node ${subject.node} were drained?` : "What if a node were drained?";
  if (subject.kind === "quota") {
    if (question && "quota" in question)
      return `What if ${question.quota.clusterQueue} had a quota of ${question.quota.gpus} GPUs of ${question.quota.flavor}?`;
    return `What if the quota of ${subject.queue || "a queue"} were …`;
  }
  const said = question && "change" in question ? changeText(subject.bar, question.change) : "";
  return said ? `What if ${subject.bar.label} ${said}?` : `What if ${subject.bar.label} …`;
}

interface JobFormProps {
  bar: Bar;
  change: Change;
  turn: number;
  queues: readonly string[];
  busy: boolean;
  onAsk: (change: Change) => void;
}

function JobForm({ bar, change, turn, queues, busy, onAsk }: JobFormProps) {
  const length = bar.to - bar.from;
  const [runs, setRuns] = useState(duration(change.durationSeconds ?? length));
  const [gpus, setGpus] = useState(change.gpus ?? bar.gpus);
  const [queue, setQueue] = useState(change.queue ?? bar.queue);
  useEffect(() => {
    setRuns(duration(change.durationSeconds ?? length));
    setGpus(change.gpus ?? bar.gpus);
    setQueue(change.queue ?? bar.queue);
    // A question that was dragged fills the form; a new look at the cluster doesn't.
    // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  }, [turn]);
  const seconds = parseDuration(runs);
  const wanted: Change = {};
  if (seconds !== null && runs.trim() !== duration(length)) wanted.durationSeconds = seconds;
  if (gpus !== bar.gpus && gpus > 0) wanted.gpus = gpus;
  if (queue !== bar.queue) wanted.queue = queue;
  const nothing = Object.keys(wanted).length === 0;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!nothing && seconds !== null && !busy) onAsk(wanted);
      }}
    >
      <TextField value={runs} onChange={setRuns} isInvalid={seconds === null} className="tl-field">
        <Label>Runs for</Label>
        <Input className="tl-input" autoFocus />
      </TextField>
      <NumberField value={gpus} onChange={setGpus} minValue={1} maxValue={100_000} className="tl-field">
        <Label>GPUs</Label>
        <Input className="tl-input" />
      </NumberField>
      <Choice label="Queue" value={queue} values={queues} onChange={setQueue} />
      <Button type="submit" className="tl-button tl-strong" isDisabled={nothing || seconds === null}>
        Simulate
      </Button>
      {seconds === null && <p className="tl-error">A duration is like 90m, 4h or 1d 6h.</p>}
    </form>
  );
}

interface QuotaFormProps {
  queue: string;
  wanted: { flavor: string; gpus: number } | null;
  turn: number;
  quotas: Model["quotas"];
  busy: boolean;
  now: number;
  from: number | null;
  onFrom: (from: number | null) => void;
  onAsk: (quota: { clusterQueue: string; flavor: string; gpus: number; at?: string }) => void;
}

function QuotaForm({ queue: asked, wanted, turn, quotas, busy, now, from, onFrom, onAsk }: QuotaFormProps) {
  const [queue, setQueue] = useState(asked);
  const own = quotas.get(queue) ?? [];
  const [flavor, setFlavor] = useState(wanted?.flavor ?? own[0]?.flavor ?? "");
  const quota = own.find((each) => each.flavor === flavor) ?? own[0];
  const [gpus, setGpus] = useState(wanted?.gpus ?? quota?.gpus ?? 0);
  const fault = from === null ? "" : dateFault(from, now);
  const at = fault ? null : from;
  useEffect(() => {
    if (wanted === null) {
      choose(asked, "");
      return;
    }
    setQueue(asked);
    setFlavor(wanted.flavor);
    setGpus(wanted.gpus);
    // A question that was dragged fills the form; a new look at the cluster doesn't.
    // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  }, [turn]);
  const choose = (nextQueue: string, nextFlavor: string): void => {
    const those = quotas.get(nextQueue) ?? [];
    const chosen = those.find((each) => each.flavor === nextFlavor) ?? those[0];
    setQueue(nextQueue);
    setFlavor(chosen?.flavor ?? "");
    setGpus(chosen?.gpus ?? 0);
  };
  if (!quota) return <p className="tl-quiet">No queue has a quota of GPUs.</p>;
  return (
    <form
      className="tl-of-quota"
      onSubmit={(event) => {
        event.preventDefault();
        if (gpus !== quota.gpus && !busy && !fault) onAsk({ clusterQueue: queue, flavor: quota.flavor, gpus, ...(at === null ? {} : { at: written(at) }) });
      }}
    >
      <Choice label="Queue" value={queue} values={[...quotas.keys()]} onChange={(next) => choose(next, flavor)} autoFocus />
      <Choice
        label="Flavor"
        value={quota.flavor}
        values={own.map((each) => each.flavor)}
        onChange={(next) => choose(queue, next)}
      />
      <NumberField
        value={gpus}
        onChange={(next) => setGpus(Number.isFinite(next) ? next : 0)}
        minValue={0}
        maxValue={1_000_000}
        formatOptions={{ maximumFractionDigits: 0 }}
        className="tl-field"
      >
        <Label>GPUs</Label>
        <Input className="tl-input" />
      </NumberField>
      <DateField label="From" value={at} fault={fault} onChange={onFrom} />
      <p className="tl-quiet">
        The quota is {quota.gpus} GPUs now; {quota.used} of them are in use.
      </p>
      <Button type="submit" className="tl-button tl-strong" isDisabled={gpus === quota.gpus || fault !== ""}>
        Simulate
      </Button>
    </form>
  );
}

function DrainForm(props: { node: string; nodes: readonly string[]; busy: boolean; onAsk: (node: string) => void }) {
  const { nodes, busy, onAsk } = props;
  const [node, setNode] = useState(props.node || (nodes[0] ?? ""));
  useEffect(() => {
    if (props.node) setNode(props.node);
  }, [props.node]);
  return (
    <form
      className="tl-of-node"
      onSubmit={(event) => {
        event.preventDefault();
        if (node && !busy) onAsk(node);
      }}
    >
      <Choice label="Node" value={node} values={nodes} onChange={setNode} autoFocus />
      <Button type="submit" className="tl-button tl-strong" isDisabled={node === ""}>
        Simulate
      </Button>
    </form>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  values: readonly string[];
  onChange: (value: string) => void;
  autoFocus?: boolean;
}

function Choice({ label, value, values, onChange, autoFocus = false }: ChoiceProps) {
  const id = useId();
  const select = useRef<HTMLSelectElement>(null);
  useEffect(() => {
    if (autoFocus) select.current?.focus();
  }, [autoFocus]);
  return (
    <div className="tl-field">
      <label htmlFor={id}>{label}</label>
      <select ref={select} id={id} className="tl-input" value={value} onChange={(event) => onChange(event.target.value)}>
        {values.map((each) => (
          <option key={each} value={each}>
            {each}
          </option>
        ))}
      </select>
    </div>
  );
}

function OutcomeView({ outcome, now, ofJob }: { outcome: Outcome; now: number; ofJob: boolean }) {
  const [copied, setCopied] = useState(false);
  const { before, after, gains, loses } = outcome;
  const moved = before && after ? after.p50 - before.p50 : null;
  const time = (given: { p50: number; p90: number | null } | null): string =>
    given
      ? when(given.p50, now) + (given.p90 !== null && given.p90 - given.p50 >= 60 ? ` – ${when(given.p90, now)}` : "")
      : "unknown";
  const list = (title: string, kind: string, who: Outcome["gains"]): ReactNode =>
    who.length > 0 && (
      <div className={`tl-who tl-${kind}`}>
        <h3>{title}</h3>
        <ul>
          {who.slice(0, 6).map(({ job, seconds }, each) => (
            <li key={each}>
              <span>{job}</span> <span>{duration(seconds)}</span>
            </li>
          ))}
          {who.length > 6 && <li>and {who.length - 6} more</li>}
        </ul>
      </div>
    );
  return (
    <div className="tl-outcome">
      <dl>
        {ofJob && (
          <>
            <div>
              <dt>Expected start</dt>
              <dd>{time(before)}</dd>
            </div>
            <div>
              <dt>Would start</dt>
              <dd>
                {time(after)}
                {moved !== null && (
                  <span className={moved <= 0 ? "tl-good" : "tl-bad"}>
                    {Math.abs(moved) < 60
                      ? " no difference"
                      : moved < 0
                        ? ` ${duration(moved)} earlier`
                        : ` ${duration(moved)} later`}
                  </span>
                )}
              </dd>
            </div>
          </>
        )}
        {outcome.headDelaySeconds !== null && (
          <div>
            <dt>Next in line waits</dt>
            <dd>
              {Math.abs(outcome.headDelaySeconds) < 1
                ? "no longer"
                : `${duration(outcome.headDelaySeconds)} ${outcome.headDelaySeconds > 0 ? "longer" : "less"}`}
            </dd>
          </div>
        )}
        {outcome.gpuHours !== null && (
          <div>
            <dt>GPU-hours</dt>
            <dd>
              {outcome.gpuHours.toLocaleString("en", { maximumFractionDigits: 1, signDisplay: "exceptZero" })}
            </dd>
          </div>
        )}
      </dl>
      {list("Start earlier", "gains", gains)}
      {list("Start later", "loses", loses)}
      {gains.length + loses.length === 0 && <p className="tl-quiet">No other job starts earlier or later.</p>}
      {outcome.note && <p>{outcome.note}</p>}
      {outcome.command !== "" && (
        <div className="tl-command">
          <p>This would apply it:</p>
          <code>{outcome.command}</code>
          <Button
            className="tl-button"
            onPress={() => {
              // absent where the page came without TLS
              void (navigator.clipboard as Clipboard | undefined)?.writeText(outcome.command).then(() => setCopied(true));
            }}
          >
            {copied ? "Copied" : "Copy"}
          </Button>
        </div>
      )}
    </div>
  );
}

// ---- The same data as a table ----

const ROW = 33;
const EXTRA = 8;

type Column = "label" | "queue" | "state" | "gpus" | "from" | "to";
const COLUMNS: readonly [Column, string][] = [
  ["label", "Job"],
  ["queue", "Queue"],
  ["state", "State"],
  ["gpus", "GPUs"],
  ["from", "Start"],
  ["to", "End"],
];

interface TwinProps {
  bars: readonly Bar[];
  total: number;
  now: number;
  matches: (bar: Bar) => boolean;
  focus: string | null;
  onOpen: (bar: Bar) => void;
  onAsk?: ((bar: Bar) => void) | undefined;
  /** Back to the canvas, by key. */
  onLeave: () => void;
}

export function TableTwin({ bars, total, now, matches, focus, onOpen, onAsk, onLeave }: TwinProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  const [sort, setSort] = useState<{ by: Column; down: boolean }>({ by: "from", down: false });
  const sorted = useMemo(() => {
    const value = (bar: Bar): string | number => (sort.by === "state" ? stateName(bar) : bar[sort.by]);
    return [...bars].sort((a, b) => {
      const [one, other] = [value(a), value(b)];
      const order =
        typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
      return sort.down ? -order : order;
    });
  }, [bars, sort]);
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const look = (): void => setSeen({ top: element.scrollTop, height: element.clientHeight });
    look();
    element.addEventListener("scroll", look, { passive: true });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      observer.disconnect();
    };
  }, []);
  const first = Math.max(0, Math.min(Math.floor(seen.top / ROW) - EXTRA, sorted.length - 1));
  const last = Math.min(sorted.length, Math.ceil((seen.top + seen.height) / ROW) + EXTRA);
  return (
    <div
      className="tl-table"
      ref={scroller}
      tabIndex={0}
      role="region"
      aria-label="Timeline as a table"
      onKeyDown={(event) => {
        if (event.key === "Escape" || event.key === "t") onLeave();
      }}
    >
      <table aria-rowcount={sorted.length + 1}>
        <caption>
          {sorted.length} of {total} runs touch the time in view.
        </caption>
        <thead>
          <tr aria-rowindex={1}>
            {COLUMNS.map(([column, title]) => (
              <th
                key={column}
                scope="col"
                className={column === "gpus" ? "tl-number" : undefined}
                aria-sort={sort.by === column ? (sort.down ? "descending" : "ascending") : "none"}
              >
                <button type="button" onClick={() => setSort({ by: column, down: sort.by === column && !sort.down })}>
                  {title}
                  <span aria-hidden="true">{sort.by === column ? (sort.down ? " ↓" : " ↑") : ""}</span>
                </button>
              </th>
            ))}
            <th scope="col">Notes</th>
            <th scope="col">Nodes</th>
          </tr>
        </thead>
        <tbody>
          <Spacer rows={first} />
          {sorted.slice(first, last).map((bar, each) => (
            <tr
              key={bar.id}
              aria-rowindex={first + each + 2}
              className={matches(bar) ? "tl-match" : bar.id === focus ? "tl-focused" : undefined}
            >
              <th scope="row">
                {bar.hidden ? (
                  bar.label
                ) : (
                  <button type="button" className="tl-link" onClick={() => onOpen(bar)}>
                    {bar.label || "unnamed job"}
                  </button>
                )}
              </th>
              <td>{bar.queue}</td>
              <td>{stateName(bar)}</td>
              <td className="tl-number">{bar.gpus}</td>
              <td>{startText(bar, now)}</td>
              <td>{endText(bar, now)}</td>
              <td>
                {notes(bar, now)}
                {onAsk && canAsk(bar) && (
                  <button type="button" className="tl-link" onClick={() => onAsk(bar)}>
                    What if …
                  </button>
                )}
              </td>
              <td>{bar.nodes.join(", ")}</td>
            </tr>
          ))}
          <Spacer rows={sorted.length - last} />
        </tbody>
      </table>
    </div>
  );
}

function Spacer({ rows }: { rows: number }) {
  return rows > 0 ? (
    <tr aria-hidden="true">
      <td colSpan={COLUMNS.length + 2} className="tl-spacer" style={{ height: rows * ROW }} />
    </tr>
  ) : null;
}

function notes(bar: Bar, now: number): string {
  const said: string[] = [];
  if (bar.mustEndBy !== null) said.push(`backfilled, must be gone by ${when(bar.mustEndBy, now)}`);
  else if (bar.backfilled) said.push("backfilled");
  if (bar.state === "reserved") said.push("start reserved");
  if (bar.lost >= 1) said.push(`lost ${lossText(bar)}`);
  if (bar.attempt > 1) said.push(`attempt ${bar.attempt}`);
  else if (bar.preemptions > 0)
    said.push(bar.preemptions === 1 ? "preempted once before" : `preempted ${bar.preemptions} times before`);
  if (bar.hidden) said.push("of another team");
  return said.length > 0 ? `${said.join("; ")} ` : "";
}

// ---- Legend ----

const HOUR = 3_600;
const SAMPLE: Bar = {
  id: "",
  label: "",
  namespace: "",
  workload: "",
  kind: "",
  queue: "",
  localQueue: "",
  user: "",
  state: "running",
  gpus: 8,
  submitted: null,
  from: 0,
  fromLatest: 0,
  to: HOUR,
  toLatest: HOUR,
  endUnknown: false,
  hidden: false,
  backfilled: false,
  mustEndBy: null,
  ready: null,
  lost: 0,
  lostGpuHours: 0,
  lostTo: "",
  attempt: 0,
  by: "",
  nodes: [],
  nodeCount: 0,
  why: "",
  after: [],
  preemptions: 0,
};
const SAMPLES: readonly [string, Partial<Bar>][] = [
  [
    "Runs; fades from the end as likely early as late (p50) to the one that holds nine times in ten (p90)",
    { to: 0.55 * HOUR },
  ],
  ["Starts or stops", { state: "starting" }],
  ["Waits: expected run, fading in and out", { state: "planned", fromLatest: 0.25 * HOUR, to: 0.6 * HOUR }],
  ["Waits with a reserved start", { state: "reserved", to: 0.7 * HOUR }],
  [
    "Backfilled: must be gone by the stop",
    { backfilled: true, to: 0.6 * HOUR, toLatest: 0.6 * HOUR, mustEndBy: 0.98 * HOUR },
  ],
  ["Its pods were not ready before: lighter", { ready: 0.3 * HOUR }],
  ["Succeeded", { state: "succeeded" }],
  ["Failed; hatched: work that was lost", { state: "failed", lost: HOUR }],
  ["Preempted; what a checkpoint kept is not hatched", { state: "preempted", lost: 0.45 * HOUR }],
  ["Evicted", { state: "evicted" }],
  ["Cancelled", { state: "cancelled" }],
  ["Ended otherwise", { state: "ended" }],
  ["Of another team", { hidden: true }],
];

export function Legend({ theme }: { theme: () => Theme | null }) {
  const [open, setOpen] = useState(false);
  const id = useId();
  return (
    <div
      className="tl-legend"
      onKeyDown={(event) => {
        if (event.key === "Escape") setOpen(false);
      }}
    >
      <ToggleButton className="tl-button" isSelected={open} onChange={setOpen} aria-expanded={open} aria-controls={id}>
        Legend
      </ToggleButton>
      <div id={id} className="tl-legend-panel" hidden={!open}>
        {open && (
          <>
            <ul>
              {SAMPLES.map(([words, change]) => (
                <li key={words}>
                  <Sample bar={{ ...SAMPLE, ...change }} theme={theme} />
                  {words}
                </li>
              ))}
            </ul>
            <p className="tl-quiet">
              Colours are queues. Taller bars have more GPUs. Hatched lanes of nodes take no work. Marks below the times
              are decisions. Keys: arrows go from job to job, Enter opens, W asks “what if” of the job, Shift W of its
              row, [ and ] go from decision to decision, + and − zoom, N goes to now, T shows a table, Escape leaves.
            </p>
          </>
        )}
      </div>
    </div>
  );
}

function Sample({ bar, theme }: { bar: Bar; theme: () => Theme | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    const colours = theme();
    if (!canvas.current || !context || !colours) return;
    canvas.current.width = 72 * colours.ratio;
    canvas.current.height = 16 * colours.ratio;
    context.scale(colours.ratio, colours.ratio);
    const stage: Stage = { theme: colours, places: new Map(), x: (at) => 2 + (at / HOUR) * 68, width: 72, now: 0 };
    drawBars(context, stage, [{ bar, lane: 0, y: 1, height: 14 }], 0);
  });
  return <canvas ref={canvas} className="tl-sample" aria-hidden="true" />;
}
