/**
 * The timeline's surface: canvases above each other, of which each is drawn again only when it has to be.
 * The bars are drawn on a canvas larger than the view, which is only moved while the reader pans; times and rows move with it.
 */
import Flatbush from "flatbush";
import {
  AXIS,
  type Header,
  type Stage,
  drawAxis,
  drawBars,
  drawBuckets,
  drawDropZone,
  drawGhost,
  drawGrips,
  drawGround,
  drawGutter,
  drawLine,
  drawRing,
  drawStickyLabel,
  drawTroubles,
  quotaHandle,
} from "./draw";
import { type Theme, readTheme } from "./theme";
import { BUCKET, type Layout, type Placement, TEXT_HEIGHT, densify, drawnEnd, layOut } from "./layout";
import { type Bar, type Lane, type Mark, type Model, type Moment, momentAt } from "./model";
import { LONGEST_SPAN, NOW_AT, SHORTEST_SPAN, canAsk, found } from "./view";
import { type Tick, clock, ticks } from "./words";

export type Part = "bar" | "end" | "size";

export interface Hit {
  placed: Placement;
  part: Part;
  /** How many bars too short to tell apart are here, this one among them. */
  crowd: number;
}

export interface Ghost {
  placed: Placement;
  seconds: number;
  gpus: number;
  /** Where the job is dropped, as a lane's index; the bar's own lane otherwise. */
  lane: number;
  words: string;
}

/** What one frame cost the main thread, and whether it drew the bars again. */
export interface FrameReport {
  milliseconds: number;
  redrew: boolean;
}

const MARGIN = 0.5;
/** Rows are given to what lies within that many spans left and right of the view. */
const AROUND = 1;
/** A drawing quicker than this is made in each frame of a zoom; a slower one is stretched meanwhile. */
const QUICK = 4;
const MOST_PIXELS = 20_000_000;
const GRIP = 7;
const NOBODY: Moment = { gpus: 0, running: 0, waiting: 0, lanes: new Map() };

interface Drawn {
  from: number;
  pps: number;
  width: number;
  top: number;
  height: number;
}

function layer(parent: HTMLElement, name: string): [HTMLCanvasElement, CanvasRenderingContext2D] {
  const made = document.createElement("canvas");
  made.className = name;
  made.setAttribute("aria-hidden", "true");
  parent.append(made);
  const context = made.getContext("2d");
  if (!context) throw new Error("This browser has no canvas.");
  return [made, context];
}

export class Surface {
  width = 0;
  height = 0;
  gutter = 180;
  start = 0;
  span = 86_400;
  top = 0;
  following = true;
  now = 0;
  cursor: number | null = null;
  layout: Layout = { boxes: [], placements: [], height: 0, rows: new Map() };
  model: Model | null = null;
  onFrame: ((report: FrameReport) => void) | null = null;
  /** The window in time or the rows in view have changed. */
  onMove: (() => void) | null = null;
  /** Whether a waiting job's bar shows its grips. */
  grips = false;
  theme: Theme;

  private marks: readonly Mark[] = [];
  private recordFrom: number | null = null;
  private readonly plot: HTMLDivElement;
  private readonly future: HTMLDivElement;
  private readonly bars: [HTMLCanvasElement, CanvasRenderingContext2D];
  private readonly overlay: [HTMLCanvasElement, CanvasRenderingContext2D];
  private readonly axis: [HTMLCanvasElement, CanvasRenderingContext2D];
  private readonly side: [HTMLCanvasElement, CanvasRenderingContext2D];
  private index: Flatbush | null = null;
  private places = new Map<string, number>();
  private drawn: Drawn | null = null;
  private stale = true;
  private lastCost = 0;
  private lastZoom = 0;
  private axisDrawn = "";
  private sideDrawn = "";
  private moment: Moment = NOBODY;
  private momentOf = "";
  private version = 0;
  private frame = 0;
  private resting = 0;
  private settling = 0;
  private packed: { from: number; to: number; span: number } | null = null;
  private frozen = false;
  private pending: { model: Model; now: number } | null = null;
  private hovered: Placement | null = null;
  private focusId: { lane: string; bar: string } | null = null;
  private focused: Placement | null = null;
  private finding = "";
  private hits: Placement[] = [];
  private ghost: Ghost | null = null;
  private marked: Placement[] = [];
  private markedIds: ReadonlySet<string> = new Set();
  private header: Header | null = null;
  private dropping: { words: string; over: boolean } | null = null;
  private glide: { from: [number, number, number]; to: [number, number, number]; began: number } | null = null;

  constructor(
    private readonly host: HTMLElement,
    private readonly still: () => boolean,
  ) {
    this.plot = document.createElement("div");
    this.plot.className = "tl-plot";
    this.future = document.createElement("div");
    this.future.className = "tl-future";
    this.plot.append(this.future);
    host.append(this.plot);
    this.bars = layer(this.plot, "tl-bars");
    this.overlay = layer(this.plot, "tl-overlay");
    this.axis = layer(host, "tl-axis");
    this.side = layer(host, "tl-side");
    this.theme = readTheme(host, this.ratio());
    this.resize();
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.resting);
    clearTimeout(this.settling);
    this.plot.remove();
    this.axis[0].remove();
    this.side[0].remove();
  }

  private ratio(): number {
    return Math.min(3, window.devicePixelRatio || 1);
  }

  get pps(): number {
    return this.width / this.span;
  }

  x(at: number): number {
    return (at - this.start) * this.pps;
  }

  time(x: number): number {
    return this.start + x / this.pps;
  }

  retheme(): void {
    this.theme = readTheme(this.host, this.ratio());
    this.stale = true;
    this.axisDrawn = this.sideDrawn = "";
    this.ask();
  }

  resize(): void {
    const width = this.host.clientWidth;
    const height = this.host.clientHeight;
    // Hidden behind its table: there is nothing to fit.
    if (width === 0) return;
    this.gutter = width < 600 ? 92 : 188;
    this.width = Math.max(60, width - this.gutter);
    const before = this.height;
    this.height = Math.max(60, height - AXIS);
    for (const [made, [canvasWidth, canvasHeight]] of [
      [this.overlay, [this.width, this.height]],
      [this.axis, [this.width, AXIS]],
      [this.side, [this.gutter, this.height]],
    ] as const) {
      this.fit(made, canvasWidth, canvasHeight);
    }
    this.plot.style.left = this.axis[0].style.left = `${this.gutter}px`;
    this.axisDrawn = this.sideDrawn = "";
    this.stale = true;
    if (this.model && Math.abs(before - this.height) > 80) this.place(this.model);
    this.scrollTo(this.top);
    this.ask();
  }

  private fit([made, context]: [HTMLCanvasElement, CanvasRenderingContext2D], width: number, height: number): void {
    const ratio = this.ratio();
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (made.width !== across || made.height !== down) {
      made.width = across;
      made.height = down;
      made.style.width = `${width}px`;
      made.style.height = `${height}px`;
    }
    context.setTransform(across / width, 0, 0, down / height, 0, 0);
  }

  // ---- What is shown ----

  setModel(model: Model, now: number): void {
    if (this.frozen) {
      this.pending = { model, now };
      return;
    }
    this.model = model;
    this.place(model);
    this.setNow(now);
  }

  /** Gives rows to the bars of the time in view and around it: those of other days would only take room. */
  private place(model: Model): void {
    const [from, to] = [this.start - AROUND * this.span, this.start + (AROUND + 1) * this.span];
    this.packed = { from, to, span: this.span };
    const near = (bar: Bar): boolean => bar.from < to && drawnEnd(bar) > from;
    const lanes = model.lanes.map((lane) => (lane.bars.every(near) ? lane : { ...lane, bars: lane.bars.filter(near) }));
    const anchor = this.anchor();
    this.layout = layOut(lanes, Math.max(220, this.height * 0.8), this.layout.rows);
    this.places = new Map(model.queues.map((queue, place) => [queue, place]));
    const { placements } = this.layout;
    this.index = null;
    if (placements.length > 0) {
      const index = new Flatbush(placements.length);
      for (const { bar, y, height } of placements) index.add(bar.from, y, drawnEnd(bar), y + height);
      index.finish();
      this.index = index;
    }
    this.version += 1;
    this.stale = true;
    this.sideDrawn = "";
    this.hovered = this.again(this.hovered);
    if (this.ghost) {
      const placed = this.again(this.ghost.placed);
      this.ghost = placed ? { ...this.ghost, placed } : null;
    }
    this.setFocus(this.focusId);
    this.setFind(this.finding);
    this.setMarked(this.markedIds);
    this.scrollTo(anchor());
  }

  /** What the reader looks at keeps its place: the bar with the focus, else the uppermost lane. */
  private anchor(): () => number {
    const { focused, top } = this;
    if (top === 0) return () => 0;
    if (focused && focused.y > top && focused.y < top + this.height) {
      const below = focused.y - top;
      return () => (this.focused ? this.focused.y - below : top);
    }
    const box = this.layout.boxes[this.laneAt(0)];
    return () => {
      const now = this.layout.boxes.find((each) => each.lane.id === box?.lane.id);
      return box && now ? now.y + Math.min(top - box.y, now.height - 20) : top;
    };
  }

  private beyondPacked(): boolean {
    const { packed, model } = this;
    if (!packed || !model) return false;
    return (
      (this.start < packed.from && model.earliest < packed.from) ||
      (this.start + this.span > packed.to && model.latest > packed.to)
    );
  }

  /** Once the hand rests, rows are given anew if the view has gone far. */
  private readonly settle = (): void => {
    const { packed, model } = this;
    if (!packed || !model) return;
    if (this.frozen || this.glide) {
      this.settling = window.setTimeout(this.settle, 300);
      return;
    }
    const moved = Math.abs(this.start - AROUND * this.span - packed.from);
    const zoomed = Math.max(this.span / packed.span, packed.span / this.span);
    if (zoomed > 1.6 || moved > AROUND * 0.6 * this.span) this.place(model);
  };

  /** A bar's place, also of one that is far from the time in view: the view then goes there. */
  seek(focus: { lane: string; bar: string }): Placement | null {
    const here = this.setFocus(focus);
    const bar = here ? null : this.bar(focus.bar);
    if (here || !bar || !this.model) return here;
    this.following = false;
    this.glide = null;
    this.start = (bar.from + Math.min(bar.to, bar.from + this.span)) / 2 - this.span / 2;
    this.place(this.model);
    this.moved();
    return this.setFocus(focus);
  }

  private again(placed: Placement | null): Placement | null {
    if (!placed) return null;
    return this.layout.placements.find((each) => each.bar.id === placed.bar.id && each.lane === placed.lane) ?? null;
  }

  /** While a hand is on the timeline, nothing moves under it. */
  freeze(): void {
    this.frozen = true;
    this.glide = null;
  }

  thaw(): void {
    this.frozen = false;
    if (this.pending) {
      const { model, now } = this.pending;
      this.pending = null;
      this.setModel(model, now);
    }
  }

  setNow(now: number): void {
    this.now = now;
    if (this.following && !this.frozen && !this.glide) this.start = now - this.span * NOW_AT;
    this.ask();
  }

  /** What happened, in order, and the instant from which past runs are loaded. */
  setRecord(marks: readonly Mark[], from: number | null): void {
    this.marks = marks;
    this.recordFrom = from;
    this.axisDrawn = "";
    this.stale = true;
    this.ask();
  }

  setCursor(cursor: number | null): void {
    this.cursor = cursor;
    this.ask();
  }

  setHover(placed: Placement | null): void {
    if (this.hovered === placed) return;
    this.hovered = placed;
    this.ask();
  }

  setGhost(ghost: Ghost | null): void {
    this.ghost = ghost;
    this.ask();
  }

  /** The bars that the chosen decision concerns. */
  setMarked(ids: ReadonlySet<string>): void {
    this.markedIds = ids;
    this.marked = ids.size === 0 ? [] : this.layout.placements.filter(({ bar }) => ids.has(bar.id));
    this.ask();
  }

  /** The lane whose header is pointed at, and the quota to which it is dragged. */
  setHeader(header: Header | null): void {
    if (header?.lane === this.header?.lane && header?.gpus === this.header?.gpus) return;
    this.header = header;
    this.sideDrawn = "";
    this.ask();
  }

  /** While a node's header is dragged: where to drop it. */
  setDropping(dropping: { words: string; over: boolean } | null): void {
    this.dropping = dropping;
    this.ask();
  }

  /** The lane whose header is at a point of the gutter, and whether its quota's handle is. */
  headerAt(x: number, y: number): { lane: Lane; handle: boolean; room: number } | null {
    if (x >= 0 || y < 0 || y > this.height) return null;
    const box = this.layout.boxes[this.laneAt(y)];
    if (!box || box.lane.kind === "group" || (box.lane.kind === "queue" && box.lane.quotas.length === 0)) return null;
    if (box.lane.kind === "node") return { lane: box.lane, handle: false, room: 1 };
    const grip = quotaHandle(box.y - this.top, box.height, this.gutter);
    const handle =
      box.lane.capacity > 0 && Math.abs(x + this.gutter - grip.x) <= GRIP && Math.abs(y - grip.y) <= GRIP + 3;
    return { lane: box.lane, handle, room: grip.room };
  }

  setFind(find: string): void {
    this.finding = find;
    this.hits = find.trim() === "" ? [] : this.layout.placements.filter(({ bar }) => found(bar, find));
    this.ask();
  }

  setFocus(focus: { lane: string; bar: string } | null): Placement | null {
    this.focusId = focus;
    this.focused = focus
      ? (this.layout.placements.find(
          (each) => each.bar.id === focus.bar && this.layout.boxes[each.lane]?.lane.id === focus.lane,
        ) ??
        this.layout.placements.find((each) => each.bar.id === focus.bar) ??
        null)
      : null;
    this.ask();
    return this.focused;
  }

  get focus(): Placement | null {
    return this.focused;
  }

  /** What runs at the slider's instant, counted once for each instant and each look at the cluster. */
  momentNow(): Moment {
    const at = this.cursor ?? this.now;
    const key = `${this.version} ${Math.round(at)}`;
    if (this.model && key !== this.momentOf) {
      this.moment = momentAt(this.model, at);
      this.momentOf = key;
    }
    return this.moment;
  }

  // ---- Moving ----

  panBy(x: number, y: number): boolean {
    this.glide = null;
    const before = this.top;
    if (x !== 0) {
      this.following = false;
      this.start = this.bounded(this.start - x / this.pps);
    }
    this.scrollTo(this.top - y);
    this.moved();
    return x !== 0 || before !== this.top;
  }

  /** Zooms around a point; without one around the clock, if the view follows it, or the middle. */
  zoomBy(factor: number, point: number | null): void {
    this.glide = null;
    const x = point ?? this.width / 2;
    const at = this.time(x);
    if (point !== null) this.following = false;
    this.span = Math.min(Math.max(this.span / factor, SHORTEST_SPAN), LONGEST_SPAN);
    if (this.following) this.start = this.now - this.span * NOW_AT;
    else this.start = this.bounded(at - x / this.pps);
    this.lastZoom = performance.now();
    this.moved();
  }

  /** Shows a window in time; `start` null follows the clock. */
  show(start: number | null, span: number, smooth = false): void {
    const length = Math.min(Math.max(span, SHORTEST_SPAN), LONGEST_SPAN);
    const target = start ?? this.now - length * NOW_AT;
    this.following = start === null;
    this.glideTo(target, length, this.top, smooth);
  }

  /** Brings a bar into view without zooming, unless it is in view already. */
  reveal(placed: Placement): void {
    const { bar, y, height } = placed;
    const [left, right] = [this.x(bar.from), this.x(bar.to)];
    let start = this.start;
    if (right < 40 || left > this.width - 40 || (left < 0 && right > this.width)) {
      const middle = right - left > this.width * 0.8 ? bar.from + this.span * 0.3 : (bar.from + bar.to) / 2;
      start = middle - this.span / 2;
      this.following = false;
    }
    let top = this.top;
    if (y < top + 4) top = y - 28;
    else if (y + height > top + this.height - 24) top = y + height - this.height + 28;
    this.glideTo(start, this.span, top, true);
  }

  private glideTo(start: number, span: number, top: number, smooth: boolean): void {
    if (start === this.start && span === this.span && top === this.top) {
      this.moved();
      return;
    }
    if (smooth && !this.still() && this.drawn) {
      this.glide = { from: [this.start, this.span, this.top], to: [start, span, top], began: performance.now() };
    } else {
      this.glide = null;
      [this.start, this.span] = [start, span];
      this.scrollTo(top);
    }
    this.moved();
  }

  private step(): void {
    if (!this.glide) return;
    const part = Math.min(1, (performance.now() - this.glide.began) / 180);
    const ease = 1 - (1 - part) ** 3;
    const between = (each: 0 | 1 | 2): number => {
      const { from, to } = this.glide ?? { from: [0, 0, 0], to: [0, 0, 0] };
      return from[each] + (to[each] - from[each]) * ease;
    };
    const changesSpan = this.glide.from[1] !== this.glide.to[1];
    [this.start, this.span] = [between(0), between(1)];
    this.scrollTo(between(2));
    if (changesSpan) this.lastZoom = performance.now();
    if (part >= 1) this.glide = null;
    this.moved();
  }

  private bounded(start: number): number {
    if (!this.model) return start;
    const { earliest, latest } = this.model;
    return Math.min(Math.max(start, earliest - this.span * 0.9), latest - this.span * 0.1);
  }

  private scrollTo(top: number): void {
    this.top = Math.max(0, Math.min(Math.round(top), Math.ceil(this.layout.height - this.height)));
    this.ask();
  }

  private moved(): void {
    this.ask();
    clearTimeout(this.settling);
    this.settling = window.setTimeout(this.settle, 300);
    this.onMove?.();
  }

  // ---- Looking up ----

  /** What is at a point of the plot. */
  hit(x: number, y: number): Hit | null {
    const { index } = this;
    if (!index || x < 0 || y < 0 || x > this.width || y > this.height) return null;
    const reach = 4 / this.pps;
    const at = this.time(x);
    const row = y + this.top;
    let best: Hit | null = null;
    let distance = Infinity;
    let crowd = 0;
    for (const each of index.search(at - reach, row - 1, at + reach, row + 1)) {
      const placed = this.layout.placements[each];
      if (!placed) continue;
      const [left, right] = [this.x(placed.bar.from), this.x(Math.max(placed.bar.toLatest, placed.bar.from))];
      const away = x < left ? left - x : x > right ? x - right : 0;
      if (away < distance) {
        distance = away;
        best = { placed, part: this.partAt(placed, x, row), crowd: 1 };
      }
      if (right - left < BUCKET) crowd += 1;
    }
    return best ? { ...best, crowd: Math.max(1, crowd) } : null;
  }

  private partAt({ bar, y, height }: Placement, x: number, row: number): Part {
    if (!canAsk(bar)) return "bar";
    const [left, right] = [this.x(bar.from), this.x(bar.to)];
    if (right - left < 3 * GRIP) return "bar";
    if (Math.abs(x - right) <= GRIP) return "end";
    return row > y + height - 6 &&
      height >= TEXT_HEIGHT &&
      Math.abs(x - (Math.max(0, left) + Math.min(right, this.width)) / 2) < 14
      ? "size"
      : "bar";
  }

  laneAt(y: number): number {
    const row = y + this.top;
    return this.layout.boxes.findIndex((box) => row >= box.y && row < box.y + box.height);
  }

  inView(from: number, to: number, top: number, bottom: number): Placement[] {
    if (!this.index) return [];
    const found: Placement[] = [];
    for (const each of this.index.search(from, top, to, bottom)) {
      const placed = this.layout.placements[each];
      if (placed) found.push(placed);
    }
    return found;
  }

  /** Where a bar stands on the host, for what is shown beside it. */
  boxOf(placed: Placement): { left: number; right: number; top: number; bottom: number } {
    const left = this.gutter + Math.max(0, this.x(placed.bar.from));
    return {
      left,
      right: this.gutter + Math.min(this.width, Math.max(this.x(placed.bar.toLatest), left - this.gutter)),
      top: AXIS + placed.y - this.top,
      bottom: AXIS + placed.y + placed.height - this.top,
    };
  }

  // ---- Drawing ----

  ask(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(this.draw);
  }

  private readonly draw = (): void => {
    const began = performance.now();
    this.frame = 0;
    this.step();
    if (this.model && this.beyondPacked()) this.place(this.model);
    const redrew = this.drawBarsLayer();
    this.drawAxisLayer();
    this.drawSide();
    this.drawOverlay();
    this.future.style.transform = `translateX(${Math.round(Math.max(0, Math.min(this.width, this.x(this.now))))}px)`;
    if (this.onFrame) this.onFrame({ milliseconds: performance.now() - began, redrew });
  };

  private stage(): Stage {
    return { theme: this.theme, places: this.places, x: (at) => this.x(at), width: this.width, now: this.now };
  }

  private ticksOf(from: number, to: number, pps: number): Tick[] {
    return ticks(from, to, (to - from) * pps);
  }

  private drawBarsLayer(): boolean {
    const { drawn, pps } = this;
    const [made] = this.bars;
    const zoomed = drawn !== null && Math.abs(drawn.pps / pps - 1) > 1e-9;
    const outside =
      drawn === null ||
      this.start < drawn.from ||
      this.start + this.span > drawn.from + drawn.width / drawn.pps ||
      this.top < drawn.top ||
      this.top + this.height > drawn.top + drawn.height;
    let redraw = this.stale || outside;
    if (!redraw && zoomed) {
      const ratio = pps / drawn.pps;
      const rests = performance.now() - this.lastZoom > 90;
      redraw = rests || this.lastCost < QUICK || ratio > 1.5 || ratio < 0.67;
      if (!redraw) {
        clearTimeout(this.resting);
        this.resting = window.setTimeout(() => this.ask(), 100);
      }
    }
    if (redraw) this.redraw();
    const at = this.drawn;
    if (at) {
      const scale = pps / at.pps;
      const ratio = this.ratio();
      const left = Math.round((at.from - this.start) * pps * ratio) / ratio;
      made.style.transform = `translate(${left}px, ${at.top - this.top}px)${Math.abs(scale - 1) > 1e-9 ? ` scaleX(${scale})` : ""}`;
    }
    return redraw;
  }

  private redraw(): void {
    const began = performance.now();
    const { pps } = this;
    const ratio = this.ratio();
    let margin = MARGIN;
    while (margin > 0 && this.width * (1 + 2 * margin) * this.height * (1 + margin) * ratio * ratio > MOST_PIXELS)
      margin -= 0.1;
    margin = Math.max(0.1, margin);
    const width = Math.ceil(this.width * (1 + 2 * margin));
    const room = Math.max(this.height, this.layout.height);
    const height = Math.min(room, Math.ceil(this.height * (1 + margin)));
    // Steps of 24 pixels, so that hatching doesn't jump when the canvas moves on.
    const from = (Math.floor((this.start * pps - this.width * margin) / 24) * 24) / pps;
    const top = Math.max(0, Math.floor(Math.min(this.top - (height - this.height) / 2, room - height) / 24) * 24);
    const tall = Math.min(height + 24, Math.max(room - top, this.height));
    const [, context] = this.bars;
    this.fit(this.bars, width + 24, tall);
    context.clearRect(0, 0, width + 24, tall);
    this.drawn = { from, pps, width: width + 24, top, height: tall };
    const stage: Stage = { ...this.stage(), x: (at) => (at - from) * pps, width: width + 24 };
    const to = from + (width + 24) / pps;
    const boxes = this.layout.boxes.filter((box) => box.y < top + tall && box.y + box.height > top);
    drawGround(context, stage, boxes, this.ticksOf(from, to, pps), top, tall, this.recordFrom);
    const { wide, buckets } = densify(this.inView(from, to, top, top + tall), from, pps);
    drawBuckets(context, stage, buckets, top);
    drawBars(context, stage, wide, top);
    drawTroubles(context, stage, boxes, top);
    this.stale = false;
    this.lastCost = performance.now() - began;
  }

  private drawAxisLayer(): void {
    const key = `${this.start} ${this.span} ${this.width}`;
    if (key === this.axisDrawn) return;
    this.axisDrawn = key;
    drawAxis(
      this.axis[1],
      this.stage(),
      this.ticksOf(this.start, this.start + this.span, this.pps),
      this.start,
      this.marks,
    );
  }

  private drawSide(): void {
    const moment = this.momentNow();
    const focusedLane = this.focused ? (this.layout.boxes[this.focused.lane]?.lane.id ?? null) : null;
    const key = `${this.top} ${this.momentOf} ${focusedLane} ${this.gutter}`;
    if (key === this.sideDrawn) return;
    this.sideDrawn = key;
    drawGutter(
      this.side[1],
      { ...this.stage(), width: this.gutter },
      this.layout.boxes,
      moment,
      this.top,
      this.height,
      focusedLane,
      this.header,
    );
  }

  private drawOverlay(): void {
    const [, context] = this.overlay;
    const { theme, top, width, height } = this;
    const stage = this.stage();
    context.clearRect(0, 0, width, height);
    for (const placed of this.inView(this.start, this.start, top, top + height)) {
      if (this.x(placed.bar.from) < -6 && placed.bar.to > this.start) drawStickyLabel(context, stage, placed, top);
    }
    if (this.finding.trim() !== "") {
      context.fillStyle = theme.ground;
      context.globalAlpha = 0.68;
      context.fillRect(0, 0, width, height);
      context.globalAlpha = 1;
      const end = this.start + this.span;
      const seen = this.hits.filter(
        ({ bar, y, height: tall }) =>
          bar.from < end && drawnEnd(bar) > this.start && y < top + height && y + tall > top,
      );
      for (const { bar, y, height: tall } of seen) {
        const left = this.x(bar.from);
        context.clearRect(left - 1, y - top - 1, Math.max(3, this.x(drawnEnd(bar)) - left) + 2, tall + 2);
      }
      for (const placed of seen) {
        if (this.x(placed.bar.from) < -6 && placed.bar.to > this.start) drawStickyLabel(context, stage, placed, top);
        drawRing(context, stage, placed, top, theme.focus, 1.5);
      }
    }
    drawLine(context, theme, this.x(this.now), height, theme.now, "now", width);
    if (this.cursor !== null)
      drawLine(context, theme, this.x(this.cursor), height, theme.cursor, clock(this.cursor), width);
    for (const placed of this.marked) drawRing(context, stage, placed, top, theme.cursor, 2.5);
    if (this.hovered && this.hovered !== this.focused) drawRing(context, stage, this.hovered, top, theme.ink, 1);
    if (this.focused) drawRing(context, stage, this.focused, top, theme.focus, 2.5);
    const gripped = this.hovered ?? this.focused;
    if (this.grips && gripped && canAsk(gripped.bar) && !this.ghost) drawGrips(context, stage, gripped, top);
    if (this.ghost) this.drawGhostBar(context);
    if (this.dropping) drawDropZone(context, theme, width, height, this.dropping.words, this.dropping.over);
    this.drawScrollMark(context);
  }

  private drawGhostBar(context: CanvasRenderingContext2D): void {
    const { ghost } = this;
    if (!ghost) return;
    const { bar, y, height, lane } = ghost.placed;
    const box = this.layout.boxes[ghost.lane];
    const x = this.x(bar.from);
    const tall = Math.max(6, Math.min(200, (height * ghost.gpus) / Math.max(1, bar.gpus)));
    const onOtherLane = ghost.lane !== lane && box;
    if (onOtherLane) {
      context.fillStyle = this.theme.focus;
      context.globalAlpha = 0.1;
      context.fillRect(0, box.y - this.top, this.width, box.height);
      context.globalAlpha = 1;
    }
    const at = onOtherLane ? box.y + Math.max(4, (box.height - tall) / 2) : y;
    drawGhost(context, this.theme, x, at - this.top, Math.max(4, ghost.seconds * this.pps), tall, ghost.words);
  }

  private drawScrollMark(context: CanvasRenderingContext2D): void {
    const { height } = this.layout;
    if (height <= this.height + 1) return;
    context.fillStyle = this.theme.muted;
    context.globalAlpha = 0.45;
    const tall = Math.max(24, (this.height * this.height) / height);
    const at = (this.top / (height - this.height)) * (this.height - tall - 4) + 2;
    context.beginPath();
    context.roundRect(this.width - 7, at, 4, tall, 2);
    context.fill();
    context.globalAlpha = 1;
  }

  bar(id: string): Bar | null {
    return this.model?.bars.find((bar) => bar.id === id) ?? null;
  }
}
