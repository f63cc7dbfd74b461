// What is known of the operation or bar under the pointer.
import type { ReactNode } from "react";
import { digits, time } from "../format";
import { causeName } from "./finding";
import { type Bar, type Cause, kBarNames } from "./strip";
import type { Op, Window } from "./window";

const us = (ps: number): string => time(ps / 1e9);
export const gpusText = (gpus: number[]): string => {
  if (gpus.length === 1) return `GPU ${gpus[0]}`;
  const step = gpus[1] - gpus[0];
  const isEven = gpus.every((gpu, i) => gpu === gpus[0] + i * step);
  return isEven && step === 1 ? `GPUs ${gpus[0]}–${gpus.at(-1)}` : isEven && gpus.length > 4 ? `${gpus.length} GPUs: ${gpus[0]}, ${gpus[1]} … ${gpus.at(-1)}` :
    gpus.length <= 4 ? `GPUs ${gpus.join(", ")}` : `${gpus.length} GPUs: ${gpus.slice(0, 3).join(", ")} …`;
};
export const linkText = (link: string | null): string => (link === "nvlink" ? "NVLink" : link === "network" ? "network" : "");
export const bytesText = (bytes: number): string =>
  bytes >= 1e9 ? `${digits(bytes / 1e9)} GB` : bytes >= 1e6 ? `${digits(bytes / 1e6)} MB` : `${digits(bytes / 1e3)} kB`;

export function opTitle(op: Op, window: Window): string {
  const { title, piece, phase } = op.kind;
  if (piece === null) return title;
  const pieces = window.kinds.filter((kind) => kind.title === title && kind.phase === phase && kind.piece !== null).length;
  return `${title}, piece ${piece + 1} of ${Math.max(pieces, piece + 1)}`;
}

const kPhases: Record<string, string> = { dgrad: "backward", wgrad: "weight gradients", recompute: "computed again for the backward pass", grad_sync: "gradient reduction", param_sync: "parameter gathering" };

export function opLines(op: Op, window: Window): [string, ReactNode][] {
  const lines: [string, ReactNode][] = [];
  const takes = us(op.end - op.transfer);
  lines.push(["takes", op.exposed > 0 ? <>{takes}, <b>{us(op.exposed)} exposed</b></> : op.kind.group === null ? takes : `${takes}, hidden`]);
  const group = op.kind.group === null ? null : window.groups[op.kind.group];
  if (op.bytes > 0 && group) {
    const rate = op.bytes / ((op.end - op.transfer) / 1e12) / 1e9;
    lines.push(["moves", `${bytesText(op.bytes)} at ${digits(rate)} GB/s${group.link_GBps ? ` of ${digits(group.link_GBps)}` : ""}${group.link ? `, ${linkText(group.link)}` : ""}`]);
  }
  if (group) lines.push(["group", gpusText(group.gpus)]);
  if (group && op.transfer > op.start) lines.push(["waits for peers", us(op.transfer - op.start)]);
  if (op.waiting.length) lines.push(["waits for it", op.waiting.map((kind) => kind.title).join(", ")]);
  if (!group) lines.push(["work", op.kind.work]);
  return lines;
}

export function OpTip({ op, window }: { op: Op; window: Window }) {
  return <>
    <b>{opTitle(op, window)}</b>
    <div className="tip-sub">{kPhases[op.kind.phase] ?? op.kind.phase}, <span className="mono">{op.label}</span></div>
    <dl>{opLines(op, window).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
  </>;
}

const kMostCauses = 3;

export function BarTip({ bar, row, causes }: { bar: Bar; row: string; causes: Cause[] }) {
  const [kind, microBatch, chunk, start, end, computes, lost] = bar;
  const waits = new Map<string, number>();
  for (let i = 0; i < lost.length; i += 2) {
    const name = causeName(causes[lost[i]]);
    waits.set(name, (waits.get(name) ?? 0) + lost[i + 1]);
  }
  const largest = [...waits].filter(([, ps]) => ps > 0.001 * (end - start)).sort((a, b) => b[1] - a[1]).slice(0, kMostCauses);
  return <>
    <b>{row}: {kBarNames[kind]}{kind <= 2 ? `, micro-batch ${microBatch}, chunk ${chunk}` : ""}</b>
    <dl><div><dt>takes</dt><dd>{us(end - start)}</dd></div><div><dt>computes</dt><dd>{us(computes)}</dd></div>
      {largest.map(([name, ps]) => <div key={name}><dt>{name}</dt><dd>{us(ps)}</dd></div>)}</dl>
  </>;
}
