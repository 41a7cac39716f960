// ScheduleToTorchCsv (torch_csv.h).
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/schedule/torch_csv.h"

namespace pipewright {
namespace {

bool IsTorchPass(PassKind kind) { return kind <= PassKind::kBackwardFull; }

absl::string_view TorchLetter(PassKind kind) {
  constexpr absl::string_view kLetters[] = {"F", "I", "W", "B"};
  return kLetters[static_cast<int>(kind)];
}

absl::string_view TorchName(const Step& step) {
  const bool forward = step.pass.kind() == PassKind::kForward;
  switch (step.kind) {
    case StepKind::kSend:
      return forward ? "SEND_F" : "SEND_B";
    case StepKind::kReceive:
      return forward ? "RECV_F" : "RECV_B";
    case StepKind::kUnshard:
      return "UNSHARD";
    case StepKind::kReshard:
      return "RESHARD";
    case StepKind::kReduceGradient:
      return "REDUCE_GRAD";
    case StepKind::kPass:
      break;
  }
  return TorchLetter(step.pass.kind());
}

void AppendCell(const Schedule& schedule, int rank, const Step& step,
                std::string* out) {
  absl::StrAppend(out, schedule.placement.StageOf(rank, step.pass.chunk()),
                  TorchName(step));
  if (step.kind <= StepKind::kReceive) {
    absl::StrAppend(out, step.pass.microbatch());
  }
}

std::string Rows(const Schedule& schedule, const std::vector<StepList>& lists) {
  std::string csv;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const StepList& list = lists[rank];
    bool inside = false;  // true inside an overlapped pair
    for (size_t index = 0; index < list.size(); ++index) {
      const Step& step = list[index];
      const bool opens =
          step.kind == StepKind::kPass && step.pass.joint_with_next();
      if (inside) {
        csv += ';';
      } else if (index > 0) {
        csv += ',';
      }
      if (opens) csv += '(';
      AppendCell(schedule, rank, step, &csv);
      if (inside) csv += ")OVERLAP_F_B";
      inside = opens;
    }
    csv += "\r\n";
  }
  return csv;
}

// Passes that PyTorch has no cell for are counted and taken out.
Schedule OnlyTorchPasses(const Schedule& schedule,
                         std::vector<std::string>* warnings) {
  std::array<int64_t, kNumPassKinds> dropped{};
  Schedule kept = schedule;
  for (std::shared_ptr<const RankOrder>& order : kept.orders) {
    RankOrder passes;
    for (const Pass pass : *order) {
      if (IsTorchPass(pass.kind())) {
        passes.push_back(pass);
      } else {
        ++dropped[static_cast<int>(pass.kind())];
      }
    }
    if (passes.size() == order->size()) continue;
    order = std::make_shared<const RankOrder>(std::move(passes));
  }
  for (int kind = 0; kind < kNumPassKinds; ++kind) {
    if (dropped[kind] == 0) continue;
    warnings->push_back(absl::StrCat("left out: ", dropped[kind], " ",
                                     PassKindName(static_cast<PassKind>(kind)),
                                     ", for which PyTorch's CSV has no cell"));
  }
  return kept;
}

}  // namespace

absl::StatusOr<std::string> ScheduleToTorchCsv(
    const Schedule& schedule, TorchFlavour flavour,
    std::vector<std::string>* warnings) {
  const auto refuse = [&](absl::string_view field, absl::string_view value,
                          absl::string_view why, absl::string_view allowed) {
    return BadValue(
        "format torch-csv",
        absl::StrCat("schedule ", schedule.name, " with ", field, " ", value),
        absl::StrCat(field, " ", allowed, ", because ", why,
                     " (text and json hold every schedule)"));
  };
  if (schedule.directions > 1) {
    return refuse("replicas", "2",
                  "PyTorch's CSV has each stage on one rank only", "1");
  }
  if (schedule.slices > 1) {
    return refuse("slices", absl::StrCat(schedule.slices),
                  "a cell of PyTorch's CSV names stage and microbatch and "
                  "nothing more",
                  "1");
  }
  if (schedule.backward != BackwardRule::kChain) {
    return refuse("backward", BackwardRuleName(schedule.backward),
                  "PyTorch sends every stage the gradient of the next one",
                  "chain");
  }
  const Schedule kept = OnlyTorchPasses(schedule, warnings);
  return Rows(kept, flavour == TorchFlavour::kComputeOnly
                        ? PassSteps(kept)
                        : LowerForTorch(kept));
}

}  // namespace pipewright
