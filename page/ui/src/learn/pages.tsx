// The six pages. Settings, words and questions stand here; every figure comes from the predictor.
import type { ReactNode } from "react";
import { digits, gib, percent, time } from "../format";
import type { Axis } from "../timeline/strip";
import { endOf, type Result, startOf, stateOf } from "./results";
import type { State } from "../state";

export interface PageRow {
  name: string; about: string; state: State;
  span?: (result: Result) => [number, number];  // absent: the whole step as passes
  axes?: Axis[];                                // lanes of communication that are drawn
  figure: (result: Result) => ReactNode;        // below the step's time
}
export interface Page {
  title: string; about: string;
  lead: (results: Result[]) => ReactNode;
  knob: { before: string; values: string[]; start: number; after: string };
  guesses: string[];
  right: (before: Result[], now: Result[]) => number;     // index of the guess that came true
  verdict: (before: Result[], now: Result[]) => ReactNode;
  rows: (knob: number) => PageRow[];
  legend: Axis[];
}

const share = (part: number, whole: number): string => percent(part / whole, 0);
const compared = (before: number, now: number, within = 0.05): number => (now < before * (1 - within) ? 0 : now > before * (1 + within) ? 2 : 1);

const kPipeline = { "parallel.pipeline_model_parallel_size": "4", "parallel.data_parallel_size": "1" };
const kMicroBatches = ["8", "16", "32", "64"];
const bubbleRow = (name: string, about: string, batch: string, set: Record<string, string>): PageRow => ({ name, about,
  state: stateOf("llama3-8b", { ...kPipeline, "training.global_batch_size": batch, ...set }),
  figure: ({ simulated }) => <>bubble <b>{share(simulated.bubble_ms, simulated.step_ms)}</b> · {gib(simulated.predicted_peak_bytes)} GiB</> });
const bubble: Page = {
  title: "The bubble, and four ways to shrink it", about: "Llama 3 8B, 4 stages, 8 H100", legend: [],
  lead: ([first]) => <>Four stages, {first.simulated.layout.micro_batches} micro-batches. A stage waits until the first micro-batch reaches it, and again while the last one returns: <b>{share(first.simulated.bubble_ms, first.simulated.step_ms)} of this 1F1B step</b>.
    The textbook says {first.simulated.layout.pp - 1} of {first.simulated.layout.micro_batches + first.simulated.layout.pp - 1}, {share(first.simulated.layout.pp - 1, first.simulated.layout.micro_batches + first.simulated.layout.pp - 1)}; the last stage has the loss to compute as well.</>,
  knob: { before: "Predict first: how long is the 1F1B bubble with", values: kMicroBatches, start: 0, after: "micro-batches?" },
  guesses: ["less than half of that share", "more than half of that share", "the same share"],
  right: ([before], [now]) => { const ratio = now.simulated.bubble_ms / now.simulated.step_ms / (before.simulated.bubble_ms / before.simulated.step_ms); return ratio < 0.5 ? 0 : ratio < 0.95 ? 1 : 2; },
  verdict: ([before], [now]) => <>{share(before.simulated.bubble_ms, before.simulated.step_ms)} with {before.simulated.layout.micro_batches}, <b>{share(now.simulated.bubble_ms, now.simulated.step_ms)}</b> with {now.simulated.layout.micro_batches}; the last stage still has more to compute than the others</>,
  rows: (knob) => [bubbleRow("1F1B", "a chunk a stage", kMicroBatches[knob], {}),
    bubbleRow("Interleaved", "four chunks a stage", kMicroBatches[knob], { "parallel.virtual_pipeline_model_parallel_size": "4" }),
    bubbleRow("ZB-H1", "weight gradients fill the end", kMicroBatches[knob], { "parallel.pipeline_schedule": "zb-h1" }),
    bubbleRow("ZB-V", "chunks down, then up", kMicroBatches[knob], { "parallel.pipeline_schedule": "zb-v" }),
    bubbleRow("DualPipeV", "forward and backward in turn", kMicroBatches[knob], { "parallel.pipeline_schedule": "dualpipev" })],
};

const kLayer = { "model.num_layers": "1", "parallel.context_parallel_size": "1", "parallel.data_parallel_size": "1", "parallel.sequence_parallel": "true", "training.global_batch_size": "1" };
const kTensor = ["4", "8"];
const tensorRow = (name: string, about: string, tp: string, set: Record<string, string>, from: string, until: string): PageRow => ({ name, about, axes: ["tp"],
  state: stateOf("llama3-8b", { ...kLayer, "parallel.tensor_model_parallel_size": tp, ...set }),
  span: ({ window }) => [startOf(window!, from) - 1e7, endOf(window!, until)],
  figure: ({ simulated }) => <>exposed <b>{time(simulated.exposed_ms.tp)}</b> of a step</> });
const kOff = { "overlap.tp_comm_overlap": "false" }, kOn = { "overlap.tp_comm_overlap": "true" };
const collectives: Page = {
  title: "Hide a collective under the GEMM that needs it", about: "Llama 3 8B, one layer", legend: ["tp"],
  lead: ([first]) => <>One transformer layer on {first.simulated.layout.tp} GPUs. Tensor parallelism gathers the input of each GEMM and scatters its result. Done at once, the GPU waits; <b>done in slices, it computes with one slice while the next travels</b>.</>,
  knob: { before: "Predict first: with tensor parallelism", values: kTensor, start: 0, after: "slices remove …" },
  guesses: ["a smaller share of what is exposed", "about the same share", "a larger share"],
  right: (before, now) => compared(1 - before[1].simulated.exposed_ms.tp / before[0].simulated.exposed_ms.tp, 1 - now[1].simulated.exposed_ms.tp / now[0].simulated.exposed_ms.tp),
  verdict: (before, now) => <>{share(before[0].simulated.exposed_ms.tp - before[1].simulated.exposed_ms.tp, before[0].simulated.exposed_ms.tp)} with {before[0].simulated.layout.tp}, <b>{share(now[0].simulated.exposed_ms.tp - now[1].simulated.exposed_ms.tp, now[0].simulated.exposed_ms.tp)}</b> with {now[0].simulated.layout.tp}: the step is {percent(1 - now[1].simulated.step_ms / now[0].simulated.step_ms)} shorter</>,
  rows: (knob) => [tensorRow("Forward", "no overlap", kTensor[knob], kOff, "ln_1.fprop", "residual_2.fprop"),
    tensorRow("Forward", "in slices round a ring: each GEMM is cut", kTensor[knob], kOn, "ln_1.fprop", "residual_2.fprop"),
    tensorRow("Backward", "no overlap", kTensor[knob], kOff, "fc2.dgrad", "proj.wgrad"),
    tensorRow("Backward", "in bulk: during a GEMM that does not need it", kTensor[knob], { ...kOn, "overlap.tp_comm_overlap_ag": "false", "overlap.tp_comm_overlap_rs": "false" }, "fc2.dgrad", "proj.wgrad")],
};

const kSequences = ["1024", "8192", "32768"];
const ringRow = (name: string, about: string, sequence: string, overlap: string): PageRow => ({ name, about, axes: ["cp"],
  state: stateOf("llama3-8b", { "model.num_layers": "1", "parallel.context_parallel_size": "4", "parallel.data_parallel_size": "1", "training.global_batch_size": "1",
    "model.max_position_embeddings": "32768", "model.seq_length": sequence, "overlap.cp_comm_overlap": overlap }),
  span: ({ window }) => [startOf(window!, "qkv.fprop"), endOf(window!, "proj.fprop")],
  figure: ({ simulated }) => <>exposed CP <b>{time(simulated.exposed_ms.cp)}</b></> });
const ring: Page = {
  title: "Ring attention", about: "Llama 3 8B, one layer, 4 H100", legend: ["cp"],
  lead: ([first]) => <>A sequence lies on {first.simulated.layout.cp} GPUs. Each computes attention with the keys it has, <b>while the keys of its neighbour arrive</b>. Without overlap it waits at each of {first.simulated.layout.cp - 1} hops.</>,
  knob: { before: "Predict first: at sequence length", values: ["1,024", "8,192", "32,768"], start: 1, after: "the ring hides …" },
  guesses: ["a smaller share of its messages", "about the same share", "a larger share"],
  right: (before, now) => compared(1 - before[1].simulated.exposed_ms.cp / before[0].simulated.exposed_ms.cp, 1 - now[1].simulated.exposed_ms.cp / now[0].simulated.exposed_ms.cp),
  verdict: (before, now) => <>{time(now[0].simulated.exposed_ms.cp)} exposed without overlap, <b>{time(now[1].simulated.exposed_ms.cp)}</b> with it; before, {time(before[0].simulated.exposed_ms.cp)} and {time(before[1].simulated.exposed_ms.cp)}. Messages grow with the tokens, attention with their square</>,
  rows: (knob) => [ringRow("No overlap", "keys arrive, then attention", kSequences[knob], "false"), ringRow("Overlap", "attention to one part while the next arrives", kSequences[knob], "true")],
};

const kPieces = ["2", "4", "8", "16"];
const tailRow = (name: string, about: string, config: string): PageRow => ({ name, about, axes: ["tp"],
  state: stateOf("llama3-8b", { ...kLayer, "parallel.tensor_model_parallel_size": "4", "overlap.tp_comm_overlap_cfg": `{fc2_fprop={${config}}}` }),
  span: ({ window }) => [startOf(window!, "fc2.fprop") - 4e7, endOf(window!, "residual_2.fprop")],
  figure: ({ simulated }) => <>exposed <b>{time(simulated.exposed_ms.tp)}</b> of a step</> });
const tail: Page = {
  title: "The tail of a cut collective", about: "Llama 3 8B, fc2 of one layer, 4 H100", legend: ["tp"],
  lead: () => <>The result of a GEMM is summed over four GPUs, piece by piece. <b>The last piece has nothing left to hide under.</b> More pieces: a shorter tail, but small GEMMs are slow and finish before their transfers. Flash-Overlap adds up on the way round the ring: what is left is one hop.</>,
  knob: { before: "Predict first: with", values: kPieces, start: 3, after: "pieces the step is …" },
  guesses: ["shorter than with sixteen", "equally long", "longer than with sixteen"],
  right: (before, now) => compared(before[1].simulated.step_ms, now[1].simulated.step_ms, 0.001),
  verdict: (before, now) => <>{digits(before[1].simulated.step_ms, 4)} ms with sixteen, <b>{digits(now[1].simulated.step_ms, 4)} ms</b> now; exposed {time(before[1].simulated.exposed_ms.tp)} and {time(now[1].simulated.exposed_ms.tp)}</>,
  rows: (knob) => [tailRow("Two pieces", "half of the collective is left over", 'method="pipeline",num_splits=2'),
    tailRow(`${{ 2: "Two", 4: "Four", 8: "Eight", 16: "Sixteen" }[kPieces[knob]]} pieces`, "turn the knob below", `method="pipeline",num_splits=${kPieces[knob]}`),
    tailRow("Flash-Overlap", "own rows last", 'method="flash"')],
};

const kExpertBatches = ["32", "64", "128"];
const expertRow = (name: string, about: string, batch: string, overlap: string): PageRow => ({ name, about, axes: ["ep"],
  state: stateOf("qwen3-30b-a3b", { "model.num_layers": "4", "training.global_batch_size": batch, "overlap.overlap_moe_expert_parallel_comm": overlap }),
  span: ({ strip }) => [strip.step_ps * 0.46, strip.step_ps * 0.46 + 14e9],
  figure: ({ simulated }) => <>exposed EP <b>{share(simulated.exposed_ms.ep, simulated.step_ms)}</b></> });
const experts: Page = {
  title: "While experts of one micro-batch travel, another computes", about: "Qwen3 30B-A3B, 4 layers, H100", legend: ["ep"],
  lead: () => <>Every token goes to its experts on other GPUs and comes back: dispatch, combine. <b>Pair a forward pass of one micro-batch with a backward pass of another</b>, and each hides the other’s traffic. The first forward and the last backward pass have no partner.</>,
  knob: { before: "Predict first: in pairs, with", values: ["2", "4", "8"], start: 1, after: "micro-batches, EP is exposed for …" },
  guesses: ["a smaller share of the step", "about the same share", "a larger share"],
  right: (before, now) => compared(before[1].simulated.exposed_ms.ep / before[1].simulated.step_ms, now[1].simulated.exposed_ms.ep / now[1].simulated.step_ms),
  verdict: (before, now) => <>{percent(before[1].simulated.exposed_ms.ep / before[1].simulated.step_ms)} with {before[1].simulated.layout.micro_batches}, <b>{percent(now[1].simulated.exposed_ms.ep / now[1].simulated.step_ms)}</b> with {now[1].simulated.layout.micro_batches}; one after the other, {percent(now[0].simulated.exposed_ms.ep / now[0].simulated.step_ms)}</>,
  rows: (knob) => [expertRow("One after the other", "the GPU waits for every exchange", kExpertBatches[knob], "false"), expertRow("In pairs", "a forward and a backward pass take turns", kExpertBatches[knob], "true")],
};

const kGpt = { "training.precision": "bf16" };
const kWide = { "model.num_layers": "8", "model.seq_length": "1024", "parallel.context_parallel_size": "1", "parallel.data_parallel_size": "64" };
const waits: Page = {
  title: "Two ways to wait", about: "GPT-2 124M on 8 H100 · Llama 3 8B, 8 layers, 64 H100", legend: ["dp"],
  lead: () => <>Above, a small model: each kernel ends before the host has launched the next, <b>gaps everywhere</b>. Below, a step with much to reduce: the GPU is dense, then <b>waits for gradients and parameters</b>. A faster network helps one of them.</>,
  knob: { before: "Predict first: above,", values: ["as it is", "CUDA graphs", "8 × batch"], start: 0, after: "a token takes …" },
  guesses: ["less than half the time", "a little less time", "as long as before"],
  right: ([before], [now]) => { const ratio = before.simulated.tokens_per_s / now.simulated.tokens_per_s; return ratio < 0.5 ? 0 : ratio < 0.95 ? 1 : 2; },
  verdict: (before, now) => <>above <b>{digits(now[0].simulated.tokens_per_s / before[0].simulated.tokens_per_s)} times</b> the tokens/s, below {digits(now[1].simulated.tokens_per_s / before[1].simulated.tokens_per_s)} times</>,
  rows: (knob) => [{ name: "Bound by the host", about: "GPT-2 124M", axes: ["dp"],
      state: stateOf("gpt2-124m", { ...kGpt, "training.micro_batch_size": knob === 2 ? "8" : "1", "training.global_batch_size": knob === 2 ? "64" : "8", ...(knob === 1 ? { "training.cuda_graph_modules": '["attn","mlp"]' } : {}) }, "h100-sxm", "megatron-core-te"),
      span: ({ strip }) => [0.2 * strip.step_ps, 0.26 * strip.step_ps],
      figure: ({ simulated }) => simulated.host_bound_pct === null ? <>launches not modelled</> : <>launch-bound <b>{percent(simulated.host_bound_pct / 100, 0)}</b></> },
    { name: "Bound by communication", about: "Llama 3 8B, 8 layers, 1,024 tokens", axes: ["dp"],
      state: stateOf("llama3-8b", { ...kWide, "training.global_batch_size": knob === 2 ? "512" : "64" }),
      span: ({ strip }) => [0, strip.step_ps],
      figure: ({ simulated }) => <>exposed DP <b>{share(simulated.exposed_ms.dp, simulated.step_ms)}</b></> }],
};

export const kPages: Page[] = [bubble, collectives, ring, tail, experts, waits];
