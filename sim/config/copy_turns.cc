#include "sim/config/copy_turns.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sim/base/status.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/deal_turns.h"
#include "sim/program/network_time.h"
#include "sim/program/pass_times.h"
#include "sim/trace/trace.h"

namespace pipewright {
namespace {

bool IsTurn(const SideOp& op) {
  return op.kind == OpKind::kWait &&
         (op.stream == Stream::kD2H || op.stream == Stream::kH2D);
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

// When copies run while each rank has its links to itself, and passes wait at
// FREE and for loads.
class CopyTimes : public TraceSink {
 public:
  explicit CopyTimes(int pp) : of_rank_(pp) {}

  void OnOp(const TraceOp& op) override {
    const bool copies = op.kind == OpKind::kOffload || op.kind == OpKind::kLoad;
    if (!copies || op.replica != 0) return;
    of_rank_[op.rank][op.pass.bits()] = {op.start_s, op.end_s};
  }
  // Start and end.
  std::pair<double, double> Of(int rank, Pass pass) const {
    return of_rank_[rank].at(pass.bits());
  }

 private:
  std::vector<absl::flat_hash_map<uint64_t, std::pair<double, double>>>
      of_rank_;
};

// One iteration; interference would only change how long things take.
bool RunsOnce(Program program, TraceSink* trace) {
  program.iterations = 1;
  program.interference = nullptr;
  return RunFast(program, {.trace = trace}).ok();
}

// The jobs of one rank, of both directions, each in its order.
struct RankJobs {
  std::vector<TurnJob> out;
  std::vector<TurnJob> in;
};

RankJobs JobsOf(const Program& program, int rank, int place,
                const std::vector<int64_t>& before, const CopyTimes& alone,
                const RankPassTimes& late, const SwitchCopies& copies) {
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
      const auto [ready_s, done_s] = alone.Of(rank, pass);
      auto& due = out ? free_s : read_s;
      (out ? jobs.out : jobs.in)
          .push_back({.rank = place,
                      .position = position,
                      .ready_s = ready_s,
                      .due_s = due.contains(whole.activation())
                                   ? due.at(whole.activation())
                                   : std::numeric_limits<double>::infinity(),
                      .takes_s = (out ? copies.out_s : copies.in_s)[stage] /
                                 program.schedule->slices,
                      .done_s = done_s});
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

// [rank] where each O and L stands.
using Positions = std::vector<absl::flat_hash_map<uint64_t, int64_t>>;

Positions PositionsOfCopies(const Program& program) {
  Positions positions(program.pp());
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankOrder& order = *program.ranks[rank].order;
    for (size_t at = 0; at < order.size(); ++at) {
      if (!IsCopyEntry(order[at].kind())) continue;
      positions[rank][order[at].bits()] = static_cast<int64_t>(at);
    }
  }
  return positions;
}

// False where nothing was planned, or the program cannot run so.
bool WithPlannedTurns(const std::vector<SwitchCopies>& switches,
                      Program* program) {
  const Positions positions = PositionsOfCopies(*program);
  Program with = *program;
  Additions additions(&with);
  bool any = false;
  for (const SwitchCopies& copies : switches) {
    for (const bool out : {true, false}) {
      std::vector<TurnJob> turns;
      for (const PlannedTurn& turn :
           out ? copies.planned.out : copies.planned.in) {
        const auto place =
            std::find(copies.ranks.begin(), copies.ranks.end(), turn.rank);
        const auto at = positions[turn.rank].find(turn.pass.bits());
        if (place == copies.ranks.end() || at == positions[turn.rank].end()) {
          return false;
        }
        turns.push_back({.rank = static_cast<int>(place - copies.ranks.begin()),
                         .position = at->second});
      }
      any |= !turns.empty();
      additions.Chain(turns, copies.ranks, out ? Stream::kD2H : Stream::kH2D);
    }
  }
  if (!any) return false;
  additions.Attach();
  if (!RunsOnce(with, nullptr)) return false;
  *program = std::move(with);
  program->turns_dropped = false;
  return true;
}

}  // namespace

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
  const bool shared = std::any_of(
      switches.begin(), switches.end(),
      [](const SwitchCopies& copies) { return copies.ranks.size() > 1; });
  if (!shared) return absl::OkStatus();
  // Until they are settled.
  program->turns_dropped = true;
  if (!program->false_starts.empty()) return absl::OkStatus();
  for (const RankProgram& rank : program->ranks) {
    if (rank.later_start > 0) return absl::OkStatus();
  }
  if (WithPlannedTurns(switches, program)) return absl::OkStatus();
  const Bare bare = WithoutCopies(*program);
  PW_ASSIGN_OR_RETURN(std::vector<RankPassTimes> late,
                      EarliestTimes(bare.program));
  DelayWarmUp(bare.program, &late);
  CopyTimes alone(program->pp());
  if (!RunsOnce(*program, &alone)) return absl::OkStatus();
  Program with = *program;
  Additions additions(&with);
  for (const SwitchCopies& copies : switches) {
    if (copies.ranks.size() < 2) continue;
    std::vector<std::vector<TurnJob>> out;
    std::vector<std::vector<TurnJob>> in;
    for (size_t place = 0; place < copies.ranks.size(); ++place) {
      const int rank = copies.ranks[place];
      RankJobs jobs = JobsOf(*program, rank, static_cast<int>(place),
                             bare.before[rank], alone, late[rank], copies);
      out.push_back(std::move(jobs.out));
      in.push_back(std::move(jobs.in));
    }
    const double hand_over_s = HandOverSeconds(*program, copies.ranks);
    additions.Chain(DealTurns(out, hand_over_s), copies.ranks, Stream::kD2H);
    additions.Chain(DealTurns(in, hand_over_s), copies.ranks, Stream::kH2D);
  }
  additions.Attach();
  if (!RunsOnce(with, nullptr)) return absl::OkStatus();
  *program = std::move(with);
  program->turns_dropped = false;
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
