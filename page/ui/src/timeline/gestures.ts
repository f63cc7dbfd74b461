// Wheel, drag, pinch and keys of a timeline. Positions are CSS pixels of the canvas; times are picoseconds.
import { type RefObject, useEffect, useRef } from "react";
import { moved, type Span, zoomed } from "./view";

export interface Drag { from: number; to: number; isUpper: boolean }
export interface Place { x: number; y: number }
export interface Gestures {
  span: Span;
  step: number;
  left: number;                     // where time begins
  boundary: number;                 // y below which the lower half begins
  setSpan(span: Span): void;
  setDrag(drag: Drag | null): void;
  hover(place: Place | null): void;
  click(place: Place, isShift: boolean): void;
  doubleClick(place: Place): void;
  key(key: string): boolean;        // whether it was one of the timeline's
}

const kLeastDrag = 4;

export function useGestures(ref: RefObject<HTMLCanvasElement | null>, gestures: Gestures) {
  const now = useRef(gestures);
  now.current = gestures;
  useEffect(() => {
    const canvas = ref.current;
    if (!canvas) return;
    let start: (Place & { span: Span; isPan: boolean; isUpper: boolean }) | null = null, isDragged = false, isSpace = false;
    const fingers = new Map<number, Place>();
    let pinch: { distance: number; span: Span; at: number } | null = null;
    const place = (event: MouseEvent): Place => {
      const box = canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const wide = () => canvas.clientWidth - now.current.left;
    const timeAt = ({ x, y }: Place): number => {
      const { span, step, left, boundary } = now.current, share = Math.min(1, Math.max(0, (x - left) / wide()));
      return y < boundary ? share * step : span.from + share * (span.to - span.from);
    };
    const wheel = (event: WheelEvent) => {
      const isOwn = event.ctrlKey || event.metaKey || document.activeElement === canvas;
      if (!isOwn) return;
      event.preventDefault();
      const { span, step } = now.current;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) now.current.setSpan(moved(span, ((event.deltaX || event.deltaY) / wide()) * (span.to - span.from), step));
      else now.current.setSpan(zoomed(span, Math.exp(Math.max(-120, Math.min(120, event.deltaY)) / 300), timeAt(place(event)), step));
    };
    const down = (event: PointerEvent) => {
      if (event.button !== 0) return;
      fingers.set(event.pointerId, place(event));
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()];
        pinch = { distance: Math.hypot(a.x - b.x, a.y - b.y), span: now.current.span, at: timeAt({ x: (a.x + b.x) / 2, y: now.current.boundary + 1 }) };
        start = null;
        return;
      }
      const at = place(event), isUpper = at.y < now.current.boundary;
      start = { ...at, span: now.current.span, isPan: !isUpper && (isSpace || event.pointerType === "touch"), isUpper };
      isDragged = false;
      canvas.setPointerCapture(event.pointerId);
    };
    const move = (event: PointerEvent) => {
      const at = place(event);
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, at);
      if (pinch && fingers.size === 2) {
        const [a, b] = [...fingers.values()];
        now.current.setSpan(zoomed(pinch.span, pinch.distance / Math.max(1, Math.hypot(a.x - b.x, a.y - b.y)), pinch.at, now.current.step));
        return;
      }
      if (!start) return now.current.hover(at);
      if (Math.abs(at.x - start.x) < kLeastDrag && !isDragged) return;
      isDragged = true;
      now.current.hover(null);
      if (start.isPan) now.current.setSpan(moved(start.span, ((start.x - at.x) / wide()) * (start.span.to - start.span.from), now.current.step));
      else {
        const [a, b] = [timeAt({ x: start.x, y: start.y }), timeAt({ x: at.x, y: start.y })];
        now.current.setDrag({ from: Math.min(a, b), to: Math.max(a, b), isUpper: start.isUpper });
      }
    };
    const up = (event: PointerEvent) => {
      fingers.delete(event.pointerId);
      if (pinch) { if (fingers.size === 0) pinch = null; return; }
      if (start && isDragged && !start.isPan && start.isUpper) {
        const [a, b] = [timeAt({ x: start.x, y: start.y }), timeAt({ x: place(event).x, y: start.y })];
        now.current.setDrag(null);
        now.current.setSpan({ from: Math.min(a, b), to: Math.max(a, b) });
      } else if (start && !isDragged) now.current.click(place(event), event.shiftKey);
      start = null;
    };
    const leave = () => { if (!start) now.current.hover(null); };
    const double = (event: MouseEvent) => { event.preventDefault(); now.current.doubleClick(place(event)); };
    const key = (event: KeyboardEvent) => {
      if (event.key === " ") { isSpace = event.type === "keydown"; event.preventDefault(); return; }
      if (event.type !== "keydown" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (now.current.key(event.key.length === 1 ? event.key.toLowerCase() : event.key)) { event.preventDefault(); event.stopPropagation(); }
    };
    canvas.addEventListener("wheel", wheel, { passive: false });
    const all: [string, EventListener][] = [["pointerdown", down as EventListener], ["pointermove", move as EventListener], ["pointerup", up as EventListener],
      ["pointercancel", up as EventListener], ["pointerleave", leave], ["dblclick", double as EventListener], ["keydown", key as EventListener], ["keyup", key as EventListener]];
    for (const [name, act] of all) canvas.addEventListener(name, act);
    return () => {
      canvas.removeEventListener("wheel", wheel);
      for (const [name, act] of all) canvas.removeEventListener(name, act);
    };
  }, [ref]);
}
