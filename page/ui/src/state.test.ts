import { expect, test } from "vitest";
import { kStart, parseAddress, withSetting, writeAddress } from "./state";

test("an address is read and written without loss", () => {
  const text = "#scenario=llama3-70b&platform=h200-sxm&profile=torchtitan&gpus=128&parallel.tensor_model_parallel_size=8&view=compare&pin=preset%3Dqwen3-8b%26label%3Dsmall";
  const address = parseAddress(text);
  expect(address.state).toEqual({ source: "scenario", name: "llama3-70b", platform: "h200-sxm", profile: "torchtitan", gpus: 128, set: { "parallel.tensor_model_parallel_size": "8" } });
  expect(address.pins[0]).toMatchObject({ source: "preset", name: "qwen3-8b", label: "small" });
  expect(parseAddress(writeAddress(address))).toEqual(address);
});
test("links of the page before this one open the same scenario", () => {
  expect(parseAddress("#scenario=llama3-8b&gpus=16&training.global_batch_size=32").state.set).toEqual({ "training.global_batch_size": "32" });
  expect(parseAddress("").state).toBe(kStart);
});
test("no more than four pins are read", () => {
  expect(parseAddress("#scenario=a" + "&pin=scenario%3Db".repeat(9)).pins).toHaveLength(4);
});
test("a size of the layout keeps the GPUs, and data parallelism gives way", () => {
  const state = { ...kStart, set: { "parallel.data_parallel_size": "4" } };
  expect(withSetting(state, "parallel.tensor_model_parallel_size", "8", 64)).toMatchObject({ gpus: 64, set: { "parallel.tensor_model_parallel_size": "8" } });
  expect(withSetting({ ...kStart, gpus: 64 }, "parallel.data_parallel_size", "4", 64)).toMatchObject({ gpus: 0, set: { "parallel.data_parallel_size": "4" } });
  expect(withSetting(kStart, "parallel.virtual_pipeline_model_parallel_size", "2", 64).gpus).toBe(0);
});
