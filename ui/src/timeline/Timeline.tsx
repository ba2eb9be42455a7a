/** The timeline: a toolbar, a slider through past and plan, the canvas or its table, a job's card, and the question "what if". */
import { type KeyboardEvent, useCallback, useEffect, useId, useMemo, useRef, useState } from "react";
import { Button, Input, SearchField, ToggleButton, ToggleButtonGroup } from "react-aria-components";
import { listen } from "./gestures";
import { type Hit, Surface } from "./layers";
import { type Bar, type Decision, type LiveRows, NodesSeen, type PastRun, makeModel } from "./model";
import { type Change, type Outcome, type Question, SPANS, type View, canAsk, found, neighbour, readView } from "./view";
import { describe } from "./words";
import { Scrubber } from "./Scrubber";
import { type Asking, JobCard, Legend, TableTwin, WhatIf } from "./panels";
import "./timeline.css";

export type { Decision, LiveRows, PastRun } from "./model";
export type { Change, Outcome, Question, View } from "./view";

export interface TimelineProps {
  /** Rows of the live stream, by id. A new object, or a new `revision`, for each change. */
  live: LiveRows;
  revision?: number | undefined;
  past?: readonly PastRun[] | undefined;
  /** Past runs are loaded from this instant on. */
  pastSince?: number | null | undefined;
  /** Decisions of the audit record, the oldest first. */
  decisions?: readonly Decision[] | undefined;
  /** The instant that the rows are of; the clock of this machine if absent. */
  now?: number | undefined;
  view?: Partial<View> | undefined;
  /** Called a moment after the view has changed. */
  onViewChange?: ((view: View) => void) | undefined;
  onOpen?: ((job: Question["job"]) => void) | undefined;
  /** Simulates a change. Absent: nothing can be dragged or asked. */
  onWhatIf?: ((question: Question) => Promise<Outcome>) | undefined;
  /** The rows are old: they are shown greyed. */
  stale?: boolean | undefined;
  label?: string | undefined;
  /** For measuring: the surface, once it is there. */
  onSurface?: ((surface: Surface | null) => void) | undefined;
}

const NO_PAST: readonly PastRun[] = [];
const NO_DECISIONS: readonly Decision[] = [];
/** Running bars grow with the clock; this often is often enough to see it. */
const GROW_SECONDS = 15;
const WEEK = 7 * 86_400;

interface Pointed {
  hit: Hit;
  x: number;
}

export function Timeline(props: TimelineProps) {
  const { live, revision = 0, past = NO_PAST, decisions = NO_DECISIONS, pastSince = null, onOpen, onWhatIf } = props;
  const now = useClock(props.now);
  const [view, setView] = useState<View>(() => readView(props.view));
  const [surface, setSurface] = useState<Surface | null>(null);
  const [themes, setThemes] = useState(0);
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const [card, setCard] = useState(false);
  const [asking, setAsking] = useState<Asking | null>(null);
  const [said, setSaid] = useState("");
  const host = useRef<HTMLDivElement>(null);
  const hint = useId();
  const [seen] = useState(() => new NodesSeen());
  const latest = useRef({ props, view, now });
  latest.current = { props, view, now };

  const grown = Math.floor(now / GROW_SECONDS);
  const model = useMemo(
    () => makeModel({ live, past, now: latest.current.now, group: view.group, seen }),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `live` may be the same object, changed: then its revision has risen
    [live, revision, past, grown, view.group, seen],
  );

  const change = useCallback((part: Partial<View>) => setView((before) => ({ ...before, ...part })), []);

  // ---- The surface: made once, told what is new ----

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
  useEffect(() => surface?.setRecord(decisions, pastSince), [surface, decisions, pastSince]);
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
  const ask = useCallback(
    (bar: Bar, wanted: Change) => {
      const simulate = latest.current.props.onWhatIf;
      if (!simulate) return;
      turn.current += 1;
      const mine = turn.current;
      setCard(false);
      const placed = surface?.layout.placements.find((each) => each.bar.id === bar.id);
      const empty = Object.keys(wanted).length === 0;
      if (placed && surface && !empty) {
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
      setAsking({ bar, change: wanted, turn: mine, outcome: null, error: "", busy: !empty });
      if (empty) return;
      const answer = (part: Partial<Asking>): void =>
        setAsking((before) => (before?.turn === mine ? { ...before, ...part, busy: false } : before));
      simulate({ job: jobOf(bar), change: wanted }).then(
        (outcome) => answer({ outcome }),
        (error: unknown) => answer({ error: error instanceof Error ? error.message : "The simulation failed." }),
      );
    },
    [surface],
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
      onDragged: () => (latest.current.props.onWhatIf ? ask : undefined),
    });
  }, [surface, focusOn, open, ask]);

  const toNow = (): void => {
    change({ cursor: null });
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
      ask(focus.bar, {});
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
  const scrub = (at: number): void => {
    const cursor = Math.abs(at - now) < (to - from) / 250 ? null : at;
    change({ cursor });
    if (!surface) return;
    const x = surface.x(cursor ?? now);
    if (cursor === null) surface.show(null, surface.span);
    else if (x < surface.width * 0.05 || x > surface.width * 0.95) surface.show(at - surface.span / 2, surface.span);
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
    <section className={`timeline${props.stale ? " tl-stale" : ""}`} aria-label={props.label ?? "Timeline"}>
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
        decisions={decisions}
        onScrub={scrub}
      />
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
            onAsk={onWhatIf ? (bar) => ask(bar, {}) : undefined}
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
                    <Button className="tl-button" onPress={() => ask(focusBar, {})}>
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
            queues={model.queues.filter((queue) => queue !== "")}
            now={now}
            onAsk={(wanted) => ask(asking.bar, wanted)}
            onClose={close}
          />
        )}
      </div>
      <p id={hint} className="tl-hidden">
        Arrow keys go from job to job, Enter opens the job{onWhatIf ? ", W asks what if" : ""}, plus and minus zoom,
        Shift with an arrow moves in time, N goes to now, T shows a table, Escape leaves.
      </p>
      <p className="tl-hidden" role="status" aria-live="polite">
        {said}
      </p>
    </section>
  );
}

function jobOf(bar: Bar): Question["job"] {
  return { namespace: bar.namespace, name: bar.label, workload: bar.workload, kind: bar.kind };
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
