// Legend of a page, and its link, commands and picture.
import { type RefObject, useState } from "react";
import type { Texts } from "../answers";
import { ask } from "../ask";
import { pictures } from "../timeline/engine";
import type { Axis } from "../timeline/strip";
import type { Page, PageRow } from "./pages";
import { pngOf, svgOf } from "./picture";

const kNames: Record<Axis, string> = { tp: "TP", cp: "CP", ep: "EP all-to-all", dp: "DP", pp: "PP" };

export function LearnLegend({ axes, hasBackward }: { axes: Axis[]; hasBackward: boolean }) {
  return <div className="leg">
    <span><i style={{ background: "var(--fwd)" }} />forward</span>
    {hasBackward && <><span><i style={{ background: "var(--bwd)" }} />backward</span><span><i style={{ background: "var(--wgrad)" }} />weight gradients</span></>}
    <span><i className="hatch edged" />waiting</span>
    {axes.map((axis) => <span key={axis}><i style={{ background: `var(--${axis})`, opacity: 0.35 }} />{kNames[axis]}, hidden</span>)}
    {axes.map((axis) => <span key={axis}><i style={{ background: `var(--${axis})` }} />{kNames[axis]}, exposed</span>)}
  </div>;
}

export function Share({ page, rows, main, number }: { page: Page; rows: PageRow[]; main: RefObject<HTMLElement | null>; number: number }) {
  const [said, setSaid] = useState("");
  const say = (text: string) => { setSaid(text); setTimeout(() => setSaid(""), 2500); };
  const copy = async (text: string, what: string) => {
    try { await navigator.clipboard.writeText(text); say(`${what} copied`); } catch { say("this browser does not let the page copy"); }
  };
  const commands = async () => {
    const all: string[] = [];
    for (const row of rows) {
      const texts = await ask<Texts>(pictures, "texts", row.state);
      all.push(`# ${row.name}, ${row.about}\n${"error" in texts ? texts.error : texts.command}`);
    }
    await copy(all.join("\n"), "commands");
  };
  const save = async (kind: "png" | "svg") => {
    const blob = kind === "png" ? await pngOf(main.current!) : new Blob([svgOf(main.current!)], { type: "image/svg+xml" });
    if (!blob) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `stretto-learn-${number}.${kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    say(`picture of “${page.title}” saved`);
  };
  return <span className="share"><span className="q" role="status">{said}</span>
    <button onClick={() => void copy(location.href, "link")}>Copy link</button><button onClick={() => void commands()}>Copy commands</button><button onClick={() => void save("png")}>Save PNG</button><button onClick={() => void save("svg")}>SVG</button></span>;
}
