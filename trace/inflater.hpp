#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stretto::trace {

// Unpacks gzip (RFC 1952), also of several members. The page has another one (page/json_alone.cpp), because zlib is not
// in it.
class Inflater {
 public:
  // `name`: of the file, for messages.
  explicit Inflater(std::string name);
  ~Inflater();

  // Fills `plain` from its beginning on and returns the number of bytes, at least one; 0 at the end of the file. read()
  // returns the next packed bytes, none at the end; they must stay until it is called again. Throws Error(input) with
  // the name where gzip is damaged or ends early.
  std::size_t inflate_to(std::vector<char>& plain, const std::function<std::span<const char>()>& read);

 private:
  struct Stream;
  std::string name_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace stretto::trace
