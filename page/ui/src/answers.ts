// Answers of the predictor (page/answer.hpp) as the studio reads them. Units stand in the names; bytes are bytes.

export interface Key {
  key: string; section: string; name: string; kind: "integer" | "number" | "boolean" | "word" | "text";
  choices: string[]; least: number | null; most: number | null; unit: string; meaning: string; range: string;
}
export interface Lists {
  scenarios: string[]; platforms: string[]; profiles: string[]; presets: string[]; keys: Key[]; first: string[];
  bars: { name: string; colour: string }[]; css: string;
  accuracy: { profile: string; platform: string; steps: number }[];
}
export interface Layout {
  tp: number; pp: number; vp: number; cp: number; dp: number; micro_batches: number; pipeline_schedule: string;
  ep?: number; etp?: number;
}
export interface StageMemory {
  stage: string; parameter_bytes: number; gradient_bytes: number; optimizer_state_bytes: number; activation_bytes: number;
  allocated_bytes: number; held_bytes: number; peak_bytes: number;
}
export interface Simulated {
  scenario: string; ranks: number; layout: Layout; step_ms: number; compute_ms: number; bubble_ms: number;
  queue_wait_ms: number; core_wait_ms: number; host_bound_pct: number | null;
  exposed_ms: { cp: number; dp: number; ep: number; pp: number; tp: number; total: number };
  tokens_per_s: number; tokens_per_s_per_gpu: number; mfu: number | null; tflops_per_gpu: number; peak_tflops_per_gpu: number;
  device_bytes: number; predicted_peak_bytes: number; memory_low_bytes: number; memory_high_bytes: number; free_bytes: number;
  fits: boolean; memory_verdict: string; fullest_stage: string; memory: StageMemory[]; reserved_bytes: number;
  limits: { what: string; share: number }[]; notes: string[]; parameters: number;
}
export interface Gate {
  asked: boolean; knob: string; needs: string; open: boolean; owner: string; source: string; when_closed: string;
  why: string; wider: string;
}
export interface StepAnswer {
  platform: string; profile: string;  // their names
  simulate: Simulated; headline: { what: string; text: string }[]; set: string[]; gates: Gate[];
  values: Record<string, string | number | boolean>;
  stages_memory?: { stage: string; bytes: number; parts: { part: string; bytes: number }[] }[];
  shown: { about: string; limits: string; summary: TableText; memory: TableText };
}
export interface TableText { headers: string[]; cells: string[][] }
// A bar is [kind, micro-batch, chunk, start, end] in picoseconds; its kind is a place in Lists.bars.
export interface Strip { tracks: { role: string; rank: number; bars: number[][] }[]; step_ps: number }
export interface Texts {
  command: string; toml: string; megatron: { text?: string; notes?: string[]; error?: string };
}
export type Problem = { error: string };
export const isProblem = (answer: object): answer is Problem => "error" in answer;
