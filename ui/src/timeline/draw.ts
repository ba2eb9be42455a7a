/** How things look: colours of the theme, and each kind of mark drawn on a canvas. Only text that was given is drawn, never markup. */
import { type Context, type QueueColours, QUEUE_COLOURS, type Theme, coloursOf, coloursOfQueue } from "./theme";
import { BUCKET, type Bucket, type LaneBox, type Placement, TEXT_HEIGHT, drawnEnd } from "./layout";
import { type Bar, type Mark, type Moment, isLive, isWaiting } from "./model";
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
  /** Where its pods were ready: what is left of it is lighter. */
  ready: number;
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
      ready: bar.ready === null ? x0 : clamp(bar.ready),
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
    if (reserved && x1 - x0 > 12) {
      // A firm start: a bracket.
      context.fillRect(x0, y, 9, 2);
      context.fillRect(x0, y + height - 2, 9, 2);
    }
    if (x2 - x1 < 1) context.fillRect(x1 - 1, y, 1, height);
  }
}

const GLYPH = 11;
/** So wide is the end of a past bar that says by a sign how it ended. */
const CAP = 14;
const hasCap = ({ x0, x1, placed }: Shape): boolean => x1 - x0 > 2.5 * CAP && placed.height >= TEXT_HEIGHT;

/** How a past bar ended, as a sign of its own: no colour has to be distinguished from another. */
function drawEnd(context: Context, theme: Theme, shape: Shape): void {
  const { placed, y, x0, x1 } = shape;
  const { bar, height } = placed;
  const { state } = bar;
  const colour = state === "failed" ? theme.bad : state === "preempted" || state === "evicted" ? theme.warn : theme.muted;
  const cap = hasCap(shape);
  if (!cap) {
    if (state !== "succeeded" && x1 - x0 > 3) {
      context.fillStyle = colour;
      context.fillRect(x1 - 3, y, 3, height);
    }
    return;
  }
  context.fillStyle = theme.ground;
  context.globalAlpha = 0.72;
  context.fillRect(x1 - CAP, y + 1, CAP - 1, height - 2);
  context.globalAlpha = 1;
  const size = Math.min(GLYPH, height - 3);
  const [left, top] = [x1 - CAP / 2 - size / 2 - 0.5, y + (height - size) / 2];
  const [right, bottom, middle] = [left + size, top + size, top + size / 2];
  context.strokeStyle = context.fillStyle = state === "succeeded" ? theme.good : colour;
  context.lineWidth = 1.7;
  context.beginPath();
  if (state === "succeeded") {
    context.moveTo(left + size * 0.1, middle);
    context.lineTo(left + size * 0.4, bottom - size * 0.15);
    context.lineTo(right - size * 0.05, top + size * 0.15);
    context.stroke();
  } else if (state === "failed") {
    context.moveTo(left + size * 0.15, top + size * 0.15);
    context.lineTo(right - size * 0.15, bottom - size * 0.15);
    context.moveTo(right - size * 0.15, top + size * 0.15);
    context.lineTo(left + size * 0.15, bottom - size * 0.15);
    context.stroke();
  } else if (state === "preempted") {
    // Another job takes its place: an arrow back.
    context.moveTo(right, middle);
    context.lineTo(left + 1, middle);
    context.moveTo(left + size * 0.45, top + size * 0.1);
    context.lineTo(left + 1, middle);
    context.lineTo(left + size * 0.45, bottom - size * 0.1);
    context.stroke();
  } else if (state === "evicted") {
    // It has to leave: a triangle above a line.
    context.moveTo((left + right) / 2, top + size * 0.05);
    context.lineTo(right - size * 0.05, top + size * 0.6);
    context.lineTo(left + size * 0.05, top + size * 0.6);
    context.fill();
    context.fillRect(left + size * 0.05, bottom - size * 0.25, size * 0.9, size * 0.18);
  } else if (state === "cancelled") {
    context.fillRect(left + size * 0.17, top + size * 0.17, size * 0.66, size * 0.66);
  } else {
    context.fillRect(left + size * 0.1, middle - 1, size * 0.8, 2);
  }
}

/** What tells states apart without colour: hatching, a sign at the end, the stop of a backfilled run. */
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
  if (shape.ready - x0 >= 1) {
    context.fillStyle = theme.ground;
    context.globalAlpha = 0.55;
    context.fillRect(x0, y + 1, Math.min(shape.ready, x1) - x0, height - 2);
    context.globalAlpha = 1;
  }
  if (bar.lost > 0 && theme.patterns.lost) {
    const lostFrom = Math.max(x0, stage.x(bar.to - bar.lost));
    if (x1 - lostFrom >= 3) {
      context.fillStyle = theme.patterns.lost;
      context.fillRect(lostFrom, y, x1 - lostFrom, height);
      context.fillStyle = theme.bad;
      context.fillRect(lostFrom, y, 1, height);
    }
  }
  if (!isLive(bar) && !isWaiting(bar)) drawEnd(context, theme, shape);
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
      // On a running bar, text stands where the colour is full.
      const from = live && shape.ready - shape.x0 > 2 ? shape.ready : shape.x0;
      const room = labelRoom(bar, from, shape.x1, shape.x2) - (hasCap(shape) && !live ? CAP - 4 : 0);
      if (height < TEXT_HEIGHT || room < 24 || shape.x0 <= -EDGE) continue;
      context.font = labelFont(stage.theme, height);
      const words = labelThatFits(context, bar, room);
      if (words) context.fillText(words, from + (bar.state === "reserved" ? 9 : 6), shape.y + height / 2 + 0.5);
    }
  }
}

/** On a waiting bar, text may stand on the part that fades; on a running one only where the colour is full. */
function labelRoom(bar: Bar, x0: number, x1: number, x2: number): number {
  const mark = bar.state === "reserved" ? 14 : 10;
  return (isWaiting(bar) ? x2 : x1) - x0 - mark;
}

/** Labels of bars that begin left of the view, at its edge. */
export function drawStickyLabel(context: Context, stage: Stage, placed: Placement, top: number): void {
  const { bar, height } = placed;
  const end = Math.min(stage.x(bar.to), stage.width);
  if (height < TEXT_HEIGHT) return;
  // Its pods may still be on their way at the edge of the view: there is no full colour to write on.
  if (isLive(bar) && bar.ready !== null && stage.x(bar.ready) > 2) return;
  const sign = !isLive(bar) && !isWaiting(bar) && stage.x(bar.to) < stage.width + CAP ? CAP - 4 : 0;
  const room = labelRoom(bar, 0, end, Math.min(stage.x(bar.toLatest), stage.width)) - sign;
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
    const covered = Math.min(end - 8 - sign, Math.max(words ? widthOf(context, words) + 12 : 0, before));
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
  marks: readonly Mark[],
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
  for (const mark of marks) {
    const x = Math.round(stage.x(mark.at));
    if (x < last + 3 || x > width) continue;
    last = x;
    context.fillRect(x - 1, AXIS - 5, 2, 4);
  }
}

/** The lane whose header is pointed at or dragged. `gpus`: the quota that it is dragged to. */
export interface Header {
  lane: string;
  gpus: number | null;
}

export function drawGutter(
  context: Context,
  stage: Stage,
  boxes: readonly LaneBox[],
  moment: Moment,
  top: number,
  height: number,
  focused: string | null,
  header: Header | null,
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
      const pointed = header?.lane === lane.id;
      if (pointed) {
        context.fillStyle = theme.heading;
        context.fillRect(0, y, width, tall);
      }
      nodeLabel(context, theme, lane, moment, y, tall, width, pointed);
    } else {
      const pointed = header?.lane === lane.id;
      if (pointed) {
        context.fillStyle = theme.heading;
        context.fillRect(0, y, width, tall);
      }
      queueLabel(context, stage, lane, moment, laneTop, y, tall, pointed ? header : null);
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
  pointed: boolean,
): void {
  const middle = y + tall / 2 + 0.5;
  const used = moment.lanes.get(lane.id) ?? 0;
  // Where names are cut, their ends would be: those tell nodes apart.
  const load = lane.capacity > 0 && width > 120 ? `${used}/${lane.capacity}` : "";
  const share = pointed && width > 120 ? "drained?" : lane.trouble && load ? `${lane.trouble.kind} ${load}` : load;
  context.textBaseline = "middle";
  context.font = `400 11px ${theme.font}`;
  const room = width - 24 - (share ? widthOf(context, share) + 8 : 0);
  context.fillStyle = lane.trouble ? theme.troubles[lane.trouble.kind] : used > 0 ? theme.ink : theme.muted;
  context.fillText(fitted(context, lane.label, room), 12, middle);
  if (!share) return;
  if (pointed) context.fillStyle = theme.focus;
  else if (!lane.trouble) context.fillStyle = theme.muted;
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
  header: Header | null,
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
  if (lane.capacity <= 0 || laneTop < 0) return;
  const room = quotaRoom(width);
  const bar = line + QUOTA_BELOW;
  context.fillStyle = theme.strongLine;
  context.fillRect(QUOTA_LEFT, bar, room, 3);
  context.fillStyle = colours.solid;
  context.fillRect(QUOTA_LEFT, bar, room * Math.min(1, used / lane.capacity), 3);
  if (header === null || lane.quotas.length === 0) return;
  // The handle of its quota, where it stands or is dragged to.
  const at = QUOTA_LEFT + room * Math.min(1.06, header.gpus === null ? 1 : header.gpus / Math.max(1, lane.quotas[0]?.gpus ?? 1));
  context.fillStyle = theme.focus;
  context.fillRect(at - 2, bar - 5, 4, 13);
}

const QUOTA_LEFT = 12;
const QUOTA_BELOW = 25;
const quotaRoom = (width: number): number => width - 30;

/** Where the handle of a queue's quota stands in the gutter, for who points at it. */
export function quotaHandle(y: number, tall: number, width: number): { x: number; y: number; room: number } {
  const line = Math.min(Math.max(y, 0), Math.max(y, y + tall - 46)) + 16;
  return { x: QUOTA_LEFT + quotaRoom(width), y: line + QUOTA_BELOW, room: quotaRoom(width) };
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

/** Where a node's header is dropped to ask what if the node were drained. */
export function drawDropZone(context: Context, theme: Theme, width: number, height: number, words: string, over: boolean): void {
  const [wide, tall] = [Math.min(340, width - 24), 64];
  const [x, y] = [(width - wide) / 2, Math.max(12, height / 2 - tall / 2)];
  context.fillStyle = theme.ground;
  context.globalAlpha = 0.6;
  context.fillRect(0, 0, width, height);
  context.globalAlpha = 1;
  context.fillStyle = theme.gutter;
  context.strokeStyle = over ? theme.focus : theme.muted;
  context.lineWidth = over ? 2.5 : 1.5;
  context.beginPath();
  context.roundRect(x, y, wide, tall, 8);
  context.fill();
  context.setLineDash([7, 4]);
  context.stroke();
  context.setLineDash([]);
  context.font = `600 13px ${theme.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = theme.ink;
  context.fillText(fitted(context, words, wide - 24), x + wide / 2, y + tall / 2 - 9);
  context.font = `400 11px ${theme.font}`;
  context.fillStyle = theme.muted;
  context.fillText(over ? "let go to simulate it" : "drag it here", x + wide / 2, y + tall / 2 + 11);
  context.textAlign = "left";
}
