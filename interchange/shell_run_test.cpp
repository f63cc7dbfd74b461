#include "interchange/shell_run.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "base/error.hpp"
#include "interchange/shell_syntax.hpp"
#include "tests/message_of.hpp"

using namespace stretto;
using Catch::Matchers::Contains;

namespace {

shell::Run run(const std::string& text, shell::Outside outside = {}) {
  if (outside.script.empty()) outside.script = "jobs/run.sh";
  return shell::run(text, "run.sh", outside);
}
// Returns the words of the only program that is started.
std::vector<std::string> words(const std::string& text, const shell::Outside& outside = {}) {
  const shell::Run made = run(text, outside);
  REQUIRE(made.calls.size() == 1);
  return made.calls[0].words;
}
using Words = std::vector<std::string>;
Words words_of_seq(const std::string& word) { return words("go " + word); }

}  // namespace

TEST_CASE("words of a script become what a shell makes of them", "[shell]") {
  struct Case {
    const char* script;
    Words words;
  };
  const std::vector<Case> cases = {
      {"go a 'b c' \"d  e\" f\\ g", {"go", "a", "b c", "d  e", "f g"}},
      {"A=1; go $A ${A} \"$A\"x '$A'", {"go", "1", "1", "1x", "$A"}},
      {"go ${N:-8} ${M:=4} $M ${M:+yes} ${X:+no}", {"go", "8", "4", "4", "yes"}},
      {"A=(x 'y z'); A+=(w); go \"${A[@]}\" ${A[1]} ${#A[@]}", {"go", "x", "y z", "w", "y", "z", "3"}},
      {"A=(\n  --a 1 # one\n  --b 2\n)\ngo ${A[@]} \\\n  --c", {"go", "--a", "1", "--b", "2", "--c"}},
      {"N=3; go $((N*2 + 1)) $(( (N-1) ** 3 % 5 )) $((N > 2 ? 7 : 8))", {"go", "7", "3", "7"}},
      {"P=a/b/c.tar.gz; go ${P##*/} ${P%.gz} ${P%%.*} ${P/b/x} ${P:2:1} ${#P}",
       {"go", "c.tar.gz", "a/b/c.tar", "a/b/c", "a/x/c.tar.gz", "b", "12"}},
      {"go $(dirname /x/y) $(basename /x/y.sh .sh) `pwd` $(echo a b) $(expr 3 \\* 4)",
       {"go", "/x", "y", "jobs", "a", "b", "12"}},
      {"go a | tee log", {"go", "a"}},
      {"go a 2>&1 > out.txt &", {"go", "a"}},
      {"go --a <A FILE> --b", {"go", "--a", "FILE", "--b"}},
      {"go -a <A> -b \\ \n  -c 1", {"go", "-a", "-b", "-c", "1"}},
      {"S='--x 1 --y'; go $S", {"go", "--x", "1", "--y"}},
      {"if [ -z \"$A\" ]; then B=1; elif true; then B=2; else B=3; fi; go $B", {"go", "1"}},
      {"T=fp8; if [[ \"$T\" == \"fp8\" && -n $T ]]; then go yes; else go no; fi", {"go", "yes"}},
      {"if [ 3 -gt 2 ] && ! [ a = b ]; then go yes; fi", {"go", "yes"}},
      {"case v1.5 in v2*) go two;; v1*|v0*) go one ;; *) go none;; esac", {"go", "one"}},
      {"L=; for i in 1 2 3; do L=\"$L $i\"; done; go $L", {"go", "1", "2", "3"}},
      {"i=0; while [ $i -lt 4 ]; do i=$((i+1)); done; go $i", {"go", "4"}},
      {"f() { X=$1; }; f 7; function g { go $X; }; g", {"go", "7"}},
      {"bash -c \"go a 'b c'\"", {"go", "a", "b c"}},
      {"cat <<EOF > file\ngo no\nEOF\ngo yes", {"go", "yes"}},
      {"[ ! -f there.py ] && exit 1\ngo on", {"go", "on"}},
      {"set -- a b; shift; go $1 $# \"$@\"", {"go", "b", "1", "b"}},
      {"(export A=2; go $A)", {"go", "2"}},
      {"IFS=',' read -r A B C <<< \"1,2,3,4\"; go $A $B $C", {"go", "1", "2", "3,4"}},
      {"for L in '2,1' '1,2'; do IFS=, read -r A B <<< \"$L\"; done; go $A $B", {"go", "1", "2"}},
      {"declare -A M=([a-b]='1 2' [c]=\"3\")\nf() { local -n m=$1; local w=(${m[$2]}); go ${w[1]} ${m[c]} ${#m[@]}; "
       "}\nf M a-b",
       {"go", "2", "3", "2"}},
      {"declare -A M; M[x]=1; M[y]=2; M[x]=3; [[ -v M[x] ]] && [[ ! -v M[z] ]] && go ${M[x]} ${M[y]}",
       {"go", "3", "2"}},
      {"go $(echo A-b | tr '[:upper:]' '[:lower:]' | tr -d -) $(echo '1,2' | tr ',' ' ')", {"go", "ab", "1", "2"}},
      {"A=1 B=x :\nA=2 true; go ${A:-none}", {"go", "none"}},
      {"read -r -d '' T <<'EOF' || true\ngo --a \\\n  1\nEOF\nbash -c \"$T\"", {"go", "--a", "1"}},
  };
  for (const Case& one : cases) {
    INFO(one.script);
    CHECK(words(one.script) == one.words);
  }
}

TEST_CASE("what a script does not set is marked, and counts as empty", "[shell]") {
  const Words made = words("X=$UNSET\ngo --lr $1 $X ${Y:-$Z}");
  REQUIRE(made.size() == 5);
  CHECK(shell::unknown_names(made[2]) == std::set<std::string>{"1"});
  CHECK(shell::unknown_names(made[3]) == std::set<std::string>{"UNSET"});
  CHECK(shell::unknown_names(made[4]) == std::set<std::string>{"Z"});
  CHECK(shell::without_unknown(made[3]).empty());
  CHECK(run("go\nexit ${PIPESTATUS[0]}").notes.empty());
  CHECK(shell::unknown_names(words("go $((NODES * 8))")[1]) == std::set<std::string>{"NODES"});
  shell::Outside outside;
  outside.environment = {{"NODES", "4"}};
  CHECK(words("go $((NODES * 8))", outside) == Words{"go", "32"});
  // A command substitution with a program is one unknown word, whatever the text of the program.
  const Words printed =
      words("N=$(python3 - <<'PY'\nprint(f(r\"x([\\w-]+)\"))\nPY\n)\nC=\"go $N\"\nbash -lc \"\n  $C on\n\"");
  REQUIRE(printed.size() == 3);
  CHECK(shell::without_unknown(printed[1]).empty());
  CHECK(printed[2] == "on");
  // A value that a program prints is one word, and its options are none of the command's.
  const Words counted = words("N=$(nvidia-smi --query-gpu=name --format=csv | wc -l)\ngo --name run_${N}_a --on");
  REQUIRE(counted.size() == 4);
  CHECK(shell::without_unknown(counted[2]) == "run__a");
}

TEST_CASE("a script that another one starts has its own variables and name, and yq prints a mapping's entries",
          "[shell]") {
  shell::Outside outside;
  outside.read = [](const std::string& path) -> std::optional<std::string> {
    if (path == "./sub/job.sh")
      return "export MAX=${MAX:-7}\nenvsubst < $(dirname $0)/model.yaml > made.yaml\n"
             "P=\"$(yq '... comments=\"\" | .ARGS | to_entries | .[] | select(.value != \"false\") | "
             "with(select(.value == "
             "\"true\"); .value = \"\") | [.key + \" \" + .value] | join(\"\")' made.yaml | tr '\\n' ' ')\"\n"
             "go $(yq '.ARGS.\"--size\"' made.yaml) $P $@\n";
    if (path == "./sub/model.yaml")
      return "ENV: {A: 1}\nARGS:\n  --size: ${SIZE}  # of it\n  --on: true\n  --off: false\n  --text: a b\n";
    return std::nullopt;
  };
  const shell::Run made = run("SIZE=8 bash ./sub/job.sh --one\nSIZE=9 bash ./sub/job.sh --two\n", outside);
  REQUIRE(made.calls.size() == 2);
  CHECK(made.calls[0].words == Words{"go", "8", "--on", "--size", "8", "--text", "a", "b", "--one"});
  CHECK(made.calls[1].words == Words{"go", "9", "--on", "--size", "9", "--text", "a", "b", "--two"});
  CHECK_FALSE(made.variables.contains("P"));
  CHECK(made.variables.at("MAX").elements == Words{"7"});
  CHECK(shell::unknown_names(run("go $(yq '.ARGS | keys' ./sub/model.yaml)", outside).calls[0].words[1]).size() == 1);
}

TEST_CASE("a script's environment, batch options and further files", "[shell]") {
  shell::Outside outside;
  outside.read = [](const std::string& path) -> std::optional<std::string> {
    if (path.ends_with("common.sh")) return "export COMMON=1\nARGS=\"--a 1\"\n";
    if (path.ends_with("job.sh"))
      return "#!/bin/bash\n#SBATCH --nodes=4 --ntasks-per-node=8\nsrun bash -c \"go $ARGS $1\"\nexit 0\n";
    return std::nullopt;
  };
  const shell::Run made =
      run("#!/bin/bash\n#SBATCH -N 2\nexport C=${C:-1} D\nunset E\nsource $(dirname $0)/common.sh\nsource "
          "none.sh\nsbatch job.sh more\n",
          outside);
  REQUIRE(made.calls.size() == 1);
  CHECK(made.calls[0].words == Words{"go", "--a", "1", "more"});
  CHECK(made.batch == Words{"-N", "2", "--nodes=4", "--ntasks-per-node=8", "srun"});
  CHECK(made.exports.contains("COMMON"));
  CHECK(made.variables.at("C").elements == Words{"1"});
  REQUIRE(made.notes.size() == 1);
  CHECK_THAT(made.notes[0], Contains("line 6") && Contains("none.sh"));
}

TEST_CASE("scripts that cannot be read or do not end are refused with their line", "[shell]") {
  const auto refusal = [](const std::string& text) { return testing::message_of([&] { run(text); }); };
  CHECK_THAT(refusal("go\nif true; then\ngo\n"), Contains("run.sh:2: expected a \"fi\""));
  CHECK_THAT(refusal("go 'a\n"), Contains("run.sh:1:"));
  CHECK_THAT(refusal("A=(1 2\n"), Contains("ends the array"));
  CHECK_THAT(refusal("f() { f; f; }; f"), Contains("inside each other"));
  CHECK_THAT(refusal("A=xxxxxxxxxxxxxxxxxxxx; while true; do A=$A$A; done"),
             Contains("run.sh:1: reading it takes more"));
  CHECK(run("while true; do A=1; done; go").calls.size() == 1);
}

TEST_CASE("a short script that is long to run is refused at once, with its line", "[shell]") {
  const auto times = [](int count, const std::string& text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  const std::string grown = "A=aaaaaaaaaaaaaaaa\n", twice = "A=$A$A\n";
  const std::string often = "for i in $(seq 1000); do for j in $(seq 100); do ";
  const std::string words = times(20'000, "echo aaaaaaaaaaaaaaaaaaaaaaa\n");
  const std::vector<std::string> scripts = {
      grown + times(12, twice) + "B=${A//a/$A}\nC=${B//a/$A}\n",  // replaced: 4 GiB
      grown + times(15, twice) + "B=${A#*x}\n",                   // every beginning compared
      grown + times(15, twice) + "[[ $A =~ ${A}b ]]\n",           // every place compared
      grown + times(11, twice) + "case $A in *${A}b*) X=1;; esac\n" + often + "case $A in *a*b) ;; esac; done; done\n",
      grown + times(15, twice) + often + "B=${#A}; done; done\n",  // a copy for each length
      "X=1" + times(50'000, "+1") + "\n" + often + "((X)); done; done\n",
      "X='" + times(2000, "echo a; ") + "'\n" + often + "eval \"$X\"; done; done\n",
      times(40'000, "$U ") + "\nA=(" + times(40'000, "a ") + ")\n" + often + "A+=(b); done; done\n",
      times(60'000, "((a);"),
  };
  for (const std::string& script : scripts) {
    INFO(script.substr(0, 40) << script.substr(script.size() - 60));
    CHECK_THAT(testing::message_of([&] { run(script); }), Contains("run.sh:") && !Contains("64 times"));
  }
  // A function is not copied when it is called.
  CHECK(run("f() { return\n" + words + "}\nfor i in $(seq 1000); do for j in $(seq 10); do f; done; done; go")
            .calls.size() == 1);
  CHECK(words_of_seq("$(seq 9223372036854775806 9223372036854775807)") ==
        Words{"go", "9223372036854775806", "9223372036854775807"});
  CHECK(words_of_seq("$(seq 3 -1 1)") == Words{"go", "3", "2", "1"});
}

TEST_CASE("any text is read or refused, and nothing else", "[shell]") {
  const std::vector<std::string> pieces = {
      "if ",   "then ",      "fi\n", "[ ",  "]",    "[[ ",   "]] ",      "$((", "))",  "$(",   ")",         "${A",
      "}",     "\"",         "'",    "\\",  "\n",   ";",     "&&",       "|",   "A=(", "A=1 ", "for i in ", "do ",
      "done ", "case x in ", "esac", "go ", "--a ", "<<E\n", "E\n",      "{ ",  "} ",  "`",    "# ",        "f() ",
      "$A",    "while ",     "1",    "/",   "%",    "$@",    "exit 1\n", "> ",  "((",  ":-",   "[@]",       "!"};
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 25; ++i) text += pieces[random() % pieces.size()];
    INFO(text);
    try {
      run(text);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
    }
  }
}
