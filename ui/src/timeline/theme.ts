/** The colours and patterns of the page's theme, read from custom properties once each time that it changes. */
import { type Bar, type Trouble } from "./model";

type Rgb = readonly [number, number, number];
export type Context = CanvasRenderingContext2D;

/** The colours of one queue's bars. Texts have a contrast of at least 4.5 : 1 with what they stand on. */
export interface QueueColours {
  solid: string;
  onSolid: string;
  past: string;
  onPast: string;
  planned: string;
  onPlanned: string;
  low: string;
  edge: string;
  strips: Strips;
}

/** Pictures of one pixel row that fade out; stretched over the part of a bar that is uncertain. */
interface Strips {
  solidOut: HTMLCanvasElement;
  plannedOut: HTMLCanvasElement;
  plannedIn: HTMLCanvasElement;
  lowOut: HTMLCanvasElement;
  lowIn: HTMLCanvasElement;
  edgeOut: HTMLCanvasElement;
  edgeIn: HTMLCanvasElement;
}

export interface Theme {
  font: string;
  ground: string;
  gutter: string;
  ink: string;
  muted: string;
  line: string;
  strongLine: string;
  heading: string;
  now: string;
  cursor: string;
  focus: string;
  bad: string;
  warn: string;
  good: string;
  contract: string;
  queues: QueueColours[];
  hidden: QueueColours;
  patterns: Record<"lost" | "starting" | "hidden" | Trouble, CanvasPattern | null>;
  troubles: Record<Trouble, string>;
  ratio: number;
}

export const QUEUE_COLOURS = 9;

export function readTheme(element: HTMLElement, ratio: number): Theme {
  const probe = document.createElement("span");
  probe.className = "tl-probe";
  element.append(probe);
  const style = getComputedStyle(probe);
  const colour = (name: string): Rgb => {
    probe.style.color = `var(--tl-${name})`;
    return parse(style.color);
  };
  const read = (name: string): string => css(colour(name));
  const ground = colour("ground");
  const ink = colour("ink");
  const queues = Array.from({ length: QUEUE_COLOURS }, (_, each) =>
    queueColours(colour(`queue-${each + 1}`), ground, ink),
  );
  const troubles: Theme["troubles"] = {
    soaking: read("soaking"),
    cordoned: read("cordoned"),
    maintenance: read("maintenance"),
    spare: read("spare"),
    unhealthy: read("bad"),
  };
  const theme: Theme = {
    font: style.fontFamily,
    ground: css(ground),
    gutter: read("gutter"),
    ink: css(ink),
    muted: read("muted"),
    line: read("line"),
    strongLine: read("line-strong"),
    heading: read("heading"),
    now: read("now"),
    cursor: read("cursor"),
    focus: read("focus"),
    bad: read("bad"),
    warn: read("warn"),
    good: read("good"),
    contract: read("contract"),
    queues,
    hidden: queueColours(colour("hidden"), ground, ink),
    patterns: {
      lost: stripes(read("bad"), 6, 1, 0.55, ratio),
      starting: stripes(css(ground), 8, 3, 0.22, ratio),
      hidden: dots(read("muted"), 6, 0.5, ratio),
      soaking: stripes(troubles.soaking, 8, 2, 0.4, ratio),
      cordoned: stripes(troubles.cordoned, 8, 1.4, 0.5, ratio),
      maintenance: stripes(troubles.maintenance, 12, 4, 0.28, ratio),
      spare: dots(troubles.spare, 8, 0.5, ratio),
      unhealthy: stripes(troubles.unhealthy, 6, 1.4, 0.5, ratio),
    },
    troubles,
    ratio,
  };
  probe.remove();
  return theme;
}

function parse(colour: string): Rgb {
  const numbers = (colour.match(/[\d.]+/g) ?? []).map(Number);
  const [red = 0, green = 0, blue = 0] = numbers;
  return colour.startsWith("color(") ? [red * 255, green * 255, blue * 255] : [red, green, blue];
}

const css = (colour: Rgb): string => `rgb(${colour.map(Math.round).join(" ")})`;
const mix = (one: Rgb, other: Rgb, part: number): Rgb => [
  one[0] * part + other[0] * (1 - part),
  one[1] * part + other[1] * (1 - part),
  one[2] * part + other[2] * (1 - part),
];

function luminance(colour: Rgb): number {
  const [red, green, blue] = colour.map((each) =>
    each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * (red ?? 0) + 0.7152 * (green ?? 0) + 0.0722 * (blue ?? 0);
}

export function contrast(one: Rgb, other: Rgb): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** White, or black where white can't be read: one of the two always can. */
export function readable(on: Rgb, preferred: Rgb): Rgb {
  if (contrast(on, preferred) >= 4.5) return preferred;
  const white: Rgb = [255, 255, 255];
  return contrast(on, white) >= 4.5 ? white : [0, 0, 0];
}

function queueColours(colour: Rgb, ground: Rgb, ink: Rgb): QueueColours {
  const past = mix(colour, ground, 0.38);
  const planned = mix(colour, ground, 0.13);
  const low = mix(colour, ground, 0.3);
  const edge = mix(colour, ground, 0.72);
  return {
    solid: css(colour),
    onSolid: css(readable(colour, [255, 255, 255])),
    past: css(past),
    onPast: css(readable(past, ink)),
    planned: css(planned),
    onPlanned: css(readable(planned, ink)),
    low: css(low),
    edge: css(edge),
    strips: {
      solidOut: strip(colour, 0.8, 0.1),
      plannedOut: strip(planned, 1, 0.1),
      plannedIn: strip(planned, 0.1, 1),
      lowOut: strip(low, 1, 0.12),
      lowIn: strip(low, 0.12, 1),
      edgeOut: strip(edge, 1, 0.1),
      edgeIn: strip(edge, 0.1, 1),
    },
  };
}

function canvas(width: number, height: number): [HTMLCanvasElement, Context | null] {
  const made = document.createElement("canvas");
  made.width = width;
  made.height = height;
  return [made, made.getContext("2d")];
}

function strip(colour: Rgb, from: number, to: number): HTMLCanvasElement {
  const [made, context] = canvas(64, 1);
  if (context) {
    const [red, green, blue] = colour.map(Math.round);
    const gradient = context.createLinearGradient(0, 0, 64, 0);
    gradient.addColorStop(0, `rgb(${red} ${green} ${blue} / ${from})`);
    gradient.addColorStop(1, `rgb(${red} ${green} ${blue} / ${to})`);
    context.fillStyle = gradient;
    context.fillRect(0, 0, 64, 1);
  }
  return made;
}

function pattern(size: number, ratio: number, paint: (context: Context) => void): CanvasPattern | null {
  const pixels = Math.round(size * ratio);
  const [made, context] = canvas(pixels, pixels);
  if (!context) return null;
  context.scale(pixels / size, pixels / size);
  paint(context);
  const result = context.createPattern(made, "repeat");
  result?.setTransform(new DOMMatrix().scale(size / pixels));
  return result;
}

function stripes(colour: string, size: number, width: number, opacity: number, ratio: number): CanvasPattern | null {
  return pattern(size, ratio, (context) => {
    context.strokeStyle = colour;
    context.globalAlpha = opacity;
    context.lineWidth = width;
    context.beginPath();
    for (const shift of [-size, 0, size]) {
      context.moveTo(shift - 1, size + 1);
      context.lineTo(shift + size + 1, -1);
    }
    context.stroke();
  });
}

function dots(colour: string, size: number, opacity: number, ratio: number): CanvasPattern | null {
  return pattern(size, ratio, (context) => {
    context.fillStyle = colour;
    context.globalAlpha = opacity;
    context.beginPath();
    context.arc(size / 4, size / 4, size / 7, 0, 7);
    context.arc((size * 3) / 4, (size * 3) / 4, size / 7, 0, 7);
    context.fill();
  });
}

export const coloursOf = (theme: Theme, bar: Bar, places: ReadonlyMap<string, number>): QueueColours =>
  bar.hidden ? theme.hidden : coloursOfQueue(theme, bar.queue, places);
export const coloursOfQueue = (theme: Theme, queue: string, places: ReadonlyMap<string, number>): QueueColours =>
  theme.queues[(places.get(queue) ?? 0) % theme.queues.length] ?? theme.hidden;
