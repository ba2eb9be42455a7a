/** How things look: colours of the theme, and each kind of mark drawn on a canvas. Only text that was given is drawn, never markup. */
import { type Context, type QueueColours, QUEUE_COLOURS, type Theme, coloursOf, coloursOfQueue } from "./theme";
import { BUCKET, type Bucket, type LaneBox, type Placement, TEXT_HEIGHT, drawnEnd } from "./layout";
import { type Bar, type Decision, type Moment, isLive, isWaiting } from "./model";
import { type Tick, clock, day } from "./words";

// ---- Text that fits ----

const widths = new Map<string, number>();

function widthOf(context: Context, words: string): number {
  const key = `${context.font} ${words}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 8_000) widths.clear();
    width = context.measureText(words).width;
    widths.set(key, width);
  }
  return width;
}

/** A bar's job and size, as much of it as fits. */
function labelThatFits(context: Context, bar: Bar, room: number): string {
  const short = `${bar.label}  ${bar.gpus}`;
  const whole = `${short} ${bar.gpus === 1 ? "GPU" : "GPUs"}`;
  if (widthOf(context, whole) <= room) return whole;
  return widthOf(context, short) <= room ? short : fitted(context, bar.label, room);
}

/** The text, shortened until it fits; "" where less than three letters would be left. */
export function fitted(context: Context, words: string, room: number): string {
  const width = widthOf(context, words);
  if (width <= room) return words;
  const letters = Math.floor((room / width) * words.length) - 1;
  return letters < 3 ? "" : `${words.slice(0, letters).trimEnd()}…`;
}

function labelFont(theme: Theme, height: number): string {
  return `${height >= 30 ? 600 : 500} ${height >= 14 ? 11 : 10}px ${theme.font}`;
}

// ---- Bars ----

export interface Stage {
  theme: Theme;
  places: ReadonlyMap<string, number>;
  /** The x of an instant. */
  x: (at: number) => number;
  width: number;
  now: number;
}

const EDGE = 40;

interface Shape {
  placed: Placement;
  y: number;
  /** Start, latest start, end, latest end on the canvas. */
  x0: number;
  in1: number;
  x1: number;
  x2: number;
}

export function drawBars(context: Context, stage: Stage, placements: readonly Placement[], top: number): void {
  const groups = new Map<string, { colours: QueueColours; shapes: Shape[] }>();
  const clamp = (at: number): number => Math.max(-EDGE, Math.min(stage.width + EDGE, stage.x(at)));
  for (const placed of placements) {
    const { bar } = placed;
    const x0 = clamp(bar.from);
    const shape: Shape = {
      placed,
      y: placed.y - top,
      x0,
      in1: clamp(bar.fromLatest),
      x1: Math.max(x0 + BUCKET, clamp(bar.to) - 1),
      x2: clamp(bar.toLatest),
    };
    const kind = isLive(bar) ? "live" : isWaiting(bar) ? bar.state : "past";
    const key = `${kind} ${bar.hidden ? "" : (stage.places.get(bar.queue) ?? 0) % QUEUE_COLOURS} ${bar.hidden}`;
    const group = groups.get(key);
    if (group) group.shapes.push(shape);
    else groups.set(key, { colours: coloursOf(stage.theme, bar, stage.places), shapes: [shape] });
  }
  for (const [key, group] of groups) {
    if (key.startsWith("live")) drawLive(context, group.colours, group.shapes);
    else if (key.startsWith("past")) fillAll(context, group.colours.past, group.shapes);
    else drawWaiting(context, group.colours, group.shapes, key.startsWith("reserved"));
  }
  for (const group of groups.values()) for (const shape of group.shapes) drawMarks(context, stage, shape);
  drawLabels(context, stage, groups);
}

function fillAll(context: Context, colour: string, shapes: readonly Shape[]): void {
  context.fillStyle = colour;
  for (const shape of shapes) {
    const { height } = shape.placed;
    const width = shape.x1 - shape.x0;
    if (width > 6 && height >= TEXT_HEIGHT) rounded(context, shape.x0, shape.y, width, height);
    else context.fillRect(shape.x0, shape.y, width, height);
  }
}

// Two rectangles look like rounded corners at this size, for a tenth of what a path costs.
function rounded(context: Context, x: number, y: number, width: number, height: number): void {
  context.fillRect(x, y + 1, width, height - 2);
  context.fillRect(x + 1, y, width - 2, height);
}

function drawLive(context: Context, colours: QueueColours, shapes: readonly Shape[]): void {
  for (const { placed, y, x1, x2 } of shapes) {
    const end = placed.bar.endUnknown ? x1 + EDGE : x2;
    if (end - x1 >= 1) context.drawImage(colours.strips.solidOut, x1, y, end - x1, placed.height);
  }
  fillAll(context, colours.solid, shapes);
}

function drawWaiting(context: Context, colours: QueueColours, shapes: readonly Shape[], reserved: boolean): void {
  const { strips } = colours;
  for (const { placed, y, x0, in1, x1, x2 } of shapes) {
    const { height } = placed;
    // A low bar has no room for edges: its colour is stronger instead.
    const low = height < TEXT_HEIGHT;
    const full = Math.min(in1, x1);
    if (in1 - x0 >= 1) context.drawImage(low ? strips.lowIn : strips.plannedIn, x0, y, in1 - x0, height);
    if (x2 - x1 >= 1) context.drawImage(low ? strips.lowOut : strips.plannedOut, x1, y, x2 - x1, height);
    context.fillStyle = low ? colours.low : colours.planned;
    context.fillRect(full, y, x1 - full, height);
    context.fillStyle = colours.edge;
    if (low) {
      if (x1 - x0 > 6) context.fillRect(x0, y, reserved ? 3 : 1, height);
      continue;
    }
    for (const edge of [y, y + height - 1]) {
      if (in1 - x0 >= 1) context.drawImage(strips.edgeIn, x0, edge, in1 - x0, 1);
      context.fillRect(full, edge, x1 - full, 1);
      if (x2 - x1 >= 1) context.drawImage(strips.edgeOut, x1, edge, x2 - x1, 1);
    }
    context.fillRect(x0, y, reserved ? 4 : 1, height);
    if (x2 - x1 < 1) context.fillRect(x1 - 1, y, 1, height);
  }
}

/** What tells states apart without colour: hatching, a torn or a capped end, the stop of a backfilled run. */
function drawMarks(context: Context, stage: Stage, shape: Shape): void {
  const { theme } = stage;
  const { placed, y, x0, x1 } = shape;
  const { bar, height } = placed;
  const overlay = (fill: CanvasPattern | null): void => {
    if (!fill || x1 - x0 < 4) return;
    context.fillStyle = fill;
    context.fillRect(x0, y, x1 - x0, height);
  };
  if (bar.hidden) overlay(theme.patterns.hidden);
  if (bar.state === "starting" || bar.state === "stopping") overlay(theme.patterns.starting);
  if (bar.state === "failed") {
    overlay(theme.patterns.failed);
    context.fillStyle = theme.bad;
    context.fillRect(Math.max(x0, x1 - 3), y, Math.min(3, x1 - x0), height);
  } else if (bar.state === "preempted") {
    const torn = x1 - x0 > 14 && height >= 7;
    context.fillStyle = theme.warn;
    context.fillRect(Math.max(x0, x1 - (torn ? 7 : 2)), y, Math.min(torn ? 7 : 2, x1 - x0), height);
    if (torn) {
      context.fillStyle = theme.ground;
      context.beginPath();
      const teeth = Math.max(2, Math.round(height / 5));
      for (let tooth = 0; tooth < teeth; tooth++) {
        const from = y + (tooth * height) / teeth;
        context.moveTo(x1 + 0.5, from);
        context.lineTo(x1 - 3.5, from + height / teeth / 2);
        context.lineTo(x1 + 0.5, from + height / teeth);
      }
      context.fill();
    }
  } else if (bar.state === "ended" && x1 - x0 > 6) {
    context.fillStyle = theme.muted;
    context.fillRect(x1 - 2, y, 2, height);
  }
  if (bar.backfilled) {
    context.fillStyle = theme.contract;
    context.fillRect(x0, y + height - 2, x1 - x0, 2);
  }
  if (bar.mustEndBy !== null) {
    const stop = Math.min(stage.x(bar.mustEndBy), stage.width + EDGE);
    const middle = Math.round(y + height / 2);
    context.fillStyle = theme.contract;
    for (let dot = x1 + 3; dot < stop - 3; dot += 5) context.fillRect(dot, middle, 2, 1);
    context.fillRect(stop - 2, y, 2, height);
    if (stop - x1 > 84 && height >= TEXT_HEIGHT) {
      context.font = `500 10px ${theme.font}`;
      context.textAlign = "right";
      context.textBaseline = "middle";
      const words = `gone by ${clock(bar.mustEndBy)}`;
      const width = widthOf(context, words);
      context.fillStyle = theme.ground;
      context.fillRect(stop - width - 10, y + 1, width + 6, height - 2);
      context.fillStyle = theme.contract;
      context.fillText(words, stop - 6, middle + 0.5);
      context.textAlign = "left";
    }
  }
}

function drawLabels(
  context: Context,
  stage: Stage,
  groups: ReadonlyMap<string, { colours: QueueColours; shapes: Shape[] }>,
): void {
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const [key, { colours, shapes }] of groups) {
    const live = key.startsWith("live");
    context.fillStyle = live ? colours.onSolid : key.startsWith("past") ? colours.onPast : colours.onPlanned;
    for (const shape of shapes) {
      const { bar, height } = shape.placed;
      // A bar that begins left of the view gets its label in each frame.
      const room = labelRoom(bar, shape.x0, shape.x1, shape.x2);
      if (height < TEXT_HEIGHT || room < 24 || shape.x0 <= -EDGE) continue;
      context.font = labelFont(stage.theme, height);
      const words = labelThatFits(context, bar, room);
      if (words) context.fillText(words, shape.x0 + (bar.state === "reserved" ? 9 : 6), shape.y + height / 2 + 0.5);
    }
  }
}

/** On a waiting bar, text may stand on the part that fades; on a running one only where the colour is full. */
function labelRoom(bar: Bar, x0: number, x1: number, x2: number): number {
  const mark = bar.state === "preempted" ? 18 : bar.state === "reserved" ? 14 : 10;
  return (isWaiting(bar) ? x2 : x1) - x0 - mark;
}

/** Labels of bars that begin left of the view, at its edge. */
export function drawStickyLabel(context: Context, stage: Stage, placed: Placement, top: number): void {
  const { bar, height } = placed;
  const end = Math.min(stage.x(bar.to), stage.width);
  if (height < TEXT_HEIGHT) return;
  const room = labelRoom(bar, 0, end, Math.min(stage.x(bar.toLatest), stage.width));
  const colours = coloursOf(stage.theme, bar, stage.places);
  context.font = labelFont(stage.theme, height);
  const words = room < 24 ? "" : labelThatFits(context, bar, room);
  const y = placed.y - top;
  const [fill, ink] = isLive(bar)
    ? [colours.solid, colours.onSolid]
    : isWaiting(bar)
      ? [colours.planned, colours.onPlanned]
      : [colours.past, colours.onPast];
  // Covers what is still to be seen of the label at the bar's true start.
  const before = stage.x(bar.from) + widthOf(context, `${bar.label}  ${bar.gpus} GPUs`) + 12;
  if (before > 0) {
    const covered = Math.min(end - 8, Math.max(words ? widthOf(context, words) + 12 : 0, before));
    context.fillStyle = fill;
    if (covered > 0) context.fillRect(0, y + 1, covered, height - (bar.backfilled ? 3 : 2));
  }
  if (!words) return;
  context.fillStyle = ink;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText(words, 6, y + height / 2 + 0.5);
}

export function drawBuckets(context: Context, stage: Stage, buckets: readonly Bucket[], top: number): void {
  for (const bucket of buckets) {
    context.fillStyle = coloursOfQueue(stage.theme, bucket.queue, stage.places).edge;
    context.globalAlpha = 0.25 + 0.75 * bucket.filled;
    context.fillRect(bucket.x, bucket.y - top, BUCKET, bucket.height);
  }
  context.globalAlpha = 1;
}

// ---- What stands behind the bars ----

export function drawGround(
  context: Context,
  stage: Stage,
  boxes: readonly LaneBox[],
  ticks: readonly Tick[],
  top: number,
  height: number,
  recordFrom: number | null,
): void {
  const { theme, width } = stage;
  const unknown = recordFrom === null ? 0 : Math.min(width, stage.x(recordFrom));
  if (unknown > 0) {
    context.fillStyle = theme.heading;
    context.fillRect(0, 0, unknown, height);
  }
  for (const tick of ticks) {
    context.fillStyle = tick.day ? theme.strongLine : theme.line;
    context.fillRect(Math.round(stage.x(tick.at)), 0, 1, height);
  }
  for (const { lane, y, height: tall } of boxes) {
    if (lane.kind === "group") {
      context.fillStyle = theme.heading;
      context.fillRect(0, y - top, width, tall);
    }
    context.fillStyle = lane.kind === "node" ? theme.line : theme.strongLine;
    context.fillRect(0, Math.round(y - top + tall) - 1, width, 1);
  }
}

/** Hatching over the lanes of nodes that take no work, as long as that is known to last. */
export function drawTroubles(context: Context, stage: Stage, boxes: readonly LaneBox[], top: number): void {
  const { theme, width } = stage;
  for (const { lane, y: laneTop, height: tall } of boxes) {
    if (!lane.trouble) continue;
    const { kind, from, until } = lane.trouble;
    const x = Math.max(-EDGE, stage.x(from));
    const end = until === null ? width + EDGE : Math.min(width + EDGE, stage.x(until));
    if (end <= x || x > width) continue;
    const [y, height] = [laneTop - top + 1, tall - 3];
    const fill = theme.patterns[kind];
    if (fill) {
      context.fillStyle = fill;
      context.fillRect(x, y, end - x, height);
    }
    context.fillStyle = theme.troubles[kind];
    context.fillRect(x, y, 2, height);
    context.fillRect(end - 2, y, 2, height);
    // The words stand where no bar is.
    const busy = lane.bars.reduce((last, bar) => Math.max(last, stage.x(drawnEnd(bar))), x) + 6;
    context.font = `500 10px ${theme.font}`;
    const words = fitted(context, lane.trouble.text, Math.min(end, width) - busy - 20);
    if (!words || height < TEXT_HEIGHT) continue;
    context.fillStyle = theme.ground;
    context.fillRect(busy, y + height / 2 - 7, widthOf(context, words) + 10, 14);
    context.fillStyle = theme.ink;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText(words, busy + 5, y + height / 2 + 0.5);
  }
}

// ---- Axis and gutter ----

export const AXIS = 40;

export function drawAxis(
  context: Context,
  stage: Stage,
  ticks: readonly Tick[],
  from: number,
  decisions: readonly Decision[],
): void {
  const { theme, width } = stage;
  context.clearRect(0, 0, width, AXIS);
  context.textBaseline = "alphabetic";
  context.textAlign = "left";
  // The day stands at the left until the next one pushes it away.
  const days = ticks.filter((tick) => tick.day && stage.x(tick.at) > 0);
  context.font = `600 11px ${theme.font}`;
  const today = day(from);
  const first = days[0] ? stage.x(days[0].at) : Infinity;
  context.fillStyle = theme.ink;
  if (first - widthOf(context, today) > 12) context.fillText(today, 6, 14);
  for (const tick of days) context.fillText(tick.label, stage.x(tick.at) + 6, 14);
  context.font = `400 11px ${theme.font}`;
  for (const tick of ticks) {
    const x = Math.round(stage.x(tick.at));
    context.fillStyle = tick.day ? theme.strongLine : theme.line;
    context.fillRect(x, tick.day ? 4 : 22, 1, AXIS);
    if (x + 6 > width) continue;
    context.fillStyle = theme.muted;
    context.fillText(tick.day ? "00:00" : tick.label, x + 6, 32);
  }
  context.fillStyle = theme.strongLine;
  context.fillRect(0, AXIS - 1, width, 1);
  context.fillStyle = theme.cursor;
  let last = -3;
  for (const decision of decisions) {
    const x = Math.round(stage.x(decision.at));
    if (x < last + 3 || x > width) continue;
    last = x;
    context.fillRect(x - 1, AXIS - 5, 2, 4);
  }
}

export function drawGutter(
  context: Context,
  stage: Stage,
  boxes: readonly LaneBox[],
  moment: Moment,
  top: number,
  height: number,
  focused: string | null,
): void {
  const { theme, width } = stage;
  context.fillStyle = theme.gutter;
  context.fillRect(0, 0, width, height);
  context.textAlign = "left";
  for (const { lane, y: laneTop, height: tall } of boxes) {
    const y = laneTop - top;
    if (y > height || y + tall < 0) continue;
    if (lane.kind === "group") {
      context.fillStyle = theme.heading;
      context.fillRect(0, y, width, tall);
      context.font = `600 11px ${theme.font}`;
      context.textBaseline = "middle";
      context.fillStyle = theme.muted;
      context.fillText(fitted(context, lane.label, width - 20), 12, y + tall / 2 + 0.5);
    } else if (lane.kind === "node") {
      nodeLabel(context, theme, lane, moment, y, tall, width);
    } else {
      queueLabel(context, stage, lane, moment, laneTop, y, tall);
    }
    if (lane.id === focused) {
      context.fillStyle = theme.focus;
      context.fillRect(0, y + 2, 3, tall - 4);
    }
    context.fillStyle = lane.kind === "node" ? theme.line : theme.strongLine;
    context.fillRect(0, Math.round(y + tall) - 1, width, 1);
  }
  context.fillStyle = theme.strongLine;
  context.fillRect(width - 1, 0, 1, height);
}

function nodeLabel(
  context: Context,
  theme: Theme,
  lane: LaneBox["lane"],
  moment: Moment,
  y: number,
  tall: number,
  width: number,
): void {
  const middle = y + tall / 2 + 0.5;
  const used = moment.lanes.get(lane.id) ?? 0;
  // Where names are cut, their ends would be: those tell nodes apart.
  const load = lane.capacity > 0 && width > 120 ? `${used}/${lane.capacity}` : "";
  const share = lane.trouble && load ? `${lane.trouble.kind} ${load}` : load;
  context.textBaseline = "middle";
  context.font = `400 11px ${theme.font}`;
  const room = width - 24 - (share ? widthOf(context, share) + 8 : 0);
  context.fillStyle = lane.trouble ? theme.troubles[lane.trouble.kind] : used > 0 ? theme.ink : theme.muted;
  context.fillText(fitted(context, lane.label, room), 12, middle);
  if (!share) return;
  if (!lane.trouble) context.fillStyle = theme.muted;
  context.textAlign = "right";
  context.fillText(share, width - 10, middle);
  context.textAlign = "left";
}

function queueLabel(
  context: Context,
  stage: Stage,
  lane: LaneBox["lane"],
  moment: Moment,
  laneTop: number,
  y: number,
  tall: number,
): void {
  const { theme, width } = stage;
  const colours = coloursOfQueue(theme, lane.queue, stage.places);
  // The label of a tall lane stays in sight.
  const line = Math.min(Math.max(y, 0), Math.max(y, y + tall - 46)) + 16;
  context.fillStyle = colours.solid;
  context.fillRect(12, line - 4, 8, 8);
  context.textBaseline = "middle";
  context.font = `600 12px ${theme.font}`;
  context.fillStyle = theme.ink;
  context.fillText(fitted(context, lane.label, width - 36), 26, line + 0.5);
  const used = moment.lanes.get(lane.id) ?? 0;
  context.font = `400 11px ${theme.font}`;
  context.fillStyle = theme.muted;
  const short = width < 120;
  const share =
    lane.capacity > 0 ? (short ? `${used}/${lane.capacity}` : `${used} of ${lane.capacity} GPUs`) : `${used} GPUs`;
  context.fillText(
    fitted(context, !short && lane.note ? `${share} · ${lane.note}` : share, width - 22),
    12,
    line + 16.5,
  );
  if (lane.capacity > 0 && laneTop >= 0) {
    const room = width - 24;
    context.fillStyle = theme.strongLine;
    context.fillRect(12, line + 25, room, 3);
    context.fillStyle = colours.solid;
    context.fillRect(12, line + 25, room * Math.min(1, used / lane.capacity), 3);
  }
}

// ---- What moves on top ----

/** A vertical line with its time in a flag at the top. */
export function drawLine(
  context: Context,
  theme: Theme,
  x: number,
  height: number,
  colour: string,
  words: string,
  width: number,
): void {
  if (x < -60 || x > width + 60) return;
  context.fillStyle = colour;
  context.globalAlpha = 0.8;
  context.fillRect(Math.round(x), 0, 1, height);
  context.globalAlpha = 1;
  context.font = `600 10px ${theme.font}`;
  context.textBaseline = "middle";
  const room = widthOf(context, words) + 10;
  const left = Math.min(Math.max(x - room / 2, 0), width - room);
  context.fillRect(left, 0, room, 15);
  context.fillStyle = theme.ground;
  context.textAlign = "center";
  context.fillText(words, left + room / 2, 8);
  context.textAlign = "left";
}

export function drawRing(
  context: Context,
  stage: Stage,
  placed: Placement,
  top: number,
  colour: string,
  width: number,
): void {
  const left = Math.max(-8, stage.x(placed.bar.from));
  const right = Math.min(stage.width + 8, Math.max(stage.x(drawnEnd(placed.bar)), left + 4));
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  context.roundRect(left - width, placed.y - top - width, right - left + 2 * width, placed.height + 2 * width, 3);
  context.stroke();
}

/** A bar as it would be after a change. */
export function drawGhost(
  context: Context,
  theme: Theme,
  x: number,
  y: number,
  width: number,
  height: number,
  words: string,
): void {
  context.fillStyle = theme.ground;
  context.globalAlpha = 0.75;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 0.16;
  context.fillStyle = theme.focus;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 1;
  context.strokeStyle = theme.focus;
  context.lineWidth = 1.5;
  context.setLineDash([5, 3]);
  context.strokeRect(x + 0.75, y + 0.75, width - 1.5, height - 1.5);
  context.setLineDash([]);
  context.font = `600 11px ${theme.font}`;
  context.textBaseline = "middle";
  const room = widthOf(context, words) + 12;
  const flag = Math.max(0, x);
  context.fillStyle = theme.focus;
  context.fillRect(flag, y - 19 < 0 ? y + height + 2 : y - 19, room, 17);
  context.fillStyle = theme.ground;
  context.fillText(words, flag + 6, (y - 19 < 0 ? y + height + 2 : y - 19) + 9);
}

/** Grips of a waiting job's bar: its end changes the length, its lower edge the size. */
export function drawGrips(context: Context, stage: Stage, placed: Placement, top: number): void {
  const left = Math.max(0, stage.x(placed.bar.from));
  const right = stage.x(placed.bar.to);
  const y = placed.y - top;
  context.fillStyle = stage.theme.focus;
  if (right <= stage.width) context.fillRect(right - 4, y + placed.height / 2 - 5, 3, 10);
  context.fillRect((left + Math.min(right, stage.width)) / 2 - 8, y + placed.height - 3, 16, 3);
}

/** GPUs in use over the whole known time, for the slider. */
export function drawProfile(
  context: Context,
  theme: Theme,
  sums: Float64Array,
  most: number,
  nowAt: number,
  width: number,
  height: number,
): void {
  context.clearRect(0, 0, width, height);
  const step = width / sums.length;
  const path = (): void => {
    context.beginPath();
    context.moveTo(0, height);
    sums.forEach((sum, each) => {
      const y = height - 1 - Math.min(1, sum / Math.max(1, most)) * (height - 4);
      context.lineTo(each * step, y);
      context.lineTo((each + 1) * step, y);
    });
    context.lineTo(width, height);
    context.closePath();
  };
  const paint = (from: number, to: number, opacity: number): void => {
    context.save();
    context.beginPath();
    context.rect(from, 0, to - from, height);
    context.clip();
    context.globalAlpha = opacity;
    context.fillStyle = theme.muted;
    path();
    context.fill();
    context.restore();
  };
  paint(0, nowAt, 0.55);
  paint(nowAt, width, 0.25);
  context.fillStyle = theme.now;
  context.fillRect(Math.round(nowAt) - 0.5, 0, 1.5, height);
}
