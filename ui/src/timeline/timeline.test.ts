import { describe as group, expect, it, vi } from "vitest";
import { contrast, readable } from "./theme";
import { certainty, densify, drawnEnd, layOut, pack, rowsOf } from "./layout";
import {
  type Bar,
  type JobRow,
  type LiveRows,
  type Model,
  NodesSeen,
  type PastRun,
  type RunRow,
  instant,
  makeModel,
  momentAt,
  orderedTimes,
  profile,
} from "./model";
import { neighbour, readView, resized } from "./view";
import { describe, duration, parseDuration, ticks } from "./words";

// Clocks change there on 29 March and 25 October 2026.
vi.stubEnv("TZ", "Europe/Berlin");

const NOW = 1_795_788_300;
const HOUR = 3_600;

const past = (job: string, from: unknown, to: unknown, more: Partial<PastRun> = {}): PastRun => ({
  jobName: job,
  namespace: "a",
  clusterQueue: "lab",
  gpus: 8,
  state: "Succeeded",
  started: from as number,
  ended: to as number,
  ...more,
});
const run = (job: string, from: unknown, to: unknown, more: Partial<RunRow> = {}): RunRow => ({
  job,
  metadata: { namespace: "a", name: `job-${job}` },
  clusterQueue: "lab",
  gpus: 8,
  state: "Running",
  from: from as number,
  to: to as number,
  ...more,
});
const model = (live: LiveRows, runs: PastRun[] = [], by: "queues" | "nodes" = "queues"): Model =>
  makeModel({ live, past: runs, now: NOW, group: by });
const rows = (runs: RunRow[]): Record<string, RunRow> =>
  Object.fromEntries(runs.map((each, number) => [String(number), each]));

function overlaps(made: Model, room = 600): number {
  const { placements } = layOut(made.lanes, room);
  let count = 0;
  for (let one = 0; one < placements.length; one++) {
    for (let other = one + 1; other < placements.length; other++) {
      const [a, b] = [placements[one], placements[other]];
      if (!a || !b) continue;
      const inTime = a.bar.from < drawnEnd(b.bar) && b.bar.from < drawnEnd(a.bar);
      if (inTime && a.y < b.y + b.height && b.y < a.y + a.height) count += 1;
    }
  }
  return count;
}

function scattered(count: number): RunRow[] {
  let state = 5;
  const next = (): number => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
  return Array.from({ length: count }, (_, each) => {
    const from = NOW + next() * 20 * HOUR;
    const to = from + next() * 4 * HOUR;
    return run(`j${each}`, from, to, {
      state: "Pending",
      gpus: [1, 8, 32, 256][each % 4] ?? 1,
      toLatest: to + next() * HOUR,
      mustEndBy: each % 9 === 0 ? to + 2 * HOUR : null,
    });
  });
}

group("rows of a lane", () => {
  it("never hold two bars at one instant", () => {
    expect(overlaps(model({ runs: rows(scattered(400)) }), 10_000)).toBe(0);
    expect(overlaps(model({ runs: rows(scattered(400)) }), 300)).toBe(0);
  });

  it("hold a thousand jobs that all overlap, in rows of three pixels", () => {
    const many = Array.from({ length: 1_000 }, (_, each) => run(`j${each}`, NOW - HOUR, NOW + HOUR, { gpus: 16 }));
    const made = model({ runs: rows(many) });
    const layout = layOut(made.lanes, 600);
    expect(layout.placements).toHaveLength(1_000);
    expect(overlaps(made)).toBe(0);
    expect(new Set(layout.placements.map((placed) => placed.y)).size).toBe(1_000);
    expect(layout.height).toBeLessThan(3_100);
  });

  it("are taller for more GPUs where there is room, and even where there isn't", () => {
    expect([1, 8, 9, 64, 65].map(rowsOf)).toEqual([1, 1, 2, 2, 3]);
    const made = model({
      runs: rows([run("small", NOW - 60, NOW, { gpus: 1 }), run("big", NOW - 60, NOW, { gpus: 512 })]),
    });
    const [small, big] = ["small", "big"].map((label) =>
      layOut(made.lanes, 600).placements.find((each) => each.bar.label === label),
    );
    expect(big?.height).toBeGreaterThan(2 * (small?.height ?? 0));
    const crowded = layOut(
      model({ runs: rows(scattered(300).map((each) => ({ ...each, from: NOW, to: NOW + HOUR }))) }).lanes,
      600,
    );
    expect(new Set(crowded.placements.map((each) => each.height)).size).toBe(1);
  });

  it("are kept when an earlier job goes", () => {
    const before = model({
      runs: rows([
        run("one", NOW - 300, NOW + HOUR),
        run("two", NOW - 200, NOW + HOUR),
        run("three", NOW - 100, NOW + HOUR),
      ]),
    });
    const first = layOut(before.lanes, 600);
    const after = model({ runs: rows([run("two", NOW - 200, NOW + HOUR), run("three", NOW - 100, NOW + HOUR)]) });
    const second = layOut(after.lanes, 600, first.rows);
    const rowOf = (layout: typeof first, label: string) =>
      layout.placements.find((each) => each.bar.label === label)?.y;
    expect(rowOf(second, "two")).toBe(rowOf(first, "two"));
    expect(rowOf(second, "three")).toBe(rowOf(first, "three"));
  });

  it("are none for no bars", () => {
    expect(pack([], () => 1)).toEqual({ rows: new Int32Array(0), count: 0 });
    expect(layOut([], 600)).toMatchObject({ height: 0, placements: [] });
  });
});

group("times from a record", () => {
  it.each([NaN, Infinity, -1, 0, 1.79e12, null, undefined, "14:05", {}])("refuse %s", (value) => {
    expect(instant(value)).toBeNull();
    expect(orderedTimes(NOW, value, NOW, null, null, true)).toBeNull();
  });

  it("are put in order", () => {
    expect(orderedTimes(NOW, NOW - 100, NOW - 500, NaN, null, false)).toMatchObject({
      from: NOW - 100,
      to: NOW - 100,
      toLatest: NOW - 100,
    });
    expect(orderedTimes(NOW, NOW - 100, NOW + 50, NOW + 20, NOW + 90, true)).toMatchObject({
      to: NOW + 50,
      toLatest: NOW + 50,
      fromLatest: NOW + 50,
    });
  });

  it("end what still runs no earlier than now", () => {
    expect(orderedTimes(NOW, NOW - 100, NOW - 50, null, null, true)?.to).toBe(NOW);
    expect(orderedTimes(NOW, NOW - 100, null, null, null, true)).toMatchObject({ to: NOW, endUnknown: true });
  });

  it("that are years away are cut or refused, and counted", () => {
    expect(orderedTimes(NOW, NOW - 3 * 366 * 86_400, NOW, null, null, false)).toBeNull();
    expect(orderedTimes(NOW, NOW, NOW + 30 * 366 * 86_400, null, null, true)?.to).toBe(NOW + 60 * 86_400);
    const made = model({ runs: rows([run("bad", NaN, NOW), run("good", NOW - 60, NOW + 60)]) }, [
      past("bad", 1.79e12, NOW),
      past("never", null, NOW),
    ]);
    expect(made.bars.map((bar) => bar.label)).toEqual(["good"]);
    expect(made.refused).toBe(2);
  });

  it("of a waiting job never lie in the past", () => {
    const [bar] = model({ runs: rows([run("late", NOW - 600, NOW + 60, { state: "Pending" })]) }).bars;
    expect(bar?.from).toBe(NOW);
  });

  it("of zero seconds still give a bar that can be hit", () => {
    const made = model({}, [past("quick", NOW - 60, NOW - 60)]);
    expect(made.bars[0]).toMatchObject({ from: NOW - 60, to: NOW - 60 });
    expect(drawnEnd(made.bars[0] as Bar)).toBe(NOW - 59);
    const { wide, buckets } = densify(layOut(made.lanes, 600).placements, NOW - HOUR, 0.1);
    expect(wide).toHaveLength(0);
    expect(buckets).toHaveLength(1);
    expect(buckets[0]?.filled).toBeGreaterThan(0);
  });
});

group("bars", () => {
  it("come from the plan, the record and, where the plan lags, the jobs", () => {
    const jobs: Record<string, JobRow> = {
      a: {
        namespace: "a",
        name: "job-run",
        jobName: "run",
        clusterQueue: "lab",
        state: "Running",
        gpus: 8,
        why: "because",
        created: NOW - 900,
      },
      b: {
        namespace: "a",
        name: "job-soon",
        jobName: "soon",
        clusterQueue: "lab",
        state: "Pending",
        gpus: 8,
        expectedStart: { p50: NOW + 60, p90: NOW + 90 },
        forecast: { p50: 600, p90: 900 },
      },
      c: {
        namespace: "a",
        name: "job-never",
        jobName: "never",
        clusterQueue: "lab",
        state: "Pending",
        gpus: 8,
        expectedStart: null,
      },
    };
    const made = model({ jobs, runs: rows([run("run", NOW - 600, NOW + 600)]) }, [
      past("old", NOW - 7_200, NOW - 3_600, { state: "Failed" }),
    ]);
    expect(made.bars.map((bar) => [bar.label, bar.state])).toEqual([
      ["old", "failed"],
      ["run", "running"],
      ["soon", "planned"],
    ]);
    expect(made.bars[1]).toMatchObject({ why: "because", submitted: NOW - 900 });
    expect(made.bars[2]).toMatchObject({ to: NOW + 660, toLatest: NOW + 990, fromLatest: NOW + 90 });
    expect(made.lanes[0]?.note).toBe("1 without a start");
  });

  it("of a run that has just ended aren't there twice", () => {
    const made = model({ runs: rows([run("job", NOW - 600, NOW + 10)]) }, [past("job", NOW - 600, NOW - 1)]);
    expect(made.bars.map((bar) => bar.state)).toEqual(["succeeded"]);
  });

  it("have ids of their own, also where a job ran twice or names are equal", () => {
    const made = model(
      {
        runs: rows([
          run("job", NOW, NOW + 9, { state: "Pending" }),
          run("job", NOW + 99, NOW + 120, { state: "Pending" }),
        ]),
      },
      [past("job", NOW - 600, NOW - 1), past("job", NOW - 600, NOW - 1)],
    );
    expect(new Set(made.bars.map((bar) => bar.id)).size).toBe(4);
  });

  it("say who was preempted", () => {
    const made = model({}, [past("job", NOW - 60, NOW - 1, { state: "Ended", message: "Preempted to accommodate x" })]);
    expect(made.bars[0]?.state).toBe("preempted");
  });

  it("fade in while the start is uncertain and out while the end is", () => {
    const [bar] = model({
      runs: rows([run("job", NOW + 100, NOW + 400, { state: "Pending", fromLatest: NOW + 200, toLatest: NOW + 600 })]),
    }).bars;
    const at = (offset: number): number => Math.round(certainty(bar as Bar, NOW + offset) * 100);
    expect([at(99), at(100), at(150), at(200), at(400), at(500), at(600), at(601)]).toEqual([
      0, 0, 50, 100, 100, 50, 0, 0,
    ]);
  });

  it("describe themselves in a sentence", () => {
    const made = model({
      runs: rows([run("llm", NOW - HOUR, NOW + HOUR, { backfilled: true, mustEndBy: NOW + 2 * HOUR })]),
    });
    expect(describe(made.bars[0] as Bar, NOW)).toMatch(
      /^llm, 8 GPUs, queue lab, running, since .*, expected to end .*, backfilled, must be gone by \d\d:\d\d\.$/,
    );
  });
});

group("lanes", () => {
  it("follow cohorts, those without one last", () => {
    const queues = {
      a: { level: "ClusterQueue", name: "zeta", cohorts: ["inner", "root"], nominalGpus: 8 },
      b: { level: "ClusterQueue", name: "alpha", cohorts: [], nominalGpus: 8 },
      c: { level: "LocalQueue", name: "not shown" },
    };
    expect(model({ queues }).lanes.map((lane) => lane.label)).toEqual([
      "cohort root / inner",
      "zeta",
      "no cohort",
      "alpha",
    ]);
  });

  it("of nodes hold what runs there, and those of queues the rest", () => {
    const nodes = {
      n1: {
        metadata: { name: "n1" },
        flavors: ["h100"],
        trouble: "cordoned",
        until: NOW + HOUR,
        capacity: { "nvidia.com/gpu": "8", cpu: "96" },
      },
      n2: { metadata: { name: "n2" }, flavors: ["h100"], occupants: [{ job: "two", namespace: "a" }] },
    };
    const made = model(
      {
        nodes,
        runs: rows([
          run("one", NOW - 60, NOW + 60, { nodes: ["n1"] }),
          run("two", NOW - 60, NOW + 60),
          run("later", NOW + 60, NOW + 90, { state: "Pending" }),
        ]),
      },
      [],
      "nodes",
    );
    expect(made.lanes.map((lane) => [lane.label, lane.bars.map((bar) => bar.label)])).toEqual([
      ["flavor h100", []],
      ["n1", ["one"]],
      ["n2", ["two"]],
      ["no node known: planned and past", []],
      ["lab", ["later"]],
    ]);
    expect(made.lanes[1]).toMatchObject({ capacity: 8, trouble: { kind: "cordoned", from: NOW, until: NOW + HOUR } });
  });

  it("of nodes remember where a run was once it is over", () => {
    const seen = new NodesSeen();
    const nodes = { n1: { metadata: { name: "n1" } } };
    makeModel({
      live: { nodes, runs: rows([run("job", NOW - 600, NOW + 60, { nodes: ["n1"] })]) },
      past: [],
      now: NOW,
      group: "nodes",
      seen,
    });
    const after = makeModel({
      live: { nodes },
      past: [past("job", NOW - 600, NOW - 1)],
      now: NOW,
      group: "nodes",
      seen,
    });
    expect(after.lanes.find((lane) => lane.label === "n1")?.bars).toHaveLength(1);
  });

  it("are crossed with arrow keys", () => {
    const made = model({
      runs: rows([
        run("a", NOW - 100, NOW - 50),
        run("b", NOW - 10, NOW + 50),
        run("c", NOW, NOW + 90, { clusterQueue: "other" }),
      ]),
    });
    const go = (from: { lane: string; bar: string } | null, key: string) => neighbour(made.lanes, from, key, NOW + 1);
    const first = go(null, "ArrowRight");
    const label = (at: { bar: string } | null) => made.bars.find((bar) => bar.id === at?.bar)?.label;
    expect(label(first)).toBe("b");
    expect(label(go(first, "ArrowLeft"))).toBe("a");
    expect(label(go(first, "ArrowRight"))).toBe("b");
    expect(label(go(first, "ArrowDown"))).toBe("c");
    expect(neighbour([], null, "ArrowLeft", NOW)).toBeNull();
  });
});

group("density", () => {
  const short = Array.from({ length: 500 }, (_, each) =>
    past(`j${each}`, NOW - 10_000 + each * 20, NOW - 10_000 + each * 20 + 15),
  );

  it("merges bars below two pixels, by row and queue, and loses none", () => {
    const { placements } = layOut(model({}, short).lanes, 600);
    const { wide, buckets } = densify(placements, NOW - 20_000, 0.01);
    expect(wide).toHaveLength(0);
    expect(buckets.length).toBeLessThan(60);
    expect(buckets.reduce((sum, bucket) => sum + bucket.count, 0)).toBe(500);
    expect(Math.max(...buckets.map((bucket) => bucket.filled))).toBeLessThanOrEqual(1);
  });

  it("leaves alone what is wide enough", () => {
    expect(densify(layOut(model({}, short).lanes, 600).placements, NOW - 20_000, 1).wide).toHaveLength(500);
  });
});

group("sums", () => {
  it("say what runs and waits at an instant", () => {
    const made = model({}, [
      past("one", NOW - 300, NOW - 100, { submitted: NOW - 900, gpus: 4 }),
      past("two", NOW - 200, NOW - 10, { submitted: NOW - 250 }),
    ]);
    expect(momentAt(made, NOW - 220)).toMatchObject({ gpus: 4, running: 1, waiting: 1 });
    expect(momentAt(made, NOW - 150)).toMatchObject({ gpus: 12, running: 2, waiting: 0 });
    expect(momentAt(made, NOW - 100).lanes.get("queue:lab")).toBe(8);
  });

  it("give the mean of each step", () => {
    const made = model({}, [past("one", NOW - 100, NOW - 50, { gpus: 10 })]);
    expect([...profile(made.bars, NOW - 100, NOW, 4)]).toEqual([10, 10, 0, 0]);
    expect([...profile(made.bars, NOW - 75, NOW - 25, 1)]).toEqual([5]);
    expect([...profile(made.bars, NOW, NOW, 2)]).toEqual([0, 0]);
  });
});

group("ticks", () => {
  it.each([
    ["spring", Date.UTC(2026, 2, 28, 23) / 1000, 23],
    ["autumn", Date.UTC(2026, 9, 24, 22) / 1000, 25],
  ])("are at full local hours on the day when clocks change in %s", (_, midnight, hours) => {
    const found = ticks(midnight, midnight + hours * HOUR, 2_400);
    expect(found.every((tick) => tick.at % HOUR === 0)).toBe(true);
    expect(found.filter((tick) => tick.day)).toHaveLength(2);
    expect(new Set(found.map((tick) => tick.at)).size).toBe(found.length);
    const week = ticks(midnight - 3 * 86_400, midnight + 4 * 86_400, 1_200).filter((tick) => tick.day);
    expect(week.length).toBeGreaterThanOrEqual(7);
  });

  it("show seconds where minutes are too coarse, and none for no room", () => {
    expect(ticks(NOW, NOW + 60, 1_000).some((tick) => /:\d\d:\d\d/.test(tick.label))).toBe(true);
    expect(ticks(NOW, NOW, 1_000)).toEqual([]);
    expect(ticks(NOW, NOW + 60, 0)).toEqual([]);
  });
});

group("empty data", () => {
  it("gives an hour around now and nothing in it", () => {
    const made = model({});
    expect(made).toMatchObject({ bars: [], lanes: [], earliest: NOW - HOUR, latest: NOW + HOUR });
    expect(momentAt(made, NOW)).toMatchObject({ gpus: 0, running: 0, waiting: 0 });
  });

  it("may come as maps", () => {
    expect(model({ runs: new Map([["x", run("job", NOW - 60, NOW)]]) }).bars).toHaveLength(1);
  });
});

group("a view", () => {
  it("is read from anything", () => {
    expect(readView(null)).toMatchObject({ group: "queues", span: 86_400, start: null, table: false });
    expect(readView({ group: "nodes", span: "3600", start: String(NOW), table: "true", focus: "", find: 7 })).toEqual({
      group: "nodes",
      span: 3_600,
      start: NOW,
      cursor: null,
      decision: null,
      focus: null,
      find: "",
      table: true,
      from: null,
    });
    expect(readView({ span: NaN, start: "soon", cursor: -4, from: "soon" })).toMatchObject({
      span: 86_400,
      start: null,
      cursor: null,
      from: null,
    });
    expect(readView({ span: 1e99 }).span).toBe(30 * 86_400);
  });

  it("survives an address", () => {
    const view = readView({
      group: "nodes",
      span: 3_600,
      start: NOW,
      cursor: NOW,
      focus: "run:a/b",
      find: "x",
      table: true,
      from: NOW + 3_600,
    });
    expect(view.from).toBe(NOW + 3_600);
    expect(readView(Object.fromEntries(Object.entries(view).map(([key, value]) => [key, String(value)])))).toEqual(
      view,
    );
  });
});

group("what if", () => {
  it("sizes are powers of two in a node and whole nodes above", () => {
    expect([1, 2, 3, 4].map((steps) => resized(2, steps))).toEqual([4, 8, 16, 24]);
    expect([-1, -2, -3, -9].map((steps) => resized(16, steps))).toEqual([8, 4, 2, 1]);
    expect(resized(12, 1)).toBe(16);
    expect(resized(12, -1)).toBe(8);
  });

  it("durations are read as people write them", () => {
    expect(["90m", "4h", "1d 6h", "45", "1.5h"].map(parseDuration)).toEqual([5_400, 14_400, 108_000, 2_700, 5_400]);
    expect(["", "soon", "-4h", "4 parsecs", "0"].map(parseDuration)).toEqual([null, null, null, null, null]);
    expect([59, 3_600, 5_400, 200_000].map(duration)).toEqual(["59s", "1h", "1h 30m", "2d 7h"]);
  });
});

group("text on bars", () => {
  it("can be read on any colour", () => {
    for (let red = 0; red < 256; red += 15) {
      for (let green = 0; green < 256; green += 15) {
        for (let blue = 0; blue < 256; blue += 15) {
          expect(contrast([red, green, blue], readable([red, green, blue], [255, 255, 255]))).toBeGreaterThanOrEqual(
            4.5,
          );
        }
      }
    }
  });
});
