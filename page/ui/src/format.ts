// Numbers as people read them: three significant digits, a true minus, units of the field.
import { format } from "d3-format";

const kMinus = "\u2212";
const grouped = format(",.0f");

export const digits = (x: number, count = 3): string => {
  const size = Math.abs(x);
  const places = size === 0 ? 0 : Math.max(0, count - 1 - Math.floor(Math.log10(size)));
  const text = x.toFixed(Math.min(places, 3));
  return text.startsWith("-") ? kMinus + text.slice(1) : text;
};
export const count = (x: number): string => grouped(x);
export const timeOf = (ms: number, count = 3): [string, string] =>
  ms >= 1000 ? [digits(ms / 1000, count), "s"] : ms >= 1 ? [digits(ms, count), "ms"] : [digits(ms * 1000, count), "µs"];
export const time = (ms: number, count = 3): string => timeOf(ms, count).join(" ");
export const percent = (share: number, places = 1): string => `${(100 * share).toFixed(places)} %`;
// A change in percent with its sign; below 0.05 % "0".
export const change = (pct: number): string =>
  Math.abs(pct) < 0.05 ? "0" : `${pct > 0 ? "+" : kMinus}${Math.abs(pct).toFixed(1)} %`;
export const kGiB = 2 ** 30;
export const gib = (bytes: number): string => digits(bytes / kGiB);
export const gibChange = (bytes: number): string =>
  Math.abs(bytes) < 0.05 * kGiB ? "" : `${bytes > 0 ? "+" : kMinus}${Math.abs(bytes / kGiB).toFixed(1)} GiB`;
export const scaled = (x: number): [string, string] =>
  x >= 1e12 ? [digits(x / 1e12), "T"] : x >= 1e9 ? [digits(x / 1e9), "B"] : x >= 1e6 ? [digits(x / 1e6), "M"] : x >= 1e4 ? [digits(x / 1e3), "k"] : [count(x), ""];
