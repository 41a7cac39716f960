#include "sim/schedule/verify.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/schedule/rank_check.h"

namespace pipewright {
namespace {

// Most ranks that a message shows.
constexpr int kMaxGridRows = 64;
// Passes shown on each side of the blocked one.
constexpr int kGridMargin = 3;

// Runs all orders without times: a rank goes on until its next pass needs a
// result of another rank, and is woken by the rank that makes it.
class Sweep {
 public:
  explicit Sweep(const Schedule& schedule)
      : schedule_(schedule),
        stages_(schedule.stages()),
        slices_(schedule.slices),
        units_(int64_t{schedule.microbatches_per_replica()} * schedule.slices),
        backward_base_((stages_ + 1) * units_ * schedule.replicas),
        done_((2 * backward_base_ + 63) / 64, 0),
        lanes_(2 * schedule.vpp()),
        forward_results_(int64_t{lanes_} * schedule.pp(), 0),
        positions_(schedule.pp(), 0),
        needs_(schedule.pp(), kNone),
        first_waiter_(schedule.pp(), -1),
        next_waiter_(schedule.pp(), -1) {
    for (int replica = 0; replica < schedule.replicas; ++replica) {
      // What stage 0 and the last stage's backward need is there from the
      // start: a border of results in front of stage 0 and behind the last.
      const int64_t first = replica * (stages_ + 1) * units_;
      for (int64_t unit = 0; unit < units_; ++unit) {
        Finish(done_.data(), first + unit);
        Finish(done_.data(), backward_base_ + first + stages_ * units_ + unit);
      }
      for (int rank = 0; rank < schedule.pp(); ++rank) {
        for (int chunk = 0; chunk < schedule.vpp(); ++chunk) {
          forward_results_[int64_t{rank} * lanes_ + 2 * chunk + replica] =
              first +
              (schedule.placement.StageOf(rank, chunk, replica) + 1) * units_;
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
        return bases[made.lane() >> 3] + made.microbatch() * slices +
               made.slice() +
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
    const int replica = need.pass.replica();
    const int stage =
        schedule_.placement.StageOf(rank, need.pass.chunk(), replica);
    const int maker = schedule_.placement.RankOf(
        IsBackward(need.pass.kind()) ? stage + 1 : stage - 1, replica);
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

  // Stage and replica of a result: it lies behind the border of its replica
  // (forward) or in front of it (backward).
  struct Maker {
    int stage, replica;
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
    return schedule_.placement.RankOf(maker.stage, maker.replica);
  }

  std::string NameOfResult(int64_t result) const {
    const Maker maker = MakerOf(result);
    const Pass pass(PassKind::kForward, static_cast<int>(maker.unit / slices_),
                    schedule_.placement.ChunkOf(maker.stage),
                    static_cast<int>(maker.unit % slices_), maker.replica);
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
        return absl::FailedPreconditionError(absl::StrCat(
            BlockedPass(rank), " stands before ", NameOfResult(needs_[rank]),
            " on the same rank\n", BlockedGrid(schedule_, positions_)));
      }
      if (members < kMaxGridRows) {
        absl::StrAppend(&message, "\n  ", BlockedPass(rank), " waits for ",
                        NameOfResult(needs_[rank]), " on rank ", next);
      }
      ++members;
      rank = next;
    } while (rank != first);
    return absl::FailedPreconditionError(
        absl::StrCat("deadlock: ", members, " ranks wait in a cycle", message,
                     "\n", BlockedGrid(schedule_, positions_)));
  }

  const Schedule& schedule_;
  const int64_t stages_, slices_;
  const int64_t units_;
  const int64_t backward_base_;  // first backward result
  std::vector<uint64_t> done_;   // a bit a result
  const int lanes_;
  // First forward result of each [rank, 2 * chunk + replica]; the backward
  // one is backward_base_ - units_ behind it.
  std::vector<int64_t> forward_results_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> needs_;  // result that a blocked rank waits for
  // Ranks that wait for a rank: a linked list each.
  std::vector<int> first_waiter_, next_waiter_;
};

// The cells around one rank's position; kGridMargin before, the marked one,
// kGridMargin behind. A joint pair is one cell.
std::array<std::string, 2 * kGridMargin + 1> GridCells(const Schedule& schedule,
                                                       int rank,
                                                       int64_t position) {
  const RankOrder& order = schedule.order(rank);
  const int64_t size = static_cast<int64_t>(order.size());
  const auto opens = [&](int64_t index) {
    return index >= 0 && index + 1 < size && order[index].joint_with_next();
  };
  const auto cell = [&](int64_t index) {
    const std::string text = PassToString(schedule, order[index]);
    if (!opens(index)) return text;
    return absl::StrCat("(", text, "&",
                        PassToString(schedule, order[index + 1]), ")");
  };
  std::array<std::string, 2 * kGridMargin + 1> cells;
  int64_t index = position;
  for (int column = kGridMargin - 1; column >= 0 && index > 0; --column) {
    index -= opens(index - 2) ? 2 : 1;
    cells[column] = cell(index);
  }
  if (index > 0) cells[0] = absl::StrCat("... ", cells[0]);
  index = position;
  for (int column = kGridMargin; column <= 2 * kGridMargin; ++column) {
    if (index >= size) {
      if (column == kGridMargin) cells[column] = "(end)";
      break;
    }
    cells[column] = column == kGridMargin ? absl::StrCat(">", cell(index), "<")
                                          : cell(index);
    index += opens(index) ? 2 : 1;
  }
  if (index < size) absl::StrAppend(&cells.back(), " ...");
  return cells;
}

}  // namespace

absl::Status VerifySchedule(const Schedule& schedule) {
  PW_CHECK(static_cast<int>(schedule.orders.size()) == schedule.pp());
  PW_CHECK(schedule.microbatches >= 1 && schedule.slices >= 1);
  PW_CHECK(schedule.replicas == 1 || schedule.replicas == 2);
  if (schedule.microbatches % schedule.replicas != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("microbatches: ", schedule.microbatches,
                     " do not divide over 2 replicas"));
  }
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    PW_RETURN_IF_ERROR(CheckRankOrder(schedule, rank));
  }
  return Sweep(schedule).Run();
}

std::string BlockedGrid(const Schedule& schedule,
                        const std::vector<int64_t>& positions) {
  PW_CHECK(static_cast<int>(positions.size()) == schedule.pp());
  const int ranks = schedule.pp();
  std::vector<int> rows;
  for (int rank = 0;
       rank < ranks && static_cast<int>(rows.size()) < kMaxGridRows; ++rank) {
    // Where not all fit, those that have ended tell least.
    const bool ended =
        positions[rank] >= static_cast<int64_t>(schedule.order(rank).size());
    if (ranks <= kMaxGridRows || !ended) rows.push_back(rank);
  }
  std::vector<std::array<std::string, 2 * kGridMargin + 1>> cells;
  std::array<size_t, 2 * kGridMargin + 1> widths{};
  for (const int rank : rows) {
    cells.push_back(GridCells(schedule, rank, positions[rank]));
    for (size_t column = 0; column < widths.size(); ++column) {
      widths[column] = std::max(widths[column], cells.back()[column].size());
    }
  }
  std::string grid;
  const int label_width = static_cast<int>(absl::StrCat(ranks - 1).size());
  for (size_t row = 0; row < rows.size(); ++row) {
    std::string line = absl::StrFormat("rank %*d:", label_width, rows[row]);
    for (size_t column = 0; column < widths.size(); ++column) {
      if (widths[column] == 0) continue;
      absl::StrAppendFormat(&line, " %-*s", static_cast<int>(widths[column]),
                            cells[row][column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&grid, line, "\n");
  }
  if (rows.size() < static_cast<size_t>(ranks)) {
    absl::StrAppend(&grid, "(", ranks - rows.size(), " more ranks)\n");
  }
  grid.pop_back();
  return grid;
}

}  // namespace pipewright
