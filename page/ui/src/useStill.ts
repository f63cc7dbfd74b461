import { useEffect, useRef, useState } from "react";

const kEveryMs = 250, kTouchMs = 1500;

// Returns what a list shows: it follows `value`, but not under a pointer or a finger, so that nothing moves away from them. A value
// `of` something else is shown at once. The handlers belong to the list.
export function useStill<T extends { of: string }>(value: T) {
  const [shown, setShown] = useState(value);
  const [isHeld, setHeld] = useState(false);
  const last = useRef(0), touchEnd = useRef(0);
  const isOther = shown.of !== value.of;
  useEffect(() => {
    if (isHeld && !isOther) return;
    const wait = setTimeout(() => {
      last.current = performance.now();
      setShown(value);
    }, isOther ? 0 : Math.max(0, kEveryMs - (performance.now() - last.current)));
    return () => clearTimeout(wait);
  }, [value, isHeld, isOther]);
  useEffect(() => () => clearTimeout(touchEnd.current), []);
  const holders = {
    onPointerEnter: (event: { pointerType: string }) => event.pointerType === "mouse" && setHeld(true),
    onPointerLeave: () => setHeld(false),
    onPointerDown: (event: { pointerType: string }) => {
      if (event.pointerType === "mouse") return;
      setHeld(true);
      clearTimeout(touchEnd.current);
      touchEnd.current = window.setTimeout(() => setHeld(false), kTouchMs);
    },
  };
  return [isOther ? value : shown, holders] as const;
}
