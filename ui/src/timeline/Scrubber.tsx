/** The slider through record and plan, on a curve of the GPUs in use, with what is true at its instant. */
import { useEffect, useMemo, useRef, useState } from "react";
import { drawProfile } from "./draw";
import type { Surface } from "./layers";
import { type Mark, type Model, momentAt, profile } from "./model";
import { countUntil } from "./record";
import { type View } from "./view";
import { away, clock, day } from "./words";

interface ScrubberProps {
  model: Model;
  from: number;
  to: number;
  now: number;
  view: View;
  surface: Surface | null;
  themes: number;
  marks: readonly Mark[];
  onScrub: (at: number) => void;
}

export function Scrubber({ model, from, to, now, view, surface, themes, marks, onScrub }: ScrubberProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const at = view.cursor ?? now;
  const moment = useMemo(() => momentAt(model, at), [model, at]);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const minute = Math.floor(now / 60);
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || !surface || width === 0) return;
    const ratio = surface.theme.ratio;
    const height = element.clientHeight;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const sums = profile(model.bars, from, to, Math.max(10, Math.floor(width / 2)));
    let most = model.capacity;
    for (const sum of sums) most = Math.max(most, sum);
    drawProfile(context, surface.theme, sums, most, ((now - from) / (to - from)) * width, width, height);
  // eslint-disable-next-line react-hooks/exhaustive-deps -- drawn once a minute, not with each tick of the clock
  }, [model, minute, surface, width, themes]);
  const start = view.start ?? now - view.span * 0.4;
  useEffect(() => {
    if (!frame.current) return;
    const left = Math.max(0, (start - from) / (to - from));
    const right = Math.min(1, (start + view.span - from) / (to - from));
    frame.current.style.left = `${left * 100}%`;
    frame.current.style.width = `${Math.max(0, right - left) * 100}%`;
  });
  const decided = view.cursor === null ? undefined : marks[countUntil(marks, at) - 1];
  const words = `${day(at)} ${clock(at)}`;
  const sentence = `${moment.gpus.toLocaleString("en")}${model.capacity > 0 ? ` of ${model.capacity.toLocaleString("en")}` : ""} GPUs, ${moment.running} ${
    at > now + 30 ? "expected to run" : "running"
  }, ${moment.waiting} waiting`;
  return (
    <div className="tl-scrub">
      <p className="tl-moment">
        <strong>{view.cursor === null ? "Now" : words}</strong>
        <span className="tl-away">{view.cursor === null ? words : away(at, now)}</span>
        <span>{sentence}</span>
        {model.refused > 0 && <span className="tl-away">{model.refused} runs with impossible times left out</span>}
        {decided && (
          <span className="tl-decision">
            {clock(decided.at)} {decided.text}
          </span>
        )}
      </p>
      <div className="tl-track">
        <div className="tl-profile">
          <canvas ref={canvas} aria-hidden="true" />
          <div ref={frame} className="tl-window" />
        </div>
        <input
          type="range"
          className={view.cursor === null ? "tl-at-now" : undefined}
          aria-label="Time"
          aria-valuetext={`${words}, ${away(at, now)}: ${sentence}`}
          min={Math.floor(from)}
          max={Math.ceil(to)}
          step={60}
          value={Math.round(at)}
          onChange={(event) => onScrub(Number(event.target.value))}
        />
      </div>
    </div>
  );
}
