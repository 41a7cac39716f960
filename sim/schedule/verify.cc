#include "sim/schedule/verify.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/schedule/grid.h"
#include "sim/schedule/rank_check.h"

namespace pipewright {
namespace {

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
