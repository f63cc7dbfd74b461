#include "base/toml.hpp"

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "tests/temp_dir.hpp"

using namespace stretto;

namespace {

// Returns the message of the Error that `call` throws, "" when nothing is thrown.
template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.exit_code() == 2);
    const std::string message = error.what();
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
  return "";
}

std::string parse_message(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return message_of([&] { parse_toml(text, "f.toml", overrides); });
}

}  // namespace

TEST_CASE("typed values are read", "[toml]") {
  TomlTable root = parse_toml(
      "flag = true\nwhole = 0x1_0\nreal = +2.5e1\nword = \"a\\tb\"\n[s]\nints = [1,\n 2]\nreals = [1, 2.5]\n"
      "words = ['x']\n[[point]]\nx = 1\n[[point]]\nx = 2\n",
      "f.toml");
  CHECK(require<bool>(root, "flag"));
  CHECK(require<std::int64_t>(root, "whole") == 16);
  CHECK(require<double>(root, "real") == 25.0);
  CHECK(require<double>(root, "whole") == 16.0);
  CHECK(require<std::string>(root, "word") == "a\tb");
  CHECK(value_or<std::int64_t>(root, "absent", 7) == 7);
  CHECK_FALSE(root.find<bool>("gone").has_value());
  TomlTable section = root.section("s");
  CHECK(section.present());
  CHECK(section.keys() == std::vector<std::string>{"ints", "reals", "words"});
  CHECK(require<std::vector<std::int64_t>>(section, "ints") == std::vector<std::int64_t>{1, 2});
  CHECK(require<std::vector<double>>(section, "reals") == std::vector<double>{1, 2.5});
  CHECK(require<std::vector<std::string>>(section, "words") == std::vector<std::string>{"x"});
  std::vector<TomlTable> points = root.tables("point");
  REQUIRE(points.size() == 2);
  CHECK(require<std::int64_t>(points[1], "x") == 2);
  CHECK(message_of([&] { require<std::int64_t>(points[1], "y"); }) ==
        "f.toml:12: [point[1]] y: expected an integer, got nothing");
  CHECK_FALSE(root.section("none").present());
  CHECK_NOTHROW(section.finish());
  CHECK_NOTHROW(root.finish());
}

TEST_CASE("errors of values name file, line, section and key", "[toml]") {
  TomlTable root =
      parse_toml("top = 1.5\n\n[s]\nn = 9\nbeta = 1\nw = 'fp16'\nlist = [1, -2]\nmixed = [1, 'a']\n", "f.toml");
  CHECK(message_of([&] { require<std::int64_t>(root, "top"); }) == "f.toml:1: top: expected an integer, got 1.5");
  TomlTable s = root.section("s");
  const auto message = [&](auto call) { return message_of([&] { call(); }); };
  CHECK(message([&] { require<std::int64_t>(s, "n", {.min = 1, .max = 8}); }) ==
        "f.toml:4: [s] n: expected an integer from 1 to 8, got 9");
  CHECK(message([&] { require<double>(s, "beta", {.min = 0, .max = 1, .below_max = true}); }) ==
        "f.toml:5: [s] beta: expected a number of at least 0 and below 1, got 1");
  CHECK(message([&] { require<double>(s, "n", {.max = 0.5}); }) ==
        "f.toml:4: [s] n: expected a number of at most 0.5, got 9");
  CHECK(message([&] { require<double>(s, "n", {.min = 9, .above_min = true}); }) ==
        "f.toml:4: [s] n: expected a number above 9, got 9");
  CHECK(message([&] { require<bool>(s, "w"); }) == "f.toml:6: [s] w: expected true or false, got \"fp16\"");
  CHECK(message([&] {
          choice_or(s, "w", "fp32", {"fp32", "fp6"});
        }) == "f.toml:6: [s] w: expected one of fp32, fp6, got \"fp16\"; did you mean \"fp6\"?");
  CHECK(message([&] { require<std::string>(s, "gone"); }) == "f.toml:3: [s] gone: expected a string, got nothing");
  CHECK(message([&] { require<std::vector<std::int64_t>>(s, "list", {.min = 1}); }) ==
        "f.toml:7: [s] list: expected an array of integers of at least 1, got one with -2");
  CHECK(message([&] { require<std::vector<std::int64_t>>(s, "mixed"); }) ==
        "f.toml:8: [s] mixed: expected an array of integers, got one with \"a\"");
  CHECK(message([&] { require<std::vector<double>>(s, "n"); }) ==
        "f.toml:4: [s] n: expected an array of numbers, got 9");
  CHECK(message([&] { root.section("top"); }) == "f.toml:1: top: expected a table [top], got 1.5");
  CHECK(message([&] { root.tables("s"); }) == "f.toml:3: s: expected an array of tables [[s]], got a table");
}

TEST_CASE("unknown keys are rejected with the nearest spelling", "[toml]") {
  TomlTable root = parse_toml("[s]\nzzz = 1\nhiden = 2\n", "f.toml");
  TomlTable s = root.section("s");
  s.has("hidden");
  CHECK(message_of([&] { s.finish(); }) == "f.toml:2: [s] zzz: expected one of hidden, got an unknown key");
  s.has("zzz");
  CHECK(message_of([&] { s.finish(); }) ==
        "f.toml:3: [s] hiden: expected a known key, got \"hiden\"; did you mean \"hidden\"?");
  CHECK_NOTHROW(root.finish());
}

TEST_CASE("syntax errors are one line", "[toml]") {
  CHECK(parse_message("a = 1\nb = = 2\n") ==
        "f.toml:2: expected valid TOML, got \"b = = 2\": not a value (a string needs quotes, a boolean is true or "
        "false)");
  CHECK(parse_message("a = gpt2\n").find("a string needs quotes") != std::string::npos);
  CHECK(parse_message("a = 1\r\na = 2\r\n") ==
        "f.toml:2: expected valid TOML, got \"a = 2\": cannot redefine existing key 'a'");
  CHECK(parse_message("[m\n") == "f.toml:1: expected valid TOML, got \"[m\": table header: expected ']', saw '\\n'");
  CHECK(parse_message("[=]").find("expected bare key starting character or string delimiter, saw '='") !=
        std::string::npos);
  for (const char* header : {"[[a]]", "[a.b]", "[[a.b]]"})
    CHECK(
        parse_message("a = []\n# c\n" + std::string(header) + "\nb = 1\n").rfind("f.toml:3: expected valid TOML", 0) ==
        0);
  CHECK(parse_message("a = \"x") == "f.toml:1: expected valid TOML, got \"a = \"x\": string: encountered end-of-file");
  CHECK(parse_message("a = True\n").find("expected 'true', saw 'T'") != std::string::npos);
  CHECK(parse_message("a = 2024-01-02\n") ==
        "f.toml:1: expected a boolean, number, string, array or table, got a date or time");
}

TEST_CASE("numbers that do not fit are refused, not clamped", "[toml]") {
  CHECK(parse_message("a = 9223372036854775807\nb = -9223372036854775808\nc = 0b11\nd = 0o17\ne = 1e308\n").empty());
  CHECK(parse_message("a = 9223372036854775808") ==
        "f.toml:1: expected valid TOML, got \"a = 9223372036854775808\": decimal integer: '9223372036854775808' is not "
        "representable in 64 bits");
  for (const std::string& text : {std::string("\na = 0xFFFFFFFFFFFFFFFFF"), "\na = 0b" + std::string(64, '1')}) {
    CHECK(parse_message(text).rfind("f.toml:2: expected valid TOML", 0) == 0);
    CHECK(parse_message(text).find("not representable in 64 bits") != std::string::npos);
  }
  CHECK(parse_message("a = 1e999").find("'1e999' could not be interpreted as a value") != std::string::npos);
  for (const char* text : {"a = [1.0, nan]", "a = -inf", "a = {b = inf}"})
    CHECK(parse_message(text).find("expected a finite number") != std::string::npos);
}

TEST_CASE("hostile text is refused before it is parsed", "[toml]") {
  using namespace std::string_literals;
  CHECK(parse_message("a = \"x\0y\"\n"s) == "f.toml:1: expected text, got a NUL byte");
  CHECK(parse_message("a = \"\\u0000\"\n") == "f.toml:1: expected text, got a NUL character");
  for (const char* bad :
       {"\xff", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\x80", "\xe2\x82"})
    CHECK(parse_message("# "s + bad + "\n") == "f.toml:1: expected UTF-8 text, got an invalid byte sequence");
  CHECK(parse_message("a = \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xb5\"\n").empty());
  CHECK(parse_message("\xef\xbb\xbf"
                      "a = 1\n")
            .empty());
  CHECK(parse_message("a = " + std::string(200000, '[')).find("lines of at most") != std::string::npos);
  CHECK(parse_message("a = " + std::string(1000, '[')).find("more than 16 nested brackets") != std::string::npos);
  CHECK(parse_message("a = '[[[[[[[[[[[[[[[[[[[[[' # [[[[[[[[[[[[[[[[[[[[[[\n").empty());
  std::string dotted = "a";
  for (int i = 0; i < 1000; ++i) dotted += ".a";
  for (const std::string& text : {dotted + " = 1", "[" + dotted + "]", "[" + dotted + "]\n" + dotted + " = 1"})
    CHECK(parse_message(text).find("at most 24 tables and arrays inside each other") != std::string::npos);
  CHECK(parse_message("a = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]").empty());
  CHECK(parse_message(std::string(kTomlMaxBytes + 1, '\n')) == "f.toml:1: expected at most 1048576 bytes, got 1048577");
}

TEST_CASE("overrides replace and add values", "[toml]") {
  TomlTable root =
      parse_toml("[s]\na = 1\n", "f.toml",
                 {"s.a=2", "s.b = bare word", "t.c=[1, 2]", "d=1e3", "s.e=", "s.f='x'", "s.a=3", "s.g=true"});
  TomlTable s = root.section("s"), t = root.section("t");
  CHECK(require<std::int64_t>(s, "a") == 3);
  CHECK(require<std::string>(s, "b") == "bare word");
  CHECK(require<std::vector<std::int64_t>>(t, "c") == std::vector<std::int64_t>{1, 2});
  CHECK(require<double>(root, "d") == 1000.0);
  CHECK_FALSE(s.has("e"));
  CHECK(require<std::string>(s, "f") == "x");
  CHECK(require<bool>(s, "g"));
  CHECK(message_of([&] { require<bool>(s, "b"); }) == "--set s.b: expected true or false, got \"bare word\"");
  CHECK(message_of([&] { t.finish(); }).empty());
  CHECK(message_of([&] { require<bool>(t, "z"); }) == "f.toml:1: [t] z: expected true or false, got nothing");
}

TEST_CASE("an override without a value takes the key away", "[toml]") {
  TomlTable root = parse_toml("[s]\na = 1\nb = [2]\n", "f.toml", {"s.a=", "s.b = ", "s.c=3", "s.c=", "t.d="});
  TomlTable s = root.section("s");
  for (const char* key : {"a", "b", "c"}) CHECK_FALSE(s.has(key));
  CHECK_FALSE(root.section("t").has("d"));
}

TEST_CASE("of many keys an unknown one names the three nearest", "[toml]") {
  TomlTable root = parse_toml("activation_offload = 1\n", "f.toml");
  for (int i = 0; i < 20; ++i) root.has("key" + std::to_string(i));
  root.has("cpu_offloading_activations");
  CHECK(message_of([&] {
          root.finish();
        }).find("expected one of 21 keys (nearest: cpu_offloading_activations), got an unknown key") !=
        std::string::npos);
}

TEST_CASE("an override is what its text is as a value of TOML, else a string", "[toml]") {
  for (const char* text : {"0",
                           "7",
                           "007",
                           "123456789012345678",
                           "1234567890123456789",
                           "9223372036854775808",
                           "1_0",
                           "-3",
                           "1.5",
                           "1e3",
                           "true",
                           "false",
                           "True",
                           "truer",
                           "inf",
                           "nan",
                           "+inf",
                           "infinity",
                           "none",
                           "full",
                           "zb-h1",
                           "a2a+p2p",
                           "/a/b-c_d.toml",
                           "Ett|ttt|ttL",
                           "x#y",
                           "a b",
                           ".5",
                           "0x1F",
                           "1979-05-27",
                           "'q'"}) {
    CAPTURE(text);
    // The message has the value's type and text.
    const auto shown = [](TomlTable table) {
      const std::string message = message_of([&] { require<std::vector<std::string>>(table, "v"); });
      return message.substr(message.find(" v: "));
    };
    const std::string as_value = std::string("v = ") + text, as_string = std::string("v = \"") + text + "\"";
    const TomlTable read = parse_toml(parse_message(as_value).empty() ? as_value : as_string, "f.toml");
    CHECK(shown(parse_toml("", "f.toml", {std::string("v=") + text})) == shown(read));
  }
}

TEST_CASE("errors of overrides name the override", "[toml]") {
  CHECK(parse_message("", {"nonsense"}) == "--set \"nonsense\": expected section.key=value, got no \"=\"");
  CHECK(parse_message("", {"=1"}) == "--set \"=1\": expected section.key=value, got the key \"\"");
  CHECK(parse_message("", {"a..b=1"}).find("got the key \"a..b\"") != std::string::npos);
  CHECK(parse_message("", {"a.b=[1, 2"}) == "--set a.b: expected a TOML value, got \"[1, 2\"");
  CHECK(parse_message("", {"a.b=\"x"}) == "--set a.b: expected a TOML value, got \"\"x\"");
  CHECK(parse_message("", {"a.b=1\nc = 2"}) == "--set a.b: expected a value on one line, got several");
  CHECK(parse_message("", {"a.b=\xff"}).rfind("--set a.b: expected UTF-8 text", 0) == 0);
  CHECK(parse_message("a = 1", {"a.b=1"}) == "--set a.b: expected a table before .b, got a single value");
  TomlTable root = parse_toml("[s]\n", "f.toml", {"s.hiden=1"});
  TomlTable s = root.section("s");
  s.has("hidden");
  CHECK(message_of([&] { s.finish(); }) ==
        "--set s.hiden: expected a known key, got \"hiden\"; did you mean \"hidden\"?");
}

TEST_CASE("each reason why a file cannot be read has its own error", "[toml]") {
  const stretto::testing::TempDir temporary;
  const std::string missing = temporary.file("missing.toml");
  CHECK(message_of([&] { read_toml(missing); }) ==
        missing + ": expected a readable TOML file, got: No such file or directory");
  const std::string folder = temporary.str();
  CHECK(message_of([&] { read_toml(folder); }) == folder + ": expected a TOML file, got a directory");
  const std::string file = temporary.file("good.toml");
  std::ofstream(file) << "a = 5";
  TomlTable root = read_toml(file);
  CHECK(require<std::int64_t>(root, "a") == 5);
  std::ofstream(file, std::ios::trunc) << "";
  CHECK(read_toml(file).empty());
  std::ofstream(file, std::ios::trunc) << std::string(kTomlMaxBytes + 5, '\n');
  CHECK(message_of([&] { read_toml(file); }) == file + ":1: expected at most 1048576 bytes, got 1048577");
}

TEST_CASE("shown text stays short, on one line and valid UTF-8", "[toml]") {
  CHECK(in_quotes("a\nb\x7f") == "\"a\\x0ab\\x7f\"");
  const std::string long_text = in_quotes(std::string(59, 'a') + "\xe2\x82\xac\xe2\x82\xac");
  CHECK(long_text == "\"" + std::string(59, 'a') + "\xe2\x82\xac…\"");
  CHECK(in_quotes(std::string(60, 'a')) == "\"" + std::string(60, 'a') + "\"");
}
