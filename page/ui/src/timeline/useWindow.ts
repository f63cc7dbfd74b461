// The window of operations around what a timeline shows: asked again only where the shown span leaves it.
import { useEffect, useMemo, useRef, useState } from "react";
import { ask, newestOnly } from "../ask";
import { pictures } from "./engine";
import { type State, writeState } from "../state";
import { type Span, within } from "./view";
import { readWindow, type Window, type WindowAnswer } from "./window";

const kMost = 6000;   // operations of an answer
const kRestsMs = 60;  // a zoom asks when it rests that long

interface Wanted { state: State; gpu: number; span: Span; step: number; critical: boolean }
interface Had extends Wanted { window: Window }

const holds = (had: Had, now: Wanted): boolean =>
  writeState(had.state) === writeState(now.state) && had.gpu === now.gpu && (had.critical || !now.critical) &&
  had.span.from <= now.span.from + 1 && had.span.to >= now.span.to - 1 && (had.span.to - had.span.from) < 40 * (now.span.to - now.span.from);

// Returns the window of a GPU where operations are wide enough to be drawn; null while it is asked, and where there are
// more than can be drawn.
export function useWindow(state: State | null, gpu: number, span: Span | null, step: number, critical: boolean): { window: Window | null; tooMany: boolean } {
  const [had, setHad] = useState<Had | null>(null);
  const shown = useRef(had);
  shown.current = had;
  const get = useMemo(() => newestOnly<Wanted>(async (wanted, isNewest) => {
    const length = wanted.span.to - wanted.span.from;
    const span = within({ from: wanted.span.from - length / 2, to: wanted.span.to + length / 2 }, wanted.step);
    const answer = await ask<WindowAnswer>(pictures, "window", wanted.state,
      { gpu: wanted.gpu, from: Math.floor(span.from), to: Math.ceil(span.to), most: kMost, critical: wanted.critical });
    if (!("error" in answer) && isNewest()) setHad({ ...wanted, span, window: readWindow(answer) });
  }), []);
  const wanted = state && span && step > 0 ? { state, gpu, span, step, critical } : null;
  useEffect(() => {
    if (!wanted || (shown.current && holds(shown.current, wanted))) return;
    const timer = setTimeout(() => void get(wanted), kRestsMs);
    return () => clearTimeout(timer);
  });
  if (!had || !wanted || writeState(had.state) !== writeState(wanted.state) || had.gpu !== gpu) return { window: null, tooMany: false };
  // An older window is better than none while a newer one comes.
  const covers = had.span.from <= wanted.span.from + 1 && had.span.to >= wanted.span.to - 1;
  return { window: covers && had.window.more === 0 ? had.window : null, tooMany: covers && had.window.more > 0 };
}
