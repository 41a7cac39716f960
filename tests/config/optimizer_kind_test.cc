// Optimizers other than Adam in a whole run: what is refused, what the step
// takes and holds, and what goes over the links for it.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "tests/support/prepare.h"

namespace pipewright::optimizer_kind_test {
namespace {

using testing::Prepared;
using testing::PrepareText;

std::string Text(const std::string& strategy,
                 const std::string& costs = "{analytic: {}}") {
  return absl::StrCat(
      "schedule: {name: 1f1b}\nmodel: {preset: llama3-8b}\n"
      "system: {preset: dgx-h100, nodes: 2}\n"
      "strategy: {microbatches: 8, ",
      strategy, "}\ncosts: ", costs, "\n");
}

PreparedRun Run(const std::string& strategy) {
  return Prepared(Text(strategy));
}

constexpr char kMuon[] = "pp: 2, dp: 8, optimizer_kind: muon, ";

double MomentsOf(const PreparedRun& run, int rank) {
  return static_cast<double>(
      run.memory->memory->ranks[rank].at_peak[MemoryKind::kMoments]);
}

TEST_CASE("optimizer: combinations that nobody runs", "[config]") {
  const struct {
    std::string text;
    const char* part;
  } kBad[] = {
      {Text(absl::StrCat(kMuon, "data_parallel: fsdp")),
       "strategy.data_parallel: fsdp is not allowed; allowed: none, ddp, zero1 "
       "(a matrix is stepped whole) with strategy.optimizer_kind muon"},
      {Text(absl::StrCat(kMuon, "data_parallel: zero2")), "none, ddp, zero1"},
      {Text(absl::StrCat(kMuon, "zero: 3")), "strategy.zero"},
      {Text(absl::StrCat(kMuon,
                         "muon_distribution: gathered, data_parallel: odc")),
       "none, ddp, zero1, zero2 (a matrix"},
      {Text("pp: 2, dp: 8, optimizer_kind: adafactor, data_parallel: zero1"),
       "none, ddp (parts of a matrix have no rows and columns)"},
      {Text(absl::StrCat(kMuon, "optimizer_placement: zero-offload")),
       "gpu: hosts step by Adam"},
      {Text(absl::StrCat(kMuon, "optimizer: post-validated")),
       "a step is undone by Adam"},
      {Text("pp: 2, dp: 8, optimizer_kind: adamuon"), "optimizer_kind"},
  };
  for (const auto& [text, part] : kBad) {
    const absl::Status refused = PrepareText(text).status();
    INFO(text << refused);
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(absl::StrContains(refused.message(), part));
  }
  CHECK(PrepareText(Text(absl::StrCat(kMuon,
                                      "data_parallel: zero2, "
                                      "muon_distribution: gathered")))
            .ok());
  CHECK(PrepareText(Text("pp: 2, dp: 8, optimizer_kind: lion, "
                         "data_parallel: fsdp"))
            .ok());
}

TEST_CASE("optimizer: the step of each rule", "[config]") {
  const auto seconds = [](const std::string& strategy) {
    return Run(strategy).lower.costs.optimizer_s;
  };
  const std::string alone =
      "pp: 2, dp: 8, data_parallel: ddp, optimizer_kind: ";
  const double adam = seconds(alone + "adam");
  const double momentum = seconds(alone + "sgd-momentum");
  CHECK(seconds(alone + "sgd") < momentum);
  CHECK(momentum < adam);
  CHECK(seconds(alone + "lion") == momentum);
  CHECK(seconds(alone + "adafactor") > adam);
  CHECK(seconds(alone + "sgd-momentum, momentum_bytes_per_parameter: 2") <
        momentum);
  // Products, not bytes.
  CHECK(seconds(alone + "muon") > 3 * adam);
  CHECK(seconds(alone + "muon, muon_steps: 10") >
        1.5 * seconds(alone + "muon"));
  CHECK(seconds(absl::StrCat(kMuon, "data_parallel: zero1")) <
        0.2 * seconds(alone + "muon"));
  // Over tp each device does all, its part, or part of the squares.
  const auto over_tp = [&](const char* mode) {
    return seconds(absl::StrCat("pp: 2, dp: 2, tp: 4, optimizer_kind: muon, ",
                                "data_parallel: ddp, muon_tp_mode: ", mode));
  };
  CHECK(over_tp("blockwise") < over_tp("distributed"));
  CHECK(over_tp("distributed") < over_tp("duplicated"));
}

TEST_CASE("optimizer: what is held and sent for it", "[config]") {
  const PreparedRun adam = Run("pp: 2, dp: 8, data_parallel: zero1");
  const PreparedRun whole = Run(absl::StrCat(kMuon, "data_parallel: zero1"));
  const PreparedRun parts = Run(
      absl::StrCat(kMuon, "data_parallel: zero1, muon_distribution: gathered"));
  // One momentum of matrices, half of Adam's two; more where it is whole.
  CHECK(MomentsOf(parts, 0) < 0.6 * MomentsOf(adam, 0));
  CHECK(MomentsOf(parts, 0) > 0.5 * MomentsOf(adam, 0));
  CHECK(MomentsOf(whole, 0) > MomentsOf(parts, 0));
  // Buffers with empty places go round whole.
  REQUIRE(whole.lower.gradient_bytes.size() == 2);
  const double empty =
      whole.lower.gradient_bytes[0] - adam.lower.gradient_bytes[0];
  CHECK(empty > 0);
  CHECK(empty < 0.2 * adam.lower.gradient_bytes[0]);
  CHECK(whole.lower.parameter_bytes[0] - adam.lower.parameter_bytes[0] ==
        Approx(empty / 2));
  CHECK(whole.lower.update_bytes.empty());
  CHECK(parts.lower.gradient_bytes == adam.lower.gradient_bytes);
  // 16 layers of 218.1 million weights, in 16 bit, before the step.
  const double layer = 4096 * 6144. + 4096 * 4096. + 3 * 4096. * 14336;
  REQUIRE(parts.lower.update_bytes.size() == 2);
  CHECK(parts.lower.update_bytes[0] == Approx(2 * 16 * layer));
  const auto gathers = [](const PreparedRun& run) {
    const absl::StatusOr<Program> program =
        Lower(run.schedule.lowered, run.lower);
    REQUIRE(program.ok());
    int count = 0;
    for (const SideOp& op : program->ranks[0].side_ops) {
      count += op.kind == OpKind::kAllGather ? 1 : 0;
    }
    return count;
  };
  // Chunk by chunk, one behind the other.
  std::string chunks = Text(absl::StrCat(
      kMuon, "vpp: 2, data_parallel: zero1, muon_distribution: gathered"));
  chunks.replace(chunks.find("1f1b"), 4, "interleaved-1f1b");
  const PreparedRun interleaved = Prepared(chunks);
  const absl::StatusOr<Program> program =
      Lower(interleaved.schedule.lowered, interleaved.lower);
  REQUIRE(program.ok());
  const absl::Status pairs = VerifyProgram(*program);
  INFO(pairs);
  CHECK(pairs.ok());
  CHECK(gathers(whole) == 1);
  CHECK(gathers(parts) == 2);
}

}  // namespace
}  // namespace pipewright::optimizer_kind_test
