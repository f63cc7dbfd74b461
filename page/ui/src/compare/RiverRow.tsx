// One variant's step as a river on the axis of all, and that axis.
import { useMemo } from "react";
import { Canvas, font, paint, useTheme } from "../timeline/Canvas";
import { paintRiver, wholeLayout } from "../timeline/drawWhole";
import { rowsOf, type StepStrip } from "../timeline/strip";
import { ticks, tickText } from "../timeline/view";
import { time } from "../format";

const kRoom = 84;

export function RiverRow({ strip, longest, mark, name }: { strip: StepStrip; longest: number; mark: number; name: string }) {
  const theme = useTheme();
  const rows = useMemo(() => rowsOf(strip), [strip]);
  const layout = wholeLayout(rows.length, kRoom, 0);
  const draw = useMemo(() => {
    let river: { canvas: HTMLCanvasElement; width: number } | null = null;
    return (g: CanvasRenderingContext2D, width: number, _height: number, scale: number) => {
      if (river?.width !== width) river = { canvas: paintRiver(rows, strip.causes, strip.step_ps, longest, width, layout, scale), width };
      g.imageSmoothingEnabled = false;
      g.drawImage(river.canvas, 0, 0, width, layout.height);
      const colours = paint(), x = (t: number) => (t / longest) * width;
      if (mark) {
        g.strokeStyle = colours.ink3;
        g.setLineDash([3, 3]);
        g.beginPath();
        g.moveTo(x(mark) + 0.5, 0);
        g.lineTo(x(mark) + 0.5, layout.height);
        g.stroke();
        g.setLineDash([]);
      }
      g.fillStyle = colours.ink;
      g.fillRect(x(strip.step_ps), 0, 1.5, layout.height);
    };
  }, [rows, strip, longest, mark, layout.height, theme]);
  return <Canvas height={layout.height} draw={draw} aria-label={`${name}: a step of ${time(strip.step_ps / 1e9)} on ${rows.length} stages`} />;
}

export function TimeAxis({ longest }: { longest: number }) {
  const draw = useMemo(() => (g: CanvasRenderingContext2D, width: number) => {
    font(g, 10.5);
    g.fillStyle = paint().ink3;
    for (const tick of ticks(longest, width < 400 ? 4 : 8)) {
      const x = (tick / longest) * width;
      if (x > width) continue;
      g.textAlign = tick === 0 ? "left" : x > width - 16 ? "right" : "center";
      g.fillText(tickText(tick, longest), x, 8);
    }
  }, [longest]);
  return <div className="tl"><Canvas height={16} draw={draw} aria-label={`one time axis of ${time(longest / 1e9)}`} /></div>;
}
