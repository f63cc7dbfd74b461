#include <emscripten/emscripten.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/parallel.hpp"
#include "page/answer.hpp"
#include "page/search.hpp"

// Calls `goesOn` of the module (page/worker.js), so that a long answer is no silence.
EM_JS(void, tell_that_it_goes_on, (), {
  if (Module["goesOn"]) Module["goesOn"]();
})

// Calls `says` of the module with a part of a long answer.
EM_JS(void, give_part, (const char* text), {
  if (Module["says"]) Module["says"](UTF8ToString(text));
})

// The only function that the page's script calls: page::answer(). The text that it returns is valid until the next
// call.
extern "C" EMSCRIPTEN_KEEPALIVE const char* stretto_answer(const char* request) {
  static const bool is_prepared = [] {
    stretto::goes_on = [] { tell_that_it_goes_on(); };
    stretto::page::say_part = [](const std::string& part) { give_part(part.c_str()); };
    ::setenv("STRETTO_DATA", stretto::page::kDataFolder, 1);
    // WebAssembly has 4 GiB of addresses. A schedule that needs more is refused where free_memory_bytes() is asked.
    std::ofstream("/proc/meminfo") << "MemAvailable: " << (std::int64_t{3} << 20) << " kB\n";
    return true;
  }();
  static std::string text;
  text = is_prepared ? stretto::page::answer(request) : "";
  return text.c_str();
}
