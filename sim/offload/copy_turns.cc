#include "sim/offload/copy_turns.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sim/base/status.h"
#include "sim/offload/pass_times.h"
#include "sim/program/network_time.h"

namespace pipewright {
namespace {

// Sums of times round.
constexpr double kSlack = 1e-9;

bool IsTurn(const SideOp& op) {
  return op.kind == OpKind::kWait &&
         (op.stream == Stream::kD2H || op.stream == Stream::kH2D);
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

// The orders without copies, and where their entries stood.
struct Bare {
  Program program;
  std::vector<std::vector<int64_t>> before;  // [rank][position] bare entries
};

bool IsCopyEntry(PassKind kind) {
  return kind == PassKind::kOffload || kind == PassKind::kLoad ||
         kind == PassKind::kFree;
}

Bare WithoutCopies(const Program& program) {
  Bare bare = {.program = program};
  for (RankProgram& rank : bare.program.ranks) {
    const RankOrder& order = *rank.order;
    RankOrder left;
    std::vector<int64_t>& before = bare.before.emplace_back();
    for (const Pass pass : order) {
      before.push_back(std::ssize(left));
      if (!IsCopyEntry(pass.kind())) left.push_back(pass);
    }
    before.push_back(std::ssize(left));
    rank.order = std::make_shared<const RankOrder>(std::move(left));
  }
  return bare;
}

// The jobs of one rank, of both directions, each in its order.
struct RankJobs {
  std::vector<TurnJob> out;
  std::vector<TurnJob> in;
};

RankJobs JobsOf(const Program& program, int rank, int place,
                const std::vector<int64_t>& before, const PassTimes& early,
                const PassTimes& late, const SwitchCopies& copies) {
  const RankProgram& rank_program = program.ranks[rank];
  const RankOrder& order = *rank_program.order;
  const auto size = static_cast<int64_t>(order.size());
  const auto starts = [&](int64_t position) {
    const auto at = static_cast<size_t>(before[position]);
    return at < late.start_s.size() ? late.start_s[at]
                                    : std::numeric_limits<double>::infinity();
  };
  // From behind: when the data of each must be away, or there.
  absl::flat_hash_map<uint64_t, double> free_s;
  absl::flat_hash_map<uint64_t, double> read_s;
  RankJobs jobs;
  for (int64_t position = size; position-- > 0;) {
    const Pass pass = order[position];
    const Pass whole = rank_program.Whole(pass);
    if (ReadsActivations(pass.kind())) {
      read_s[whole.activation()] = starts(position);
    } else if (pass.kind() == PassKind::kFree) {
      free_s[whole.activation()] = starts(position);
    } else if (pass.kind() == PassKind::kOffload ||
               pass.kind() == PassKind::kLoad) {
      const bool out = pass.kind() == PassKind::kOffload;
      const int stage = rank_program.lanes[pass.lane()].stage;
      const auto at = before[position];
      auto& due = out ? free_s : read_s;
      (out ? jobs.out : jobs.in)
          .push_back({.rank = place,
                      .position = position,
                      .ready_s = at == 0 ? 0 : early.end_s[at - 1],
                      .due_s = due.contains(whole.activation())
                                   ? due.at(whole.activation())
                                   : std::numeric_limits<double>::infinity(),
                      .takes_s = (out ? copies.out_s : copies.in_s)[stage] /
                                 program.schedule->slices});
    }
  }
  std::reverse(jobs.out.begin(), jobs.out.end());
  std::reverse(jobs.in.begin(), jobs.in.end());
  return jobs;
}

// Side operations that come to a rank, in front of what is there.
class Additions {
 public:
  explicit Additions(Program* program)
      : program_(*program), of_rank_(program->ranks.size()) {}

  void Chain(const std::vector<TurnJob>& turns, const std::vector<int>& ranks,
             Stream stream) {
    for (size_t index = 1; index < turns.size(); ++index) {
      const TurnJob& one = turns[index - 1];
      const TurnJob& next = turns[index];
      if (one.rank == next.rank) continue;  // a stream runs in order
      const auto channel = static_cast<int32_t>(program_.channels.size());
      program_.channels.push_back({.kind = ChannelKind::kMessage,
                                   .from_rank = ranks[one.rank],
                                   .to_rank = ranks[next.rank]});
      Add(ranks[one.rank], 2 * (one.position + 1),
          {.kind = OpKind::kWait, .stream = stream, .outputs = {channel}});
      Add(ranks[next.rank], 2 * next.position + 1,
          {.kind = OpKind::kWait, .stream = stream, .inputs = {channel}});
    }
  }

  void Attach() {
    for (size_t rank = 0; rank < of_rank_.size(); ++rank) {
      RankProgram& own = program_.ranks[rank];
      std::vector<Added>& added = of_rank_[rank];
      std::stable_sort(added.begin(), added.end(),
                       [](const Added& one, const Added& other) {
                         return one.place < other.place;
                       });
      std::vector<Attachment> all;
      auto old = own.attachments.begin();
      for (Added& each : added) {
        const int64_t position = each.place / 2;
        for (; old != own.attachments.end() && old->position < position;
             ++old) {
          all.push_back(*old);
        }
        all.push_back({position, static_cast<int32_t>(own.side_ops.size())});
        own.side_ops.push_back(std::move(each.op));
      }
      all.insert(all.end(), old, own.attachments.end());
      own.attachments = std::move(all);
    }
  }

 private:
  struct Added {
    int64_t place = 0;  // twice the position; odd: behind those before it
    SideOp op;
  };
  void Add(int rank, int64_t place, SideOp op) {
    of_rank_[rank].push_back({place, std::move(op)});
  }

  Program& program_;
  std::vector<std::vector<Added>> of_rank_;
};

}  // namespace

std::vector<TurnJob> DealTurns(const std::vector<std::vector<TurnJob>>& jobs,
                               double hand_over_s) {
  return jobs.size() == 2 ? DealToTwo(jobs[0], jobs[1], hand_over_s)
                          : DealToMany(jobs, hand_over_s);
}

double HandOverSeconds(const Program& program, const std::vector<int>& ranks) {
  double most = 0;
  for (const int from : ranks) {
    for (const int to : ranks) {
      most = std::max(most, TransferSeconds(program,
                                            {.kind = ChannelKind::kMessage,
                                             .from_rank = from,
                                             .to_rank = to},
                                            0));
    }
  }
  return most;
}

absl::Status HandTurns(const std::vector<SwitchCopies>& switches,
                       Program* program) {
  if (!program->false_starts.empty()) return absl::OkStatus();
  for (const RankProgram& rank : program->ranks) {
    if (rank.later_start > 0) return absl::OkStatus();
  }
  const Bare bare = WithoutCopies(*program);
  PW_ASSIGN_OR_RETURN(const std::vector<PassTimes> early,
                      EarliestTimes(bare.program));
  std::vector<PassTimes> late = early;
  DelayWarmUp(bare.program, &late);
  Additions additions(program);
  for (const SwitchCopies& copies : switches) {
    if (copies.ranks.size() < 2) continue;
    std::vector<std::vector<TurnJob>> out;
    std::vector<std::vector<TurnJob>> in;
    for (size_t place = 0; place < copies.ranks.size(); ++place) {
      const int rank = copies.ranks[place];
      RankJobs jobs =
          JobsOf(*program, rank, static_cast<int>(place), bare.before[rank],
                 early[rank], late[rank], copies);
      out.push_back(std::move(jobs.out));
      in.push_back(std::move(jobs.in));
    }
    const double hand_over_s = HandOverSeconds(*program, copies.ranks);
    additions.Chain(DealTurns(out, hand_over_s), copies.ranks, Stream::kD2H);
    additions.Chain(DealTurns(in, hand_over_s), copies.ranks, Stream::kH2D);
  }
  additions.Attach();
  return absl::OkStatus();
}

void DropTurns(DpClass* own) {
  for (RankProgram& rank : own->ranks) {
    for (SideOp& op : rank.side_ops) {
      if (!IsTurn(op)) continue;
      op.inputs.clear();
      op.outputs.clear();
    }
  }
}

}  // namespace pipewright
