// The answer "cluster" (page/cluster.hpp): all GPUs in the framework's order of ranks, and the groups of one of them.
import type { Problem } from "../answers";
import { ask } from "../ask";
import { pictures } from "../timeline/engine";
import type { State } from "../state";
import type { Axis } from "../timeline/strip";

export interface Cluster {
  gpus: number; gpus_a_node: number; gpus_a_cell: number;
  sizes: Partial<Record<Axis, number>>;
  places: Partial<Record<Axis, number[]>>;
  gpu: { rank: number; node: number; role: string; at: Partial<Record<Axis, number>>;
         groups: { axis: Axis; gpus: number[]; link: string | null; link_GBps: number | null }[] };
}
export const clusterOf = (state: State, gpu: number): Promise<Cluster | Problem> => ask<Cluster>(pictures, "cluster", state, { gpu });

export const kAxisWords: Record<Axis, string> = { tp: "TP group", cp: "CP group", ep: "EP group", dp: "DP group", pp: "pipeline" };
const kPlaces: Record<Axis, string> = { tp: "tensor", cp: "context", ep: "expert", dp: "data", pp: "stage" };
export const placeText = (at: Cluster["gpu"]["at"]): string =>
  (Object.keys(kPlaces) as Axis[]).filter((axis) => axis in at).map((axis) => `${kPlaces[axis]} ${at[axis]}`).join(", ");

// Returns the axes of whose groups each cell is a member.
export function membersOf(cluster: Cluster): Map<number, Axis[]> {
  const members = new Map<number, Axis[]>();
  for (const { axis, gpus } of cluster.gpu.groups)
    for (const gpu of gpus) {
      const cell = Math.floor(gpu / cluster.gpus_a_cell), axes = members.get(cell) ?? [];
      if (!axes.includes(axis)) members.set(cell, [...axes, axis]);
    }
  return members;
}
