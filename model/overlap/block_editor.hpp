#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Rewrites the operations of one block, with the waits and the calls of parts of the block that follow from them.
//
// An operation is either in sequence, as in the plain schedule (it waits for every earlier operation in sequence, on
// whatever lane), or free: then it waits only for operations that it shares data with. No lane begins the block before
// the block's first operation has started: all lanes wait for all waits of the call.
class BlockEditor {
 public:
  // Operations that an earlier editor has set free stay free. Where an earlier editor has replaced an operation that
  // other blocks share, this block has the replacements.
  BlockEditor(Lowered& lowered, BlockId block);

  bool has(const std::string& name) const;
  const Operation& operation(const std::string& name) const;  // the operation must exist

  void set_free(const std::string& name);
  void start_after(const std::string& name, const std::string& other);  // it starts when `other` has started
  // It waits for every earlier operation of the block, also for free ones, so that after it no lane has work left.
  void wait_for_all(const std::string& name);
  void remove(const std::string& name);
  // Replaces the operation by others, all of them free. Their names must be new. Those without a module are of that of
  // the replaced operation, and recomputed with it.
  void replace(const std::string& name, std::vector<Operation> operations);

  // Applies the changes; must be called once, at the end.
  void commit();

 private:
  struct Entry {
    OpId op = 0;
    std::uint32_t old = 0;  // index in the block of the operation that it replaces
    bool is_free = false;
    bool is_concurrent = false;  // a message in sequence, concurrent with the previous one
  };
  std::size_t find(const std::string& name) const;
  void add_entry(const Entry& entry);
  std::vector<BlockWait> waits() const;
  void update_calls() const;

  Lowered& lowered_;
  Schedule& schedule_;
  BlockId block_;
  std::vector<Entry> entries_;
};

}  // namespace stretto
