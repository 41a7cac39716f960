// LowerForTorch (torch_csv.h): what PyTorch adds to the passes of a rank.
#include <algorithm>
#include <cstdint>

#include "sim/schedule/torch_csv.h"

namespace pipewright {
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
