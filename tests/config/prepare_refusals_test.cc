// Runs that cannot be prepared, and how that is said.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/prepare.h"

namespace pipewright::prepare_refusals_test {
namespace {

using testing::kBase;
using testing::kTimes;
using testing::PrepareText;

struct BadRun {
  std::string yaml;
  absl::StatusCode code;
  std::vector<const char*> parts;
};

TEST_CASE("prepare: what does not fit together is refused by field",
          "[config]") {
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  const std::string system = "system: {preset: dgx-h100}\n";
  const std::string model = "model: {preset: gpt-tiny}\n";
  const auto strategy = [](const std::string& fields) {
    return absl::StrCat("schedule: {name: 1f1b}\nstrategy: {", fields, "}\n");
  };
  const std::vector<BadRun> table = {
      {"", kBad, {"strategy.pp: missing"}},
      {"schedule: {name: 1f1b}", kBad, {"strategy.pp: missing"}},
      {strategy("pp: 4"), kBad, {"strategy.microbatches: missing"}},
      {"schedule: {name: 1f2b}",
       kBad,
       {"run.yaml:1: schedule.name: unknown schedule '1f2b'; did you mean "
        "'1f1b'?"}},
      {"schedule: {name: 1f1b, file: x.pws}", kBad, {"allowed: one of them"}},
      {"schedule: {file: no-such-file.pws}",
       absl::StatusCode::kNotFound,
       {"schedule.file", "no-such-file.pws"}},
      {absl::StrCat(kBase, "engine: simgrit"),
       kBad,
       {"run.yaml:3: engine: unknown engine 'simgrit'"}},
      {absl::StrCat(kBase, "network: fluit"),
       kBad,
       {"network: unknown network model 'fluit'", "fluid"}},
      {absl::StrCat(kBase, "costs: {uniform: {forward: 1s}}"),
       kBad,
       {"costs.uniform.backward_input, costs.uniform.backward_weight: "
        "missing"}},
      {absl::StrCat(kBase,
                    "costs: {uniform: {forward: 1s}, per_stage: "
                    "{forward: 1s, backward_input: 1s, "
                    "backward_weight: 1s}}"),
       kBad,
       {"costs.per_stage.forward: given together"}},
      {absl::StrCat(kBase,
                    "costs: {per_stage: {forward: [1s, 2s], "
                    "backward_input: 1s, backward_weight: 1s}}"),
       kBad,
       {"run.yaml:3: costs.per_stage.forward: a list of 2", "= 4"}},
      {absl::StrCat(kBase,
                    "costs: {uniform: {forward: 0, backward_input: 0, "
                    "backward_weight: 0}}"),
       kBad,
       {"costs: 0 s of work"}},
      {absl::StrCat(kBase, "costs: {microbatch_factor: [1, 2]}"),
       kBad,
       {"costs.microbatch_factor: a list of 2", "8"}},
      {absl::StrCat(kBase, "costs: {slice_factor: [1, 2]}"),
       kBad,
       {"costs.slice_factor: a list of 2", "one factor a slice, 1"}},
      {absl::StrCat(kBase, system, kTimes),
       kBad,
       {"run.yaml:4: costs.p2p", "together with a system"}},
      {absl::StrCat(kBase, system), kBad, {"costs.hop_bytes: missing"}},
      {absl::StrCat(kBase, "system: {nodes: 2}"),
       kBad,
       {"system.nodes", "no system"}},
      {absl::StrCat(kBase, "system: {preset: dgx-h10}"),
       kBad,
       {"system.preset", "did you mean 'dgx-h100'?"}},
      {absl::StrCat(kBase, "system: {shape: nod}"),
       kBad,
       {"did you mean 'node'?"}},
      {absl::StrCat(strategy("pp: 8, dp: 3, microbatches: 8"), model,
                    "system: {preset: dgx-h100, nodes: 2}"),
       kBad,
       {"system.nodes: 2", "8 * 3 = 24", "2 * 8 = 16", "3 or more"}},
      {absl::StrCat(strategy("pp: 8, microbatches: 8, mapping: dp-tp"), model,
                    system),
       kBad,
       {"strategy.mapping", "dp-tp"}},
      {absl::StrCat(strategy("pp: 2, microbatches: 8, mapping: [0, x]"), model,
                    system),
       kBad,
       {"strategy.mapping: x"}},
      {absl::StrCat(strategy("pp: 2, microbatches: 8, mapping: [0, 0]"), model,
                    system),
       kBad,
       {"strategy.mapping", "each device once"}},
      {absl::StrCat(strategy("pp: 4, microbatches: 8, waiting: rendezvous"),
                    "costs: {p2p: 1ms}"),
       kBad,
       {"strategy.waiting: rendezvous", "does not block a rank"}},
      {absl::StrCat(strategy("pp: 5, microbatches: 8"), model),
       kBad,
       {"strategy.pp: pp * vpp = 5 * 1 = 5", "the nearest pp with vpp = 1",
        "4, 8"}},
      {absl::StrCat(strategy("pp: 32, microbatches: 64"), model),
       kBad,
       {"strategy.pp", ": 16;"}},
      {absl::StrCat(kBase, "model: {layers: 16}"),
       kBad,
       {"model.hidden: missing"}},
      {absl::StrCat(kBase, "model: {preset: gpt-tiny, heads: 5}"),
       kBad,
       {"model.heads: 5"}},
      {strategy("pp: 4, microbatches: 8, dp: 2, data_parallel: ddp"),
       kBad,
       {"costs.gradient_bytes: missing"}},
      {strategy("pp: 64, microbatches: 700000000"),
       kBad,
       {"run.yaml:2: strategy.microbatches: 700000000", "2^31 passes"}},
      {"schedule: {name: 1f1b}\nstrategy: {pp: 65536, vpp: 2048, "
       "microbatches: 1}",
       kBad,
       {"strategy.pp", "stages"}},
      {"schedule: {name: 1f1b}\nstrategy: {pp: 65537, microbatches: 1}",
       kBad,
       {"strategy.pp: 65537", "from 1 to 65536"}},
      {"schedule: {name: 1f1b, params: {color: red}}\n"
       "strategy: {pp: 4, microbatches: 8}",
       kBad,
       {"run.yaml:1: schedule.params.color: red"}},
      {"schedule: {name: zb-h1}\nstrategy: {pp: 8, microbatches: 2}",
       kBad,
       {"run.yaml:2: strategy.microbatches: 2"}},
  };
  for (const BadRun& bad : table) {
    const absl::Status status = PrepareText(bad.yaml).status();
    INFO(bad.yaml << "\n" << status);
    CHECK(status.code() == bad.code);
    for (const char* part : bad.parts) {
      INFO(part);
      CHECK(absl::StrContains(status.message(), part));
    }
  }
}

}  // namespace
}  // namespace pipewright::prepare_refusals_test
