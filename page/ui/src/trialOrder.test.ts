import { expect, test } from "vitest";
import { inOrder } from "./trialOrder";
import type { Candidate } from "./trials";

const one = (key: string, kind: Candidate["kind"]): Candidate => ({ id: key, change: key, key, kind, set: [] });

test("trials take turns, the large first and the long last, and none is lost", () => {
  const all = [one("parallel.data_parallel_sharding_strategy", "layout"), one("overlap.a", "switch"), one("overlap.b", "switch"), one("overlap.tp_comm_overlap", "switch"),
    one("training.fp8_recipe", "precision"), one("training.fp4", "precision"), one("parallel.tensor_model_parallel_size", "layout"), one("platform", "platform")];
  expect(inOrder(all, { "overlap.a": true, "overlap.b": false }).map(({ key }) => key)).toEqual(["overlap.tp_comm_overlap", "training.fp8_recipe",
    "parallel.tensor_model_parallel_size", "overlap.a", "platform", "training.fp4", "overlap.b", "parallel.data_parallel_sharding_strategy"]);
});
