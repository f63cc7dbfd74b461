#include "exec/state/header_json.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace stretto::exec {
namespace {

using Json = nlohmann::json;

// Reduces the library's events to three: a value begins, a container ends, a key. (The library's own tree, filtered by
// a callback, takes time quadratic in the number of an object's values.)
class Events : public nlohmann::json_sax<Json> {
 public:
  enum class Kind { object, array, number, text, other };
  struct Value {
    Kind kind;
    std::uint64_t number = 0;
    std::string* text = nullptr;
  };

  bool null() final { return value({Kind::other}), true; }
  bool boolean(bool) final { return value({Kind::other}), true; }
  bool number_integer(std::int64_t) final { return value({Kind::other}), true; }  // negative
  bool number_unsigned(std::uint64_t number) final { return value({Kind::number, number}), true; }
  bool number_float(double, const std::string&) final { return value({Kind::other}), true; }
  bool string(std::string& text) final { return value({Kind::text, 0, &text}), true; }
  bool binary(Json::binary_t&) final { return value({Kind::other}), true; }
  bool start_object(std::size_t) final { return value({Kind::object}), true; }
  bool start_array(std::size_t) final { return value({Kind::array}), true; }
  bool end_object() final { return close(), true; }
  bool end_array() final { return close(), true; }
  bool key(std::string& text) final { return key_is(text), true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) final {
    malformed(std::string(error.what()).substr(0, kMostOfReason));
    return false;
  }

 protected:
  virtual void value(const Value& value) = 0;
  virtual void close() = 0;
  virtual void key_is(std::string& key) = 0;
  virtual void malformed(const std::string& reason) = 0;

 private:
  static constexpr std::size_t kMostOfReason = 200;
};

class HeaderEvents final : public Events {
 public:
  explicit HeaderEvents(const std::string& name) : name_(name) {}
  HeaderJson header;

 private:
  enum class Place { begin, file, metadata, tensor, shape, offsets, unknown };
  enum class Field { dtype, shape, offsets, unknown };

  void value(const Value& value) override {
    switch (place_) {
      case Place::begin:
        if (value.kind != Kind::object) throw input_error(name_ + ": expected the header to be a JSON object");
        place_ = Place::file;
        return;
      case Place::file:
        return key_ == "__metadata__" ? begin_metadata(value) : begin_tensor(value);
      case Place::metadata:
        if (value.kind != Kind::text)
          throw input_error(fmt::format("{}: __metadata__: {}: expected a string", name_, printable(key_)));
        if (!header.metadata.emplace(std::move(key_), std::move(*value.text)).second)
          throw input_error(fmt::format("{}: __metadata__ names a key twice", name_));
        return;
      case Place::tensor:
        return begin_field(value);
      case Place::shape:
        header.tensors.back().shape.push_back(count_of(value, "shape"));
        if (header.tensors.back().shape.size() > kMaxDimensions)
          throw tensor_error(fmt::format("shape: expected at most {} dimensions", kMaxDimensions));
        return;
      case Place::offsets: {
        const auto offset = static_cast<std::size_t>(count_of(value, "data_offsets"));
        if (++offsets_ > 2) throw tensor_error("data_offsets: expected two integers");
        (offsets_ == 1 ? header.tensors.back().begin : header.tensors.back().end) = offset;
        return;
      }
      case Place::unknown:
        if (value.kind == Kind::object || value.kind == Kind::array) ++depth_;
        return;
    }
  }

  void close() override {
    switch (place_) {
      case Place::begin:
      case Place::file:
        return;
      case Place::metadata:
        place_ = Place::file;
        return;
      case Place::tensor:
        for (const Field field : {Field::dtype, Field::shape, Field::offsets})
          if (!has_[static_cast<int>(field)]) throw tensor_error("expected dtype, shape and data_offsets");
        place_ = Place::file;
        return;
      case Place::offsets:
        if (offsets_ != 2) throw tensor_error("data_offsets: expected two integers");
        place_ = Place::tensor;
        return;
      case Place::shape:
        place_ = Place::tensor;
        return;
      case Place::unknown:
        if (--depth_ == 0) place_ = Place::tensor;
        return;
    }
  }

  void key_is(std::string& key) override {
    if (place_ != Place::unknown) key_ = std::move(key);
  }

  void begin_metadata(const Value& value) {
    if (value.kind != Kind::object) throw input_error(name_ + ": __metadata__: expected an object of strings");
    if (std::exchange(has_metadata_, true)) throw input_error(name_ + ": the header names __metadata__ twice");
    place_ = Place::metadata;
  }

  void begin_tensor(const Value& value) {
    header.tensors.push_back({std::move(key_), {}, {}, 0, 0});
    if (value.kind != Kind::object) throw tensor_error("expected dtype, shape and data_offsets");
    has_[0] = has_[1] = has_[2] = false;
    place_ = Place::tensor;
  }

  void begin_field(const Value& value) {
    const Field field = key_ == "dtype"          ? Field::dtype
                        : key_ == "shape"        ? Field::shape
                        : key_ == "data_offsets" ? Field::offsets
                                                 : Field::unknown;
    if (field != Field::unknown && std::exchange(has_[static_cast<int>(field)], true))
      throw tensor_error(key_ + " is there twice");
    switch (field) {
      case Field::dtype:
        if (value.kind != Kind::text) throw tensor_error("dtype: expected a string");
        header.tensors.back().dtype = std::move(*value.text);
        return;
      case Field::shape:
        if (value.kind != Kind::array) throw tensor_error("shape: expected an array");
        place_ = Place::shape;
        return;
      case Field::offsets:
        if (value.kind != Kind::array) throw tensor_error("data_offsets: expected two integers");
        offsets_ = 0;
        place_ = Place::offsets;
        return;
      case Field::unknown:
        if (value.kind != Kind::object && value.kind != Kind::array) return;
        depth_ = 1;
        place_ = Place::unknown;
        return;
    }
  }

  std::int64_t count_of(const Value& value, const char* field) const {
    if (value.kind != Kind::number || value.number > std::numeric_limits<std::int64_t>::max())
      throw tensor_error(std::string(field) + ": expected a non-negative integer");
    return static_cast<std::int64_t>(value.number);
  }

  Error tensor_error(const std::string& what) const {
    // A name may hold any character, also NUL, which would end the message.
    return input_error(fmt::format("{}: tensor {}: {}", name_, printable(header.tensors.back().name), printable(what)));
  }

  void malformed(const std::string& reason) override {
    throw input_error(fmt::format("{}: malformed header: {}", name_, reason));
  }

  const std::string& name_;
  Place place_ = Place::begin;
  std::string key_;
  bool has_metadata_ = false;
  bool has_[3] = {};       // fields of the tensor so far
  int offsets_ = 0;        // offsets of the tensor so far
  std::size_t depth_ = 0;  // open containers in the value of a key that the format does not define
};

class IndexEvents final : public Events {
 public:
  explicit IndexEvents(const std::string& name) : name_(name) {}
  std::map<std::string, std::string> files;
  bool has_map = false;

 private:
  void value(const Value& value) override {
    const bool is_container = value.kind == Kind::object || value.kind == Kind::array;
    const auto expected = [&] {
      return input_error(name_ + ": expected an object weight_map of tensor and file names");
    };
    if (depth_ == 0 && value.kind != Kind::object) throw expected();
    if (depth_ == 1 && key_ == "weight_map") {
      if (value.kind != Kind::object || std::exchange(has_map, true)) throw expected();
      is_in_map_ = true;
    } else if (is_in_map_) {
      if (value.kind != Kind::text) throw expected();
      const std::string& file = *value.text;
      if (file.empty() || file == "." || file == ".." ||
          file.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
        throw input_error(fmt::format("{}: weight_map: {}: expected a file of the same folder, got \"{}\"", name_,
                                      printable(key_), printable(file)));
      const auto [at, is_new] = files.emplace(std::move(key_), std::move(*value.text));
      if (!is_new) throw input_error(fmt::format("{}: weight_map names {} twice", name_, printable(at->first)));
    }
    if (is_container) ++depth_;
  }
  void close() override {
    if (--depth_ == 1) is_in_map_ = false;
  }
  void key_is(std::string& key) override {
    if (depth_ == 1 || is_in_map_) key_ = std::move(key);
  }
  void malformed(const std::string& reason) override {
    throw input_error(fmt::format("{}: malformed index: {}", name_, reason));
  }

  const std::string& name_;
  std::size_t depth_ = 0;
  std::string key_;
  bool is_in_map_ = false;
};

// The library's messages repeat the blanks before an error, with eight bytes for each that is no space, in several
// copies: for a file of line breaks alone, fifty times its size.
bool has_many_line_breaks(std::string_view text) {
  constexpr int kMost = 64;
  int in_a_row = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == '\t')
      ++in_a_row;
    else if (c != ' ')
      in_a_row = 0;
    if (in_a_row > kMost) return true;
  }
  return false;
}

}  // namespace

HeaderJson parse_header_json(std::string_view text, const std::string& name) {
  if (has_many_line_breaks(text))
    throw input_error(name + ": malformed header: expected at most 64 line breaks in a row");
  HeaderEvents events(name);
  Json::sax_parse(text.begin(), text.end(), &events);
  return std::move(events.header);
}

std::map<std::string, std::string> parse_weight_map(std::string_view text, const std::string& name) {
  if (has_many_line_breaks(text))
    throw input_error(name + ": malformed index: expected at most 64 line breaks in a row");
  IndexEvents events(name);
  Json::sax_parse(text.begin(), text.end(), &events);
  if (!events.has_map) throw input_error(name + ": expected an object weight_map of tensor and file names, got none");
  return std::move(events.files);
}

}  // namespace stretto::exec
