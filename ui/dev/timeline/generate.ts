/** Clusters to draw: the same numbers give the same cluster. */
import type { AttemptRow, JobRow, LiveRows, Mark, NodeRow, QueueRow, RunRow } from "../../src/timeline/model";

export interface Cluster {
  live: LiveRows & {
    jobs: Record<string, JobRow>;
    queues: Record<string, QueueRow>;
    nodes: Record<string, NodeRow>;
    runs: Record<string, RunRow>;
  };
  attempts: AttemptRow[];
  marks: Mark[];
  now: number;
}

interface Shape {
  seed: number;
  now: number;
  queues: readonly {
    name: string;
    cohort: string;
    nodes: number;
    jobs: number;
    hours: number;
    sizes: readonly number[];
  }[];
  hiddenEvery: number;
}

/** Friday, 27 November 2026, 14:05 UTC. */
export const NOW = 1_795_788_300;

function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const KINDS = [
  "pretrain",
  "finetune",
  "eval",
  "sweep",
  "distill",
  "tokenize",
  "rlhf",
  "ablation",
  "sft",
  "embed",
  "ocr",
  "asr",
] as const;
const MODELS = [
  "llama-70b",
  "mixtral",
  "vit-l",
  "whisper",
  "t5",
  "clip",
  "bert",
  "gemma-9b",
  "unet",
  "qwen-32b",
] as const;
const USERS = ["mira", "jane", "tom", "li", "ana", "omar", "ida", "kofi"] as const;
const HOUR = 3_600;

/** Plays each queue as a first-in, first-out list on its own nodes from a day before `now` on. */
export function cluster(shape: Shape): Cluster {
  const next = random(shape.seed);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(next() * from.length)] as T;
  const { now } = shape;
  const live: Cluster["live"] = { jobs: {}, queues: {}, nodes: {}, runs: {} };
  const attempts: AttemptRow[] = [];
  const marks: Mark[] = [];
  let number = 0;
  let node = 0;
  shape.queues.forEach((queue) => {
    const total = queue.nodes * 8;
    const mine = Array.from({ length: queue.nodes }, () => {
      node += 1;
      return { name: `gpu-${String(node).padStart(3, "0")}`, until: 0, jobs: [] as string[] };
    });
    for (const each of mine) {
      live.nodes[each.name] = {
        metadata: { name: each.name },
        flavors: [queue.cohort === "edge" ? "l40s" : "h100"],
        trouble: "",
        until: null,
        capacity: { "nvidia.com/gpu": "8" },
        occupants: [],
      };
    }
    const arrivals = Array.from({ length: queue.jobs }, () => now - 25 * HOUR + next() * 27 * HOUR).sort(
      (a, b) => a - b,
    );
    const ends: { at: number; gpus: number }[] = [];
    let free = total;
    let clock = arrivals[0] ?? now;
    let waiting = 0;
    for (const arrived of arrivals) {
      number += 1;
      const gpus = Math.min(pick(queue.sizes), total);
      const seconds = Math.max(120, queue.hours * HOUR * Math.exp((next() + next() + next() - 1.5) * 1.5));
      clock = Math.max(clock, arrived);
      while (free < gpus || (ends[0]?.at ?? Infinity) <= clock) {
        const ended = ends.shift();
        if (!ended) break;
        clock = Math.max(clock, ended.at);
        free += ended.gpus;
      }
      const start = clock;
      const end = start + seconds;
      free -= gpus;
      ends.push({ at: end, gpus });
      ends.sort((a, b) => a.at - b.at);
      const name = `${pick(KINDS)}-${pick(MODELS)}-${number}`;
      const user = pick(USERS);
      const hidden = number % shape.hiddenEvery === 0;
      const shown = hidden ? `hidden-${((number * 2_654_435_761) % 65_536).toString(16)}` : name;
      const namespace = hidden ? "" : `team-${queue.name}`;
      const luck = next();
      const common = { hidden, user: hidden ? "" : user, clusterQueue: queue.name, gpus };
      if (end < now) {
        const stopped = luck > 0.86 && luck <= 0.95;
        const cut = stopped ? end - seconds * 0.4 * next() : end;
        const failed = luck > 0.95;
        const ready = Math.min(cut, start + 30 + next() ** 3 * 900);
        const lost = failed ? cut - ready : stopped ? (cut - ready) * next() : 0;
        const first = Math.floor(next() * mine.length);
        attempts.push({
          ...common,
          namespace,
          workload: `job-${shown}`,
          jobName: shown,
          jobKind: hidden ? "" : "Job",
          localQueue: queue.name,
          attempt: luck > 0.93 ? 2 : 1,
          submitted: Math.min(arrived, start),
          reserved: start,
          ready,
          ended: cut,
          end: failed ? "Failed" : stopped ? (luck > 0.93 ? "Evicted" : luck > 0.9 ? "Cancelled" : "Preempted") : "Succeeded",
          text: stopped ? "Preempted to accommodate a workload of higher priority" : failed ? "exit code 1 in pod 3" : "",
          lostSeconds: lost,
          lostGpuHours: (lost * gpus) / HOUR,
          lostTo: failed ? "failure" : stopped ? "preemption" : "",
          backfilled: luck < 0.1,
          nodes: Array.from({ length: Math.ceil(gpus / 8) }, (_, each) => mine[(first + each) % mine.length]?.name ?? ""),
        });
        if (stopped) marks.push({ at: cut, text: `preempts ${shown} (${gpus} GPUs) for a job of higher priority` });
        marks.push({ at: start, text: `admits ${shown} (${gpus} GPUs) to ${queue.name}` });
        continue;
      }
      const id = `${namespace}/job-${shown}`;
      const running = start <= now;
      const p90 = end + (end - Math.max(now, start)) * (0.15 + next() * 0.6);
      const nodes: string[] = [];
      if (running) {
        let wanted = gpus;
        for (const each of mine) {
          if (wanted <= 0) break;
          const room = 8 - each.until;
          if (room <= 0 || (gpus >= 8 && room < 8)) continue;
          each.until += Math.min(room, wanted);
          wanted -= room;
          nodes.push(each.name);
        }
      } else {
        waiting += 1;
      }
      const reserved = !running && gpus >= 32;
      live.runs[`${id}/0`] = {
        ...common,
        job: shown,
        metadata: { namespace, name: `job-${shown}` },
        queue: queue.name,
        state: running ? "Running" : "Pending",
        from: start,
        fromLatest: running ? start : start + (start - now) * (0.05 + next() * 0.15),
        to: end,
        toLatest: running ? p90 : p90 + (start - now) * 0.15,
        after: running ? [] : [pick(attempts)?.jobName ?? ""],
        backfilled: running && gpus <= 8 && luck < 0.3,
        mustEndBy: running && gpus <= 8 && luck < 0.3 ? p90 + 900 : null,
        reserved,
        nodes,
      };
      live.jobs[id] = {
        ...common,
        namespace,
        name: `job-${shown}`,
        jobName: shown,
        jobKind: "Job",
        queue: queue.name,
        created: Math.min(arrived, start),
        since: running ? start : arrived,
        state: running ? (start > now - 240 ? "Starting" : "Running") : "Pending",
        why: running ? "" : `waits for ${gpus} GPUs of ${queue.name}; ${waiting - 1} jobs are before it`,
      };
    }
    live.queues[queue.name] = {
      level: "ClusterQueue",
      name: queue.name,
      cohorts: queue.cohort ? [queue.cohort] : [],
      nominalGpus: total,
      waiting,
      quotas: [{ flavor: "h100", resource: "nvidia.com/gpu", nominal: String(total), used: "0" }],
    };
  });
  const names = Object.keys(live.nodes);
  const ill: readonly [string, number | null][] = [
    ["soaking after a repair", now + 2 * HOUR],
    ["cordoned by mira", null],
    ["maintenance", now + 6 * HOUR],
    ["unhealthy: XID 79", null],
    ["spare", null],
  ];
  ill.forEach(([trouble, until], each) => {
    const name = names[Math.floor(((each + 0.6) * names.length) / ill.length)];
    const row = name === undefined ? undefined : live.nodes[name];
    if (row) live.nodes[name ?? ""] = { ...row, trouble, until };
  });
  marks.sort((a, b) => a.at - b.at);
  return { live, attempts, marks, now };
}

/** A day of three queues on 40 nodes. */
export function oneDay(now = NOW): Cluster {
  return cluster({
    seed: 7,
    now,
    hiddenEvery: 9,
    queues: [
      { name: "lab", cohort: "research", nodes: 14, jobs: 42, hours: 3.2, sizes: [4, 8, 8, 8, 16, 24, 32, 64] },
      { name: "pretrain", cohort: "research", nodes: 18, jobs: 24, hours: 5, sizes: [16, 32, 32, 64, 64, 128] },
      { name: "serving-eval", cohort: "", nodes: 8, jobs: 46, hours: 1.4, sizes: [1, 2, 4, 8, 8, 16] },
    ],
  });
}

/** 5,000 runs in 14 queues on 500 nodes. */
export function large(now = NOW): Cluster {
  const sizes = [1, 2, 4, 8, 8, 8, 16, 16, 32, 64];
  return cluster({
    seed: 11,
    now,
    hiddenEvery: 17,
    queues: Array.from({ length: 14 }, (_, each) => ({
      name: `team-${String.fromCharCode(97 + each)}`,
      cohort: each < 6 ? "research" : each < 11 ? "product" : "edge",
      nodes: each < 10 ? 36 : 35,
      jobs: each < 2 ? 358 : 357,
      hours: 1.8,
      sizes,
    })),
  });
}

/** A record as bad as records get. */
export function absurd(now = NOW): Cluster {
  const made = oneDay(now);
  const times = [NaN, -1, 0, Infinity, 1.79e12, 9e15, now, null, undefined, "14:05" as unknown as number];
  times.forEach((started, one) =>
    times.forEach((ended, other) => {
      made.attempts.push({
        jobName: `bad-${one}-${other}`,
        clusterQueue: "lab",
        gpus: NaN,
        reserved: started ?? null,
        ended: ended ?? NaN,
        end: "Failed",
        lostSeconds: Infinity,
      });
      made.live.runs[`bad-${one}-${other}`] = {
        job: `<b>bad ${one}</b>`,
        clusterQueue: "lab",
        gpus: -4,
        from: started ?? null,
        to: ended ?? null,
        state: "Running",
      };
    }),
  );
  return made;
}

/** The cluster a moment later: one run's end moves, one waiting job begins, one is new. */
export function change(before: Cluster["live"], turn: number, now: number): Cluster["live"] {
  const runs = { ...before.runs };
  const jobs = { ...before.jobs };
  const ids = Object.keys(runs);
  const moved = ids[turn % ids.length];
  const run = moved === undefined ? undefined : runs[moved];
  if (moved !== undefined && run)
    runs[moved] = { ...run, to: (run.to ?? now) + 60, toLatest: (run.toLatest ?? now) + 90 };
  const name = `new-${turn}`;
  runs[`x/${name}/0`] = {
    job: name,
    metadata: { namespace: "x", name },
    clusterQueue: String(Object.values(before.queues)[turn % Object.keys(before.queues).length]?.name),
    state: "Pending",
    gpus: 8,
    from: now + HOUR,
    fromLatest: now + 1.5 * HOUR,
    to: now + 3 * HOUR,
    toLatest: now + 4 * HOUR,
  };
  jobs[`x/${name}`] = {
    namespace: "x",
    name,
    jobName: name,
    state: "Pending",
    clusterQueue: "lab",
    gpus: 8,
    created: now,
    why: "waits",
  };
  delete runs[`x/new-${turn - 5}/0`];
  delete jobs[`x/new-${turn - 5}`];
  return { ...before, runs, jobs };
}
