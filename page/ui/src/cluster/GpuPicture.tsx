// All GPUs as cells, with the groups of the selected one. The order of ranks is the framework's, as the predictor has it.
import { useEffect, useMemo, useRef, useState } from "react";
import { newestOnly } from "../ask";
import { count } from "../format";
import { writeState } from "../state";
import { useStudio } from "../studio";
import { Canvas, type Draw, paint } from "../timeline/Canvas";
import { useLit } from "../timeline/lit";
import type { Axis } from "../timeline/strip";
import { linkText } from "../timeline/Tip";
import { type Cluster, clusterOf, kAxisWords, membersOf, placeText } from "./cluster";
import { cellAt, cellPlace, gridOf } from "./grid";
import "./cluster.css";

const kShades: Axis[] = ["pp", "dp", "tp", "ep", "cp"];
const kDrawn: Axis[] = ["dp", "ep", "cp", "pp", "tp"];  // from below: larger groups first

const kRestMs = 250;  // a number that moves takes no processor from the next answer

export function GpuPicture() {
  const { address, answered, answer, selection, select } = useStudio();
  const isNewest = answered === address.state;
  const [cluster, setCluster] = useState<Cluster | null>(null);
  const [hovered, setHovered] = useState<Cluster | null>(null);
  const [by, setBy] = useState<Axis>("pp");
  const [width, setWidth] = useState(236);
  const canvas = useRef<HTMLCanvasElement>(null);
  const lit = useLit();
  const state = answered ? writeState(answered) : "";
  const gpu = selection.gpu < (answer?.simulate.ranks ?? 1) ? selection.gpu : 0;

  useEffect(() => {
    if (!answered || !isNewest) return;
    let isWanted = true;
    const wait = setTimeout(async () => {
      const one = await clusterOf(answered, gpu);
      if (!isWanted) return;
      setHovered(null);
      setCluster("error" in one ? null : one);
    }, cluster ? kRestMs : 0);
    return () => { isWanted = false; clearTimeout(wait); };
  }, [state, gpu, isNewest]);
  const look = useMemo(() => newestOnly<number | null>(async (wanted, isNewest) => {
    const one = wanted === null || !answered ? null : await clusterOf(answered, wanted);
    if (isNewest()) setHovered(one && "error" in one ? null : one);
  }), [state]);

  const shown = hovered && cluster && hovered.gpus === cluster.gpus ? hovered : cluster;
  const aNode = cluster ? (cluster.gpus_a_cell > 1 ? 1 : Math.min(cluster.gpus, cluster.gpus_a_node)) : 8, cells = cluster ? Math.ceil(cluster.gpus / cluster.gpus_a_cell) : 8;
  const grid = useMemo(() => gridOf(cells, aNode, width), [cells, aNode, width]);
  const axes = kShades.filter((axis) => cluster?.places[axis]), shade = axes.includes(by) ? by : axes[0];
  const draw = useMemo<Draw>(() => (g, wide) => {
    if (wide !== width) setWidth(wide);
    if (!shown) return;
    const colours = paint(), members = membersOf(shown), places = shade ? shown.places[shade] : undefined, own = Math.floor(shown.gpu.rank / shown.gpus_a_cell);
    for (let cell = 0; cell < cells; ++cell) {
      const [x, y] = cellPlace(cell, aNode, grid), mine = kDrawn.filter((axis) => (lit === null || axis === lit) && members.get(cell)?.includes(axis));
      g.fillStyle = (places?.[cell] ?? 0) % 2 ? colours.g1 : colours.g0;
      g.fillRect(x, y, grid.cellWidth, grid.cellHeight);
      // Of a cell in several groups each has its part.
      mine.forEach((axis, i) => {
        g.fillStyle = colours[axis];
        g.fillRect(x + (grid.cellWidth * i) / mine.length, y, grid.cellWidth / mine.length, grid.cellHeight);
      });
    }
    const [x, y] = cellPlace(own, aNode, grid);
    g.fillStyle = colours.ink;
    g.fillRect(x, y, grid.cellWidth, grid.cellHeight);
    g.strokeStyle = colours.ink;
    g.lineWidth = 1.5;
    g.strokeRect(x - 1, y - 1, grid.cellWidth + 2, grid.cellHeight + 2);
  }, [shown, grid, cells, aNode, shade, width, lit]);

  if (!answered || !cluster || !shown) return <section className="blk cluster" id="gpupicture"><h2>GPUs</h2></section>;
  const nodes = Math.ceil(cluster.gpus / cluster.gpus_a_node);
  const at = (event: { clientX: number; clientY: number }): number | null => {
    const box = canvas.current!.getBoundingClientRect(), cell = cellAt(event.clientX - box.left - 2, event.clientY - box.top - 2, cells, aNode, grid);
    return cell === null ? null : cell * cluster.gpus_a_cell;
  };
  const choose = (next: number) => select({ stage: cluster.places.pp?.[Math.floor(next / cluster.gpus_a_cell)] ?? 0, gpu: next });
  const say = `GPU ${count(shown.gpu.rank)}, node ${count(shown.gpu.node)}${Object.keys(shown.gpu.at).length ? `: ${placeText(shown.gpu.at)}` : ""}`;
  return <section className="blk cluster" id="gpupicture">
    <h2>{count(nodes)} {nodes === 1 ? "node" : "nodes"} × {Math.min(cluster.gpus, cluster.gpus_a_node)}
      <span className="r seg" role="group" aria-label="greys in turn by">{axes.map((axis) => <button key={axis} aria-pressed={axis === shade} className={axis === shade ? "on" : ""} onClick={() => setBy(axis)}>{axis}</button>)}</span></h2>
    <div className="gpu-canvas">
      <Canvas canvasRef={canvas} height={Math.ceil(grid.height) + 4} draw={(g, wide, high, scale) => { g.translate(2, 2); draw(g, wide - 4, high, scale); }} tabIndex={0} aria-label={`${say}. Arrow keys choose another GPU`}
        onPointerMove={(event) => { if (event.pointerType !== "touch") void look(at(event)); }} onPointerLeave={() => void look(null)}
        onClick={(event) => { const next = at(event); if (next !== null) choose(next); }}
        onKeyDown={(event) => {
          const by: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cluster.gpus_a_node, ArrowUp: -cluster.gpus_a_node };
          if (!(event.key in by)) return;
          event.preventDefault();
          choose(Math.min(cluster.gpus - 1, Math.max(0, gpu + by[event.key] * cluster.gpus_a_cell)));
        }} />
    </div>
    <div className="leg" aria-live="polite"><span><i style={{ background: "var(--ink)" }} />{say}</span>
      {shown.gpu.groups.map(({ axis, gpus, link }) => <span key={axis} title={`${count(gpus.length)} GPUs`}><i style={{ background: `var(--${axis})` }} />its {kAxisWords[axis]}{link ? `, ${linkText(link)}` : ""}</span>)}</div>
    <p className="q small">{shade ? `two greys in turn: ${shade === "pp" ? "pipeline stages" : `places in the ${shade.toUpperCase()} group`} 0 to ${(cluster.sizes[shade] ?? 1) - 1}` : ""}{cluster.gpus_a_cell > 1 ? "; a cell is a node" : ""}</p>
  </section>;
}
