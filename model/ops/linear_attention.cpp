#include "model/ops/linear_attention.hpp"

#include "model/ops/sizes_text.hpp"

namespace stretto {

OperandList operands(const ShortConv& c) {
  using namespace operand_specs;
  if (c.rows < 1 || c.channels < 1 || c.seq < 1 || c.width < 1) return bad("dimensions must be positive");
  if (c.rows % c.seq != 0) return bad("rows must be whole sequences");
  if (c.pass == Pass::backward) return bad("its gradients are two operations");
  const bool is_forward = c.pass == Pass::forward;
  const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, c.rows, c.channels}; };
  const auto weights = [&](const char* name, const char* bias, const char* modes) {
    std::vector<OperandSpec> specs = {{name, modes, c.channels, c.width}};
    if (c.bias) specs.push_back(vector_of(bias, modes, c.channels));
    return specs;
  };
  OperandList list;
  const auto append = [&](const std::vector<OperandSpec>& specs) {
    list.operands.insert(list.operands.end(), specs.begin(), specs.end());
  };
  if (!is_forward) append({full("dy", "R")});
  append({full("x", "R")});
  append(weights("weight", "bias", "R"));
  if (c.pass == Pass::wgrad)
    append(weights("dweight", "dbias", "A"));
  else
    append({full(is_forward ? "y" : "dx", "W")});
  return list;
}

OperandList operands(const LinearGates& g) {
  using namespace operand_specs;
  if (g.rows < 1 || g.heads < 1) return bad("dimensions must be positive");
  if (g.pass == Pass::backward) return bad("its gradients are two operations");
  const auto full = [&](const char* name, const char* modes) { return OperandSpec{name, modes, g.rows, g.heads}; };
  const bool is_forward = g.pass == Pass::forward, has_rate = g.own_rate && g.pass != Pass::wgrad;
  OperandList list;
  std::vector<OperandSpec>& all = list.operands;
  if (!is_forward) all.insert(all.end(), {full("drate", "R"), full("ddecay", "R")});
  if (has_rate) all.push_back(full("raw_rate", "R"));
  all.insert(all.end(), {full("raw_decay", "R"), vector_of("a_log", "R", g.heads), vector_of("dt_bias", "R", g.heads)});
  if (is_forward) {
    all.insert(all.end(), {full("rate", "W"), full("decay", "W")});
  } else if (g.pass == Pass::wgrad) {
    all.insert(all.end(), {vector_of("da_log", "A", g.heads), vector_of("ddt_bias", "A", g.heads)});
  } else {
    if (has_rate) all.push_back(full("draw_rate", "W"));
    all.push_back(full("draw_decay", "W"));
  }
  return list;
}

OperandList operands(const LinearAttention& a) {
  using namespace operand_specs;
  if (a.batch < 1 || a.heads < 1 || a.key_heads < 1 || a.seq < 1 || a.key_dim < 1 || a.value_dim < 1)
    return bad("dimensions must be positive");
  if (a.heads % a.key_heads != 0) return bad("key_heads must divide heads");
  if (a.pass == Pass::backward) return bad("its gradients are two operations");
  if (a.pass == Pass::wgrad && !a.skip) return bad("without skip it has no weights");
  const auto keys = [&](const char* name, const char* modes) {
    return OperandSpec{name, modes, a.rows(), a.key_cols()};
  };
  const auto values = [&](const char* name, const char* modes) {
    return OperandSpec{name, modes, a.rows(), a.value_cols()};
  };
  const auto numbers = [&](const char* name, const char* modes) { return OperandSpec{name, modes, a.rows(), a.heads}; };
  if (a.pass == Pass::wgrad) return {{values("v", "R"), values("do", "R"), vector_of("dskip", "A", a.heads)}, ""};
  OperandList list{{keys("q", "R"), keys("k", "R"), values("v", "R"), numbers("rate", "R"), numbers("decay", "R")}, ""};
  if (a.skip) list.operands.push_back(vector_of("skip", "R", a.heads));
  if (a.pass == Pass::forward)
    list.operands.push_back(values("o", "W"));
  else
    list.operands.insert(list.operands.end(), {values("do", "R"), keys("dq", "W"), keys("dk", "W"), values("dv", "W"),
                                               numbers("drate", "W"), numbers("ddecay", "W")});
  return list;
}

OperandList operands(const GatedNorm& n) {
  using namespace operand_specs;
  if (n.rows < 1 || n.groups < 1 || n.cols < 1) return bad("dimensions must be positive");
  if (n.pass == Pass::backward) return bad("its gradients are two operations");
  const auto full = [&](const char* name, const char* modes) {
    return OperandSpec{name, modes, n.rows, n.groups * n.cols};
  };
  if (n.pass == Pass::wgrad)
    return {{full("dy", "R"), full("x", "R"), full("z", "R"), vector_of("dweight", "A", n.weights())}, ""};
  OperandList list{{full("x", "R"), full("z", "R"), vector_of("weight", "R", n.weights())}, ""};
  if (n.pass == Pass::forward) {
    list.operands.push_back(full("y", "W"));
    return list;
  }
  list.operands.insert(list.operands.begin(), full("dy", "R"));
  list.operands.insert(list.operands.end(), {full("dx", "W"), full("dz", "W")});
  return list;
}

std::string sizes_text(const ShortConv& c) {
  return std::string(name_of(c.pass)) + " " + dims(c.rows, c.channels) + " width " + std::to_string(c.width) +
         (c.bias ? " +bias" : "");
}

std::string sizes_text(const LinearGates& g) { return std::string(name_of(g.pass)) + " " + dims(g.rows, g.heads); }

std::string sizes_text(const LinearAttention& a) {
  return std::string(name_of(a.pass)) + " batch " + std::to_string(a.batch) + heads_text(a.heads, a.key_heads) +
         " seq " + std::to_string(a.seq) + " dim " + std::to_string(a.key_dim) + " values " +
         std::to_string(a.value_dim) + (a.delta ? " delta" : "");
}

std::string sizes_text(const GatedNorm& n) {
  return std::string(name_of(n.pass)) + " " + dims(n.rows, n.cols) + " groups " + std::to_string(n.groups);
}

double counted_flops(const ShortConv& c) { return 2.0 * double(c.rows) * double(c.channels) * double(c.width); }

double counted_flops(const LinearAttention& a) {
  // Megatron-LM (training/training.py of d98e8a64, num_floating_point_operations) counts four products of a token
  // with the state for the delta rule and 3.5 for Mamba-2, and twice as many for their gradients.
  const double products = a.delta ? 4 : 3.5, times = a.pass == Pass::forward ? 1 : a.pass == Pass::dgrad ? 2 : 0;
  return times * products * 2 * double(a.rows()) * double(a.heads) * double(a.key_dim * a.value_dim);
}

}  // namespace stretto
