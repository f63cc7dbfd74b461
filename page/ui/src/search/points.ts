// What a search has found, put together from its parts.
export interface Point { set: string[]; step_ms: number; memory_bytes: number; device_bytes: number; fit: string; mfu: number | null }
export interface Axis { key: string; values: string[] }
export interface Part { layouts: number; decided: number; refused: number; does_not_fit: number; slower: number; predicted: number; points: Point[]; axes?: Axis[];
  reasons?: { reason: string; layouts: number }[]; indivisible?: number; error?: string }
export interface Found { combinations: number; decided: number; counts: { slower: number; does_not_fit: number; refused: number; predicted: number }; points: Point[];
  axes: Axis[]; reasons: { reason: string; layouts: number }[] }

export const kTiePct = 2.5;  // predictions cannot rank steps that are closer

export const kNothing: Found = { combinations: 0, decided: 0, counts: { slower: 0, does_not_fit: 0, refused: 0, predicted: 0 }, points: [], axes: [], reasons: [] };

// Puts the newest part of each worker together; `points` are all that came.
export function together(parts: Part[], points: Point[], axes: Axis[]): Found {
  const sum = (of: (part: Part) => number) => parts.reduce((all, part) => all + of(part), 0);
  const reasons = new Map<string, number>();
  for (const part of parts) for (const { reason, layouts } of part.reasons ?? []) reasons.set(reason, (reasons.get(reason) ?? 0) + layouts);
  return { combinations: parts[0]?.layouts ?? 0, decided: parts.length ? Math.min(...parts.map((part) => part.decided)) : 0,
           counts: { slower: sum((p) => p.slower), does_not_fit: sum((p) => p.does_not_fit), refused: sum((p) => p.refused), predicted: sum((p) => p.predicted) },
           points, axes, reasons: [...reasons].map(([reason, layouts]) => ({ reason, layouts })).sort((a, b) => b.layouts - a.layouts) };
}

export const fitting = (points: Point[]): Point[] => points.filter((one) => one.fit === "fits").sort((a, b) => a.step_ms - b.step_ms || a.memory_bytes - b.memory_bytes);

// Returns the points that no other beats in both step and memory, the fastest first.
export function frontOf(points: Point[]): Point[] {
  let least = Infinity;
  return fitting(points).filter((one) => one.memory_bytes < least && ((least = one.memory_bytes), true));
}

// Returns a size that the point's settings give, or what they leave as it is.
export function sizeOf(point: Point, key: string, otherwise: number): number {
  const found = point.set.find((one) => one.startsWith(`${key}=`));
  return found ? Number(found.slice(key.length + 1)) : otherwise;
}
