// A canvas as wide as its place, drawn again when its size, the theme, the fonts or the picture changes.
import { type CanvasHTMLAttributes, useEffect, useLayoutEffect, useRef, useState } from "react";

export type Draw = (g: CanvasRenderingContext2D, width: number, height: number, scale: number) => void;

// Counts changes of the theme, so that colours are read again.
export function useTheme(): number {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const change = () => setCount((before) => before + 1);
    const query = matchMedia("(prefers-color-scheme: dark)"), watch = new MutationObserver(change);
    query.addEventListener("change", change);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });
    void document.fonts?.ready.then(change);
    return () => { query.removeEventListener("change", change); watch.disconnect(); };
  }, []);
  return count;
}

const kColours = ["bg", "panel", "sunk", "ink", "ink2", "ink3", "line", "line2", "fwd", "bwd", "wgrad", "opt", "on-fwd", "on-bwd", "on-wgrad", "tp", "cp", "ep", "dp", "pp",
  "stall", "g0", "g1", "bubble", "bad", "good", "focus", "m-par", "m-grad", "m-opt", "m-act", "m-fw", "sans", "mono"] as const;
export type Paint = Record<(typeof kColours)[number], string>;
let paintOf: { style: string; paint: Paint } | null = null;
// Returns the page's colours and fonts; read once a theme.
export function paint(): Paint {
  const style = getComputedStyle(document.documentElement);
  const key = style.getPropertyValue("--bg") + style.getPropertyValue("--ink");
  if (paintOf?.style !== key) paintOf = { style: key, paint: Object.fromEntries(kColours.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) as Paint };
  return paintOf.paint;
}
export const font = (g: CanvasRenderingContext2D, px: number, weight = 400) => { g.font = `${weight} ${px}px ${paint().sans}`; };

export function hatch(g: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, colour: string, gap = 5, line = 0.9) {
  if (width <= 0) return;
  g.save();
  g.beginPath();
  g.rect(x, y, width, height);
  g.clip();
  g.strokeStyle = colour;
  g.lineWidth = line;
  g.beginPath();
  for (let at = x - height - ((x - height) % gap); at < x + width; at += gap) { g.moveTo(at, y + height); g.lineTo(at + height, y); }
  g.stroke();
  g.restore();
}

interface Properties extends CanvasHTMLAttributes<HTMLCanvasElement> { height: number; draw: Draw; canvasRef?: React.RefObject<HTMLCanvasElement | null> }

export function Canvas({ height, draw, canvasRef, ...more }: Properties) {
  const own = useRef<HTMLCanvasElement>(null), ref = canvasRef ?? own;
  const [width, setWidth] = useState(0);
  const theme = useTheme();
  useLayoutEffect(() => {
    const place = ref.current!.parentElement!;
    const measure = () => setWidth(place.clientWidth - parseFloat(getComputedStyle(place).paddingLeft) - parseFloat(getComputedStyle(place).paddingRight));
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(place);
    return () => watch.disconnect();
  }, [ref]);
  useLayoutEffect(() => {
    if (width <= 0 || height <= 0) return;
    const canvas = ref.current!, scale = Math.max(1, window.devicePixelRatio || 1);
    const wide = Math.round(width * scale), high = Math.round(height * scale);
    if (canvas.width !== wide) canvas.width = wide;
    if (canvas.height !== high) canvas.height = high;
    const g = canvas.getContext("2d")!;
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, height);
    g.textBaseline = "middle";
    draw(g, width, height, scale);
  }, [draw, width, height, theme, ref]);
  return <canvas ref={ref} role="img" style={{ height, width: "100%" }} {...more} />;
}
