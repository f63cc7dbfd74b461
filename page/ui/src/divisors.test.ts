import { expect, test } from "vitest";
import { divisorsNear } from "./divisors";

test("a size that divides nothing has its neighbours that do", () => {
  expect(divisorsNear("--set parallel.tensor_model_parallel_size: expected a divisor of num_attention_heads 64, got 3")).toEqual(["4", "2"]);
  expect(divisorsNear("expected a divisor of num_layers 80, got 100")).toEqual(["80"]);
  expect(divisorsNear("something else")).toEqual([]);
});
