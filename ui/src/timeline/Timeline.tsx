/**
 * The timeline: a toolbar, a slider through past and plan, the canvas or its table, the decisions around the slider's instant, a job's
 * card, and the question "what if".
 */
import { type KeyboardEvent, useCallback, useEffect, useId, useMemo, useRef, useState } from "react";
import {
  Button,
  Input,
  Menu,
  MenuItem,
  MenuTrigger,
  Popover,
  SearchField,
  ToggleButton,
  ToggleButtonGroup,
} from "react-aria-components";
import { DecisionPanel, useStretch } from "./DecisionPanel";
import { AXIS } from "./draw";
import { decisionWord } from "../words";
import { listen } from "./gestures";
import { type Hit, Surface } from "./layers";
import {
  type AttemptRow,
  type Bar,
  type Decision,
  type Lane,
  type LiveRows,
  type Mark,
  NodesSeen,
  type PastRun,
  barsOf,
  makeModel,
} from "./model";
import { type DecisionBook, countUntil, moves } from "./record";
import { type JobName, type Outcome, type Question, SPANS, type View, canAsk, found, neighbour, readView } from "./view";
import { describe } from "./words";
import { Scrubber } from "./Scrubber";
import { type Asking, JobCard, Legend, type Subject, TableTwin, WhatIf, jobOf } from "./panels";
import "./timeline.css";

export type { AttemptRow, Decision, LiveRows, Mark, PastRun } from "./model";
export type { Change, JobName, Outcome, Question, View } from "./view";

export interface TimelineProps {
  /** Rows of the live stream, by id. A new object, or a new `revision`, for each change. */
  live: LiveRows;
  revision?: number | undefined;
  past?: readonly PastRun[] | undefined;
  /** Attempts of jobs: where they are given, the past is made of them and not of `past`. */
  attempts?: readonly AttemptRow[] | undefined;
  /** The past is loaded from this instant on. */
  pastSince?: number | null | undefined;
  /** What happened, the oldest first. */
  marks?: readonly Mark[] | undefined;
  /** Reads the operator's record of its decisions. */
  book?: DecisionBook | undefined;
  /** Shows what the engine knew when it decided. */
  onInputs?: ((number: number) => void) | undefined;
  /** The instant that the rows are of; the clock of this machine if absent. */
  now?: number | undefined;
  view?: Partial<View> | undefined;
  /** Called a moment after the view has changed. */
  onViewChange?: ((view: View) => void) | undefined;
  onOpen?: ((job: JobName) => void) | undefined;
  onOpenLane?: ((lane: { node: string } | { queue: string }) => void) | undefined;
  /** Simulates a change. Absent: nothing can be dragged or asked. */
  onWhatIf?: ((question: Question) => Promise<Outcome>) | undefined;
  /** The rows are old: they are shown greyed. */
  stale?: boolean | undefined;
  label?: string | undefined;
  /** For measuring: the surface, once it is there. */
  onSurface?: ((surface: Surface | null) => void) | undefined;
}

const NO_PAST: readonly PastRun[] = [];
const NO_MARKS: readonly Mark[] = [];
const NO_BARS: ReadonlySet<string> = new Set();
/** The record is asked this long after the slider has come to rest. */
const REST_MS = 250;
/** Running bars grow with the clock; this often is often enough to see it. */
const GROW_SECONDS = 15;
const WEEK = 7 * 86_400;

interface Pointed {
  hit: Hit;
  x: number;
}

export function Timeline(props: TimelineProps) {
  const { live, revision = 0, past = NO_PAST, attempts, marks = NO_MARKS, book, pastSince = null } = props;
  const { onOpen, onWhatIf, onInputs } = props;
  const now = useClock(props.now);
  const [view, setView] = useState<View>(() => readView(props.view));
  const [surface, setSurface] = useState<Surface | null>(null);
  const [themes, setThemes] = useState(0);
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const [card, setCard] = useState(false);
  const [asking, setAsking] = useState<Asking | null>(null);
  const [said, setSaid] = useState("");
  const [beside, setBeside] = useState<{ words: string; x: number; y: number } | null>(null);
  const host = useRef<HTMLDivElement>(null);
  const hint = useId();
  const [seen] = useState(() => new NodesSeen());
  const latest = useRef({ props, view, now });
  latest.current = { props, view, now };

  const grown = Math.floor(now / GROW_SECONDS);
  const model = useMemo(
    () => makeModel({ live, past, attempts, now: latest.current.now, group: view.group, seen }),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `live` may be the same object, changed: then its revision has risen
    [live, revision, past, attempts, grown, view.group, seen],
  );

  const change = useCallback((part: Partial<View>) => setView((before) => ({ ...before, ...part })), []);

  // ---- The surface: made once, updated with what is new ----

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const reduced = window.matchMedia("(prefers-reduced-motion: reduce)");
    const made = new Surface(element, () => reduced.matches);
    const { view: first, now: at } = latest.current;
    made.now = at;
    made.show(first.start, first.span);
    let mirrored = 0;
    made.onMove = () => {
      // The toolbar follows a moment later: a frame of panning must not wait for it.
      if (mirrored !== 0) return;
      mirrored = window.setTimeout(() => {
        mirrored = 0;
        setView((before) => ({
          ...before,
          start: made.following ? null : Math.round(made.start * 10) / 10,
          span: made.span,
        }));
      }, 120);
    };
    const observer = new ResizeObserver(() => made.resize());
    observer.observe(element);
    const retheme = (): void => {
      made.retheme();
      made.resize();
      setThemes((count) => count + 1);
    };
    const queries = [
      "(prefers-color-scheme: dark)",
      "(forced-colors: active)",
      `(resolution: ${window.devicePixelRatio}dppx)`,
    ].map((query) => window.matchMedia(query));
    for (const query of queries) query.addEventListener("change", retheme);
    const attributes = new MutationObserver(retheme);
    attributes.observe(document.documentElement, {
      attributes: true,
      attributeFilter: ["class", "data-theme", "style"],
    });
    setSurface(made);
    latest.current.props.onSurface?.(made);
    return () => {
      clearTimeout(mirrored);
      observer.disconnect();
      attributes.disconnect();
      for (const query of queries) query.removeEventListener("change", retheme);
      latest.current.props.onSurface?.(null);
      made.destroy();
      setSurface(null);
    };
  }, []);

  useEffect(() => surface?.setModel(model, latest.current.now), [surface, model]);
  useEffect(() => surface?.setNow(now), [surface, now]);
  useEffect(() => surface?.setCursor(view.cursor), [surface, view.cursor]);
  useEffect(() => surface?.setFind(view.find), [surface, view.find]);

  // ---- The record of decisions ----

  const stretch = useStretch(book);
  // A decision may be newer than the rows.
  const scrubbed = view.cursor !== null && (view.decision !== null || view.cursor < now - 1);
  const at = view.cursor ?? now;
  useEffect(() => {
    if (!book || !scrubbed) return;
    const timer = setTimeout(() => void book.around(at), REST_MS);
    return () => clearTimeout(timer);
  }, [book, scrubbed, at]);
  useEffect(() => () => book?.stop(), [book]);
  const [moving, setMoving] = useState(false);
  const picked = useMemo(() => {
    if (!scrubbed) return null;
    const listed = moving ? stretch.items.filter(moves) : stretch.items;
    const named = listed.find((each) => each.number === view.decision);
    return named ?? listed[countUntil(listed, at) - 1] ?? null;
  }, [scrubbed, stretch, view.decision, at, moving]);
  const concerned = useMemo(() => (picked ? barsOf(model.bars, picked) : NO_BARS), [picked, model]);
  useEffect(() => surface?.setMarked(concerned), [surface, concerned]);
  const allMarks = useMemo(
    () =>
      stretch.items.length > 0
        ? [
            ...marks,
            ...stretch.items.map(({ at, decision, job, text }) => ({ at, text: `${decisionWord(decision)} ${job}. ${text}` })),
          ].sort((a, b) => a.at - b.at)
        : marks,
    [marks, stretch],
  );
  useEffect(() => surface?.setRecord(allMarks, pastSince), [surface, allMarks, pastSince]);

  useEffect(() => {
    if (surface) surface.grips = onWhatIf !== undefined;
  }, [surface, onWhatIf]);
  const byKey = useRef(false);
  useEffect(() => {
    if (!view.table) surface?.resize();
    if (!byKey.current) return;
    // What had the focus is gone: it goes to what took its place.
    byKey.current = false;
    const next = view.table ? host.current?.parentElement?.querySelector<HTMLElement>(".tl-table") : host.current;
    next?.focus();
  }, [surface, view.table]);
  const showTable = (table: boolean): void => {
    byKey.current = true;
    change({ table });
  };

  const focusOn = useCallback(
    (focus: { lane: string; bar: string } | null, reveal: boolean) => {
      const placed = focus ? (surface?.seek(focus) ?? null) : (surface?.setFocus(null) ?? null);
      if (placed && reveal) surface?.reveal(placed);
      change({ focus: placed?.bar.id ?? null });
      setSaid(placed ? describe(placed.bar, latest.current.now) : "");
      setPointed(null);
    },
    [surface, change],
  );
  // The bar that an address names has the focus as soon as it is there.
  useEffect(() => {
    if (!surface || surface.focus?.bar.id === view.focus) return;
    const lane = model.lanes.find((each) => each.bars.some((bar) => bar.id === view.focus));
    surface.setFocus(lane && view.focus !== null ? { lane: lane.id, bar: view.focus } : null);
  }, [surface, view.focus, model]);

  // ---- The view and the page's address ----

  const sent = useRef(JSON.stringify(view));
  const given = JSON.stringify(readView(props.view));
  const taken = useRef(given);
  useEffect(() => {
    if (given === taken.current) return;
    taken.current = given;
    if (given === sent.current) return;
    const next = readView(props.view);
    sent.current = given;
    setView(next);
    surface?.show(next.start, next.span, true);
  // eslint-disable-next-line react-hooks/exhaustive-deps -- `given` is what `props.view` says, as text
  }, [given, surface]);
  useEffect(() => {
    const text = JSON.stringify(view);
    if (text === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = text;
      latest.current.props.onViewChange?.(view);
    }, 200);
    return () => clearTimeout(timer);
  }, [view]);

  // ---- What if ----

  const turn = useRef(0);
  const close = useCallback(() => {
    turn.current += 1;
    setAsking(null);
    surface?.setGhost(null);
    host.current?.focus();
  }, [surface]);
  /** Opens the question about a job, a quota or a node; with a change it is asked at once. */
  const ask = useCallback(
    (subject: Subject, question: Question | null) => {
      const simulate = latest.current.props.onWhatIf;
      if (!simulate) return;
      turn.current += 1;
      const mine = turn.current;
      setCard(false);
      const bar = subject.kind === "job" ? subject.bar : null;
      const placed = bar ? surface?.layout.placements.find((each) => each.bar.id === bar.id) : undefined;
      if (bar && placed && surface && question && "change" in question) {
        const wanted = question.change;
        const lane = surface.layout.boxes.findIndex(
          (box) => box.lane.kind === "queue" && box.lane.queue === wanted.queue,
        );
        surface.setGhost({
          placed,
          seconds: wanted.durationSeconds ?? bar.to - bar.from,
          gpus: wanted.gpus ?? bar.gpus,
          lane: lane < 0 ? placed.lane : lane,
          words: "what if",
        });
      }
      setAsking({ subject, question, turn: mine, outcome: null, error: "", busy: question !== null });
      if (question === null) return;
      const answer = (part: Partial<Asking>): void =>
        setAsking((before) => (before?.turn === mine ? { ...before, ...part, busy: false } : before));
      simulate(question).then(
        (outcome) => answer({ outcome }),
        (error: unknown) => answer({ error: error instanceof Error ? error.message : "The simulation failed." }),
      );
    },
    [surface],
  );
  const askOfJob = useCallback((bar: Bar) => ask({ kind: "job", bar }, null), [ask]);
  const askOfLane = useCallback(
    (lane: Lane, dragged: { gpus: number } | { drain: true } | null) => {
      if (lane.kind === "node") {
        ask({ kind: "drain", node: lane.label }, dragged ? { drain: lane.label } : null);
        return;
      }
      const quota = lane.quotas[0];
      if (!quota) return;
      const asked = dragged && "gpus" in dragged ? dragged.gpus : null;
      ask(
        { kind: "quota", queue: lane.queue },
        asked === null ? null : { quota: { clusterQueue: lane.queue, flavor: quota.flavor, gpus: asked } },
      );
    },
    [ask],
  );

  const open = useCallback((bar: Bar) => {
    if (!bar.hidden) latest.current.props.onOpen?.(jobOf(bar));
  }, []);

  // ---- Hands and keys ----

  useEffect(() => {
    const element = host.current;
    if (!surface || !element) return;
    return listen(element, surface, {
      onHover: (hit, x) => {
        surface.setHover(hit?.placed ?? null);
        setPointed((before) => (hit ? (before && before.hit.placed === hit.placed ? before : { hit, x }) : null));
      },
      onPick: (hit) => {
        const lane = hit ? surface.layout.boxes[hit.placed.lane]?.lane.id : undefined;
        focusOn(hit && lane !== undefined ? { lane, bar: hit.placed.bar.id } : null, false);
        setCard(hit !== null);
      },
      onOpen: open,
      onDragged: () =>
        latest.current.props.onWhatIf
          ? (bar, change) => ask({ kind: "job", bar }, { job: jobOf(bar), change })
          : undefined,
      onHeader: askOfLane,
      onSaying: (words, { x, y }) => setBeside(words === "" ? null : { words, x, y }),
    });
  }, [surface, focusOn, open, ask, askOfLane]);

  const toNow = (): void => {
    change({ cursor: null, decision: null });
    surface?.show(null, surface.span, true);
  };
  const zoom = (factor: number): void => surface?.zoomBy(factor, null);

  const keys = (event: KeyboardEvent): void => {
    if (event.target !== host.current || !surface || event.altKey || event.ctrlKey || event.metaKey) return;
    const focus = surface.focus;
    const width = surface.width;
    const step: Record<string, () => void> = {
      "+": () => zoom(1.5),
      "=": () => zoom(1.5),
      "-": () => zoom(1 / 1.5),
      n: toNow,
      t: () => showTable(true),
      PageUp: () => surface.panBy(0, surface.height * 0.8),
      PageDown: () => surface.panBy(0, -surface.height * 0.8),
    };
    if (event.shiftKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      surface.panBy((event.key === "ArrowLeft" ? 1 : -1) * width * 0.25, 0);
    } else if (event.key.startsWith("Arrow")) {
      const lane = focus ? (surface.layout.boxes[focus.lane]?.lane.id ?? "") : "";
      focusOn(neighbour(model.lanes, focus ? { lane, bar: focus.bar.id } : null, event.key, view.cursor ?? now), true);
      setCard(true);
    } else if (event.key === "Enter" && focus) {
      open(focus.bar);
    } else if (event.key === "w" && focus && onWhatIf && canAsk(focus.bar)) {
      askOfJob(focus.bar);
    } else if (event.key === "W" && onWhatIf) {
      const lane = surface.layout.boxes[focus ? focus.lane : surface.laneAt(surface.height / 2)]?.lane;
      if (lane && lane.kind !== "group") askOfLane(lane, null);
    } else if (event.key === "Escape") {
      if (focus) focusOn(null, false);
      else (host.current as HTMLElement | null)?.blur();
      setCard(false);
    } else if (step[event.key]) {
      step[event.key]?.();
    } else return;
    event.preventDefault();
  };

  const findNext = (): void => {
    const places = model.lanes.flatMap((lane) =>
      lane.bars.filter((bar) => found(bar, view.find)).map((bar) => ({ lane: lane.id, bar: bar.id })),
    );
    const at = places.findIndex((place) => place.bar === view.focus);
    const next = places[(at + 1) % places.length];
    if (next) focusOn(next, true);
  };

  const from = Math.max(model.earliest, now - WEEK);
  const to = Math.min(model.latest, now + WEEK);
  const follow = (cursor: number | null): void => {
    if (!surface) return;
    const x = surface.x(cursor ?? now);
    if (cursor === null) surface.show(null, surface.span);
    else if (x < surface.width * 0.05 || x > surface.width * 0.95)
      surface.show(cursor - surface.span / 2, surface.span);
  };
  const scrub = (moved: number): void => {
    const cursor = Math.abs(moved - now) < (to - from) / 250 ? null : moved;
    change({ cursor, decision: null });
    follow(cursor);
  };
  const pick = (decision: Decision): void => {
    change({ cursor: decision.at, decision: decision.number });
    follow(decision.at);
    const ids = barsOf(model.bars, decision);
    const placed = surface?.layout.placements.find((each) => ids.has(each.bar.id));
    if (placed) surface?.reveal(placed);
    setSaid(`${decisionWord(decision.decision)} ${decision.job}. ${decision.text}`);
  };
  const step = (by: 1 | -1): void => {
    if (!book) return;
    // Where no decision was chosen, the nearest one before or after the slider is.
    const here = view.decision === null ? null : picked;
    void book.step(here, at, by, moving ? moves : undefined).then((next) => {
      if (next) pick(next);
      else setSaid(by > 0 ? "There is no later decision." : "The record has no earlier decision.");
    });
  };
  const stepKeys = (event: KeyboardEvent): void => {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key !== "[" && event.key !== "]") return;
    if (event.target instanceof HTMLInputElement && event.target.type !== "range") return;
    event.preventDefault();
    step(event.key === "]" ? 1 : -1);
  };

  const start = view.start ?? now - view.span * 0.4;
  const tens = Math.round(start / 10);
  const inView = useMemo(
    () => (view.table ? model.bars.filter((bar) => bar.from < start + view.span && bar.toLatest >= start) : []),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the table follows in steps of ten seconds
    [view.table, model, tens, view.span],
  );
  const matching = useMemo(
    () => (view.find.trim() ? model.bars.filter((bar) => found(bar, view.find)).length : 0),
    [model, view.find],
  );
  const preset = SPANS.find(([, span]) => Math.abs(view.span / span - 1) < 0.01)?.[0];
  const focusBar = view.focus === null ? null : (surface?.focus?.bar ?? null);
  const queueCount = model.queues.filter((queue) => queue !== "").length;

  return (
    <section
      className={`timeline${props.stale ? " tl-stale" : ""}`}
      aria-label={props.label ?? "Timeline"}
      onKeyDown={stepKeys}
    >
      <div className="tl-toolbar">
        <ToggleButtonGroup
          className="tl-group"
          aria-label="Rows"
          selectionMode="single"
          disallowEmptySelection
          selectedKeys={[view.group]}
          onSelectionChange={(picked) => change({ group: picked.has("nodes") ? "nodes" : "queues" })}
        >
          <ToggleButton id="queues" className="tl-button">
            Queues
          </ToggleButton>
          <ToggleButton id="nodes" className="tl-button">
            Nodes
          </ToggleButton>
        </ToggleButtonGroup>
        <ToggleButtonGroup
          className="tl-group"
          aria-label="Time in view"
          selectionMode="single"
          disallowEmptySelection
          selectedKeys={preset ? [preset] : []}
          onSelectionChange={(picked) => {
            const span = SPANS.find(([name]) => picked.has(name))?.[1];
            if (!span || !surface) return;
            surface.show(surface.following ? null : surface.start + (surface.span - span) / 2, span, true);
          }}
        >
          {SPANS.map(([name]) => (
            <ToggleButton key={name} id={name} className="tl-button">
              {name}
            </ToggleButton>
          ))}
        </ToggleButtonGroup>
        <div className="tl-group">
          <Button className="tl-button" aria-label="Zoom out" onPress={() => zoom(1 / 1.5)}>
            −
          </Button>
          <Button className="tl-button" aria-label="Zoom in" onPress={() => zoom(1.5)}>
            +
          </Button>
        </div>
        <Button className="tl-button" onPress={toNow} isDisabled={view.start === null && view.cursor === null}>
          Now
        </Button>
        <ToggleButton className="tl-button" isSelected={view.table} onChange={(table) => change({ table })}>
          Table
        </ToggleButton>
        {onWhatIf && (
          <MenuTrigger>
            <Button className="tl-button">What if …</Button>
            <Popover className="menu-box">
              <Menu
                className="menu"
                aria-label="What if"
                disabledKeys={[
                  ...(focusBar && canAsk(focusBar) ? [] : ["job"]),
                  ...(model.quotas.size > 0 ? [] : ["quota"]),
                  ...(model.nodes.length > 0 ? [] : ["drain"]),
                ]}
                onAction={(key) => {
                  if (key === "job" && focusBar) askOfJob(focusBar);
                  else if (key === "quota") {
                    const queue = focusBar && model.quotas.has(focusBar.queue) ? focusBar.queue : null;
                    ask({ kind: "quota", queue: queue ?? [...model.quotas.keys()][0] ?? "" }, null);
                  } else if (key === "drain") {
                    ask({ kind: "drain", node: focusBar?.nodes[0] ?? model.nodes[0] ?? "" }, null);
                  }
                }}
              >
                <MenuItem id="job">the chosen job were different</MenuItem>
                <MenuItem id="quota">a queue’s quota were different</MenuItem>
                <MenuItem id="drain">a node were drained</MenuItem>
              </Menu>
            </Popover>
          </MenuTrigger>
        )}
        <Legend theme={() => surface?.theme ?? null} />
        <SearchField
          className="tl-search"
          aria-label="Find a job"
          value={view.find}
          onChange={(find) => change({ find })}
          onSubmit={findNext}
        >
          <Input className="tl-input" placeholder="Find a job, user or namespace" />
          {view.find.trim() !== "" && (
            <span className="tl-found" role="status">
              {matching} found
            </span>
          )}
        </SearchField>
      </div>
      <Scrubber
        model={model}
        from={from}
        to={to}
        now={now}
        view={view}
        surface={surface}
        themes={themes}
        marks={allMarks}
        onScrub={scrub}
      />
      <div className="tl-columns">
        <div className="tl-stage">
          <div
            ref={host}
            className="tl-host"
            hidden={view.table}
            tabIndex={0}
            role="application"
            aria-roledescription="timeline"
            aria-label={`${props.label ?? "Timeline"}: ${model.bars.length} runs in ${queueCount} ${queueCount === 1 ? "queue" : "queues"}`}
            aria-describedby={hint}
            onKeyDown={keys}
          />
          {!view.table && model.bars.length === 0 && (
            <p className="tl-empty">No job ran in this time, none runs and none is expected to.</p>
          )}
          {view.table && (
            <TableTwin
              bars={inView}
              total={model.bars.length}
              now={now}
              matches={(bar) => found(bar, view.find)}
              focus={view.focus}
              onOpen={open}
              onAsk={onWhatIf ? askOfJob : undefined}
              onLeave={() => showTable(false)}
            />
          )}
          {!view.table && surface && !asking && card && focusBar && (
            <Floating surface={surface} bar={focusBar} x={null} interactive>
              <JobCard
                bar={focusBar}
                now={now}
                crowd={1}
                actions={
                  <p className="tl-actions">
                    {onOpen && !focusBar.hidden && (
                      <Button className="tl-button" onPress={() => open(focusBar)}>
                        Open
                      </Button>
                    )}
                    {onWhatIf && canAsk(focusBar) && (
                      <Button className="tl-button" onPress={() => askOfJob(focusBar)}>
                        What if …
                      </Button>
                    )}
                  </p>
                }
              />
            </Floating>
          )}
          {!view.table && surface && pointed && !(card && focusBar?.id === pointed.hit.placed.bar.id) && (
            <Floating surface={surface} bar={pointed.hit.placed.bar} x={pointed.x}>
              <JobCard bar={pointed.hit.placed.bar} now={now} crowd={pointed.hit.crowd} />
            </Floating>
          )}
          {asking && (
            <WhatIf
              asking={asking}
              model={model}
              now={now}
              from={view.from}
              onFrom={(from) => change({ from })}
              onAsk={ask}
              onClose={close}
              onOpenLane={props.onOpenLane}
            />
          )}
          {beside && surface && (
            <p
              className="tl-beside"
              style={{ transform: `translate(${surface.gutter + beside.x + 14}px, ${AXIS + beside.y + 6}px)` }}
            >
              {beside.words}
            </p>
          )}
        </div>
        {scrubbed && (
          <DecisionPanel
            book={book}
            marks={marks}
            at={at}
            picked={picked}
            onPick={pick}
            onStep={step}
            onInputs={onInputs}
            moving={moving}
            onMoving={setMoving}
          />
        )}
      </div>
      <p id={hint} className="tl-hidden">
        Arrow keys go from job to job, Enter opens the job
        {onWhatIf ? ", W asks what if of the job, Shift W asks it of the row" : ""}, brackets go from decision to
        decision, plus and minus zoom, Shift with an arrow moves in time, N goes to now, T shows a table, Escape leaves.
      </p>
      <p className="tl-hidden" role="status" aria-live="polite">
        {said}
      </p>
    </section>
  );
}

function useClock(given: number | undefined): number {
  const [own, setOwn] = useState(() => Date.now() / 1000);
  const ticks = given === undefined;
  useEffect(() => {
    if (!ticks) return;
    const timer = setInterval(() => setOwn(Date.now() / 1000), 1_000);
    return () => clearInterval(timer);
  }, [ticks]);
  return given ?? own;
}

/** A card beside a bar: above or below it, within the stage. */
function Floating(props: {
  surface: Surface;
  bar: Bar;
  x: number | null;
  interactive?: boolean;
  children: React.ReactNode;
}) {
  const { surface, bar, x, interactive = false } = props;
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = card.current;
    const placed = surface.layout.placements.find((each) => each.bar.id === bar.id);
    const stage = element?.parentElement;
    if (!element || !placed || !stage) return;
    const put = (): void => {
      const box = surface.boxOf(surface.focus?.bar.id === bar.id && interactive ? surface.focus : placed);
      const { offsetWidth: width, offsetHeight: height } = element;
      const left = x === null ? box.left : surface.gutter + x + 8;
      const below = box.bottom + 8 + height < stage.clientHeight;
      const top = below ? box.bottom + 8 : Math.max(4, box.top - height - 8);
      element.style.transform = `translate(${Math.round(Math.max(4, Math.min(left, stage.clientWidth - width - 4)))}px, ${Math.round(top)}px)`;
    };
    put();
    // A glide to the bar ends a moment later.
    const timer = setTimeout(put, 200);
    return () => clearTimeout(timer);
  });
  return (
    <div
      ref={card}
      className={`tl-card${interactive ? " tl-picked" : ""}`}
      role={interactive ? "group" : undefined}
      aria-label={interactive ? bar.label : undefined}
    >
      {props.children}
    </div>
  );
}
