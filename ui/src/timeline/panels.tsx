/** What stands beside the timeline's canvas: a job's card, the question "what if", the same data as a table, and the legend. */
import { type ReactNode, useEffect, useId, useMemo, useRef, useState } from "react";
import { Button, Input, Label, NumberField, TextField, ToggleButton } from "react-aria-components";
import { type Stage, drawBars } from "./draw";
import { type Theme } from "./theme";
import { type Bar, isLive, isWaiting } from "./model";
import { type Change, type Outcome, canAsk } from "./view";
import { away, duration, endText, parseDuration, startText, stateName, when } from "./words";

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
    rows.push(["Ends", bar.endUnknown ? "unknown" : `${endText(bar, now)} (${away(bar.to, now)})`]);
  } else {
    rows.push(["Ran", `${startText(bar, now)} – ${when(bar.to, now)} (${duration(bar.to - bar.from)})`]);
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
      bar.nodes.slice(0, 3).join(", ") + (bar.nodes.length > 3 ? ` and ${bar.nodes.length - 3} more` : ""),
    ]);
  if (bar.preemptions > 0)
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
      {bar.state === "reserved" && (
        <p className="tl-contract">Its start is reserved: backfilled jobs must be gone by then.</p>
      )}
      {bar.why !== "" && <p className="tl-why">{bar.why}</p>}
      {crowd > 1 && <p className="tl-card-sub">{crowd} short runs lie here; zoom in to tell them apart.</p>}
      {actions}
    </>
  );
}

// ---- What if ----

export interface Asking {
  bar: Bar;
  change: Change;
  /** Rises with each question, so that a late answer to an earlier one is dropped. */
  turn: number;
  outcome: Outcome | null;
  error: string;
  busy: boolean;
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
  queues: readonly string[];
  now: number;
  onAsk: (change: Change) => void;
  onClose: () => void;
}

export function WhatIf({ asking, queues, now, onAsk, onClose }: WhatIfProps) {
  const { bar, change, outcome, error, busy } = asking;
  const length = bar.to - bar.from;
  const [runs, setRuns] = useState(duration(change.durationSeconds ?? length));
  const [gpus, setGpus] = useState(change.gpus ?? bar.gpus);
  const [queue, setQueue] = useState(change.queue ?? bar.queue);
  const select = useId();
  useEffect(() => {
    setRuns(duration(change.durationSeconds ?? length));
    setGpus(change.gpus ?? bar.gpus);
    setQueue(change.queue ?? bar.queue);
    // A question that was dragged fills the form; a new look at the cluster doesn't.
  // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  }, [asking.turn, bar.id]);
  const seconds = parseDuration(runs);
  const wanted: Change = {};
  if (seconds !== null && runs.trim() !== duration(length)) wanted.durationSeconds = seconds;
  if (gpus !== bar.gpus && gpus > 0) wanted.gpus = gpus;
  if (queue !== bar.queue) wanted.queue = queue;
  const nothing = Object.keys(wanted).length === 0;
  const said = changeText(bar, change);
  return (
    <aside
      className="tl-whatif"
      aria-label={`What if: ${bar.label}`}
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose();
      }}
    >
      <header>
        <h2>{said ? `What if ${bar.label} ${said}?` : `What if ${bar.label} …`}</h2>
        <Button className="tl-button tl-plain" aria-label="Close" onPress={onClose}>
          ✕
        </Button>
      </header>
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
        <div className="tl-field">
          <label htmlFor={select}>Queue</label>
          <select id={select} className="tl-input" value={queue} onChange={(event) => setQueue(event.target.value)}>
            {queues.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </div>
        <Button type="submit" className="tl-button tl-strong" isDisabled={nothing || seconds === null || busy}>
          Simulate
        </Button>
      </form>
      <div aria-live="polite">
        {seconds === null && <p className="tl-error">A duration is like 90m, 4h or 1d 6h.</p>}
        {busy && <p className="tl-quiet">Simulating …</p>}
        {error !== "" && <p className="tl-error">{error}</p>}
        {outcome && <OutcomeView outcome={outcome} now={now} />}
      </div>
      <p className="tl-quiet">Only simulated: nothing has been changed.</p>
    </aside>
  );
}

function OutcomeView({ outcome, now }: { outcome: Outcome; now: number }) {
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
  if (bar.preemptions > 0)
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
  nodes: [],
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
  ["Succeeded", { state: "succeeded" }],
  ["Failed", { state: "failed" }],
  ["Preempted", { state: "preempted" }],
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
              are decisions. Keys: arrows go from job to job, Enter opens, W asks “what if”, + and − zoom, N goes to
              now, T shows a table, Escape leaves.
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
