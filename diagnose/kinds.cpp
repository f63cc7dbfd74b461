#include "diagnose/kinds.hpp"

#include <algorithm>
#include <initializer_list>

#include "base/overloaded.hpp"

namespace stretto::diagnose {
namespace {

using trace::KernelClass;
using enum trace::KernelClass;

using Classes = std::initializer_list<KernelClass>;
bool is_in(KernelClass cls, Classes classes) { return std::find(classes.begin(), classes.end(), cls) != classes.end(); }

constexpr double kSure = 1, kMaybe = 0.5, kPart = 0.3;

// `sure` are kernels of that operation; `maybe` are what frameworks without a kernel of their own run for it, one
// after the other; `parts` only follow.
Fit fit(KernelClass cls, Classes sure, Classes maybe = {}, Classes parts = {}) {
  if (is_in(cls, sure)) return {kSure, kPart};
  if (is_in(cls, maybe)) return {kMaybe, kPart};
  if (is_in(cls, parts)) return {-1, kPart};
  return {};
}

// A kernel that is the whole operation: a second one is another operation.
Fit only_one(KernelClass cls, KernelClass sure, Classes parts) {
  return cls == sure ? Fit{kSure, -1} : fit(cls, {}, {}, parts);
}

Fit fit_of_attention(Pass pass, KernelClass cls) {
  if (pass == Pass::forward) return only_one(cls, attention_forward, {attention_part});
  // The parts come before and after.
  return fit(cls, {attention_backward, attention_part});
}

Fit fit_of_communication(const Work& work, KernelClass cls) {
  if (std::holds_alternative<PointToPoint>(work)) return fit(cls, {send_recv});
  switch (std::get<Collective>(work).kind) {
    case CollectiveKind::all_gather:
      return fit(cls, {all_gather}, {broadcast}, {all_gather});
    case CollectiveKind::reduce_scatter:
      return fit(cls, {reduce_scatter});
    case CollectiveKind::all_reduce:
      return fit(cls, {all_reduce});
    case CollectiveKind::all_to_all:
      return fit(cls, {all_to_all}, {send_recv});
    case CollectiveKind::dispatch:
      return fit(cls, {dispatch, all_to_all}, {send_recv, dispatch_part});
    case CollectiveKind::combine:
      return fit(cls, {combine, all_to_all}, {send_recv, dispatch_part});
  }
  return {};
}

Fit fit_of_elementwise(ElementwiseFn fn, KernelClass cls) {
  switch (fn) {
    case ElementwiseFn::gelu:
    case ElementwiseFn::gelu_backward:
    case ElementwiseFn::swiglu:
    case ElementwiseFn::swiglu_backward:
      return fit(cls, {activation}, {elementwise}, {cast, copy});
    case ElementwiseFn::column_sum:
      return fit(cls, {reduce}, {elementwise});
    case ElementwiseFn::add:
    case ElementwiseFn::bias_add:
    case ElementwiseFn::accumulate:
      return fit(cls, {elementwise}, {copy, cast});
  }
  return {};
}

}  // namespace

Fit fit_of(const Operation& operation, KernelClass cls) {
  if (is_communication(operation.work)) return fit_of_communication(operation.work, cls);
  if (trace::is_communication(cls)) return {};
  return std::visit(
      Overloaded{[&](const Gemm& g) {
                   return g.bias || g.epilogue != GemmEpilogue::none
                              ? only_one(cls, gemm, {gemm_reduce, elementwise, activation, reduce, cast, fill})
                              : only_one(cls, gemm, {gemm_reduce, cast, fill});
                 },
                 [&](const GroupedGemm&) {
                   return fit(cls, {gemm}, {}, {gemm_reduce, cast, fill, copy});
                 },
                 [&](const Attention& a) { return fit_of_attention(a.pass, cls); },
                 [&](const AttentionProduct&) {
                   return only_one(cls, gemm, {gemm_reduce, copy});
                 },
                 [&](const Softmax&) {
                   return fit(cls, {softmax}, {elementwise}, {cast, elementwise});
                 },
                 [&](const LayerNorm&) {
                   return fit(cls, {norm_forward, norm_backward}, {elementwise, reduce}, {cast, copy, fill});
                 },
                 [&](const RmsNorm&) {
                   return fit(cls, {norm_forward, norm_backward}, {elementwise, reduce}, {cast, copy, fill});
                 },
                 [&](const Elementwise& e) { return fit_of_elementwise(e.fn, cls); },
                 [&](const Dropout&) { return fit(cls, {dropout}, {elementwise}, {cast}); },
                 [&](const Rope&) {
                   return fit(cls, {rope}, {elementwise}, {copy, cast});
                 },
                 [&](const Embedding&) {
                   return fit(cls, {embedding}, {permute, elementwise}, {copy, fill, cast});
                 },
                 [&](const CrossEntropy&) {
                   return fit(cls, {cross_entropy}, {softmax, reduce, elementwise}, {cast, copy, fill, permute});
                 },
                 [&](const VocabStats&) {
                   return fit(cls, {cross_entropy}, {softmax, reduce, elementwise}, {cast, copy});
                 },
                 [&](const Fill&) { return fit(cls, {fill}, {elementwise}); },
                 [&](const Cast&) {
                   return fit(cls, {cast}, {copy, elementwise});
                 },
                 [&](const ScaledCast&) {
                   return fit(cls, {cast}, {copy, elementwise});
                 },
                 [&](const LocalReduce&) { return fit(cls, {reduce}, {elementwise}); },
                 [&](const SumSquares&) { return fit(cls, {gradient_norm}, {reduce}, {elementwise}); },
                 [&](const AdamW&) {
                   return fit(cls, {optimizer}, {elementwise}, {cast, copy});
                 },
                 [&](const Route&) {
                   return fit(cls, {router}, {softmax, elementwise}, {reduce, permute, copy, fill});
                 },
                 [&](const AttentionMerge&) {
                   return fit(cls, {attention_part}, {elementwise, reduce});
                 },
                 [&](const auto& w) {
                   using W = std::decay_t<decltype(w)>;
                   if constexpr (OfExperts<W>)
                     return fit(cls, {permute, router}, {reduce, elementwise, copy, fill, activation}, {cast});
                   else  // heads that are split, packed and joined
                     return fit(cls, {copy, rope}, {elementwise, permute, cast});
                 }},
      operation.work);
}

trace::Side side_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return trace::Side::forward;
    case Phase::dgrad:
    case Phase::wgrad:
      return trace::Side::backward;
    case Phase::setup:
    case Phase::grad_sync:
    case Phase::optimizer:
    case Phase::param_sync:
      return trace::Side::unknown;
  }
  return trace::Side::unknown;
}

}  // namespace stretto::diagnose
