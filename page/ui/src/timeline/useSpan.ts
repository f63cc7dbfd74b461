// The shown span. A jump takes 200 ms, so that one sees what became of what; a wheel or a drag moves it at once.
import { useCallback, useEffect, useRef, useState } from "react";
import type { Span } from "./view";

const kJumpMs = 200;

export function useSpan(): { span: Span | null; set(span: Span | null): void; jump(span: Span): void } {
  const [span, setSpan] = useState<Span | null>(null);
  const now = useRef<Span | null>(null), frame = useRef(0);
  const set = useCallback((next: Span | null) => {
    cancelAnimationFrame(frame.current);
    now.current = next;
    setSpan(next);
  }, []);
  const jump = useCallback((next: Span) => {
    const from = now.current;
    if (!from || matchMedia("(prefers-reduced-motion: reduce)").matches) return set(next);
    cancelAnimationFrame(frame.current);
    const begin = performance.now();
    const go = (time: number) => {
      const share = Math.min(1, Math.max(0, (time - begin) / kJumpMs)), eased = 1 - (1 - share) ** 3;
      if (share >= 1) return set(next);
      // Lengths change by factors, so that a zoom is even; the left end moves with them.
      const a = from.to - from.from, b = next.to - next.from, length = a * (b / a) ** eased;
      const moved = Math.abs(b - a) < 0.001 * a ? eased : (length - a) / (b - a);
      const start = from.from + (next.from - from.from) * moved;
      now.current = { from: start, to: start + length };
      setSpan(now.current);
      frame.current = requestAnimationFrame(go);
    };
    frame.current = requestAnimationFrame(go);
  }, [set]);
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return { span, set, jump };
}
