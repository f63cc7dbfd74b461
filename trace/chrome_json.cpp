#include "trace/chrome_json.hpp"

#include <algorithm>
#include <istream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/charconv.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "base/toml.hpp"

namespace stretto::trace {
namespace {

enum class Field : std::uint8_t { none, phase, category, name, pid, tid, begin, length, arguments };

Field field_named(const std::string& key) {
  constexpr std::pair<std::string_view, Field> kFields[] = {
      {"ph", Field::phase}, {"cat", Field::category}, {"name", Field::name},  {"pid", Field::pid},
      {"tid", Field::tid},  {"ts", Field::begin},     {"dur", Field::length}, {"args", Field::arguments}};
  for (const auto& [name, field] : kFields)
    if (key == name) return field;
  return Field::none;
}

enum class Kept : std::uint8_t { nothing, argument, shapes, types, grid };
struct KeptArgument {
  Kept kept = Kept::nothing;
  Argument argument = Argument::count;
};

KeptArgument argument_named(const std::string& key) {
  constexpr std::pair<std::string_view, Argument> kArguments[] = {
      {"stream", Argument::stream},
      {"device", Argument::device},
      {"correlation", Argument::correlation},
      {"Collective name", Argument::collective},
      {"In msg nelems", Argument::in_elements},
      {"Out msg nelems", Argument::out_elements},
      {"Group size", Argument::group_size},
      {"dtype", Argument::dtype},
      {"Process Group Name", Argument::group},
      {"External id", Argument::external},
      {"name", Argument::name},
      {"op", Argument::op},
      {"work", Argument::work},
      {"queued_us", Argument::queued_us},
      {"waited_for_peers_us", Argument::waited_for_peers_us},
      {"waited_for_joined_us", Argument::waited_for_joined_us},
      {"element_bytes", Argument::element_bytes},
      {"group", Argument::group},
      {"group_size", Argument::group_size}};
  for (const auto& [name, argument] : kArguments)
    if (key == name) return {Kept::argument, argument};
  if (key == "Input Dims") return {Kept::shapes, Argument::count};
  if (key == "Input type") return {Kept::types, Argument::count};
  if (key == "grid") return {Kept::grid, Argument::count};
  return {};
}

// The reader of nlohmann's events. Depths count open objects and arrays.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(InputBuffer& buffer, const std::function<void(const ChromeEvent&)>& use)
      : buffer_(buffer), name_(buffer.name()), use_(use) {}

  ChromeHeader header;
  bool has_events = false;

  bool null() override { return buffer_.saw_value(), true; }
  bool boolean(bool) override { return buffer_.saw_value(), true; }
  bool number_integer(number_integer_t value) override { return number(value, std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<std::int64_t>(std::min<number_unsigned_t>(value, INT64_MAX)), std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override { return number(0, text); }
  bool string(string_t& text) override {
    buffer_.saw_value();
    value(text);
    if (depth_ == event_depth_ + 2 && kept_.kept == Kept::types && event_.type.empty()) event_.type = text;
    return true;
  }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    open();
    if (depth_ == 1) is_object_ = true;
    if (events_depth_ > 0 && depth_ == events_depth_ + 1) {
      event_depth_ = depth_;
      event_.clear();
      field_ = Field::none;
    }
    return true;
  }
  bool end_object() override {
    if (event_depth_ > 0 && depth_ == event_depth_) {
      require_times();
      use_(event_);
      event_depth_ = 0;
    }
    close();
    return true;
  }
  bool start_array(std::size_t) override {
    open();
    if (depth_ == 1 || (depth_ == 2 && is_object_ && top_key_ == "traceEvents")) {
      events_depth_ = depth_;
      has_events = true;
    }
    if (is_shape()) {
      if (event_.shapes.size() == kMostOperands) throw too_large_shape(kMostOperands, "operands");
      event_.shapes.emplace_back();
    }
    return true;
  }
  bool end_array() override {
    if (depth_ == events_depth_) events_depth_ = 0;
    close();
    return true;
  }
  bool key(string_t& text) override {
    buffer_.saw_value();
    if (event_depth_ > 0) {
      if (depth_ == event_depth_) field_ = field_named(text);
      if (depth_ == event_depth_ + 1) kept_ = field_ == Field::arguments ? argument_named(text) : KeptArgument{};
    } else if (depth_ == 1) {
      top_key_ = text;
    } else {
      inner_key_ = text;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    const std::string_view what = error.what();
    const auto says = [&](const char* text) { return what.find(text) != std::string_view::npos; };
    // A word or a number that is cut short looks like another one.
    const bool is_cut =
        buffer_.sgetc() == std::char_traits<char>::eof() && (says("invalid literal") || says("invalid number"));
    throw input_error(name_ + ": byte " + std::to_string(position) + ": " +
                      (is_cut || says("unexpected end of input") || says("missing closing quote")
                           ? "JSON ends in the middle; expected a whole trace"
                           : "expected JSON of a trace, got " + in_quotes(printable(token.substr(0, 40)))));
  }

 private:
  static constexpr int kMostDepth = 64;
  static constexpr std::size_t kMostSizes = 64, kMostOperands = 1 << 14;  // PyTorch's tensors have at most 64 sizes

  void open() {
    buffer_.saw_value();
    if (++depth_ > kMostDepth)
      throw input_error(name_ + ": expected values inside each other at most " + std::to_string(kMostDepth) +
                        " times, got more");
  }
  Error too_large_shape(std::size_t most, const char* what) const {
    return input_error(name_ + ": event " + in_quotes(printable(event_.name.substr(0, 80))) +
                       ": Input Dims: expected at most " + std::to_string(most) + " " + what + ", got more");
  }
  void close() {
    buffer_.saw_value();
    if (depth_ == event_depth_ + 1) kept_ = {};
    --depth_;
  }
  // Events of a device and operations of Stretto's own have times. Other events are allowed to lack them.
  void require_times() const {
    const bool has_times = event_.phase == "X" && (event_.category == "kernel" || !event_[Argument::op].empty());
    const bool has_length = event_.length.is_there && event_.length.us >= 0;
    if (!has_times || (has_length && event_.begin.is_there)) return;
    throw input_error(name_ + ": event " + in_quotes(printable(event_.name.substr(0, 80))) +
                      (has_length ? ": expected a \"ts\" in microseconds, of at most 1e15 where it has an exponent"
                                  : ": expected a \"dur\" from 0 to 1e15 microseconds"));
  }
  // An array directly in the array of "Input Dims".
  bool is_shape() const { return event_depth_ > 0 && depth_ == event_depth_ + 3 && kept_.kept == Kept::shapes; }

  bool number(std::int64_t integer, const std::string& text) {
    buffer_.saw_value();
    if (is_shape()) {
      if (event_.shapes.back().size() == kMostSizes) throw too_large_shape(kMostSizes, "sizes");
      event_.shapes.back().push_back(integer);
      return true;
    }
    if (event_depth_ > 0 && depth_ == event_depth_ + 2 && kept_.kept == Kept::grid) {
      constexpr std::int64_t kMostBlocks = std::int64_t{1} << 31;
      const std::int64_t side = std::clamp<std::int64_t>(integer, 1, kMostBlocks);
      event_.blocks = std::min(kMostBlocks, std::max<std::int64_t>(1, event_.blocks) * side);
      return true;
    }
    if (event_depth_ > 0 && depth_ == event_depth_ && (field_ == Field::begin || field_ == Field::length)) {
      (field_ == Field::begin ? event_.begin : event_.length) = written_time(text);
      return true;
    }
    value(text);
    return true;
  }

  void value(const std::string& text) {
    if (event_depth_ == 0) {
      if (depth_ == 2 && top_key_ == "distributedInfo" && inner_key_ == "rank") header.rank = text;
      if (depth_ == 2 && top_key_ == "distributedInfo" && inner_key_ == "world_size") header.ranks = text;
      if (depth_ == 3 && top_key_ == "deviceProperties" && inner_key_ == "name" && header.device.empty())
        header.device = text;
      return;
    }
    if (depth_ == event_depth_ + 1 && field_ == Field::arguments && kept_.kept == Kept::argument) {
      event_.arguments[static_cast<std::size_t>(kept_.argument)] = text;
      return;
    }
    if (depth_ != event_depth_) return;
    switch (field_) {
      case Field::phase:
        event_.phase = text;
        break;
      case Field::category:
        event_.category = text;
        break;
      case Field::name:
        event_.name = text;
        break;
      case Field::pid:
        event_.pid = text;
        break;
      case Field::tid:
        event_.tid = text;
        break;
      case Field::begin:
        event_.begin = written_time(text);
        break;
      case Field::length:
        event_.length = written_time(text);
        break;
      case Field::arguments:
      case Field::none:
        break;
    }
  }

  InputBuffer& buffer_;
  const std::string& name_;
  const std::function<void(const ChromeEvent&)>& use_;
  int depth_ = 0, events_depth_ = 0, event_depth_ = 0;  // 0: outside
  bool is_object_ = false;
  std::string top_key_, inner_key_;
  Field field_ = Field::none;
  KeptArgument kept_;
  ChromeEvent event_;
};

}  // namespace

void ChromeEvent::clear() {
  for (std::string* text : {&phase, &category, &name, &pid, &tid, &type}) text->clear();
  begin = length = {};
  for (std::string& argument : arguments) argument.clear();
  shapes.clear();
  blocks = 0;
}

WrittenTime written_time(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  std::int64_t us = 0, ps = 0;
  const auto [point, problem] = std::from_chars(text.data(), text.data() + text.size(), us);
  constexpr std::int64_t kMost = std::int64_t{1} << 61;
  if (problem != std::errc() || us < 0 || us > kMost) return {};
  std::string_view rest = text.substr(static_cast<std::size_t>(point - text.data()));
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    std::int64_t unit = 100'000;
    while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
      ps += unit * (rest[0] - '0');
      unit /= 10;
      rest.remove_prefix(1);
    }
  }
  if (!rest.empty()) {  // 1.5e3
    double value = 0;
    const auto parsed = from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !(value < 1e15)) return {};
    us = static_cast<std::int64_t>(value);
    ps = static_cast<std::int64_t>((value - double(us)) * 1e6);
  }
  if (!is_negative) return {us, ps, true};
  return ps > 0 ? WrittenTime{-us - 1, 1'000'000 - ps, true} : WrittenTime{-us, 0, true};
}

Picoseconds length_of(const WrittenTime& time) {
  if (!time.is_there || time.us < 0) return 0;
  return std::min<std::int64_t>(time.us, kLongestOperation / kPicosecondsPerMicrosecond) * kPicosecondsPerMicrosecond +
         time.ps;
}

Picoseconds TraceClock::at(const WrittenTime& time) {
  if (!origin_us_) origin_us_ = time.us;
  constexpr std::int64_t kMost = kHorizon / 4 / kPicosecondsPerMicrosecond;
  return std::clamp(time.us - *origin_us_, -kMost, kMost) * kPicosecondsPerMicrosecond + time.ps;
}

ChromeHeader read_chrome_json(InputBuffer& buffer, const std::function<void(const ChromeEvent&)>& use) {
  Handler handler(buffer, use);
  std::istream input(&buffer);
  nlohmann::json::sax_parse(input, &handler);
  if (!handler.has_events)
    throw input_error(buffer.name() +
                      ": expected a trace: an object with \"traceEvents\", or an array of events, got other JSON");
  return handler.header;
}

}  // namespace stretto::trace
