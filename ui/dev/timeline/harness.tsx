/**
 * The timeline alone, for measuring and for pictures. Address: ?data=day|large|empty|absurd&theme=light|dark&whatif=0, and the view
 * (group, span, start, cursor, focus, find, table). Tests use window.__timeline.
 */
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import type { FrameReport, Surface } from "../../src/timeline/layers";
import { type Outcome, type Question, Timeline, type View } from "../../src/timeline/Timeline";
import { type Cluster, NOW, absurd, change, large, oneDay } from "./generate";
import "./harness.css";

const asked = new URLSearchParams(location.search);
const CLUSTERS: Record<string, () => Cluster> = {
  day: oneDay,
  large,
  absurd,
  empty: () => ({ live: { jobs: {}, queues: {}, nodes: {}, runs: {} }, past: [], decisions: [], now: NOW }),
};

export interface Hooks {
  surface: Surface | null;
  frames: FrameReport[];
  /** From the start of the page's script to the first frame with bars, in milliseconds. */
  firstDraw: number | null;
  view: Partial<View> | null;
  opened: string[];
  questions: Question[];
  runs: () => number;
  /** Applies that many live changes, one per frame. */
  live: (changes: number) => Promise<void>;
  /** Pans to and fro by frames, then zooms in and out; the reports of its frames. */
  exercise: (kind: "pan" | "scroll" | "zoom", frames: number) => Promise<FrameReport[]>;
}

declare global {
  interface Window {
    __timeline: Hooks;
  }
}

const began = performance.now();
const hooks: Hooks = {
  surface: null,
  frames: [],
  firstDraw: null,
  view: null,
  opened: [],
  questions: [],
  runs: () => hooks.surface?.model?.bars.length ?? 0,
  live: () => Promise.resolve(),
  exercise: async (kind, frames) => {
    const { surface } = hooks;
    if (!surface) return [];
    hooks.frames = [];
    for (let each = 0; each < frames; each++) {
      const there = Math.floor(each / 60) % 2 === 0 ? 1 : -1;
      if (kind === "pan") surface.panBy(-14 * there, 0);
      else if (kind === "scroll") surface.panBy(-6 * there, -14 * there);
      else surface.zoomBy(there > 0 ? 1.025 : 1 / 1.025, surface.width / 2);
      await new Promise(requestAnimationFrame);
    }
    return hooks.frames;
  },
};
window.__timeline = hooks;
if (asked.has("theme")) document.documentElement.dataset.theme = asked.get("theme") ?? "light";

function attach(surface: Surface | null): void {
  hooks.surface = surface;
  if (!surface) return;
  surface.onFrame = (report) => {
    if (hooks.firstDraw === null && report.redrew && surface.model) hooks.firstDraw = performance.now() - began;
    hooks.frames.push(report);
    if (hooks.frames.length > 5_000) hooks.frames.splice(0, 2_500);
    performance.measure("timeline-frame", { start: performance.now() - report.milliseconds, end: performance.now() });
    performance.clearMeasures();
  };
}

async function simulate(question: Question): Promise<Outcome> {
  hooks.questions.push(question);
  await new Promise((done) => setTimeout(done, 300));
  const { change: wanted, job } = question;
  const flags = [
    wanted.durationSeconds === undefined ? "" : ` --runtime ${Math.round(wanted.durationSeconds / 60)}m`,
    wanted.gpus === undefined ? "" : ` --gpus ${wanted.gpus}`,
    wanted.queue === undefined ? "" : ` --queue ${wanted.queue}`,
  ];
  return {
    before: { p50: NOW + 7_200, p90: NOW + 10_800 },
    after: { p50: NOW + 3_000, p90: NOW + 5_400 },
    gains: [{ job: "eval-clip-31", seconds: 1_500 }],
    loses: [
      { job: "finetune-t5-28", seconds: 600 },
      { job: "hidden-3fa9", seconds: 240 },
    ],
    headDelaySeconds: 0,
    gpuHours: 64,
    command: `gangline modify ${job.name} -n ${job.namespace}${flags.join("")}`,
  };
}

function Page() {
  const [cluster, setCluster] = useState(() => (CLUSTERS[asked.get("data") ?? "day"] ?? oneDay)());
  const [view, setView] = useState<Partial<View>>(() => Object.fromEntries(asked) as Partial<View>);
  useEffect(() => {
    hooks.live = async (changes) => {
      for (let turn = 0; turn < changes; turn++) {
        setCluster((before) => ({ ...before, now: before.now + 2, live: change(before.live, turn, before.now) }));
        await new Promise(requestAnimationFrame);
      }
    };
  }, []);
  return (
    <Timeline
      {...cluster}
      pastSince={cluster.now - 26 * 3_600}
      view={view}
      onViewChange={(next) => {
        hooks.view = next;
        setView(next);
      }}
      onOpen={(job) => hooks.opened.push(`${job.namespace}/${job.name}`)}
      onSurface={attach}
      {...(asked.get("whatif") === "0" ? {} : { onWhatIf: simulate })}
    />
  );
}

const root = document.getElementById("root");
if (root) createRoot(root).render(<Page />);
