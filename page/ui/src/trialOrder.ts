// The order in which single changes are tried: what is shown and large as a rule comes first, what takes long or does nothing last.
import type { Candidate } from "./trials";

const kOftenLarge = ["overlap.overlap_moe_expert_parallel_comm", "overlap.moe_shared_expert_overlap", "overlap.tp_comm_overlap", "overlap.fsdp_comm_overlap"];
const kSizes = /\.(tensor_model|pipeline_model|context|expert_model)_parallel_size$|\.micro_batch_size$/;
// Their schedules have many more operations than the one of the answer as a rule.
const kLong = /\.(data_parallel_sharding_strategy|expert_tensor_parallel_size|defer_embedding_wgrad_compute)$/;

type Rank = "first" | "precision" | "size" | "on" | "platform" | "other" | "long";
const kTurns: Rank[] = ["precision", "size", "on", "platform"];  // take turns, because each is a list that somebody looks at

function rankOf(one: Candidate, values: Record<string, unknown>): Rank {
  if (kOftenLarge.includes(one.key)) return "first";
  if (one.kind === "precision" || one.kind === "platform") return one.kind;
  if (kLong.test(one.key)) return "long";
  return one.kind === "switch" ? (values[one.key] === true ? "on" : "other") : kSizes.test(one.key) ? "size" : "other";
}

export function inOrder(candidates: Candidate[], values: Record<string, unknown>): Candidate[] {
  const ranked = new Map<Rank, Candidate[]>();
  for (const one of candidates) {
    const rank = rankOf(one, values);
    ranked.set(rank, [...(ranked.get(rank) ?? []), one]);
  }
  const of = (rank: Rank) => ranked.get(rank) ?? [];
  const turns = Math.max(...kTurns.map((rank) => of(rank).length));
  const taken = Array.from({ length: turns }, (_, i) => kTurns.flatMap((rank) => of(rank).slice(i, i + 1))).flat();
  return [...of("first"), ...taken, ...of("other"), ...of("long")];
}
