// ScheduleToTorchCsv (torch_csv.h).
#include <algorithm>
#include <array>
#include <cstdint>

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

// A stage that runs some microbatches again and others not; "" if there is
// none.
std::string StageThatRunsSomeAgain(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    std::vector<int> again(schedule.vpp());
    for (const Pass pass : schedule.order(rank)) {
      if (pass.kind() == PassKind::kRecompute) ++again[pass.chunk()];
    }
    for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
      if (again[chunk] == 0 || again[chunk] == schedule.microbatches) continue;
      return absl::StrCat(again[chunk], " of ", schedule.microbatches,
                          " microbatches on stage ",
                          schedule.placement.StageOf(rank, chunk));
    }
  }
  return "";
}

}  // namespace

bool TorchHasPlacement(const Placement& placement) {
  return placement.vpp() == 1 || placement.shape() == Placement::Shape::kLoop ||
         placement.shape() == Placement::Shape::kV;
}

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
  if (const std::string some = StageThatRunsSomeAgain(schedule);
      !some.empty()) {
    return refuse("R", absl::StrCat("of ", some),
                  "PyTorch's CSV has no cell for R, and a module is "
                  "checkpointed for all microbatches or none",
                  "of all microbatches of a stage or of none");
  }
  const Schedule kept = OnlyTorchPasses(schedule, warnings);
  return Rows(kept, flavour == TorchFlavour::kComputeOnly
                        ? PassSteps(kept)
                        : LowerForTorch(kept));
}

// LowerForTorch: what PyTorch adds to the passes of a rank.

namespace {

// Stages that are unsharded at once, the one in use and those ahead
// (PyTorch 2.14.1, _add_unshard_reshard, max_active_stages).
constexpr size_t kMostActive = 3;

// PyTorch frees stages in the order in which CPython walks a set of them, so
// this set of small integers walks as that one does (Objects/setobject.c: open
// addressing, the value is its own hash, removed places are not used again,
// growth to four times the members at 60 % filling).
class StageSet {
 public:
  bool Contains(int64_t stage) const {
    return std::find(table_.begin(), table_.end(), stage) != table_.end();
  }
  void Add(int64_t stage) {
    Insert(stage);
    ++filled_;
    ++members_;
    if (filled_ * 5 >= (table_.size() - 1) * 3) Grow();
  }
  void Remove(int64_t stage) {
    *std::find(table_.begin(), table_.end(), stage) = kRemoved;
    --members_;
  }
  std::vector<int64_t> InOrder() const {
    std::vector<int64_t> stages;
    for (const int64_t stage : table_) {
      if (stage >= 0) stages.push_back(stage);
    }
    return stages;
  }

 private:
  static constexpr int64_t kFree = -1;
  static constexpr int64_t kRemoved = -2;
  static constexpr size_t kSmallest = 8;      // PySet_MINSIZE
  static constexpr size_t kLinearProbes = 9;  // LINEAR_PROBES
  static constexpr int kPerturbShift = 5;     // PERTURB_SHIFT

  void Insert(int64_t stage) {
    const size_t mask = table_.size() - 1;
    auto perturb = static_cast<size_t>(stage);
    size_t place = perturb & mask;
    while (true) {
      const size_t more = place + kLinearProbes <= mask ? kLinearProbes : 0;
      for (size_t probe = place; probe <= place + more; ++probe) {
        if (table_[probe] != kFree) continue;
        table_[probe] = stage;
        return;
      }
      perturb >>= kPerturbShift;
      place = (place * 5 + 1 + perturb) & mask;
    }
  }

  void Grow() {
    const std::vector<int64_t> stages = InOrder();
    size_t size = kSmallest;
    while (size <= members_ * 4) size *= 2;
    table_.assign(size, kFree);
    for (const int64_t stage : stages) Insert(stage);
    filled_ = members_;
  }

  std::vector<int64_t> table_ = std::vector<int64_t>(kSmallest, kFree);
  size_t filled_ = 0;  // members and removed places
  size_t members_ = 0;
};

// Passes of one rank with the steps around them that move or reduce weights.
class RankLowering {
 public:
  RankLowering(const Schedule& schedule, int rank)
      : schedule_(schedule),
        rank_(rank),
        order_(schedule.order(rank)),
        gradients_left_(schedule.vpp(), schedule.microbatches) {}

  StepList Run() && {
    for (size_t first = 0; first < order_.size();) {
      const size_t end = first + (order_[first].joint_with_next() ? 2 : 1);
      Shard(NextStages(first));
      for (size_t index = first; index < end; ++index) {
        list_.push_back({StepKind::kPass, order_[index]});
      }
      for (size_t index = first; index < end; ++index) Reduce(order_[index]);
      first = end;
    }
    for (const int64_t stage : active_.InOrder()) {
      Put(StepKind::kReshard, stage);
    }
    return std::move(list_);
  }

 private:
  int64_t StageOf(Pass pass) const {
    return schedule_.placement.StageOf(rank_, pass.chunk());
  }

  // The next distinct stages in order of use. A pair adds both of its own.
  std::vector<int64_t> NextStages(size_t position) const {
    std::vector<int64_t> stages;
    for (; position < order_.size() && stages.size() < kMostActive;
         ++position) {
      const auto add = [&](Pass pass) {
        const int64_t stage = StageOf(pass);
        if (std::find(stages.begin(), stages.end(), stage) == stages.end()) {
          stages.push_back(stage);
        }
      };
      add(order_[position]);
      if (order_[position].joint_with_next()) add(order_[++position]);
    }
    return stages;
  }

  void Shard(const std::vector<int64_t>& next) {
    for (const int64_t stage : active_.InOrder()) {
      if (std::find(next.begin(), next.end(), stage) != next.end()) continue;
      active_.Remove(stage);
      Put(StepKind::kReshard, stage);
    }
    for (const int64_t stage : next) {
      if (active_.Contains(stage)) continue;
      active_.Add(stage);
      Put(StepKind::kUnshard, stage);
    }
  }

  void Reduce(Pass pass) {
    if (pass.kind() != PassKind::kBackwardFull &&
        pass.kind() != PassKind::kBackwardWeight) {
      return;
    }
    if (--gradients_left_[pass.chunk()] == 0) {
      Put(StepKind::kReduceGradient, StageOf(pass));
    }
  }

  void Put(StepKind kind, int64_t stage) {
    list_.push_back(
        {kind, Pass(PassKind::kForward, 0,
                    schedule_.placement.ChunkOf(static_cast<int>(stage)))});
  }

  const Schedule& schedule_;
  const int rank_;
  const RankOrder& order_;
  std::vector<int> gradients_left_;  // [chunk]
  StageSet active_;
  StepList list_;
};

}  // namespace

std::vector<StepList> LowerForTorch(const Schedule& schedule) {
  std::vector<StepList> lists;
  lists.reserve(schedule.pp());
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    lists.push_back(RankLowering(schedule, rank).Run());
  }
  return PostAhead(schedule, lists);
}

}  // namespace pipewright
