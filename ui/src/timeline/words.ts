/** Times, durations and bars as text. */
import { scaleTime } from "d3-scale";
import { type Bar, type BarState, isLive, isWaiting, DAY, LONGEST_FUTURE } from "./model";

const formats = new Map<string, Intl.DateTimeFormat>();
function format(name: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  let made = formats.get(name);
  if (!made) formats.set(name, (made = new Intl.DateTimeFormat("en-GB", options)));
  return made;
}

const dateOf = (at: number): Date => new Date(at * 1000);
export const clock = (at: number): string =>
  format("clock", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(dateOf(at));
export const clockSeconds = (at: number): string =>
  format("seconds", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }).format(dateOf(at));
export const day = (at: number): string =>
  format("day", { weekday: "short", day: "numeric", month: "short" }).format(dateOf(at));

/** A time of day, with the day where it isn't today. */
export function when(at: number, now: number): string {
  return day(at) === day(now) ? clock(at) : `${day(at)} ${clock(at)}`;
}

export function duration(given: number): string {
  const total = Math.round(Math.abs(given));
  if (total < 60) return `${total}s`;
  const minutes = Math.round(total / 60);
  if (minutes < 60) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours}h ${minutes % 60}m` : `${hours}h`;
  return hours % 24 ? `${Math.floor(hours / 24)}d ${hours % 24}h` : `${Math.floor(hours / 24)}d`;
}

/** "in 2h 10m", "3m ago", "now". */
export function away(at: number, now: number): string {
  if (Math.abs(at - now) < 30) return "now";
  return at > now ? `in ${duration(at - now)}` : `${duration(now - at)} ago`;
}

export interface Tick {
  at: number;
  label: string;
  /** Midnight: drawn stronger. */
  day: boolean;
}

const TICK_ROOM = 90;

/** Ticks at round local times, also on days of 23 or 25 hours. */
export function ticks(from: number, to: number, width: number): Tick[] {
  if (!(to > from) || !(width > 0)) return [];
  const scale = scaleTime()
    .domain([dateOf(from), dateOf(to)])
    .range([0, width]);
  const found = scale.ticks(width / TICK_ROOM);
  const fine = found.length > 1 && Number(found[1]) - Number(found[0]) < 60_000;
  return found.map((date) => {
    const at = Number(date) / 1000;
    const midnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
    return { at, label: midnight ? day(at) : fine ? clockSeconds(at) : clock(at), day: midnight };
  });
}

const STATES: Readonly<Record<BarState, string>> = {
  running: "Running",
  starting: "Starting",
  stopping: "Stopping",
  planned: "Waiting",
  reserved: "Reserved",
  succeeded: "Succeeded",
  failed: "Failed",
  preempted: "Preempted",
  evicted: "Evicted",
  cancelled: "Cancelled",
  ended: "Ended",
};
export const stateName = (bar: Bar): string => STATES[bar.state];

/** "10:20", or "10:20 – 11:05" where p50 and p90 differ. */
export function interval(p50: number, p90: number, now: number): string {
  return p90 - p50 < 60 ? when(p50, now) : `${when(p50, now)} – ${day(p50) === day(p90) ? clock(p90) : when(p90, now)}`;
}

export const startText = (bar: Bar, now: number): string => interval(bar.from, bar.fromLatest, now);
export const endText = (bar: Bar, now: number): string =>
  bar.endUnknown ? "unknown" : interval(bar.to, Math.max(bar.to, bar.toLatest), now);

const LOST_TO: Readonly<Record<string, string>> = {
  preemption: "to a preemption",
  failure: "to a failure",
  overrun: "because it ran longer than allowed",
  cancel: "because it was cancelled",
  eviction: "to an eviction",
};
/** "1h 10m of work (9.3 GPU-hours), to a preemption"; "" where nothing was lost. */
export function lossText(bar: Bar): string {
  if (bar.lost < 1) return "";
  const hours = bar.lostGpuHours || (bar.lost * bar.gpus) / 3_600;
  const why = LOST_TO[bar.lostTo];
  return `${duration(bar.lost)} of work (${hours.toLocaleString("en", { maximumFractionDigits: 1 })} GPU-hours)${why ? ` ${why}` : ""}`;
}

/** What a bar says, in one sentence. */
export function describe(bar: Bar, now: number): string {
  const parts = [
    `${bar.label || "unnamed job"}, ${bar.gpus} GPUs, queue ${bar.queue || "unknown"}, ${stateName(bar).toLowerCase()}`,
  ];
  if (isWaiting(bar)) parts.push(`expected to start ${startText(bar, now)}, to end ${endText(bar, now)}`);
  else if (isLive(bar)) parts.push(`since ${when(bar.from, now)}, expected to end ${endText(bar, now)}`);
  else parts.push(`from ${when(bar.from, now)} to ${when(bar.to, now)}, ${duration(bar.to - bar.from)}`);
  if (bar.lost >= 1) parts.push(`lost ${lossText(bar)}`);
  if (bar.state === "reserved") parts.push("its start is reserved");
  if (bar.mustEndBy !== null) parts.push(`backfilled, must be gone by ${when(bar.mustEndBy, now)}`);
  if (bar.hidden) parts.push("of another team");
  return `${parts.join(", ")}.`;
}

/** "90m", "4h", "1d 6h" or plain minutes as seconds; null where it is none of these. */
export function parseDuration(given: string): number | null {
  const words = given.trim().toLowerCase();
  if (/^\d+(\.\d+)?$/.test(words)) return Number(words) * 60 || null;
  if (!/^(\d+(\.\d+)?\s*[dhms]\s*)+$/.test(words)) return null;
  let total = 0;
  for (const [, amount, unit] of words.matchAll(/(\d+(?:\.\d+)?)\s*([dhms])/g)) {
    total += Number(amount) * { d: DAY, h: 3_600, m: 60, s: 1 }[unit as "d" | "h" | "m" | "s"];
  }
  return total > 0 && total <= LONGEST_FUTURE ? total : null;
}
