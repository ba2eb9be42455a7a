/** What was decided around the slider's instant, as a list to step through. */
import { useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { Button, ToggleButton } from "react-aria-components";
import { decisionWord } from "../words";
import type { Decision, Mark } from "./model";
import { type DecisionBook, NOTHING, countUntil, moves } from "./record";
import { clockSeconds, day } from "./words";

const NO_BOOK = { subscribe: () => () => undefined, get: () => NOTHING };
const SIGNS: Readonly<Record<string, [string, string]>> = {
  Admit: ["▶", "good"],
  CompleteAdmission: ["▶", "good"],
  Preempt: ["◀", "warn"],
  Evict: ["▲", "warn"],
  Warn: ["▲", "warn"],
  ReportPending: ["○", "plain"],
  Requeue: ["○", "plain"],
};
const EVENTS = 40;

interface Props {
  book: DecisionBook | undefined;
  /** Events of jobs, where there is no record. */
  marks: readonly Mark[];
  at: number;
  picked: Decision | null;
  onPick: (decision: Decision) => void;
  onStep: (by: 1 | -1) => void;
  onInputs: ((number: number) => void) | undefined;
  /** Only decisions that start, stop or move a job. */
  moving: boolean;
  onMoving: (moving: boolean) => void;
}

export function useStretch(book: DecisionBook | undefined) {
  const store = book ?? NO_BOOK;
  return useSyncExternalStore(store.subscribe, store.get);
}

export function DecisionPanel({ book, marks, at, picked, onPick, onStep, onInputs, moving, onMoving }: Props) {
  const stretch = useStretch(book);
  const shown = useMemo(() => (moving ? stretch.items.filter(moves) : stretch.items), [stretch, moving]);
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const box = list.current;
    const row = box?.querySelector<HTMLElement>("[aria-current]");
    if (!box || !row) return;
    // The page itself must not scroll.
    box.scrollTop = row.offsetTop - box.offsetTop - box.clientHeight / 2 + row.offsetHeight / 2;
    // Who steps through the list by key goes on from there.
    if (box.contains(document.activeElement)) row.querySelector("button")?.focus({ preventScroll: true });
  }, [picked?.number, shown]);
  const recorded = stretch.record === true;
  const tooEarly = recorded && stretch.recordFrom !== null && at < stretch.recordFrom;
  const none = book === undefined || stretch.record === false || stretch.error !== "";
  return (
    <aside className="tl-decisions" aria-label="Decisions">
      <header>
        <h2>Decisions</h2>
        <span className="tl-quiet">
          {day(at)} {clockSeconds(at)}
        </span>
        <span className="tl-group">
          <Button className="tl-button" aria-label="Decision before" onPress={() => onStep(-1)} isDisabled={!recorded}>
            [
          </Button>
          <Button className="tl-button" aria-label="Next decision" onPress={() => onStep(1)} isDisabled={!recorded}>
            ]
          </Button>
        </span>
      </header>
      {recorded && (
        <p>
          <ToggleButton className="tl-button" isSelected={moving} onChange={onMoving}>
            Only starts, stops and moves
          </ToggleButton>
        </p>
      )}
      {stretch.error !== "" && <p className="tl-quiet">{stretch.error} The events of jobs stand here instead.</p>}
      {stretch.record === false && (
        <p className="tl-quiet">This operator keeps no record of its decisions. The events of jobs stand here instead.</p>
      )}
      {tooEarly && stretch.recordFrom !== null && (
        <p className="tl-quiet">
          The record begins at {day(stretch.recordFrom)} {clockSeconds(stretch.recordFrom)}.
        </p>
      )}
      {stretch.record === null && !none && <p className="tl-quiet">The record is being read.</p>}
      {recorded && shown.length === 0 && !stretch.busy && !tooEarly && (
        <p className="tl-quiet">Nothing was decided around this time.</p>
      )}
      {none ? (
        <Events marks={marks} at={at} />
      ) : (
        shown.length > 0 && (
          <ol
            ref={list}
            aria-busy={stretch.busy}
            onKeyDown={(event) => {
              if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
              event.preventDefault();
              onStep(event.key === "ArrowDown" ? 1 : -1);
            }}
          >
            {shown.map((each, place) => {
              const current = each.number === picked?.number;
              const [sign, tone] = SIGNS[each.decision] ?? ["●", "plain"];
              return (
                <li
                  key={each.number}
                  data-number={each.number}
                  data-decision={each.decision}
                  aria-current={current ? "true" : undefined}
                  className={each.at > at ? "tl-later" : ""}
                >
                  <button
                    type="button"
                    className="tl-decided"
                    tabIndex={current || (picked === null && place === 0) ? 0 : -1}
                    onClick={() => onPick(each)}
                  >
                    <span className="tl-quiet">{clockSeconds(each.at)}</span>
                    <span className={`tl-verb tl-verb-${tone}`}>
                      <span aria-hidden="true">{sign}</span> {decisionWord(each.decision)} <b>{each.job}</b>
                    </span>
                    {each.text !== "" && <span className="tl-said">{each.text}</span>}
                  </button>
                  {current && onInputs && !each.hidden && (
                    <Button className="tl-button" onPress={() => onInputs(each.number)}>
                      What the engine knew
                    </Button>
                  )}
                </li>
              );
            })}
          </ol>
        )
      )}
    </aside>
  );
}

function Events({ marks, at }: { marks: readonly Mark[]; at: number }) {
  const until = countUntil(marks, at);
  const shown = marks.slice(Math.max(0, until - EVENTS), until).reverse();
  if (shown.length === 0) return <p className="tl-quiet">No event before this time is remembered.</p>;
  return (
    <ol>
      {shown.map((each, place) => (
        <li key={`${each.at} ${place}`} className="tl-event">
          <span className="tl-quiet">{clockSeconds(each.at)}</span>
          <span className="tl-said">{each.text}</span>
        </li>
      ))}
    </ol>
  );
}
