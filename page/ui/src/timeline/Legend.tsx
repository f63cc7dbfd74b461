import type { Axis, Cause } from "./strip";

const kAxisNames: Record<Axis, string> = { tp: "TP", cp: "CP", ep: "EP", dp: "DP", pp: "PP" };

// Colours of the timeline; communication has its hue, pale where it is hidden and full where a GPU waits for it.
export function Legend({ causes, hasStalls, note }: { causes: Cause[]; hasStalls: boolean; note: string }) {
  const axes = [...new Set(causes.map((one) => one.axis).filter((axis) => axis !== null))];
  return <div className="leg">
    <span><i style={{ background: "var(--fwd)" }} />forward</span><span><i style={{ background: "var(--bwd)" }} />backward</span>
    <span><i style={{ background: "var(--wgrad)" }} />weight gradients</span><span><i className="hatch edged" />waiting</span>
    {hasStalls && <span><i style={{ background: "var(--stall)" }} />launch-order stalls</span>}
    {axes.map((axis) => <span key={axis} className="pair"><i style={{ background: `var(--${axis})`, opacity: 0.35 }} /><i style={{ background: `var(--${axis})` }} />{kAxisNames[axis]}</span>)}
    {axes.length > 0 && <span>pale: hidden, full: exposed</span>}
    {note && <span className="q">{note}</span>}
  </div>;
}
