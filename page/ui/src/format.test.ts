import { expect, test } from "vitest";
import { change, digits, gib, scaled, time } from "./format";

test("three significant digits with the unit of the size", () => {
  expect([time(14381.55), time(238.6), time(0.1532), time(980)]).toEqual(["14.4 s", "239 ms", "153 µs", "980 ms"]);
  expect([digits(0), digits(-4.137), digits(1234)]).toEqual(["0", "\u22124.14", "1234"]);
  expect(scaled(72911).join(" ")).toBe("72.9 k");
  expect(gib(63346826803)).toBe("59.0");
});
test("a change has its sign, and none below a twentieth of a percent", () => {
  expect([change(14.87), change(-0.31), change(0.04), change(-0.04)]).toEqual(["+14.9 %", "\u22120.3 %", "0", "0"]);
});
