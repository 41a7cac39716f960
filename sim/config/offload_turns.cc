#include "sim/config/offload_turns.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/config/copy_turns.h"
#include "sim/config/pcie_switches.h"
#include "sim/program/program.h"

namespace pipewright {

absl::Status SettleCopyTurns(const PreparedRun& run, Program* program) {
  if (!run.offload || !program->copies_in_turn || program->num_classes() > 1 ||
      run.lower.activation_bytes.empty()) {
    return absl::OkStatus();
  }
  const Schedule& schedule = *run.schedule.lowered;
  const PcieSwitches switches(program->network, program->replicas,
                              schedule.pp());
  SwitchCopies copies;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.placement.RankOf(stage, 0);
    const auto seconds = [&](PassKind kind) {
      const double times = switches.SharersInTurn(
          rank, kind == PassKind::kOffload, CopiesBeside::kBothWays);
      return ActivationCopySeconds(run, *program, stage, kind, times);
    };
    copies.out_s.push_back(seconds(PassKind::kOffload));
    copies.in_s.push_back(seconds(PassKind::kLoad));
  }
  std::vector<SwitchCopies> settled;
  for (const auto& [link, ranks] : switches.ranks()) {
    const auto planned = run.offload->turns.find(link);
    copies.ranks = ranks;
    copies.planned =
        planned == run.offload->turns.end() ? SwitchTurns() : planned->second;
    settled.push_back(copies);
  }
  return HandTurns(settled, program);
}

void WarnOfDroppedTurns(const Program& program,
                        std::vector<std::string>* warnings) {
  if (!program.turns_dropped) return;
  const bool twice = !program.false_starts.empty();
  warnings->push_back(absl::StrCat(
      "strategy.offload_sharing in-turn: ",
      twice ? "an iteration begins twice (strategy.rollback_iterations)"
            : "with turns ranks would wait for each other in a circle",
      ", so turns on a PCIe switch are not settled before the run: the copy "
      "that could begin first goes first, and passes can wait that the plan "
      "would not let wait"));
}

}  // namespace pipewright
