// Places of labels on a plot: they cover no dot, no line, no other label and no edge.
export interface Box { left: number; top: number; wide: number; high: number }
export type Spot = [number, number];
export interface Placed extends Box { leader: Spot }  // `leader`: the end of the line that comes from the label's dot

const kGap = 6;                             // from a label to what it must not touch
const kDirections = 16, kNearest = 16, kFarthest = 176, kStep = 16;
const kReach = 0.4;                         // a direction this far from an axis puts a corner, and not a side, at the line's end
const kMargin = { dot: 5, line: 2 };

const touches = (a: Box, b: Box, gap: number) => a.left < b.left + b.wide + gap && b.left < a.left + a.wide + gap &&
  a.top < b.top + b.high + gap && b.top < a.top + a.high + gap;
const inside = (box: Box, frame: Box) => box.left >= frame.left && box.top >= frame.top && box.left + box.wide <= frame.left + frame.wide && box.top + box.high <= frame.top + frame.high;
const has = (box: Box, [x, y]: Spot, gap: number) => x > box.left - gap && x < box.left + box.wide + gap && y > box.top - gap && y < box.top + box.high + gap;

// Returns whether a segment enters a box: what remains of it after each side has cut it is not empty.
function enters([x0, y0]: Spot, [x1, y1]: Spot, box: Box, gap: number): boolean {
  let from = 0, to = 1;
  const cut = (start: number, delta: number, low: number, high: number) => {
    if (delta === 0) return start > low && start < high;
    const a = (low - start) / delta, b = (high - start) / delta;
    from = Math.max(from, Math.min(a, b));
    to = Math.min(to, Math.max(a, b));
    return from < to;
  };
  return cut(x0, x1 - x0, box.left - gap, box.left + box.wide + gap) && cut(y0, y1 - y0, box.top - gap, box.top + box.high + gap);
}

export interface Plot { frame: Box; dots: Spot[]; lines: [Spot, Spot][] }

const isFree = (box: Box, { frame, dots, lines }: Plot, taken: Box[]) => inside(box, frame) && !taken.some((other) => touches(box, other, kGap)) &&
  !dots.some((dot) => has(box, dot, kMargin.dot)) && !lines.some(([a, b]) => enters(a, b, box, kMargin.line));

// Returns the free place nearest to each dot, null where there is none. The first labels choose first.
export function placesOf(labels: { at: Spot; wide: number; high: number }[], plot: Plot): (Placed | null)[] {
  const taken: Box[] = [], leaders: [Spot, Spot][] = [];
  return labels.map(({ at: [x, y], wide, high }) => {
    for (let far = kNearest; far <= kFarthest; far += kStep)
      for (let i = 0; i < kDirections; ++i) {
        const angle = (2 * Math.PI * (i + 0.5)) / kDirections, dx = Math.cos(angle), dy = Math.sin(angle);
        const leader: Spot = [x + far * dx, y + far * dy];
        const side = (part: number, size: number) => (part > kReach ? 0 : part < -kReach ? -size : -size / 2);
        const box = { left: leader[0] + side(dx, wide), top: leader[1] + side(dy, high), wide, high };
        if (!isFree(box, { ...plot, lines: [...plot.lines, ...leaders] }, taken) || taken.some((other) => enters([x, y], leader, other, 1))) continue;
        taken.push(box);
        leaders.push([[x, y], leader]);
        return { ...box, leader };
      }
    return null;
  });
}

// Returns a free place in `within`, row by row from its top left, or null.
export function roomIn(within: Box, wide: number, high: number, plot: Plot, taken: Box[]): Box | null {
  for (let top = within.top; top + high <= within.top + within.high; top += high)
    for (let left = within.left; left + wide <= within.left + within.wide; left += kStep) {
      const box = { left, top, wide, high };
      if (isFree(box, plot, taken)) return box;
    }
  return null;
}
