#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/lower/lower.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Rewrites the operations of one block and what follows from them: its waits, and the calls of parts of it.
//
// An operation is either in sequence, as the plain schedule has it (it waits for everything in sequence before it, on
// whatever lane), or free: then it waits only for operations that it shares data with, whatever else is under way. No
// lane begins the block before its first operation has started: what a call waits for, all of its lanes wait for.
class BlockEditor {
 public:
  // Operations that an editor before this one has set free stay so, and what it has made of an operation that other
  // blocks have too is there in this one.
  BlockEditor(Lowered& lowered, BlockId block);

  bool has(const std::string& name) const;
  const Operation& operation(const std::string& name) const;  // which must be there

  void set_free(const std::string& name);
  void remove(const std::string& name);
  // In place of the operation come others, all of them free. Names are new.
  void replace(const std::string& name, std::vector<Operation> operations);

  // Must be called once, at the end: nothing changes before.
  void commit();

 private:
  struct Entry {
    OpId op = 0;
    std::uint32_t old = 0;  // index in the block of what it stands for
    bool is_free = false;
    bool is_beside = false;  // a message that runs beside the one before it, in sequence
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
