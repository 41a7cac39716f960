#include <cmath>

#include "absl/strings/match.h"
#include "sim/base/check.h"
#include "sim/config/run_config.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {

bool FuzzConfig(absl::string_view input) {
  int taken = 0;
  for (const char* source : {"a.yaml", "a.json", "a.txtpb", "a.conf"}) {
    const absl::StatusOr<RunConfig> config = ReadConfig(input, source);
    if (!config.ok()) {
      PW_CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
      PW_CHECK(absl::StartsWith(config.status().message(), source));
      continue;
    }
    ++taken;
    PW_CHECK(config->strategy.pp.value_or(1) >= 1);
    PW_CHECK(config->strategy.microbatches.value_or(1) >= 1);
    PW_CHECK(config->costs.held_until_weight.value_or(1) <= 1);
    PW_CHECK(std::isfinite(config->costs.p2p_s.value_or(0)));
    PW_CHECK(config->costs.forward_s.value_or(0) >= 0);
    const absl::StatusOr<RunConfig> again = ReadConfig(input, source);
    PW_CHECK(again.ok() && ToString(*again) == ToString(*config));
  }
  return taken > 0;
}

}  // namespace pipewright::testing
