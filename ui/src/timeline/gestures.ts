/** Pointer, wheel and touch on the timeline's surface: panning, zooming, pointing, and dragging a waiting job's bar. */
import { AXIS } from "./draw";
import type { Hit, Surface } from "./layers";
import { type Bar, type Lane } from "./model";
import { type Change, canAsk, quotaDragged, resized } from "./view";
import { duration } from "./words";

export interface Handlers {
  onHover: (hit: Hit | null, x: number) => void;
  onPick: (hit: Hit | null) => void;
  onOpen: (bar: Bar) => void;
  /** A bar was dragged: what to ask for. Absent: nothing can be dragged. */
  onDragged: (() => ((bar: Bar, change: Change) => void) | undefined) | null;
  /** Words beside the pointer while something in the gutter is dragged; "" takes them away. */
  onSaying: (words: string, at: { x: number; y: number }) => void;
  /** A lane's header was clicked, or dragged: then to so many GPUs of its largest quota, or to where nodes are drained. */
  onHeader: (lane: Lane, dragged: { gpus: number } | { drain: true } | null) => void;
}

const PIXELS_PER_SIZE = 10;
/** Dragged lengths are round ones: the finest of these that a hand can hit. */
const LENGTH_STEPS = [60, 300, 600, 900, 1_800, 3_600, 7_200, 21_600] as const;
const CLICK = 4;

interface Drag {
  hit: Hit | null;
  x: number;
  y: number;
  lastX: number;
  lastY: number;
  moved: boolean;
  change: Change | null;
  header: { lane: Lane; handle: boolean; room: number; gpus: number | null; drain: boolean } | null;
}

/** Listens until the returned function is called. */
export function listen(host: HTMLElement, surface: Surface, handlers: Handlers): () => void {
  const pointers = new Map<number, { x: number; y: number }>();
  let drag: Drag | null = null;

  const place = (event: { clientX: number; clientY: number }): { x: number; y: number } => {
    const box = host.getBoundingClientRect();
    return { x: event.clientX - box.left - surface.gutter, y: event.clientY - box.top - AXIS };
  };
  const asks = (): ((bar: Bar, change: Change) => void) | undefined => handlers.onDragged?.();

  const cursorFor = (hit: Hit | null): string => {
    if (!hit) return "grab";
    if (!asks() || !canAsk(hit.placed.bar)) return "pointer";
    return hit.part === "end" ? "ew-resize" : hit.part === "size" ? "ns-resize" : "pointer";
  };

  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const at = place(event);
    pointers.set(event.pointerId, at);
    host.setPointerCapture(event.pointerId);
    surface.freeze();
    const hit = at.x >= 0 && at.y >= 0 ? surface.hit(at.x, at.y) : null;
    const header = asks() ? surface.headerAt(at.x, at.y) : null;
    drag = {
      hit,
      x: at.x,
      y: at.y,
      lastX: at.x,
      lastY: at.y,
      moved: false,
      change: null,
      header: header && { ...header, gpus: null, drain: false },
    };
  };

  const pinch = (): { middle: number; spread: number } | null => {
    const [one, other] = [...pointers.values()];
    return one && other
      ? { middle: (one.x + other.x) / 2, spread: Math.hypot(one.x - other.x, one.y - other.y) }
      : null;
  };

  const move = (event: PointerEvent): void => {
    const at = place(event);
    if (!pointers.has(event.pointerId)) {
      if (event.pointerType !== "mouse") return;
      const hit = at.x >= 0 && at.y >= 0 ? surface.hit(at.x, at.y) : null;
      const header = asks() ? surface.headerAt(at.x, at.y) : null;
      surface.setHeader(header && { lane: header.lane.id, gpus: null });
      host.style.cursor = header ? (header.handle ? "ew-resize" : "pointer") : cursorFor(hit);
      handlers.onHover(hit, at.x);
      return;
    }
    if (pointers.size > 1) {
      const before = pinch();
      pointers.set(event.pointerId, at);
      const after = pinch();
      if (before && after && before.spread > 0) {
        surface.panBy(after.middle - before.middle, 0);
        surface.zoomBy(after.spread / before.spread, after.middle);
      }
      if (drag) drag.moved = true;
      return;
    }
    pointers.set(event.pointerId, at);
    if (!drag) return;
    if (!drag.moved && Math.hypot(at.x - drag.x, at.y - drag.y) < CLICK) return;
    if (!drag.moved) handlers.onHover(null, 0);
    drag.moved = true;
    if (drag.header && event.pointerType !== "touch" && (drag.header.handle || drag.header.lane.kind === "node")) {
      dragHeader(drag, drag.header, at);
      return;
    }
    const bar = drag.hit?.placed.bar;
    // On a touch screen a finger on a bar pans: the form asks what a drag would.
    if (bar && asks() && canAsk(bar) && event.pointerType !== "touch" && drag.hit) changeBar(drag, drag.hit, at);
    else {
      host.style.cursor = "grabbing";
      surface.panBy(at.x - drag.lastX, at.y - drag.lastY);
    }
    drag.lastX = at.x;
    drag.lastY = at.y;
  };

  const dragHeader = (
    current: Drag,
    header: NonNullable<Drag["header"]>,
    at: { x: number; y: number },
  ): void => {
    const { lane } = header;
    if (lane.kind === "node") {
      header.drain = at.x > 40 && at.y > 0 && at.x < surface.width && at.y < surface.height;
      surface.setDropping({ words: `What if ${lane.label} were drained?`, over: header.drain });
      return;
    }
    const quota = lane.quotas[0];
    if (!quota) return;
    const gpus = quotaDragged(quota.gpus, (at.x - current.x) / header.room);
    header.gpus = gpus === quota.gpus ? null : gpus;
    surface.setHeader({ lane: lane.id, gpus });
    host.style.cursor = "ew-resize";
    handlers.onSaying(`${quota.flavor}: ${quota.gpus} → ${gpus} GPUs`, at);
  };

  const changeBar = (current: Drag, hit: Hit, at: { x: number; y: number }): void => {
    const { bar, lane } = hit.placed;
    const length = Math.max(1, bar.to - bar.from);
    if (hit.part === "end") {
      const step = LENGTH_STEPS.find((each) => each * surface.pps >= 3) ?? 86_400;
      const wanted = length + (at.x - current.x) / surface.pps;
      const seconds = Math.max(step, Math.round(wanted / step) * step);
      current.change = seconds === length ? null : { durationSeconds: seconds };
      surface.setGhost({
        placed: hit.placed,
        seconds,
        gpus: bar.gpus,
        lane,
        words: `${duration(length)} → ${duration(seconds)}`,
      });
    } else if (hit.part === "size") {
      const gpus = resized(bar.gpus, (at.y - current.y) / PIXELS_PER_SIZE);
      current.change = gpus === bar.gpus ? null : { gpus };
      surface.setGhost({ placed: hit.placed, seconds: length, gpus, lane, words: `${bar.gpus} → ${gpus} GPUs` });
    } else {
      const over = surface.laneAt(at.y);
      const target = surface.layout.boxes[over]?.lane;
      const other = target?.kind === "queue" && target.queue !== bar.queue && target.queue !== "" ? target : null;
      current.change = other ? { queue: other.queue } : null;
      surface.setGhost({
        placed: hit.placed,
        seconds: length,
        gpus: bar.gpus,
        lane: other ? over : lane,
        words: other ? `to ${other.label}` : "drop on another queue",
      });
    }
  };

  const up = (event: PointerEvent): void => {
    pointers.delete(event.pointerId);
    if (pointers.size > 0) return;
    surface.thaw();
    host.style.cursor = "";
    const ended = drag;
    drag = null;
    if (!ended) return;
    if (ended.header) {
      const { lane, gpus, drain } = ended.header;
      surface.setDropping(null);
      surface.setHeader(null);
      handlers.onSaying("", { x: 0, y: 0 });
      if (event.type !== "pointerup") return;
      if (!ended.moved) handlers.onHeader(lane, null);
      else if (gpus !== null) handlers.onHeader(lane, { gpus });
      else if (drain) handlers.onHeader(lane, { drain: true });
      return;
    }
    if (!ended.moved && event.type === "pointerup") handlers.onPick(ended.hit);
    else if (ended.change && ended.hit && event.type === "pointerup") asks()?.(ended.hit.placed.bar, ended.change);
    else surface.setGhost(null);
  };

  const wheel = (event: WheelEvent): void => {
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      surface.zoomBy(Math.exp(-Math.max(-60, Math.min(60, event.deltaY * unit)) / 150), Math.max(0, place(event).x));
      return;
    }
    const [across, along] = event.shiftKey ? [event.deltaY + event.deltaX, 0] : [event.deltaX, event.deltaY];
    // At the last row the page scrolls on.
    if (!surface.panBy(-across * unit, -along * unit)) return;
    event.preventDefault();
    handlers.onHover(null, 0);
  };

  const leave = (event: PointerEvent): void => {
    if (event.pointerType !== "mouse" || pointers.size > 0) return;
    handlers.onHover(null, 0);
    surface.setHeader(null);
  };

  const double = (event: MouseEvent): void => {
    const at = place(event);
    if (at.x < 0) return;
    const hit = surface.hit(at.x, at.y);
    if (hit) handlers.onOpen(hit.placed.bar);
    else surface.zoomBy(2, Math.max(0, at.x));
  };

  const abandon = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !(drag?.change || (drag?.header && drag.moved))) return;
    drag.change = null;
    drag.hit = null;
    if (drag.header) [drag.header.gpus, drag.header.drain] = [null, false];
    surface.setGhost(null);
    surface.setDropping(null);
    surface.setHeader(null);
    handlers.onSaying("", { x: 0, y: 0 });
    event.stopPropagation();
  };

  host.addEventListener("pointerdown", down);
  host.addEventListener("pointermove", move);
  host.addEventListener("pointerup", up);
  host.addEventListener("pointercancel", up);
  host.addEventListener("pointerleave", leave);
  host.addEventListener("dblclick", double);
  host.addEventListener("wheel", wheel, { passive: false });
  window.addEventListener("keydown", abandon, true);
  return () => {
    host.removeEventListener("pointerdown", down);
    host.removeEventListener("pointermove", move);
    host.removeEventListener("pointerup", up);
    host.removeEventListener("pointercancel", up);
    host.removeEventListener("pointerleave", leave);
    host.removeEventListener("dblclick", double);
    host.removeEventListener("wheel", wheel);
    window.removeEventListener("keydown", abandon, true);
  };
}
