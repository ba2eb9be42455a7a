/** What the reader sets and asks: the view, the way from bar to bar, and "what if". */
import { type Bar, type Lane, instant, isWaiting, DAY, MOST_GPUS, text } from "./model";

/** What the reader has set, as plain values: a page keeps it in its address. */
export interface View {
  group: "queues" | "nodes";
  /** Seconds from the left edge to the right one. */
  span: number;
  /** The left edge; null while the view follows the clock. */
  start: number | null;
  /** The instant that the slider stands at; null: now. */
  cursor: number | null;
  /** The number of the decision that is looked at; null: the last one before the slider. */
  decision: number | null;
  /** The id of the bar that has the focus. */
  focus: string | null;
  find: string;
  table: boolean;
  /** The date from which on "what if" changes a quota; null: at once. */
  from: number | null;
}

export const SHORTEST_SPAN = 60;
export const LONGEST_SPAN = 30 * DAY;
/** Where "now" stands while the view follows the clock, as a part of the width. */
export const NOW_AT = 0.4;
export const SPANS: readonly [string, number][] = [
  ["1 h", 3_600],
  ["6 h", 6 * 3_600],
  ["1 d", DAY],
  ["7 d", 7 * DAY],
];

/** A view from an address or from storage, whatever stands there. */
export function readView(given: unknown): View {
  const raw = (typeof given === "object" && given !== null ? given : {}) as Record<string, unknown>;
  const number = (value: unknown): number =>
    typeof value === "string" && value !== "" ? Number(value) : (value as number);
  const span = number(raw.span);
  return {
    group: raw.group === "nodes" ? "nodes" : "queues",
    span: Number.isFinite(span) ? Math.min(Math.max(span, SHORTEST_SPAN), LONGEST_SPAN) : DAY,
    start: instant(number(raw.start)),
    cursor: instant(number(raw.cursor)),
    decision: Number.isSafeInteger(number(raw.decision)) ? number(raw.decision) : null,
    focus: typeof raw.focus === "string" && raw.focus !== "" ? raw.focus.slice(0, 600) : null,
    find: text(raw.find).slice(0, 200),
    table: raw.table === true || raw.table === "true",
    from: instant(number(raw.from)),
  };
}

// ---- Moving from bar to bar ----

/** The bar that an arrow key leads to: left and right in the lane by start, up and down to the nearest one in time. */
export function neighbour(
  lanes: readonly Lane[],
  focus: { lane: string; bar: string } | null,
  key: string,
  now: number,
): { lane: string; bar: string } | null {
  const withBars = lanes.filter((lane) => lane.bars.length > 0);
  const nearest = (lane: Lane | undefined, at: number): { lane: string; bar: string } | null => {
    let best: Bar | null = null;
    let distance = Infinity;
    for (const bar of lane?.bars ?? []) {
      const away = at < bar.from ? bar.from - at : at > bar.to ? at - bar.to : 0;
      if (away < distance) [best, distance] = [bar, away];
    }
    return lane && best ? { lane: lane.id, bar: best.id } : null;
  };
  const place = withBars.findIndex((lane) => lane.id === focus?.lane);
  const lane = withBars[place];
  const at = lane?.bars.findIndex((bar) => bar.id === focus?.bar) ?? -1;
  const bar = lane?.bars[at];
  if (!lane || !bar) return nearest(withBars[0], now);
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const next = lane.bars[at + (key === "ArrowLeft" ? -1 : 1)];
    return next ? { lane: lane.id, bar: next.id } : focus;
  }
  const middle = bar.from <= now && now <= bar.to ? now : (bar.from + bar.to) / 2;
  return nearest(withBars[place + (key === "ArrowUp" ? -1 : 1)], middle) ?? focus;
}

export function found(bar: Bar, find: string): boolean {
  const words = find.trim().toLowerCase();
  if (words === "") return false;
  return [bar.label, bar.namespace, bar.user, bar.queue, bar.workload].some((each) =>
    each.toLowerCase().includes(words),
  );
}

// ---- What if ----

/** A change to a waiting job that is only simulated. */
export interface Change {
  durationSeconds?: number;
  gpus?: number;
  /** A ClusterQueue. */
  queue?: string;
}

export interface JobName {
  namespace: string;
  name: string;
  workload: string;
  kind: string;
}

/** What if a waiting job were different, a queue's quota of a flavor were, or a node were drained? */
export type Question =
  | { job: JobName; change: Change }
  | { quota: { clusterQueue: string; flavor: string; gpus: number; at?: string } }
  | { drain: string };

interface Interval {
  p50: number;
  p90: number | null;
}

export interface Outcome {
  before: Interval | null;
  after: Interval | null;
  /** Seconds that others start earlier (`gains`) or later (`loses`). */
  gains: readonly { job: string; seconds: number }[];
  loses: readonly { job: string; seconds: number }[];
  headDelaySeconds: number | null;
  gpuHours: number | null;
  command: string;
  /** Anything else to say. */
  note?: string;
}

export function canAsk(bar: Bar): boolean {
  return isWaiting(bar) && !bar.hidden;
}

/** A quota that was dragged by a share of itself: in nodes of 8 where it is large, in single GPUs where it is small. */
export function quotaDragged(gpus: number, share: number): number {
  const step = gpus > 32 ? 8 : 1;
  const wanted = gpus + Math.round((gpus * share) / step) * step;
  return Math.min(Math.max(0, wanted), MOST_GPUS);
}

/** The next size up or down: powers of two within a node, whole nodes of 8 above. */
export function resized(gpus: number, steps: number): number {
  let size = Math.max(1, gpus);
  for (let step = Math.abs(Math.round(steps)); step > 0; step--) {
    if (steps > 0) size = size < 8 ? 2 ** Math.floor(Math.log2(size) + 1) : Math.floor(size / 8) * 8 + 8;
    else size = size <= 8 ? 2 ** Math.max(0, Math.ceil(Math.log2(size)) - 1) : Math.ceil(size / 8) * 8 - 8;
  }
  return Math.min(size, MOST_GPUS);
}
