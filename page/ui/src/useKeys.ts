// Keys that act anywhere, except while somebody types.
import { useEffect, useRef } from "react";
import type { Studio } from "./studio";
import type { View } from "./state";

const kGo: Record<string, View> = { s: "step", e: "search", c: "compare", t: "trace", l: "learn" };
const kGoMs = 900;
export const kKeys: [string, string][] = [["Ctrl K", "find a model, GPU or setting"], ["P", "pin this variant"], ["1 – 4", "a pinned variant becomes the current one"],
  ["G then S E C T L", "Step, Search, Compare, Trace, Learn"], ["O", "to the overlap switches"], ["/", "all settings"], ["Ctrl Z", "undo"],
  ["W S", "zoom the timeline"], ["A D", "move it"], ["0", "whole step"], ["?", "these keys"]];

export function useKeys(studio: Studio) {
  const current = useRef(studio);
  current.current = studio;
  useEffect(() => {
    let goAt = -Infinity;
    const onKey = (event: KeyboardEvent) => {
      const { open, pin, show, address, go } = current.current;
      const target = event.target as HTMLElement, isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) || target.isContentEditable;
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); return open("palette"); }
      if (isTyping || event.altKey || document.querySelector("[role=dialog]")) return;
      if (event.ctrlKey || event.metaKey) {
        if (event.key.toLowerCase() === "z") { event.preventDefault(); history.back(); }
        return;
      }
      const key = event.key.toLowerCase();
      if (performance.now() - goAt < kGoMs && kGo[key]) { goAt = -Infinity; event.preventDefault(); event.stopImmediatePropagation(); return show(kGo[key]); }
      if (key === "g") { goAt = performance.now(); return; }
      const variant = Number(event.key);
      if (variant >= 1 && address.pins[variant - 1]) return go(address.pins[variant - 1]!);
      if (key === "p") return pin();
      if (key === "o") { const first = document.querySelector<HTMLElement>("#overlap"); first?.scrollIntoView({ block: "start" }); return first?.querySelector<HTMLElement>("input")?.focus(); }
      if (event.key === "/") { event.preventDefault(); return open("settings"); }
      if (event.key === "?") return open("keys");
    };
    addEventListener("keydown", onKey, true);
    return () => removeEventListener("keydown", onKey, true);
  }, []);
}
