// The river: what a GPU does, as shares of the time of each pixel column. All times are picoseconds.
import { type Cause, kBackward, kForward, kWgrad, type Row } from "./strip";

// Layers from the bottom of a row to its top; the rest of a column is waiting.
export const kLayers = ["wgrad", "bwd", "fwd", "opt", "tp", "ep", "cp", "dp", "pp", "stall"] as const;
const kLayerCount = kLayers.length;

// Returns the layer of a cause; -1: waiting, which is paper.
export function layerOf({ cause, axis }: Cause): number {
  if (cause === "queue_wait") return kLayers.indexOf("stall");
  return cause === "exposed" && axis ? kLayers.indexOf(axis) : -1;
}

// Returns [bin][layer]: the share of each of `bins` equal parts of [from, to) that a layer has. A bar's computing and its
// waits lie evenly over its time, so the sum over all bins is the breakdown of the step.
export function binRow(row: Pick<Row, "bars" | "gaps">, causes: Cause[], from: number, to: number, bins: number): Float64Array {
  const shares = new Float64Array(bins * kLayerCount);
  const width = (to - from) / bins;
  const layers = causes.map(layerOf);
  const times = new Float64Array(kLayerCount), layersOf = new Uint8Array(kLayerCount);
  const spread = (start: number, end: number) => {
    if (end <= from || start >= to || end <= start) return;
    const length = end - start;
    let active = 0;
    for (let layer = 0; layer < kLayerCount; ++layer) if (times[layer] > 0) layersOf[active++] = layer;
    const first = Math.max(0, Math.floor((start - from) / width)), last = Math.min(bins - 1, Math.floor((end - from) / width));
    for (let bin = first; bin <= last; ++bin) {
      const begin = from + bin * width;
      const common = Math.min(end, begin + width) - Math.max(start, begin);
      if (common <= 0) continue;
      const share = common / length / width;
      for (let i = 0; i < active; ++i) shares[bin * kLayerCount + layersOf[i]] += share * times[layersOf[i]];
    }
  };
  const addLost = (lost: number[]) => {
    for (let i = 0; i < lost.length; i += 2) if (layers[lost[i]] >= 0) times[layers[lost[i]]] += lost[i + 1];
  };
  for (const [kind, , , start, end, computes, lost, wgrad] of row.bars) {
    if (end <= from || start >= to) continue;
    times.fill(0);
    times[0] = kind === kWgrad ? computes : wgrad;
    times[kind === kForward ? 2 : kind === kBackward || kind === kWgrad ? 1 : 3] += computes - times[0];
    addLost(lost);
    spread(start, end);
  }
  for (const [start, end, lost] of row.gaps) {
    times.fill(0);
    addLost(lost);
    spread(start, end);
  }
  return shares;
}

// "#C4461F" -> [196, 70, 31]
export const rgb = (hex: string): [number, number, number] => {
  const text = hex.trim().replace("#", "");
  const wide = text.length === 3 ? [...text].map((c) => c + c).join("") : text;
  return [0, 2, 4].map((i) => parseInt(wide.slice(i, i + 2), 16)) as [number, number, number];
};

// Fills a rectangle of an image, in device pixels, with a row of the river up to `end` columns; hatched where a GPU waits.
export function paintRow(image: ImageData, shares: Float64Array, top: number, height: number, columns: number, end: number,
                         colours: [number, number, number][], paper: [number, number, number], hatch: [number, number, number], scale: number) {
  const bins = shares.length / kLayerCount;
  const gap = Math.round(4 * scale);
  for (let x = 0; x < Math.min(columns, end); ++x) {
    const bin = Math.min(bins - 1, Math.floor((x * bins) / columns));
    let layer = 0, reach = shares[bin * kLayerCount] * height;
    for (let y = 0; y < height; ++y) {
      while (layer < kLayerCount && y + 0.5 > reach) {
        ++layer;
        if (layer < kLayerCount) reach += shares[bin * kLayerCount + layer] * height;
      }
      const row = top + height - 1 - y;
      const colour = layer < kLayerCount ? colours[layer] : (x + row) % gap < 1 ? hatch : paper;
      const at = 4 * (row * image.width + x);
      image.data[at] = colour[0];
      image.data[at + 1] = colour[1];
      image.data[at + 2] = colour[2];
      image.data[at + 3] = 255;
    }
  }
}
