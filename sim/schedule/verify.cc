#include "sim/schedule/verify.h"

#include <algorithm>
#include <array>
#include <bit>
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

// A set of ranks, walked upwards or downwards from any member.
class RankSet {
 public:
  explicit RankSet(int ranks) : words_((ranks + 63) / 64, 0) {}

  void Insert(int rank) { words_[rank / 64] |= uint64_t{1} << (rank % 64); }
  void Erase(int rank) { words_[rank / 64] &= ~(uint64_t{1} << (rank % 64)); }

  // The smallest member that is at least `rank`, or -1.
  int AtOrAbove(int rank) const {
    size_t word = rank / 64;
    if (word >= words_.size()) return -1;
    uint64_t bits = words_[word] & (~uint64_t{0} << (rank % 64));
    while (bits == 0) {
      if (++word == words_.size()) return -1;
      bits = words_[word];
    }
    return static_cast<int>(word * 64) + std::countr_zero(bits);
  }

  // The largest member that is at most `rank`, or -1.
  int AtOrBelow(int rank) const {
    if (rank < 0) return -1;
    int word = rank / 64;
    uint64_t bits = words_[word] & (~uint64_t{0} >> (63 - rank % 64));
    while (bits == 0) {
      if (--word < 0) return -1;
      bits = words_[word];
    }
    return word * 64 + 63 - std::countl_zero(bits);
  }

 private:
  std::vector<uint64_t> words_;
};

// Runs all orders without times: a rank goes on until its next pass needs a
// result of another rank, and is woken by the rank that makes it.
class Sweep {
 public:
  explicit Sweep(const Schedule& schedule)
      : schedule_(schedule),
        stages_(schedule.stages()),
        slices_(schedule.slices),
        units_(int64_t{schedule.microbatches_per_replica()} * schedule.slices),
        backward_base_(units_ * stages_ * schedule.replicas),
        done_((2 * backward_base_ + 63) / 64, 0),
        positions_(schedule.pp(), 0),
        needs_(schedule.pp(), -1),
        first_waiter_(schedule.pp(), -1),
        next_waiter_(schedule.pp(), -1),
        ready_(schedule.pp()) {}

  absl::Status Run() {
    for (int rank = 0; rank < schedule_.pp(); ++rank) ready_.Insert(rank);
    // Up with the forwards, down with the backwards: long runs per visit.
    while (ready_.AtOrAbove(0) >= 0) {
      for (int rank = ready_.AtOrAbove(0); rank >= 0;
           rank = ready_.AtOrAbove(rank + 1)) {
        Visit(rank);
      }
      for (int rank = ready_.AtOrBelow(schedule_.pp() - 1); rank >= 0;
           rank = ready_.AtOrBelow(rank - 1)) {
        Visit(rank);
      }
    }
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      if (!Ended(rank)) return Deadlock(rank);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kNone = -1;

  bool Ended(int rank) const {
    return positions_[rank] ==
           static_cast<int64_t>(schedule_.order(rank).size());
  }
  bool IsDone(int64_t result) const {
    return (done_[result / 64] >> (result % 64) & 1) != 0;
  }

  // Number of the result that `pass` makes, kNone for W and the like.
  int64_t ResultOf(int rank, Pass pass) const {
    const bool backward = IsBackward(pass.kind());
    if (!backward && pass.kind() != PassKind::kForward) return kNone;
    const int stage =
        schedule_.placement.StageOf(rank, pass.chunk(), pass.replica());
    return (backward ? backward_base_ : 0) +
           (int64_t{pass.replica()} * stages_ + stage) * units_ +
           int64_t{pass.microbatch()} * slices_ + pass.slice();
  }

  // The result of a neighbouring stage that `pass`, which makes `result`,
  // needs, or kNone.
  int64_t NeedOf(int rank, Pass pass, int64_t result) const {
    if (result == kNone) return kNone;
    const int stage =
        schedule_.placement.StageOf(rank, pass.chunk(), pass.replica());
    if (pass.kind() == PassKind::kForward) {
      return stage == 0 ? kNone : result - units_;
    }
    return stage == stages_ - 1 ? kNone : result + units_;
  }

  bool Blocked(int64_t need) const { return need != kNone && !IsDone(need); }

  void Finish(int64_t result) {
    if (result == kNone) return;
    done_[result / 64] |= uint64_t{1} << (result % 64);
  }

  int RankOfResult(int64_t result) const {
    const int64_t lane = result % backward_base_ / units_;
    return schedule_.placement.RankOf(static_cast<int>(lane % stages_),
                                      static_cast<int>(lane / stages_));
  }

  void Visit(int rank) {
    ready_.Erase(rank);
    const RankOrder& order = schedule_.order(rank);
    const int64_t size = static_cast<int64_t>(order.size());
    int64_t position = positions_[rank];
    int64_t blocked_on = kNone;
    while (position < size) {
      const Pass pass = order[position];
      const int64_t result = ResultOf(rank, pass);
      const int64_t need = NeedOf(rank, pass, result);
      if (Blocked(need)) {
        blocked_on = need;
        break;
      }
      if (pass.joint_with_next()) [[unlikely]] {
        const Pass second = order[position + 1];
        const int64_t second_result = ResultOf(rank, second);
        const int64_t second_need = NeedOf(rank, second, second_result);
        if (Blocked(second_need)) {
          blocked_on = second_need;
          break;
        }
        Finish(second_result);
        ++position;
      }
      Finish(result);
      ++position;
    }
    positions_[rank] = position;
    Wake(rank);
    if (blocked_on != kNone) WaitFor(rank, blocked_on);
  }

  void WaitFor(int rank, int64_t need) {
    const int maker = RankOfResult(need);
    needs_[rank] = need;
    next_waiter_[rank] = first_waiter_[maker];
    first_waiter_[maker] = rank;
  }

  void Wake(int maker) {
    int* link = &first_waiter_[maker];
    while (*link >= 0) {
      const int waiter = *link;
      if (IsDone(needs_[waiter])) {
        *link = next_waiter_[waiter];
        needs_[waiter] = kNone;
        ready_.Insert(waiter);
      } else {
        link = &next_waiter_[waiter];
      }
    }
  }

  // The pass that made (or should make) `result`, as text.
  std::string NameOfResult(int64_t result) const {
    const int64_t lane = result % backward_base_ / units_;
    const int64_t unit = result % units_;
    const int stage = static_cast<int>(lane % stages_);
    const int replica = static_cast<int>(lane / stages_);
    return absl::StrCat(
        result < backward_base_ ? "" : "the backward of ",
        PassToString(schedule_,
                     Pass(PassKind::kForward, static_cast<int>(unit / slices_),
                          schedule_.placement.ChunkOf(stage),
                          static_cast<int>(unit % slices_), replica)),
        " of stage ", stage);
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
  const int stages_, slices_;
  const int64_t units_;
  const int64_t backward_base_;  // first backward result
  std::vector<uint64_t> done_;   // a bit a result
  std::vector<int64_t> positions_;
  std::vector<int64_t> needs_;  // result that a blocked rank waits for
  // Ranks that wait for a rank: a linked list each.
  std::vector<int> first_waiter_, next_waiter_;
  RankSet ready_;
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
