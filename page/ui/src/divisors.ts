// Returns the values next to one that is refused because it divides nothing, the larger first.
export function divisorsNear(problem: string): string[] {
  const [, whole, got] = problem.match(/divisor of .*?(\d+), got (\d+)$/) ?? [];
  if (!whole) return [];
  const all = Array.from({ length: Number(whole) }, (_, i) => i + 1).filter((one) => Number(whole) % one === 0);
  return [all.find((one) => one > Number(got)), all.findLast((one) => one < Number(got))].filter((one) => one !== undefined).map(String);
}
