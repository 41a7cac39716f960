#include "sim/schedule/rank_check.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// What has happened to one (direction, chunk, microbatch, slice) on its rank.
enum Flag : uint8_t {
  kF = 1,
  kB = 2,
  kW = 4,
  kR = 8,
  kO = 16,
  kL = 32,
  kAway = 64,  // offloaded and not loaded yet
  kFreed = 128,
};
constexpr uint8_t kComplete = kF | kB | kW;

struct Rule {
  uint8_t needs;
  uint8_t excludes;
  uint8_t sets;
  uint8_t clears;
};

constexpr Rule kRules[kNumPassKinds] = {
    {0, kF, kF, 0},                // F
    {kF, kB | kAway, kB, 0},       // B
    {kB, kW, kW, 0},               // W
    {kF, kB | kAway, kB | kW, 0},  // BW
    {kF, kR | kB | kAway, kR, 0},  // R
    {kF, kO | kB, kO | kAway, 0},  // O
    {kO, kL | kB, kL, kAway},      // L
    {0, 0, 0, 0},                  // SYNC
    {kAway, kFreed, kFreed, 0},    // FREE
};

constexpr Rule RuleOf(Pass pass) {
  return kRules[static_cast<int>(pass.kind())];
}

// States in an array, where the order is long enough to fill it.
class DenseStates {
 public:
  using View = uint8_t*;
  explicit DenseStates(int64_t count) : states_(count, 0) {}
  View Access() { return states_.data(); }
  uint8_t Get(int64_t index) const { return states_[index]; }

 private:
  std::vector<uint8_t> states_;
};

// States in a table, where the sizes promise more than the order holds: the
// memory follows the order, whatever a file's header says.
class SparseStates {
 public:
  using View = absl::flat_hash_map<int64_t, uint8_t>&;
  explicit SparseStates(int64_t) {}
  View Access() { return states_; }
  uint8_t Get(int64_t index) const {
    const auto found = states_.find(index);
    return found == states_.end() ? 0 : found->second;
  }

 private:
  absl::flat_hash_map<int64_t, uint8_t> states_;
};

// True if `pass`, whose state is states[index], may come next.
template <typename View>
inline bool Runs(View&& states, int64_t index, Pass pass, int slices) {
  const Rule rule = RuleOf(pass);
  if ((states[index] & (rule.needs | rule.excludes)) != rule.needs) {
    return false;
  }
  if (slices == 1) return true;
  if (IsBackward(pass.kind())) {
    return pass.slice() + 1 >= slices || (states[index + 1] & kB) != 0;
  }
  return pass.kind() != PassKind::kForward || pass.slice() == 0 ||
         (states[index - 1] & kF) != 0;
}

// One rank on its own: every pass once, in an order that it can run.
template <typename States>
class RankCheck {
 public:
  RankCheck(const Schedule& schedule, int rank)
      : schedule_(schedule),
        order_(schedule.order(rank)),
        rank_(rank),
        vpp_(schedule.vpp()),
        slices_(schedule.slices),
        directions_(schedule.directions),
        microbatches_(schedule.microbatches_per_direction()),
        units_(int64_t{microbatches_} * slices_),
        count_(units_ * vpp_ * directions_),
        states_(count_),
        synced_(static_cast<size_t>(vpp_) * directions_, false) {}

  absl::Status Run() {
    if (schedule_.backward == BackwardRule::kNone) {
      PW_RETURN_IF_ERROR(CheckForwardOnly());
    }
    // Copies, because a store to a state might change any member.
    const Pass* const passes = order_.data();
    const int64_t size = static_cast<int64_t>(order_.size());
    const int64_t units = units_;
    const int vpp = vpp_, slices = slices_, directions = directions_;
    const int microbatches = microbatches_;
    typename States::View states = states_.Access();
    for (int64_t position = 0; position < size; ++position) {
      const Pass pass = passes[position];
      const bool plain = pass.kind() != PassKind::kSync &&
                         !pass.joint_with_next() && pass.chunk() < vpp &&
                         pass.direction() < directions &&
                         pass.slice() < slices && pass.microbatch() >= 0 &&
                         pass.microbatch() < microbatches;
      if (!plain) [[unlikely]] {
        PW_RETURN_IF_ERROR(CheckSpecial(position));
        if (pass.kind() == PassKind::kSync) continue;
      }
      const int64_t index =
          (int64_t{pass.direction()} * vpp + pass.chunk()) * units +
          int64_t{pass.microbatch()} * slices + pass.slice();
      if (!Runs(states, index, pass, slices)) [[unlikely]] {
        return Problem(position);
      }
      const Rule rule = RuleOf(pass);
      states[index] =
          static_cast<uint8_t>((states[index] & ~rule.clears) | rule.sets);
    }
    return CheckComplete();
  }

 private:
  int64_t IndexOf(Pass pass) const {
    return (int64_t{pass.direction()} * vpp_ + pass.chunk()) * units_ +
           int64_t{pass.microbatch()} * slices_ + pass.slice();
  }

  bool InRange(Pass pass) const {
    return pass.chunk() < vpp_ && pass.direction() < directions_ &&
           (pass.kind() == PassKind::kSync ||
            (pass.slice() < slices_ && pass.microbatch() >= 0 &&
             pass.microbatch() < microbatches_));
  }

  // What the fast loop leaves out: out of range, joint, SYNC.
  absl::Status CheckSpecial(int64_t position) {
    const Pass pass = order_[position];
    if (!InRange(pass)) return OutOfRange(position);
    if (pass.joint_with_next()) PW_RETURN_IF_ERROR(CheckJoint(position));
    if (pass.kind() == PassKind::kSync) return CheckSync(position);
    return absl::OkStatus();
  }

  std::string At(int64_t position) const {
    return absl::StrCat("rank ", rank_, ", position ", position, ": ",
                        PassToString(schedule_, order_[position]), " ");
  }

  std::string Name(Pass pass, PassKind kind, int slice) const {
    return PassToString(schedule_, Pass(kind, pass.microbatch(), pass.chunk(),
                                        slice, pass.direction()));
  }

  absl::Status OutOfRange(int64_t position) const {
    return absl::FailedPreconditionError(
        absl::StrCat(At(position), "is out of range; allowed: microbatch 0..",
                     microbatches_ - 1, ", chunk 0..", vpp_ - 1, ", slice 0..",
                     slices_ - 1, directions_ == 1 ? "" : ", replica a or b"));
  }

  // Why Runs() said no.
  absl::Status Problem(int64_t position) const {
    const Pass pass = order_[position];
    const PassKind kind = pass.kind();
    const uint8_t state = states_.Get(IndexOf(pass));
    const auto fail = [&](absl::string_view what) {
      return absl::FailedPreconditionError(
          absl::StrCat(At(position), what, Where(pass)));
    };
    const Rule rule = RuleOf(pass);
    if ((state & rule.sets & rule.excludes) != 0) {
      return fail(IsBackward(kind) ? "is a second backward"
                  : kind == PassKind::kBackwardWeight
                      ? "is a second weight gradient"
                      : "stands twice");
    }
    if ((state & rule.needs) != rule.needs) {
      const PassKind needed = rule.needs == kF   ? PassKind::kForward
                              : rule.needs == kB ? PassKind::kBackwardInput
                                                 : PassKind::kOffload;
      if (kind == PassKind::kFree && (state & kO) != 0) {
        return fail("stands behind the load of what it gives back");
      }
      return fail(
          absl::StrCat("stands before ", Name(pass, needed, pass.slice())));
    }
    if ((state & rule.excludes & kB) != 0) {
      return fail("comes after the backward pass that needs it");
    }
    if ((state & rule.excludes & kAway) != 0) {
      return fail("needs activations that were offloaded and not loaded");
    }
    return fail(absl::StrCat(
        "stands before ",
        IsBackward(kind)
            ? absl::StrCat("the backward of slice ", pass.slice() + 1)
            : Name(pass, kind, pass.slice() - 1)));
  }

  std::string Where(Pass pass) const {
    return absl::StrCat(
        " (stage ",
        schedule_.placement.StageOf(rank_, pass.chunk(), pass.direction()),
        ", microbatch ", pass.microbatch(), ")");
  }

  absl::Status CheckJoint(int64_t position) {
    const auto fail = [&](absl::string_view what) {
      return absl::FailedPreconditionError(absl::StrCat(At(position), what));
    };
    if (position + 1 == static_cast<int64_t>(order_.size())) {
      return fail("opens a joint pair that has no second pass");
    }
    const Pass first = order_[position];
    const Pass second = order_[position + 1];
    if (!InRange(second)) return OutOfRange(position + 1);
    if (second.joint_with_next()) {
      return fail("is joint with a pass that opens a pair itself");
    }
    const bool one_each =
        (first.kind() == PassKind::kForward && IsBackward(second.kind())) ||
        (IsBackward(first.kind()) && second.kind() == PassKind::kForward);
    if (!one_each) {
      return fail("is in a joint pair that is not one F and one B or BW");
    }
    // The block starts when both inputs are there.
    if (IndexOf(first) == IndexOf(second)) {
      return fail("is joint with a pass that needs it");
    }
    typename States::View states = states_.Access();
    if (Runs(states, IndexOf(first), first, slices_) &&
        !Runs(states, IndexOf(second), second, slices_)) {
      return Problem(position + 1);
    }
    return absl::OkStatus();
  }

  absl::Status CheckSync(int64_t position) {
    const Pass pass = order_[position];
    const int slot = pass.direction() * vpp_ + pass.chunk();
    if (synced_[slot]) {
      return absl::FailedPreconditionError(
          absl::StrCat(At(position), "is a second SYNC of its chunk"));
    }
    synced_[slot] = true;
    return absl::OkStatus();
  }

  // Without backward there is nothing to recompute or offload for either.
  absl::Status CheckForwardOnly() const {
    for (size_t position = 0; position < order_.size(); ++position) {
      if (order_[position].kind() == PassKind::kForward) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          At(static_cast<int64_t>(position)),
          "is in a schedule whose header says backward none; allowed: F"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckComplete() const {
    uint8_t complete = kComplete;
    if (schedule_.backward == BackwardRule::kNone) complete = kF;
    for (int64_t index = 0; index < count_; ++index) {
      const uint8_t state = states_.Get(index);
      if ((state & complete) == complete) [[likely]]
        continue;
      const int64_t lane = index / units_;
      const int64_t unit = index % units_;
      const Pass pass(PassKind::kForward, static_cast<int>(unit / slices_),
                      static_cast<int>(lane % vpp_),
                      static_cast<int>(unit % slices_),
                      static_cast<int>(lane / vpp_));
      const absl::string_view missing = (state & kF) == 0 ? "is missing"
                                        : (state & kB) == 0
                                            ? "has no backward (BW, or B and W)"
                                            : "has a B and no W";
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank_, ": ", PassToString(schedule_, pass), " ",
                       missing, Where(pass)));
    }
    return absl::OkStatus();
  }

  const Schedule& schedule_;
  const RankOrder& order_;
  const int rank_, vpp_, slices_, directions_, microbatches_;
  const int64_t units_, count_;
  States states_;
  std::vector<bool> synced_;  // [direction * vpp + chunk]
};

}  // namespace

absl::Status CheckRankOrder(const Schedule& schedule, int rank) {
  const double states =
      1.0 * schedule.microbatches * schedule.slices * schedule.vpp();
  if (states <= static_cast<double>(schedule.order(rank).size())) {
    return RankCheck<DenseStates>(schedule, rank).Run();
  }
  return RankCheck<SparseStates>(schedule, rank).Run();
}

}  // namespace pipewright
