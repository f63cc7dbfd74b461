#pragma once
#include "model/passes/tape.hpp"

namespace stretto::passes {

// The gradient of attention whose keys came from other ranks is an algorithm of its own and not the gradient of its
// messages: these write it. `ring`: the AttentionMerge of a ring of keys; `gathered`: the Attention of all keys.
void ring_gradient(const Node& merge, Tape& tape);
void gathered_gradient(const Node& attention, Tape& tape);

}  // namespace stretto::passes
