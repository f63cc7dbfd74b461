#include "model/framework_profile.hpp"

namespace stretto {

FrameworkProfile read_framework_profile(const std::string& path) {
  TomlTable root = read_toml(path);
  FrameworkProfile profile{{}, root.section("scenario")};
  Framework& f = profile.framework;
  f.name = require<std::string>(root, "name");
  TomlTable kernels = root.section("kernels"), elements = root.section("element_bytes"), host = root.section("host");
  root.finish();

  f.attention_kernel = value_or<std::string>(kernels, "attention_kernel", "");
  f.softmax_heads = value_or<std::int64_t>(kernels, "softmax_heads", 1, {.min = 1, .max = 1 << 10});
  const auto own = [&](const char* key, Limits<double> limits) -> std::optional<Quantity> {
    if (!kernels.has(key)) return std::nullopt;
    return read_quantity(kernels.section(key), limits);
  };
  f.gemm_sustained = own("gemm_sustained", {.min = 0, .above_min = true});
  f.hbm_share = own("hbm_share", {.min = 0, .max = 1, .above_min = true});
  f.kernel_us = own("kernel_us", {.min = 0, .max = 1e6});
  f.bmm_share = own("bmm_share", {.min = 0, .max = 1, .above_min = true});
  f.collective_in_step_us = own("collective_in_step_us", {.min = 0, .max = 1e6});
  kernels.finish();

  for (const std::string& kind : elements.keys())
    f.element_bytes[kind] = read_quantity(elements.section(kind), {.min = 0, .max = 1e6, .above_min = true});
  elements.finish();

  const auto time = [&](const char* key) {
    return host.has(key) ? read_quantity(host.section(key), {.min = 0, .max = 1e9}) : Quantity{};
  };
  f.issue_us = time("issue_us");
  f.collective_issue_us = time("collective_issue_us");
  f.micro_batch_us = time("micro_batch_us");
  f.step_us = time("step_us");
  f.host_waits_for_messages = value_or<bool>(host, "waits_for_messages", false);
  host.finish();
  return profile;
}

}  // namespace stretto
