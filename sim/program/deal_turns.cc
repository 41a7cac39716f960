#include "sim/program/deal_turns.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace pipewright {
namespace {

// Sums of times round.
constexpr double kSlack = 1e-9;

// Largest table of DealToTwo, two bytes a cell.
constexpr double kMostCells = 1e7;

// May not wait for `job`, whatever is due: it may wait for this one.
bool GoesBefore(const TurnJob& one, const TurnJob& job) {
  return one.done_s <= job.ready_s && one.ready_s < job.ready_s;
}

// How well a part of the copies has been dealt out.
struct Dealt {
  double late_s = std::numeric_limits<double>::infinity();  // the latest copy
  double end_s = 0;

  bool operator<(const Dealt& other) const {
    return late_s != other.late_s ? late_s < other.late_s : end_s < other.end_s;
  }
};

Dealt Then(const Dealt& before, const TurnJob& job, double hand_over_s) {
  Dealt after;
  after.end_s = std::max(before.end_s + hand_over_s, job.ready_s) + job.takes_s;
  const double late_s = after.end_s - job.due_s * (1 + kSlack);
  after.late_s = std::max({before.late_s, 0.0, late_s});
  return after;
}

// The best way to have run so many of each, by who was last.
std::vector<TurnJob> DealToTwo(const std::vector<TurnJob>& one,
                               const std::vector<TurnJob>& other,
                               double hand_over_s) {
  const size_t width = other.size() + 1;
  using Cell = std::array<Dealt, 2>;  // [who was last]
  std::vector<Cell> row(width);
  // Who was last before that one.
  std::vector<std::array<int8_t, 2>> from((one.size() + 1) * width);
  for (size_t i = 0; i <= one.size(); ++i) {
    for (size_t j = 0; j < width; ++j) {
      Cell cell;
      if (i == 0 && j == 0) {
        cell[0] = cell[1] = {0, 0};
        row[j] = cell;
        continue;
      }
      for (const int last : {0, 1}) {
        if ((last == 0 ? i : j) == 0) continue;
        const TurnJob& job = last == 0 ? one[i - 1] : other[j - 1];
        const size_t left = last == 0 ? j : i;
        const std::vector<TurnJob>& others = last == 0 ? other : one;
        if (left < others.size() && GoesBefore(others[left], job)) continue;
        // Row i - 1 still stands at j, and cell j - 1 is of this row.
        const Cell& before = last == 0 ? row[j] : row[j - 1];
        const bool none = i + j == 1;
        for (const int previous : {0, 1}) {
          const Dealt dealt = Then(before[previous], job,
                                   previous == last || none ? 0 : hand_over_s);
          if (!(dealt < cell[last])) continue;
          cell[last] = dealt;
          from[i * width + j][last] = static_cast<int8_t>(previous);
        }
      }
      row[j] = cell;
    }
  }
  std::vector<TurnJob> turns;
  int last = row[width - 1][1] < row[width - 1][0] ? 1 : 0;
  for (size_t i = one.size(), j = other.size(); i + j > 0;) {
    const int previous = from[i * width + j][last];
    turns.push_back(last == 0 ? one[--i] : other[--j]);
    last = previous;
  }
  std::reverse(turns.begin(), turns.end());
  return turns;
}

std::vector<TurnJob> DealToMany(const std::vector<std::vector<TurnJob>>& jobs,
                                double hand_over_s) {
  std::vector<size_t> next(jobs.size());
  std::vector<TurnJob> turns;
  double free_s = 0;
  while (true) {
    const TurnJob* best = nullptr;
    double best_start_s = 0;
    for (size_t rank = 0; rank < jobs.size(); ++rank) {
      if (next[rank] == jobs[rank].size()) continue;
      const TurnJob& job = jobs[rank][next[rank]];
      bool waits = false;
      for (size_t other = 0; other < jobs.size(); ++other) {
        waits |= next[other] < jobs[other].size() &&
                 GoesBefore(jobs[other][next[other]], job);
      }
      if (waits) continue;
      const bool same = turns.empty() || turns.back().rank == job.rank;
      const double start_s =
          std::max(free_s + (same ? 0 : hand_over_s), job.ready_s);
      // The link does not idle while somebody could copy.
      const bool sooner = best != nullptr && start_s != best_start_s
                              ? start_s < best_start_s
                              : best == nullptr || job.due_s < best->due_s;
      if (!sooner) continue;
      best = &job;
      best_start_s = start_s;
    }
    if (best == nullptr) return turns;
    free_s = best_start_s + best->takes_s;
    for (size_t rank = 0; rank < jobs.size(); ++rank) {
      if (next[rank] < jobs[rank].size() && best == &jobs[rank][next[rank]]) {
        ++next[rank];
        break;
      }
    }
    turns.push_back(*best);
  }
}

}  // namespace

std::vector<TurnJob> DealTurns(const std::vector<std::vector<TurnJob>>& jobs,
                               double hand_over_s) {
  const bool searches =
      jobs.size() == 2 && static_cast<double>(jobs[0].size() + 1) *
                                  static_cast<double>(jobs[1].size() + 1) <=
                              kMostCells;
  return searches ? DealToTwo(jobs[0], jobs[1], hand_over_s)
                  : DealToMany(jobs, hand_over_s);
}

}  // namespace pipewright
