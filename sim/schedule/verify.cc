#include "sim/schedule/verify.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/schedule/grid.h"
#include "sim/schedule/schedule.h"

namespace pipewright {
namespace {

// Checks one rank alone: each pass exactly once, and after the passes of its
// rank that it needs. Ranks that wait for each other are not seen here.

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

// kFailedPrecondition naming rank, position and pass. Time O(passes), memory
// at most a few bytes a pass of this rank, whatever sizes the schedule states.
absl::Status CheckRankOrder(const Schedule& schedule, int rank) {
  const double states =
      1.0 * schedule.microbatches * schedule.slices * schedule.vpp();
  if (states <= static_cast<double>(schedule.order(rank).size())) {
    return RankCheck<DenseStates>(schedule, rank).Run();
  }
  return RankCheck<SparseStates>(schedule, rank).Run();
}

// Most members of a cycle that a message lists.
constexpr int kMaxListed = 64;

// Runs all orders without times: a rank goes on until its next pass needs a
// result of another rank, and is woken by the rank that makes it.
class Sweep {
 public:
  explicit Sweep(const Schedule& schedule)
      : schedule_(schedule),
        stages_(schedule.stages()),
        slices_(schedule.slices),
        units_(int64_t{schedule.microbatches_per_direction()} *
               schedule.slices),
        backward_base_((stages_ + 1) * units_ * schedule.directions),
        done_((2 * backward_base_ + 63) / 64, 0),
        lanes_(2 * schedule.vpp()),
        forward_results_(int64_t{lanes_} * schedule.pp(), 0),
        positions_(schedule.pp(), 0),
        needs_(schedule.pp(), kNone),
        first_waiter_(schedule.pp(), -1),
        next_waiter_(schedule.pp(), -1) {
    for (int direction = 0; direction < schedule.directions; ++direction) {
      // What stage 0 and the last stage's backward need is there from the
      // start: a border of results in front of stage 0 and behind the last.
      const int64_t first = direction * (stages_ + 1) * units_;
      for (int64_t unit = 0; unit < units_; ++unit) {
        Finish(done_.data(), first + unit);
        Finish(done_.data(), backward_base_ + first + stages_ * units_ + unit);
      }
      // A backward that needs no other finds its input there too.
      for (int64_t unit = 0;
           schedule.backward != BackwardRule::kChain && unit < stages_ * units_;
           ++unit) {
        Finish(done_.data(), backward_base_ + first + unit);
      }
      for (int rank = 0; rank < schedule.pp(); ++rank) {
        for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
          forward_results_[int64_t{rank} * lanes_ + 2 * chunk + direction] =
              first +
              (schedule.placement.StageOf(rank, chunk, direction) + 1) * units_;
        }
      }
    }
  }

  absl::Status Run() {
    std::vector<int> ready;  // the next rank to visit is the last
    for (int rank = schedule_.pp() - 1; rank >= 0; --rank) {
      ready.push_back(rank);
    }
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      const Need need = Advance(rank);
      Wake(rank, ready);
      if (need.result != kNone) WaitFor(rank, need);
    }
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      if (needs_[rank] != kNone) return Deadlock(rank);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kNone = -1;

  static bool IsDone(const uint64_t* done, int64_t result) {
    return (done[result >> 6] >> (result & 63) & 1) != 0;
  }
  static void Finish(uint64_t* done, int64_t result) {
    done[result >> 6] |= uint64_t{1} << (result & 63);
  }

  // A result that is not there, and the pass that needs it.
  struct Need {
    int64_t result = kNone;
    Pass pass;
  };

  // Runs `rank` up to its end or to a pass whose input is not there.
  Need Advance(int rank) {
    // Copies, because a store to done_ might change any member.
    const RankOrder& order = schedule_.order(rank);
    const Pass* const passes = order.data();
    const int64_t size = static_cast<int64_t>(order.size());
    const int64_t* const bases =
        forward_results_.data() + int64_t{rank} * lanes_;
    uint64_t* const done = done_.data();
    const int64_t units = units_, slices = slices_;
    const int64_t to_backward = backward_base_ - units;
    int64_t position = positions_[rank];
    Need need;
    for (; position < size; ++position) {
      const Pass pass = passes[position];
      const bool backward = IsBackward(pass.kind());
      if (!backward && pass.kind() != PassKind::kForward) continue;
      const auto result_of = [&](Pass made) {
        return bases[made.part()] + made.microbatch() * slices + made.slice() +
               (made.kind() == PassKind::kForward ? 0 : to_backward);
      };
      const int64_t step = backward ? units : -units;
      const int64_t result = result_of(pass);
      if (!IsDone(done, result + step)) {
        need = {result + step, pass};
        break;
      }
      if (pass.joint_with_next()) [[unlikely]] {
        // One F and one backward: the other one's step is the opposite.
        const int64_t second = result_of(passes[position + 1]);
        if (!IsDone(done, second - step)) {
          need = {second - step, passes[position + 1]};
          break;
        }
        Finish(done, second);
        ++position;
      }
      Finish(done, result);
    }
    positions_[rank] = position;
    return need;
  }

  void WaitFor(int rank, const Need& need) {
    const int direction = need.pass.direction();
    const int stage =
        schedule_.placement.StageOf(rank, need.pass.chunk(), direction);
    const int maker = schedule_.placement.RankOf(
        IsBackward(need.pass.kind()) ? stage + 1 : stage - 1, direction);
    needs_[rank] = need.result;
    next_waiter_[rank] = first_waiter_[maker];
    first_waiter_[maker] = rank;
  }

  void Wake(int maker, std::vector<int>& ready) {
    int* link = &first_waiter_[maker];
    while (*link >= 0) {
      const int waiter = *link;
      if (IsDone(done_.data(), needs_[waiter])) {
        *link = next_waiter_[waiter];
        needs_[waiter] = kNone;
        ready.push_back(waiter);
      } else {
        link = &next_waiter_[waiter];
      }
    }
  }

  // Stage and direction of a result: it lies behind the border of its direction
  // (forward) or in front of it (backward).
  struct Maker {
    int stage, direction;
    int64_t unit;
    bool backward;
  };
  Maker MakerOf(int64_t result) const {
    const bool backward = result >= backward_base_;
    const int64_t lane = (backward ? result - backward_base_ : result) / units_;
    return {static_cast<int>(lane % (stages_ + 1)) - (backward ? 0 : 1),
            static_cast<int>(lane / (stages_ + 1)), result % units_, backward};
  }

  int RankOfResult(int64_t result) const {
    const Maker maker = MakerOf(result);
    return schedule_.placement.RankOf(maker.stage, maker.direction);
  }

  std::string NameOfResult(int64_t result) const {
    const Maker maker = MakerOf(result);
    const Pass pass(PassKind::kForward, static_cast<int>(maker.unit / slices_),
                    schedule_.placement.ChunkOf(maker.stage),
                    static_cast<int>(maker.unit % slices_), maker.direction);
    return absl::StrCat(maker.backward ? "the backward of " : "",
                        PassToString(schedule_, pass), " of stage ",
                        maker.stage);
  }

  std::string BlockedPass(int rank) const {
    return absl::StrCat(
        "rank ", rank, ", position ", positions_[rank], ": ",
        PassToString(schedule_, schedule_.order(rank)[positions_[rank]]));
  }

  // `rank` is blocked, so the rank that it waits for is blocked too, and so
  // on around a cycle.
  absl::Status Deadlock(int rank) const {
    std::vector<bool> seen(schedule_.pp(), false);
    while (!seen[rank]) {
      seen[rank] = true;
      rank = RankOfResult(needs_[rank]);
    }
    std::string message;
    const int first = rank;
    int members = 0;
    do {
      const int next = RankOfResult(needs_[rank]);
      if (next == rank) {
        return AtOrder(schedule_, rank,
                       absl::FailedPreconditionError(absl::StrCat(
                           BlockedPass(rank), " stands before ",
                           NameOfResult(needs_[rank]), " on the same rank\n",
                           BlockedGrid(schedule_, positions_))));
      }
      if (members < kMaxListed) {
        absl::StrAppend(&message, "\n  ", BlockedPass(rank), " waits for ",
                        NameOfResult(needs_[rank]), " on rank ", next);
      }
      ++members;
      rank = next;
    } while (rank != first);
    return AtOrder(schedule_, first,
                   absl::FailedPreconditionError(absl::StrCat(
                       "deadlock: ", members, " ranks wait in a cycle", message,
                       "\n", BlockedGrid(schedule_, positions_))));
  }

  const Schedule& schedule_;
  const int64_t stages_, slices_;
  const int64_t units_;
  const int64_t backward_base_;  // first backward result
  std::vector<uint64_t> done_;   // a bit a result
  const int lanes_;
  // First forward result of each [rank, 2 * chunk + direction]; the backward
  // one is backward_base_ - units_ behind it.
  std::vector<int64_t> forward_results_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> needs_;  // result that a blocked rank waits for
  // Ranks that wait for a rank: a linked list each.
  std::vector<int> first_waiter_, next_waiter_;
};

}  // namespace

absl::Status VerifySchedule(const Schedule& schedule) {
  PW_CHECK(static_cast<int>(schedule.orders.size()) == schedule.pp());
  PW_CHECK(schedule.microbatches >= 1 && schedule.slices >= 1);
  PW_CHECK(schedule.directions == 1 || schedule.directions == 2);
  if (schedule.microbatches % schedule.directions != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("microbatches: ", schedule.microbatches,
                     " do not divide over 2 replicas"));
  }
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    PW_RETURN_IF_ERROR(AtOrder(schedule, rank, CheckRankOrder(schedule, rank)));
  }
  return Sweep(schedule).Run();
}

}  // namespace pipewright
