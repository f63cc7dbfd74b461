export interface StageMemory { stage: string; bytes: number; parts: { part: string; bytes: number }[] }
export interface Shown { name: string; bytes: number; parts: number[]; isFullest: boolean }
const kMostStages = 16;

// Returns the stages in the order of the pipeline; of more than 16, the fullest, the median and the emptiest.
export function shownStages(stages: StageMemory[]): Shown[] {
  const byBytes = [...stages].sort((a, b) => b.bytes - a.bytes), fullest = byBytes[0];
  const show = (one: StageMemory, name = one.stage): Shown => ({ name, bytes: one.bytes, parts: one.parts.map(({ bytes }) => bytes), isFullest: one === fullest && stages.length > 1 });
  if (stages.length <= kMostStages) return stages.map((one) => show(one, stages.length === 1 ? "each GPU" : one.stage));
  const median = byBytes[Math.floor(byBytes.length / 2)], emptiest = byBytes.at(-1)!;
  return [show(fullest, `${fullest.stage}, fullest`), show(median, `${median.stage}, median`), show(emptiest, `${emptiest.stage}, emptiest`)];
}
