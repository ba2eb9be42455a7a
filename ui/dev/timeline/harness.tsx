/**
 * The timeline alone, for measuring and for pictures. `npm run frames` builds it; it is in no package. Address:
 * ?data=large|day|empty|absurd&theme=light|dark&whatif=0, and the view (group, span, start, cursor, focus, find, table).
 *
 * `window.ganglineBench` measures it. Each number is the milliseconds that the main thread was at work for one frame: what the change
 * itself cost, the drawing, and the browser's style, layout and paint. They are read from a clock, so a machine that is busy otherwise
 * makes them longer; each frame is also a measure named `gangline-frame`, so that a trace can tell the thread's own time.
 */
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { flushSync } from "react-dom";
import type { Surface } from "../../src/timeline/layers";
import { type Outcome, type Question, Timeline, type View } from "../../src/timeline/Timeline";
import { type Cluster, NOW, absurd, change, large, oneDay } from "./generate";
import "./harness.css";

const asked = new URLSearchParams(location.search);
const CLUSTERS: Record<string, () => Cluster> = {
  day: oneDay,
  large,
  absurd,
  empty: () => ({ live: { jobs: {}, queues: {}, nodes: {}, runs: {} }, attempts: [], marks: [], now: NOW }),
};

export interface Bench {
  /** Once the first bars are drawn: how many there are, and after how many milliseconds of the page's script. */
  ready: Promise<{ bars: number; nodes: number; firstDraw: number }>;
  /** To and fro in time. */
  pan: (frames: number) => Promise<number[]>;
  /** To and fro in time and through the rows. */
  scroll: (frames: number) => Promise<number[]>;
  /** In and out around the middle. */
  zoom: (frames: number) => Promise<number[]>;
  /** Changes of the live rows, one in each frame. */
  deltas: (count: number) => Promise<number[]>;
}

declare global {
  interface Window {
    ganglineBench: Bench;
  }
}

const began = performance.now();
let surface: Surface | null = null;
let apply: (turn: number) => void = () => undefined;
let turns = 0;
let drawn: (found: { bars: number; nodes: number; firstDraw: number }) => void = () => undefined;
/** There and back again after so many frames. */
const TURN = 60;

/** Does the work, and waits until its frame is painted. */
function frame(work: () => void): Promise<number> {
  return new Promise((done) => {
    const channel = new MessageChannel();
    let start = 0;
    let spent = 0;
    channel.port1.onmessage = () => {
      const end = performance.now();
      channel.port1.close();
      performance.measure("gangline-frame", { start, end });
      performance.clearMeasures("gangline-frame");
      done(spent + end - start);
    };
    // The first callback of the next frame; the message comes when that frame is painted.
    requestAnimationFrame(() => {
      start = performance.now();
      channel.port2.postMessage(null);
    });
    const before = performance.now();
    work();
    spent = performance.now() - before;
  });
}

async function frames(count: number, work: (there: 1 | -1, turn: number) => void): Promise<number[]> {
  const found: number[] = [];
  for (let each = 0; each < count; each++) {
    found.push(await frame(() => work(Math.floor(each / TURN) % 2 === 0 ? 1 : -1, each)));
  }
  return found;
}

window.ganglineBench = {
  ready: new Promise((done) => (drawn = done)),
  pan: (count) => frames(count, (there) => surface?.panBy(-14 * there, 0)),
  scroll: (count) => frames(count, (there) => surface?.panBy(-6 * there, -14 * there)),
  zoom: (count) => frames(count, (there) => surface?.zoomBy(there > 0 ? 1.025 : 1 / 1.025, surface.width / 2)),
  deltas: (count) => frames(count, () => flushSync(() => apply(turns++))),
};
if (asked.has("theme")) document.documentElement.dataset.theme = asked.get("theme") ?? "light";

function attach(made: Surface | null): void {
  surface = made;
  if (!made) return;
  made.onFrame = ({ redrew }) => {
    if (!redrew || !made.model || made.model.bars.length === 0) return;
    made.onFrame = null;
    drawn({ bars: made.model.bars.length, nodes: made.model.nodes.length, firstDraw: performance.now() - began });
  };
}

async function simulate(question: Question): Promise<Outcome> {
  await new Promise((done) => setTimeout(done, 300));
  const ofJob = "job" in question;
  return {
    before: ofJob ? { p50: NOW + 7_200, p90: NOW + 10_800 } : null,
    after: ofJob ? { p50: NOW + 3_000, p90: NOW + 5_400 } : null,
    gains: [{ job: "eval-clip-31", seconds: 1_500 }],
    loses: [
      { job: "finetune-t5-28", seconds: 600 },
      { job: "hidden-3fa9", seconds: 240 },
    ],
    headDelaySeconds: 0,
    gpuHours: ofJob ? 64 : null,
    command: `gangline whatif ${JSON.stringify(question)}`,
  };
}

function Page() {
  const [cluster, setCluster] = useState(() => (CLUSTERS[asked.get("data") ?? "large"] ?? large)());
  const [view, setView] = useState<Partial<View>>(() => Object.fromEntries(asked) as Partial<View>);
  useEffect(() => {
    apply = (turn) =>
      setCluster((before) => ({ ...before, now: before.now + 2, live: change(before.live, turn, before.now) }));
  }, []);
  return (
    <Timeline
      {...cluster}
      pastSince={cluster.now - 26 * 3_600}
      view={view}
      onViewChange={setView}
      onSurface={attach}
      {...(asked.get("whatif") === "0" ? {} : { onWhatIf: simulate })}
    />
  );
}

const root = document.getElementById("root");
if (root) createRoot(root).render(<Page />);
