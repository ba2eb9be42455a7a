import { describe as group, expect, it } from "vitest";
import { type AttemptRow, type Decision, barsOf, makeModel } from "./model";
import { DecisionBook, type DecisionPage, countUntil, moves } from "./record";
import { quotaDragged } from "./view";
import { describe, lossText } from "./words";

const NOW = 1_795_788_300;
const HOUR = 3_600;

const attempt = (job: string, from: number, to: number | null, more: Partial<AttemptRow> = {}): AttemptRow => ({
  namespace: "a",
  workload: `job-${job}`,
  jobKind: "Job",
  jobName: job,
  clusterQueue: "lab",
  gpus: 8,
  reserved: from,
  ended: to,
  end: "Succeeded",
  nodes: ["n1"],
  ...more,
});
const model = (attempts: AttemptRow[], live = {}, by: "queues" | "nodes" = "queues") =>
  makeModel({ live, past: [{ jobName: "not shown", started: NOW - HOUR, ended: NOW }], attempts, now: NOW, group: by });

group("the past", () => {
  it("has the runs that ended before the first attempt: the operator was upgraded then", () => {
    const first = attempt("first", NOW - 2 * HOUR, NOW - HOUR);
    const runs = [
      { jobName: "before", started: NOW - 5 * HOUR, ended: NOW - 3 * HOUR },
      { jobName: "since", started: NOW - 3 * HOUR, ended: NOW - HOUR },
    ];
    const model = makeModel({ live: {}, past: runs, attempts: [first], now: NOW, group: "queues" });
    expect(model.bars.map((bar) => bar.label)).toEqual(expect.arrayContaining(["before"]));
    expect(model.bars).toHaveLength(2);
  });

  it("is made of attempts where there are any, with how each ended and what it lost", () => {
    const made = model([
      attempt("one", NOW - 3 * HOUR, NOW - HOUR, { ready: NOW - 2.5 * HOUR }),
      attempt("two", NOW - 2 * HOUR, NOW - HOUR, {
        end: "Preempted",
        by: "job/big",
        lostSeconds: 1_800,
        lostGpuHours: 4,
        lostTo: "preemption",
        attempt: 2,
        backfilled: true,
      }),
      attempt("three", NOW - HOUR, NOW - 60, { end: "Evicted" }),
      attempt("four", NOW - HOUR, NOW - 60, { end: "Something new" }),
    ]);
    expect(made.bars.map((bar) => [bar.label, bar.state])).toEqual([
      ["job/one", "succeeded"],
      ["job/two", "preempted"],
      ["job/four", "ended"],
      ["job/three", "evicted"],
    ]);
    const [one, two] = made.bars;
    expect(one).toMatchObject({ ready: NOW - 2.5 * HOUR, lost: 0 });
    expect(two).toMatchObject({ lost: 1_800, lostTo: "preemption", by: "job/big", attempt: 2, backfilled: true });
    expect(two && lossText(two)).toBe("30m of work (4 GPU-hours) to a preemption");
    expect(two && describe(two, NOW)).toContain("lost 30m of work");
  });

  it("never loses more than an attempt lasted, and leaves out times without sense", () => {
    const made = model([
      attempt("long", NOW - HOUR, NOW, { lostSeconds: 1e9 }),
      attempt("bad", NaN, NOW),
      attempt("odd", NOW - HOUR, NOW, { lostSeconds: NaN, ready: NOW + HOUR }),
    ]);
    expect(made.refused).toBe(1);
    expect(made.bars.find((bar) => bar.label === "job/long")?.lost).toBe(HOUR);
    expect(made.bars.find((bar) => bar.label === "job/odd")).toMatchObject({ lost: 0, ready: null });
  });

  it("stands in the lanes of nodes", () => {
    const live = { nodes: { n1: { metadata: { name: "n1" }, capacity: { "nvidia.com/gpu": "8", "nvidia.com/gpumem": "9" } } } };
    const lane = model([attempt("one", NOW - HOUR, NOW - 60)], live, "nodes").lanes.find((each) => each.label === "n1");
    expect(lane?.bars.map((bar) => bar.label)).toEqual(["job/one"]);
    expect(lane?.capacity).toBe(8);
  });

  it("gives a running job the instant at which its pods were ready, and is not drawn twice", () => {
    const runs = {
      x: {
        job: "one",
        jobKind: "Job",
        metadata: { namespace: "a", name: "job-one" },
        clusterQueue: "lab",
        state: "Running",
        gpus: 8,
        from: NOW - HOUR,
        to: NOW + HOUR,
      },
    };
    const going = model([attempt("one", NOW - HOUR, null, { end: "", ready: NOW - HOUR + 90, attempt: 3 })], { runs });
    expect(going.bars).toHaveLength(1);
    expect(going.bars[0]).toMatchObject({ state: "running", ready: NOW - HOUR + 90, attempt: 3, label: "job/one" });
    const over = model([attempt("one", NOW - HOUR, NOW - 5)], { runs });
    expect(over.bars.map((bar) => bar.state)).toEqual(["succeeded"]);
  });
});

const decision = (number: number, at: number, more: Partial<Decision> = {}): Decision => ({
  at,
  number,
  text: "",
  decision: "Admit",
  namespace: "a",
  workload: `job-${number}`,
  job: `job/${number}`,
  hidden: false,
  by: "",
  ...more,
});

group("a decision", () => {
  it("marks the bar of its job at that time, and the one for which it was made", () => {
    const made = model([
      attempt("one", NOW - 3 * HOUR, NOW - HOUR, { end: "Preempted" }),
      attempt("one", NOW - 9 * HOUR, NOW - 8 * HOUR),
      attempt("big", NOW - HOUR + 60, NOW - 60),
      attempt("other", NOW - 3 * HOUR, NOW - 60),
    ]);
    const preemption = decision(7, NOW - HOUR, { decision: "Preempt", workload: "job-one", by: "job/big" });
    expect([...barsOf(made.bars, preemption)].sort()).toEqual([
      `past:a/job-big/${NOW - HOUR + 60}`,
      `past:a/job-one/${NOW - 3 * HOUR}`,
    ]);
  });
});

group("the record", () => {
  /** A record of one decision each `step` seconds over a week; answers as the operator does, the oldest first. */
  function recorded(step: number, at = NOW) {
    const from = at - 7 * 24 * HOUR;
    const questions: [number, number][] = [];
    const last = Math.floor((at - from) / step);
    /** Decision `each` is made `each` steps after the record's beginning. */
    const between = (since: number, until: number): Decision[] => {
      const first = Math.max(1, Math.ceil((since - from) / step));
      const count = Math.max(0, Math.min(last, Math.floor((until - from) / step)) - first + 1);
      return Array.from({ length: count }, (_, each) => decision(first + each, from + (first + each) * step));
    };
    const book = new DecisionBook(
      (since, until, limit): Promise<DecisionPage> => {
        questions.push([since, until]);
        const found = between(since, Math.min(until, since + (limit + 1) * step));
        return Promise.resolve({ items: found.slice(0, limit), more: found.length > limit, from, record: true });
      },
      () => at,
    );
    return { book, between, last, questions };
  }

  it("is read around an instant without gaps, however dense or sparse it is", async () => {
    for (const step of [0.5, 7, 600, 40_000]) {
      const { book, between, questions } = recorded(step);
      const at = NOW - 3 * 24 * HOUR;
      await book.around(at);
      const { items, from, to } = book.get();
      expect(items.map((each) => each.number)).toEqual(
        between(from, to).map((each) => each.number),
      );
      expect(items.length).toBeLessThan(400);
      expect(questions.length).toBeLessThan(16);
      const here = countUntil(items, at);
      expect(here).toBeGreaterThan(5);
    }
  });

  it("is stepped through one by one, forwards and back, past the end of what is held", async () => {
    const { book, between, last } = recorded(60);
    let here = await book.step(null, NOW - 24 * HOUR, 1);
    const first = here?.number ?? 0;
    for (let each = 0; each < 150 && here; each++) here = await book.step(here, here.at, 1);
    expect(here?.number).toBe(first + 150);
    for (let each = 0; each < 300 && here; each++) here = await book.step(here, here.at, -1);
    expect(here?.number).toBe(first - 150);
    expect(book.get().items.length).toBeLessThan(400);
    const latest = between(NOW - 120, NOW).at(-1) ?? null;
    expect(latest?.number).toBe(last);
    expect(await book.step(latest, latest?.at ?? 0, 1)).toBeNull();
  });

  it("is stepped through without what leaves every job where it is", async () => {
    const kinds = ["Admit", "ReportPending", "Requeue", "Preempt"];
    const items = Array.from({ length: 40 }, (_, each) =>
      decision(each, NOW - 4_000 + each * 100, { decision: kinds[each % 4] ?? "" }),
    );
    const book = new DecisionBook(
      (since, until) =>
        Promise.resolve({
          items: items.filter((each) => each.at >= since && each.at <= until),
          more: false,
          from: NOW - 4_000,
          record: true,
        }),
      () => NOW,
    );
    const first = items[4] ?? null;
    expect((await book.step(first, NOW, 1, moves))?.number).toBe(7);
    expect((await book.step(first, NOW, -1, moves))?.number).toBe(3);
    expect((await book.step(first, NOW, 1))?.number).toBe(5);
  });

  it("is asked no more where there is none, and says why it could not be read", async () => {
    let asked = 0;
    const none = new DecisionBook(
      () => {
        asked += 1;
        return Promise.resolve({ items: [], more: false, from: null, record: false });
      },
      () => NOW,
    );
    await none.around(NOW - HOUR);
    await none.around(NOW - 9 * HOUR);
    expect(asked).toBe(1);
    expect(none.get().record).toBe(false);
    const broken = new DecisionBook(() => Promise.reject(new Error("The server does not know this.")), () => NOW);
    await broken.around(NOW - HOUR);
    expect(broken.get()).toMatchObject({ busy: false, error: "The server does not know this." });
  });
});

group("a dragged quota", () => {
  it("moves by whole nodes where it is large, and is never below nothing", () => {
    expect(quotaDragged(64, 0.26)).toBe(80);
    expect(quotaDragged(8, 0.26)).toBe(10);
    expect(quotaDragged(64, -2)).toBe(0);
    expect(quotaDragged(100, 0)).toBe(100);
  });
});
