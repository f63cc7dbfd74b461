#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace stretto {

struct Settings;

// Returns the keys of a scenario for which a name of a precision stands: Megatron-Bridge's registered mixed precisions
// (067f987d, training/mixed_precision.py: "bf16_with_mxfp8_mixed") and the short names of its performance recipes
// ("fp8_cs"; perf_recipes/_common.py:112 has no layers in bf16). Empty: the name says nothing of fp8 or fp4.
std::map<std::string, nlohmann::json> low_precision_of(std::string name);

// Returns whether the key is about low precision.
bool is_low_precision_key(const std::string& key);

// Removes keys of low precision that do not act, all of them where there are no products of codes.
void finish_low_precision(Settings& settings);

}  // namespace stretto
