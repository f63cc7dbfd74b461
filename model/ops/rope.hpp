#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "base/rope_scaling.hpp"
#include "model/ops/operand_list.hpp"
#include "model/ops/pass.hpp"
#include "model/ops/sequence_parts.hpp"

namespace stretto {

// Rotary position embedding (Su et al., arXiv 2104.09864), in place on q and k of a qkv as in Attention; v stays.
// Halves are rotated, as Llama in Hugging Face and Megatron-LM do it: with d = head_dim, elements i and i + d/2 of a
// head are a pair that is turned by the angle p · f, where f = base^(−2i/d), changed by `scaling`, and p is the row's
// position in the sequence (`parts` of it are held), or with by_document in its document. forward: qkv[rows, Q] A,
// (documents R). dgrad: dqkv[rows, Q] A (turned back), (documents R).
// The operand is the whole qkv although v is not touched, so that the verifier sees one contiguous range.
struct Rope {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, seq = 0, head_dim = 0;
  double base = 10000;
  SequenceParts parts = {};
  RopeScaling scaling = {};
  bool by_document = false;

  static constexpr const char* kKind = "rope";
  static constexpr std::array kFields = {"pass",     "rows", "heads", "kv_heads", "seq",
                                         "head_dim", "base", "parts", "scaling",  "by_document"};
  bool operator==(const Rope&) const = default;
};

// The heads of multi-latent attention (LatentAttention), from products that hold a head's [nope, value] side by side
// and one key of `rope` elements that all heads share. Queries are [nope, rope] a head, and so are keys, [heads] of
// them before the values in kv. Neighbours 2i and 2i + 1 of a rope part are a pair, as in DeepSeek's weights; both are
// turned by the angle p · f, where p is the row's position, row mod seq, or with by_document its position in its
// document, and f = yarn.frequency(i), and multiplied by yarn.of_elements().
// forward: up[rows, heads·(nope+value)] R, key[rows, rope] R, q[rows, heads·(nope+rope)] A, kv[rows,
//          heads·(nope+rope+value)] W.
// dgrad:   dkv R, dq A (turned back), dup W, dkey W (the sum over the heads, turned back).
struct LatentHeads {
  Pass pass = Pass::forward;
  std::int64_t rows = 0, heads = 0, seq = 0, nope = 0, rope = 0, value = 0;
  double base = 10000;
  YarnScaling yarn = {};
  bool by_document = false;

  std::int64_t q_cols() const { return heads * (nope + rope); }
  std::int64_t up_cols() const { return heads * (nope + value); }
  std::int64_t kv_cols() const { return q_cols() + heads * value; }
  static constexpr const char* kKind = "latent_heads";
  static constexpr std::array kFields = {"pass", "rows",  "heads", "seq",  "nope",
                                         "rope", "value", "base",  "yarn", "by_document"};
  bool operator==(const LatentHeads&) const = default;
};

OperandList operands(const Rope& work);
OperandList operands(const LatentHeads& work);
std::string sizes_text(const Rope& work);
std::string sizes_text(const LatentHeads& work);

}  // namespace stretto
