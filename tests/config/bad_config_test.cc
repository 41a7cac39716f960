// Configurations that cannot be read: file, line, field and value are named.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/run_config.h"

namespace pipewright::bad_config_test {
namespace {

struct BadInput {
  const char* source;
  const char* text;
  std::vector<const char*> parts;  // of the message
};

TEST_CASE("config: a bad input is named with file, line, field and value",
          "[config]") {
  const std::vector<BadInput> table = {
      {"a.yaml",
       "strategy:\n  ppp: 8\n",
       {"a.yaml:2: strategy.ppp: unknown field 'ppp'; did you mean 'pp'?"}},
      {"a.json",
       "{\n\"strategy\": {\n\"ppp\": 8}}",
       {"a.json:3: strategy.ppp: unknown field", "did you mean 'pp'?"}},
      {"a.txtpb",
       "strategy {\n  ppp: 8\n}",
       {"a.txtpb:2: strategy.ppp: unknown field", "did you mean 'pp'?"}},
      {"a.yaml", "strateegy: {}", {"a.yaml:1: ", "did you mean 'strategy'?"}},
      {"a.yaml",
       "strategy: {pp: \"eight\"}",
       {"a.yaml:1: strategy.pp: \"eight\" is not allowed; allowed: an "
        "integer"}},
      {"a.yaml", "strategy: {pp: eight}", {"strategy.pp: eight", "integer"}},
      {"a.yaml", "strategy: {pp: \"8\"}", {"strategy.pp: \"8\"", "integer"}},
      {"a.yaml", "strategy: {pp: 2.5}", {"strategy.pp: 2.5", "integer"}},
      {"a.yaml", "strategy: {pp: 99999999999}", {"strategy.pp: 99999999999"}},
      {"a.json",
       "{\"strategy\": {\"pp\": 99999999999999999999999}}",
       {"strategy.pp: 99999999999999999999999"}},
      {"a.txtpb", "strategy { pp: 99999999999 }", {"a.txtpb:1: "}},
      {"a.txtpb", "strategy { pp: 2.5 }", {"a.txtpb:1: "}},
      {"a.yaml", "strategy: {pp: 0}", {"strategy.pp: 0", "from 1 to"}},
      {"a.yaml", "strategy: {pp: -3}", {"strategy.pp: -3", "from 1 to"}},
      {"a.yaml", "strategy: {pp: [8]}", {"strategy.pp: a list", "integer"}},
      {"a.yaml", "strategy: {pp: }", {"strategy.pp: nothing", "integer"}},
      {"a.yaml", "strategy: 8", {"strategy: 8", "a mapping with pp, vpp"}},
      {"a.yaml", "8", {"a.yaml:1: 8", "a mapping of sections"}},
      {"a.yaml",
       "pp: 8\npp: 9",
       {"a.yaml:2: ", "'pp' stands here twice", "line 1"}},
      {"a.json",
       "{\"strategy\": {\"pp\": 8,\n\"pp\": 8}}",
       {"a.json:2: ", "'pp' stands here twice"}},
      {"a.txtpb", "strategy { pp: 8\n pp: 8 }", {"a.txtpb:2: ", "pp"}},
      {"a.yaml",
       "costs: {p2p: 1ms, p2p_us: 3}",
       {"costs.p2p_us", "'p2p' is given twice"}},
      {"a.yaml", "costs: {p2p: 1 parsec}", {"a.yaml:1: costs.p2p", "parsec"}},
      {"a.yaml", "costs: {p2p: 0.6}", {"costs.p2p", "0.6", "ms"}},
      {"a.yaml", "costs: {p2p: -1ms}", {"costs.p2p", "-1ms", "negative"}},
      {"a.yaml", "costs: {p2p_ms: 1ms}", {"costs.p2p: 1ms", "bare number"}},
      {"a.yaml", "costs: {p2p_ms: \"1\"}", {"costs.p2p", "bare number"}},
      {"a.yaml", "costs: {p2p_mz: 1}", {"costs.p2p_mz", "_mz", "_ms"}},
      {"a.yaml", "costs: {p2p_GiB: 1}", {"costs.p2p_GiB", "_GiB"}},
      {"a.yaml",
       "costs: {held_until_weight: 1.5}",
       {"costs.held_until_weight: 1.5", "from 0 to 1"}},
      {"a.yaml", "costs: {held_until_weight: .nan}", {"held_until_weight"}},
      {"a.txtpb", "costs { held_until_weight: nan }", {"held_until_weight"}},
      {"a.yaml",
       "costs: {microbatch_factor: [1, -2]}",
       {"costs.microbatch_factor: -2"}},
      {"a.yaml", "costs: {microbatch_factor: []}", {"at least one value"}},
      {"a.yaml",
       "costs: {profile: 3, profil: x}",
       {"did you mean 'profile'?"}},
      {"a.txtpb",
       "costs { interference: \"maybe\" }",
       {"costs.interference", "on, off"}},
      {"a.yaml",
       "strategy: {data_parallel: hsdp}",
       {"strategy.data_parallel: hsdp", "not available in this version",
        "none, ddp, zero1, zero2, fsdp"}},
      {"a.yaml", "strategy: {data_parallel: dpd}", {"did you mean 'ddp'?"}},
      {"a.yaml",
       "strategy: {recompute: ful}",
       {"strategy.recompute", "did you mean 'full'?"}},
      {"a.yaml",
       "strategy: {recompute_chunks: [0, -1]}",
       {"strategy.recompute_chunks: -1", "integers from 0"}},
      {"a.yaml", "strategy: {layers: [1, x]}", {"strategy.layers: x"}},
      {"a.yaml", "strategy: {split: ballanced}", {"did you mean 'balanced'?"}},
      {"a.yaml", "model: {lora_rank: -1}", {"model.lora_rank: -1"}},
      {"a.yaml",
       "costs: {analytic: {devise: h100}}",
       {"costs.analytic.devise", "did you mean 'device'?"}},
      {"a.yaml", "costs: {analytic: h100}", {"a mapping with device"}},
      {"a.yaml", "model: {gated: yes}", {"model.gated: yes", "true, false"}},
      {"a.yaml", "model: {preset: \"\"}", {"model.preset: \"\"", "a name"}},
      {"a.yaml", "strategy: {pp: 8", {"a.yaml:", "not YAML"}},
      {"a.yaml", "- 1\n- 2", {"a list is not allowed"}},
      {"a.yaml", "a: &x 1\nb: *x", {"a.yaml:2: ", "aliases"}},
      {"a.yaml", "{[1]: 2}", {"a key must be a plain word"}},
      {"a.yaml", "---\n{}\n---\n{}\n", {"several YAML documents"}},
      {"a.json", "{\"strategy\": {\"pp\": 8,}}", {"a.json:1: not JSON"}},
      {"a.json", "{\n\n// c\n}", {"a.json:3: not JSON"}},
      {"a.json", "{} {}", {"not JSON"}},
      {"a.json",
       "{\"costs\": {\"held_until_weight\": 1e400}}",
       {"a.json:1: 1e400 is not allowed; allowed: a finite number"}},
      {"a.txtpb",
       "strategy {\n\tmicrobatches: 99999999999\n}",
       {"a.txtpb:2: strategy.microbatches: 99999999999 is not allowed; "
        "allowed: an integer from 1 to 715827882"}},
      {"a.json", "", {"not JSON"}},
      {"a.txtpb", "strategy {", {"a.txtpb:1: "}},
      {"a.txtpb",
       "schedule { params { key: \"a\" value: \"1\" }\n"
       "params { key: \"a\" value: \"2\" } }",
       {"schedule.params: a", "each key once"}},
  };
  for (const BadInput& bad : table) {
    const absl::StatusOr<RunConfig> config = ReadConfig(bad.text, bad.source);
    INFO(bad.text << "\n" << config.status());
    CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
    for (const char* part : bad.parts) {
      INFO(part);
      CHECK(absl::StrContains(config.status().message(), part));
    }
  }
}

TEST_CASE("config: deep nesting is refused, not run into", "[config]") {
  const std::string deep(100000, '[');
  CHECK(!ReadConfig(deep, "a.yaml").ok());
  CHECK(!ReadConfig(deep, "a.json").ok());
  std::string maps;
  for (int level = 0; level < 100000; ++level) absl::StrAppend(&maps, "a{");
  CHECK(!ReadConfig(maps, "a.txtpb").ok());
}

TEST_CASE("config: a bad edit names its flag", "[config]") {
  const std::vector<std::pair<ConfigEdit, const char*>> table = {
      {{"strategy.pp", "eight", "--pp"},
       "--pp: strategy.pp: eight is not allowed; allowed: an integer"},
      {{"strategy.ppp", "8", "--set strategy.ppp=8"},
       "--set strategy.ppp=8: strategy.ppp: unknown field 'ppp'"},
      {{"strategy", "8", "--set strategy=8"}, "a mapping with pp, vpp"},
      {{"strategy.pp.x", "8", "--set s"}, "strategy.pp: a mapping"},
      {{"costs.p2p", "1", "--p2p"}, "--p2p: costs.p2p: '1' has no unit"},
      {{"costs.per_stage.forward", "1ms,,2ms", "--forward"},
       "--forward: costs.per_stage.forward"},
      {{"", "8", "--set =8"}, "unknown field ''"},
  };
  for (const auto& [edit, part] : table) {
    const auto config = ReadConfig("", "", {{edit}});
    INFO(config.status());
    CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(config.status().message(), part));
  }
}

}  // namespace
}  // namespace pipewright::bad_config_test
