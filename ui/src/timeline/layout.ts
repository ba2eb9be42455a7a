/** Where bars stand: rows in lanes, and what is too short to see merged into buckets. */
import { type Bar, type Lane } from "./model";

export interface Placement {
  bar: Bar;
  lane: number;
  y: number;
  height: number;
}

export interface LaneBox {
  lane: Lane;
  y: number;
  height: number;
}

export interface Layout {
  boxes: LaneBox[];
  placements: Placement[];
  height: number;
  /** The row of each bar of each lane, so that a bar keeps its row when others come and go. */
  rows: ReadonlyMap<string, number>;
}

export const HEADING = 26;
const TALLEST_ROW = 20;
const LOWEST_ROW = 3;
/** A row has room for text, or it is so low that it is clear at once that there is none. */
const TEXT_ROW = 14;
const TEXTLESS_ROW = 8;
/** A bar of this height has room for text. */
export const TEXT_HEIGHT = 11;
const PADDING = 4;
const SMALLEST_LANE = { group: HEADING, queue: 48, node: 22 } as const;

/** How many rows a bar takes where there is room: one up to 8 GPUs (a node), two up to 64, three above. */
export function rowsOf(gpus: number): number {
  return gpus <= 8 ? 1 : gpus <= 64 ? 2 : 3;
}

/** Where the last mark of a bar stands: the instant by which a backfilled run must be gone is one. */
export const drawnEnd = (bar: Bar): number => Math.max(bar.toLatest, bar.from + 1, bar.mustEndBy ?? 0);

/**
 * Gives each bar a row so that no two overlap. Bars are in the order of their starts.
 * A bar keeps the row that it had if that is free, else it gets the first free one; but rows don't become a quarter more than needed.
 */
export function pack(
  bars: readonly Bar[],
  tall: (bar: Bar) => number,
  before?: (bar: Bar) => number | undefined,
): { rows: Int32Array; count: number } {
  const most = before ? Math.ceil(pack(bars, tall).count * 1.25) : 0;
  const freeFrom: number[] = [];
  const rows = new Int32Array(bars.length);
  const fits = (row: number, height: number, from: number): boolean => {
    for (let each = row; each < row + height; each++) if ((freeFrom[each] ?? -Infinity) > from) return false;
    return true;
  };
  bars.forEach((bar, index) => {
    const height = tall(bar);
    const had = before?.(bar);
    let row = had !== undefined && had + height <= most && fits(had, height, bar.from) ? had : 0;
    while (!fits(row, height, bar.from)) row += 1;
    for (let each = row; each < row + height; each++) {
      while (freeFrom.length < each) freeFrom.push(-Infinity);
      freeFrom[each] = drawnEnd(bar);
    }
    rows[index] = row;
  });
  return { rows, count: freeFrom.length };
}

/** Places all lanes below one another. A lane with many rows gets lower ones, so that it takes at most `room` pixels if it can. */
export function layOut(lanes: readonly Lane[], room: number, before?: ReadonlyMap<string, number>): Layout {
  const boxes: LaneBox[] = [];
  const placements: Placement[] = [];
  const kept = new Map<string, number>();
  let y = 0;
  lanes.forEach((lane, index) => {
    const smallest = SMALLEST_LANE[lane.kind];
    if (lane.bars.length === 0) {
      boxes.push({ lane, y, height: smallest });
      y += smallest;
      return;
    }
    const one = (): number => 1;
    const bySize = (bar: Bar): number => rowsOf(bar.gpus);
    const had = (prefix: string) => (bar: Bar) => before?.get(`${prefix}${lane.id} ${bar.id}`);
    let tall = lane.kind === "queue" ? bySize : one;
    let prefix = tall === one ? "" : "tall ";
    let packed = pack(lane.bars, tall, had(prefix));
    if (tall !== one && packed.count * TEXT_ROW > room) {
      tall = one;
      prefix = "";
      packed = pack(lane.bars, tall, had(prefix));
    }
    const onNode = packed.count === 1 ? TALLEST_ROW : packed.count <= 4 ? TEXT_ROW : 5;
    const even = lane.kind === "node" ? onNode : Math.floor(room / packed.count);
    const unit = even >= TEXT_ROW ? Math.min(even, TALLEST_ROW) : Math.max(LOWEST_ROW, Math.min(TEXTLESS_ROW, even));
    const gap = unit > TEXTLESS_ROW ? 2 : 1;
    const inner = packed.count * unit;
    const padding = lane.kind === "node" ? 1.5 : PADDING;
    const height = Math.max(smallest, Math.ceil(inner + 2 * padding));
    // A lone row stands in the middle of its lane.
    const top = y + (lane.kind === "node" ? (height - inner + gap) / 2 : padding);
    lane.bars.forEach((bar, number) => {
      const row = packed.rows[number] ?? 0;
      kept.set(`${prefix}${lane.id} ${bar.id}`, row);
      placements.push({ bar, lane: index, y: top + row * unit, height: tall(bar) * unit - gap });
    });
    boxes.push({ lane, y, height });
    y += height;
  });
  return { boxes, placements, height: y, rows: kept };
}

// ---- Density ----

export interface Bucket {
  /** Pixels from the left edge of what is drawn. */
  x: number;
  y: number;
  height: number;
  queue: string;
  /** The part of the bucket's time that is taken, 0 to 1. */
  filled: number;
  count: number;
}

export const BUCKET = 2;

/** Splits what is to be drawn into bars that are wide enough to see and, for the others, buckets of 2 pixels by row and queue. */
export function densify(
  placements: readonly Placement[],
  from: number,
  pixelsPerSecond: number,
): { wide: Placement[]; buckets: Bucket[] } {
  const wide: Placement[] = [];
  const buckets = new Map<string, Bucket>();
  for (const placed of placements) {
    const { bar } = placed;
    const width = (bar.toLatest - bar.from) * pixelsPerSecond;
    if (width >= BUCKET) {
      wide.push(placed);
      continue;
    }
    const column = Math.floor(((bar.from - from) * pixelsPerSecond) / BUCKET);
    const key = `${column} ${placed.y} ${bar.queue}`;
    let bucket = buckets.get(key);
    if (!bucket) {
      bucket = { x: column * BUCKET, y: placed.y, height: placed.height, queue: bar.queue, filled: 0, count: 0 };
      buckets.set(key, bucket);
    }
    bucket.count += 1;
    bucket.height = Math.max(bucket.height, placed.height);
    bucket.filled = Math.min(1, bucket.filled + Math.max(width, 0.25) / BUCKET);
  }
  return { wide, buckets: [...buckets.values()] };
}

/** How opaque a running or planned bar is at an instant: it fades in while its start is uncertain, and out while its end is. */
export function certainty(bar: Bar, at: number): number {
  if (at < bar.from || at > bar.toLatest) return 0;
  const started = bar.fromLatest > bar.from ? Math.min(1, (at - bar.from) / (bar.fromLatest - bar.from)) : 1;
  const stays = at <= bar.to || bar.toLatest <= bar.to ? 1 : 1 - (at - bar.to) / (bar.toLatest - bar.to);
  return Math.min(started, stays);
}
