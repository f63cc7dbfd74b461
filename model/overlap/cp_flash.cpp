// Ulysses with attention cut by queries (Flash-A2A of arXiv 2604.24013): attention runs on the tokens of one rank at a
// time, so that their messages overlap with the attention of the next tokens. A rank's tokens are a zigzag part of the
// sequence, so all parts multiply equally much.
//
// Rank r of n that exchange tokens for heads; q_p, o_p: queries and output of rank p's tokens, for the heads of r.
// Forward, its own tokens last, p(i) = (r + 1 + i) mod n:
//   A_i = attention of q_{p(i)} to all keys;  send_i = o_{p(i)} to p(i), recv_i from (r − 1 − i) mod n, i < n − 1
// Edges:   A_i → send_i.   Keys and values are packed first, once.
// Backward, its own tokens first, p(i) = (r − i) mod n:
//   recv_i = do_{p(i)} from p(i), send_i to (r + i) mod n, 1 ≤ i;  D_i = gradients of q_{p(i)} and of all keys;
//   sum_i = Σ dkv, 1 ≤ i; at the last part with dq packed into dqkv
// Edges:   recv_i → D_i
// Time:    Ta, Td, Ts, Tc of an A, a D, a sum, a message.  Forward Ta + (n − 1) · max(Ta, Tc);  backward
//          max(n · Td + (n − 2) · Ts,  Tc + (n − 1) · Td + (n − 2) · Ts,  (n − 1) · Tc + Td), then packing.
//          The exchange of q, k and v before attention, and that of dqkv after it, stay exposed: attention needs all
//          keys.
// Numbers: dkv is a sum of n terms in the compute type, as in ring attention.
#include <string>
#include <utility>
#include <vector>

#include "model/lower/builder.hpp"
#include "model/overlap/block_editor.hpp"
#include "model/overlap/mode.hpp"

namespace stretto {
namespace {

constexpr const char* kKnob = "cp_flash_overlap";

// Returns all rows of a matrix of n parts, or the rows of one part.
View part_of(View whole, const Expr& part, std::int64_t n) {
  whole.rows /= n;
  whole.offset = whole.offset + part * Expr(whole.rows * whole.ld);
  return whole;
}

class CpFlash {
 public:
  explicit CpFlash(Lowered& lowered)
      : lowered_(lowered), schedule_(lowered.schedule), name_(lowered.cp_exchanged.name) {
    // Messages have a communicator of their own: on that of the collectives they would wait for collectives.
    Communicator own = schedule_.communicators[lowered.cp_exchanged.exchange.communicator];
    own.name = "cp.flash";
    schedule_.communicators.push_back(own);
    communicator_ = static_cast<std::uint32_t>(schedule_.communicators.size() - 1);
    n_ = own.size;
    place_ = lowered.cp_exchanged.exchange.place;
    // Other layers may have a ring, whose lanes exist already.
    lane_send_ = lowered.cp_send != 0 ? lowered.cp_send : add_lane("cp.send");
    lane_recv_ = lowered.cp_recv != 0 ? lowered.cp_recv : add_lane("cp.recv");
  }

  void run() {
    for (const BlockId id : lowered_.layer_blocks) {
      BlockEditor block(lowered_, id);
      for (const std::string again : {"", ".recompute"})
        if (is_cut(block, name_ + ".fprop" + again)) forward(block, again);
      if (is_cut(block, name_ + ".dgrad")) backward(block);
      block.commit();
    }
  }

 private:
  // Kernels with windows, chunks, caps or sinks have queries and keys in one operand, so that they stay whole.
  static bool is_cut(const BlockEditor& block, const std::string& name) {
    return block.has(name) && std::get<Attention>(block.operation(name).work).rules == ScoreRules{};
  }
  LaneId add_lane(const std::string& name) {
    schedule_.lanes.push_back({name, LaneKind::communication, 0});
    return static_cast<LaneId>(schedule_.lanes.size() - 1);
  }
  View workspace(const std::string& name, std::int64_t rows, std::int64_t cols) {
    auto tensor = schedule_.find_tensor(name);
    if (!tensor) tensor = add_tensor(schedule_, name, schedule_.compute_dtype, BufferKind::workspace, rows, cols);
    return whole(schedule_, *tensor);
  }
  Expr after(std::int64_t ranks) const { return mod(place_ + Expr(ranks), Expr(n_)); }
  Operation message(const Operation& like, const std::string& suffix, bool is_send, std::int64_t offset,
                    View view) const {
    const PointToPoint work{is_send, communicator_, offset, view.rows * view.cols};
    return {like.name + suffix,
            work,
            is_send ? lane_send_ : lane_recv_,
            like.phase,
            {is_send ? read(std::move(view)) : write(std::move(view))}};
  }
  static Operation piece_of(const Operation& whole, std::int64_t i, Attention work, std::vector<Access> accesses) {
    // The last operands are the key of dropout and documents.
    const std::ptrdiff_t more = (work.dropout > 0 ? 1 : 0) + (work.by_document ? 1 : 0);
    accesses.insert(accesses.end(), whole.accesses.end() - more, whole.accesses.end());
    return {whole.name + "." + std::to_string(i), std::move(work), whole.lane, whole.phase, std::move(accesses)};
  }

  // Packs the keys and values of all tokens, which every part reads.
  View pack(const Operation& attention, std::vector<Operation>& pieces) {
    const auto& work = std::get<Attention>(attention.work);
    const View qkv = attention.accesses[0].view;
    const View kv = workspace(name_ + ".kv_packed", qkv.rows, 2 * work.kv_heads * work.head_dim);
    pieces.push_back({attention.name + ".pack_kv",
                      PackKv{qkv.rows, work.heads, work.kv_heads, work.head_dim},
                      attention.lane,
                      attention.phase,
                      {read(qkv), write(kv)}});
    return kv;
  }

  void forward(BlockEditor& block, const std::string& again) {
    const Operation attention = block.operation(name_ + ".fprop" + again);
    const std::string swap = name_ + ".all_to_all_out" + again;
    const View qkv = attention.accesses[0].view, out = attention.accesses[1].view, lse = attention.accesses[2].view;
    Attention work = std::get<Attention>(attention.work);
    work.kv_apart = true;
    std::vector<Operation> pieces;
    const View kv = pack(attention, pieces);
    // An output that is recomputed only for its own gradient is not sent.
    const bool is_sent = block.has(swap);
    const View came = is_sent ? block.operation(swap).accesses[1].view : View{};
    for (std::int64_t i = 0; i < n_; ++i) {
      const Expr part = after(1 + i);
      work.queries = {n_, part, 1};
      pieces.push_back(piece_of(
          attention, i, work,
          {read(part_of(qkv, part, n_)), read(kv), write(part_of(out, part, n_)), write(part_of_lse(lse, part))}));
      if (!is_sent || i + 1 == n_) continue;
      const std::string number = std::to_string(i);
      pieces.push_back(message(attention, ".send" + number, true, 1 + i, part_of(out, part, n_)));
      pieces.push_back(message(attention, ".recv" + number, false, -1 - i, part_of(came, after(-1 - i), n_)));
    }
    if (is_sent) {
      const View own = part_of(out, after(0), n_);
      pieces.push_back({attention.name + ".copy",
                        Cast{own.rows * own.cols},
                        attention.lane,
                        attention.phase,
                        {read(own), write(part_of(came, after(0), n_))}});
      block.remove(swap);
    }
    block.replace(attention.name, std::move(pieces));
  }

  void backward(BlockEditor& block) {
    const Operation attention = block.operation(name_ + ".dgrad"), swap = block.operation(name_ + ".all_to_all_dout");
    const View qkv = attention.accesses[0].view, out = attention.accesses[1].view, lse = attention.accesses[2].view,
               dout = attention.accesses[3].view, dqkv = attention.accesses[4].view, sent = swap.accesses[0].view;
    Attention work = std::get<Attention>(attention.work);
    work.kv_apart = true;
    std::vector<Operation> pieces;
    const View kv = pack(attention, pieces);
    const View dq = workspace("d_" + name_ + ".dq", qkv.rows, work.heads * work.head_dim),
               sum = workspace("d_" + name_ + ".dkv_sum", kv.rows, kv.cols),
               own = workspace("d_" + name_ + ".dkv", kv.rows, kv.cols);
    for (std::int64_t i = 0; i < n_; ++i) {
      const Expr part = after(-i);
      const std::string number = std::to_string(i);
      if (i > 0) {
        pieces.push_back(message(attention, ".send" + number, true, i, part_of(sent, after(i), n_)));
        pieces.push_back(message(attention, ".recv" + number, false, -i, part_of(dout, part, n_)));
      }
      work.queries = {n_, part, 1};
      pieces.push_back(piece_of(
          attention, i, work,
          {read(part_of(qkv, part, n_)), read(kv), read(part_of(out, part, n_)), read(part_of_lse(lse, part)),
           read(part_of(i == 0 ? sent : dout, part, n_)), write(part_of(dq, part, n_)), write(i == 0 ? sum : own)}));
      if (i > 0 && i + 1 < n_)
        pieces.push_back({name_ + ".sum_dkv." + number,
                          Elementwise{ElementwiseFn::accumulate, own.rows, own.cols},
                          attention.lane,
                          attention.phase,
                          {read(own), accumulate(sum)}});
    }
    pieces.push_back({name_ + ".sum_dqkv",
                      JoinQkv{1, 2, qkv.rows, work.heads, work.kv_heads, work.head_dim},
                      attention.lane,
                      attention.phase,
                      {read(dq), read(sum), read(own), write(dqkv)}});
    block.remove(swap.name);
    block.replace(attention.name, std::move(pieces));
  }

  // Returns the log-sum-exps of one part, [batch · heads, tokens of a sequence in it]. One part follows the other here,
  // where attention as a whole has all parts of a sequence in one row; only the cut operations read and write these.
  View part_of_lse(View lse, const Expr& part) const {
    lse.cols /= n_;
    lse.ld = lse.cols;
    lse.offset = lse.offset + part * Expr(lse.rows * lse.cols);
    return lse;
  }

  Lowered& lowered_;
  Schedule& schedule_;
  const std::string name_;
  std::int64_t n_ = 1;
  Expr place_;  // place of the rank
  LaneId lane_send_ = 0, lane_recv_ = 0;
  std::uint32_t communicator_ = 0;
};

void add_gates(const Scenario& scenario, Gates& gates) {
  const Parallel& p = scenario.parallel;
  const bool asked = scenario.overlap.cp_flash_overlap;
  gates.above_one(kKnob, asked, "context_parallel_size", p.context_parallel_size);
  gates.add({.knob = kKnob,
             .needs = "cp_comm_type = a2a",
             .source = kOwnGate,
             .asked = asked,
             .open = p.context_parallel_size == 1 || p.has_cp_comm_type(CpCommType::a2a),
             .why = "cp_comm_type is " + names_of(p.cp_comm_types()) +
                    "; attention is cut by whose tokens they are where a rank has all of them"});
}

}  // namespace

OverlapMode cp_flash_overlap_mode() {
  return {
      .name = kKnob,
      .meaning = "Ulysses: attention goes through one rank's tokens after the other, whose heads move meanwhile",
      .memory = "keys and values of a layer packed apart, and two of their gradients",
      .knob = kKnob,
      .on = &Overlap::cp_flash_overlap,
      .applies = [](const Parallel& p) { return p.context_parallel_size > 1 && p.has_cp_comm_type(CpCommType::a2a); },
      .gates = add_gates,
      .rewrite = [](Lowered& lowered, const Scenario&, const Gates&) { CpFlash(lowered).run(); }};
}

}  // namespace stretto
