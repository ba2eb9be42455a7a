/** The decisions around the slider's instant: read from the operator's record by pages, as the slider moves. */
import { type Decision } from "./model";

export interface DecisionPage {
  items: readonly Decision[];
  more: boolean;
  /** The earliest instant of the record. */
  from: number | null;
  /** Whether the operator keeps a record at all. */
  record: boolean;
}

export interface Stretch {
  /** All decisions of a time, in order. */
  items: readonly Decision[];
  from: number;
  to: number;
  recordFrom: number | null;
  /** null until the first answer. */
  record: boolean | null;
  busy: boolean;
  error: string;
}

/** Decisions from one instant to another, the oldest first. */
export type AskDecisions = (from: number, to: number, limit: number, signal: AbortSignal) => Promise<DecisionPage>;

const BEFORE = 60;
const AFTER = 40;
/** So many stand on each side of the slider before more are asked for. */
const MARGIN = 15;
const PAGE = 200;
/** Of one second, however much was decided in it. */
const MOST = 5_000;
const FIRST_WINDOW = 600;
const MOST_QUESTIONS = 14;
/** A step passes over so many decisions that are not wanted. */
const FARTHEST = 2_000;
/** The record of the last seconds may not be there yet. */
const FRESH = 5;

export const NOTHING: Stretch = { items: [], from: 0, to: 0, recordFrom: null, record: null, busy: false, error: "" };

/** Holds one stretch of the record, some hundred decisions at most. */
export class DecisionBook {
  private stretch = NOTHING;
  private readonly listeners = new Set<() => void>();
  private asking: { at: number; stopping: AbortController; done: Promise<void> } | null = null;

  constructor(
    private readonly ask: AskDecisions,
    private readonly now: () => number,
  ) {}

  readonly get = (): Stretch => this.stretch;
  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Reads what is around an instant, unless it is here already. */
  async around(at: number): Promise<void> {
    if (this.covers(at)) return;
    if (this.asking && Math.abs(this.asking.at - at) < 1) return this.asking.done;
    this.asking?.stopping.abort();
    const stopping = new AbortController();
    const done = this.read(at, stopping.signal);
    this.asking = { at, stopping, done };
    await done;
    if (this.asking.stopping === stopping) this.asking = null;
  }

  /** The decision before or after one, or before or after an instant, of those that are wanted; null where none is near. */
  async step(
    from: Decision | null,
    at: number,
    by: 1 | -1,
    wanted: (decision: Decision) => boolean = () => true,
  ): Promise<Decision | null> {
    let here = from;
    for (let each = 0; each < FARTHEST; each++) {
      await this.around(here?.at ?? at);
      const next = this.next(here, at, by);
      if (next === null || wanted(next)) return next;
      here = next;
    }
    return null;
  }

  private next(from: Decision | null, at: number, by: 1 | -1): Decision | null {
    const { items } = this.stretch;
    const place = from === null ? -1 : items.findIndex((each) => each.number === from.number);
    if (place >= 0) return items[place + by] ?? null;
    return by > 0 ? (items.find((each) => each.at > at) ?? null) : (items.findLast((each) => each.at < at) ?? null);
  }

  stop(): void {
    this.asking?.stopping.abort();
    this.asking = null;
  }

  private covers(at: number): boolean {
    const { items, from, to, record, recordFrom } = this.stretch;
    if (record === null) return false;
    if (!record) return true;
    if (at < from || at > to) return recordFrom !== null && at < recordFrom && from <= recordFrom;
    const before = countUntil(items, at);
    const enoughBefore = before >= MARGIN || (recordFrom !== null && from <= recordFrom);
    return enoughBefore && (items.length - before >= MARGIN || to >= this.now() - FRESH);
  }

  private async read(at: number, signal: AbortSignal): Promise<void> {
    this.set({ ...this.stretch, busy: true, error: "" });
    try {
      const now = this.now();
      const after = await this.ask(at, now, AFTER, signal);
      const last = after.items[after.items.length - 1];
      const to = after.more && last ? last.at : now;
      const found: Decision[] = [...after.items];
      let until = at;
      let width = FIRST_WINDOW;
      const earliest = after.from ?? now;
      for (let asked = 0; asked < MOST_QUESTIONS && until > earliest && found.length - after.items.length < BEFORE; asked++) {
        const since = Math.max(earliest, until - width);
        const page = await this.ask(since, until, width > 1 ? PAGE : MOST, signal);
        if (page.more && width > 1) {
          // The page is the oldest part of the window: the newest is what is wanted.
          width /= 4;
          continue;
        }
        found.push(...page.items);
        until = since;
        if (page.items.length < BEFORE / 2) width *= 4;
      }
      const items = [...new Map(found.map((each) => [each.number, each])).values()];
      items.sort((a, b) => a.at - b.at || a.number - b.number);
      this.set({ items, from: until, to, recordFrom: after.from, record: after.record, busy: false, error: "" });
    } catch (error) {
      if (signal.aborted) return;
      this.set({ ...this.stretch, busy: false, error: error instanceof Error ? error.message : String(error) });
    }
  }

  private set(stretch: Stretch): void {
    this.stretch = stretch;
    for (const listener of this.listeners) listener();
  }
}

/** Decisions that leave every job where it is: why it waits, what it waits for, warnings. */
const STILL: ReadonlySet<string> = new Set(["ReportPending", "Requeue", "AskChecks", "Warn"]);
export const moves = (decision: Decision): boolean => !STILL.has(decision.decision);

/** How many of what is in order lies at or before an instant. */
export function countUntil(items: readonly { at: number }[], at: number): number {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((items[middle]?.at ?? Infinity) <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
