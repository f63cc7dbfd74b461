// The span of the step that the lower half of a timeline shows, in picoseconds.
export interface Span { from: number; to: number }
export const kShortest = 20e6;  // 20 µs: a kernel fills the width

export function within(span: Span, step: number): Span {
  const length = Math.min(step, Math.max(kShortest, span.to - span.from));
  const from = Math.min(Math.max(0, span.from), step - length);
  return { from, to: from + length };
}
// Returns the span `factor` times as long (below 1: zoomed in), with the time `at` where it was.
export const zoomed = (span: Span, factor: number, at: number, step: number): Span => {
  const length = Math.min(step, Math.max(kShortest, (span.to - span.from) * factor));
  const share = (at - span.from) / (span.to - span.from);
  return within({ from: at - share * length, to: at + (1 - share) * length }, step);
};
export const moved = (span: Span, by: number, step: number): Span => within({ from: span.from + by, to: span.to + by }, step);
// Returns the span around a stretch of time, with a margin on both sides.
export const around = (start: number, end: number, step: number, margin = 0.08): Span =>
  within({ from: start - (end - start) * margin, to: end + (end - start) * margin }, step);

// Returns ticks of 1, 2, 2.5 or 5 times a power of ten from 0 to `length`, about `count` of them.
export function ticks(length: number, count: number): number[] {
  const raw = length / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * power >= raw * 0.999)! * power;
  const all: number[] = [];
  for (let tick = 0; tick <= length * 1.000001; tick += step) all.push(tick);
  return all;
}
const plain = (x: number): string => String(Number(x.toPrecision(6)));
// Returns "8 s", "+10 ms", "+250 µs" for a time in picoseconds; one unit for all ticks of an axis.
export function tickText(time: number, length: number): string {
  const [unit, name] = length >= 1.5e12 ? [1e12, "s"] : length >= 1.5e9 ? [1e9, "ms"] : [1e6, "µs"];
  return `${plain(time / unit)} ${name}`;
}

// Places labels on one line without collision: returns those that fit, in the order of their weight.
export interface Placed { x: number; width: number; weight: number }
export function placed<T extends Placed>(labels: T[], from: number, to: number, gap = 6): T[] {
  const taken: [number, number][] = [];
  return [...labels].sort((a, b) => b.weight - a.weight).filter(({ x, width }) => {
    if (x < from || x + width > to || taken.some(([a, b]) => x < b + gap && x + width + gap > a)) return false;
    taken.push([x, x + width]);
    return true;
  });
}
