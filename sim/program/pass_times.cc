#include "sim/program/pass_times.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sim/program/compute_stream.h"
#include "sim/program/network_time.h"
#include "sim/program/program.h"
#include "sim/schedule/core.h"
#include "sim/schedule/rank_visits.h"

namespace pipewright {
namespace {

// Takes down what ReplayCore runs.
class Recorder {
 public:
  static constexpr bool kActive = true;

  explicit Recorder(std::vector<RankPassTimes>* times) : times_(*times) {}

  void OnPass(int rank, int64_t position, Pass, double start_s, double end_s,
              bool joint) {
    RankPassTimes& times = times_[rank];
    times.start_s[position] = start_s;
    times.end_s[position] = end_s;
    if (!joint) return;
    // The first part is told first.
    const bool second = first_ == position - 1 && first_rank_ == rank;
    if (second) {
      times.start_s[position] = times.start_s[position - 1];
      times.end_s[position - 1] = end_s;
      first_ = -1;
    } else {
      first_ = position;
      first_rank_ = rank;
    }
  }
  void OnTransfer(int, Pass, double, double) {}

 private:
  std::vector<RankPassTimes>& times_;
  int64_t first_ = -1;
  int first_rank_ = -1;
};

std::vector<double> ChannelSeconds(const Program& program) {
  std::vector<double> seconds;
  seconds.reserve(program.channels.size());
  for (const Channel& channel : program.channels) {
    seconds.push_back(TransferSeconds(program, channel, 0));
  }
  return seconds;
}

std::vector<std::vector<ReplayLane>> LanesOf(const Program& program) {
  const std::vector<double> channel_s = ChannelSeconds(program);
  std::vector<std::vector<ReplayLane>> lanes(program.pp());
  for (int rank = 0; rank < program.pp(); ++rank) {
    const std::vector<Lane>& given = program.ranks[rank].lanes;
    for (size_t index = 0; index < given.size(); ++index) {
      const Lane& lane = given[index];
      const bool runs = IsComputePass(Pass::KindOf(index));
      lanes[rank].push_back(
          {.seconds = runs ? lane.seconds : 0,
           .output_delay_s = lane.output < 0 ? 0 : channel_s[lane.output],
           .input = lane.input,
           .output = lane.output});
    }
  }
  return lanes;
}

// What one rank runs in front of its first backward.
int64_t WarmUpEnd(const RankOrder& order) {
  int64_t position = 0;
  const auto size = static_cast<int64_t>(order.size());
  while (position < size && !order[position].joint_with_next() &&
         !ReadsActivations(order[position].kind())) {
    ++position;
  }
  return position;
}

}  // namespace

absl::StatusOr<std::vector<RankPassTimes>> EarliestTimes(
    const Program& program) {
  const std::vector<std::vector<ReplayLane>> lanes = LanesOf(program);
  std::vector<ReplayRank> ranks(program.pp());
  std::vector<RankPassTimes> times(program.pp());
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankOrder& order = *program.ranks[rank].order;
    ranks[rank].order = order.data();
    ranks[rank].lanes = lanes[rank].data();
    times[rank].start_s.resize(order.size());
    times[rank].end_s.resize(order.size());
  }
  ReplayCore core(
      std::move(ranks), static_cast<int>(program.channels.size()),
      program.microbatch_factor.empty() ? nullptr
                                        : program.microbatch_factor.data(),
      program.pair_factor,
      program.slice_factor.empty() ? nullptr : program.slice_factor.data());
  Recorder recorder(&times);
  const auto size = [&](int rank) {
    return static_cast<int64_t>(program.ranks[rank].order->size());
  };
  RankVisits::Along(program.pp(), program.channels).Run([&](int rank) {
    const int64_t before = core.rank(rank).position;
    core.Advance(rank, size(rank), recorder);
    return core.rank(rank).position != before;
  });
  bool ended = true;
  std::vector<int64_t> positions;
  for (int rank = 0; rank < program.pp(); ++rank) {
    positions.push_back(core.rank(rank).position);
    ended &= positions.back() == size(rank);
  }
  if (ended) return times;
  return absl::FailedPreconditionError(absl::StrCat(
      "the ranks wait for each other:\n", BlockedGrid(program, positions)));
}

void DelayWarmUp(const Program& program, std::vector<RankPassTimes>* times) {
  struct Forward {
    double start_s;
    int rank;
    int64_t position;
  };
  const std::vector<double> channel_s = ChannelSeconds(program);
  std::vector<Forward> forwards;
  // Where the consumer of a transfer stands, by channel and key.
  std::vector<absl::flat_hash_map<uint64_t, double*>> starts(
      program.channels.size());
  std::vector<int64_t> ends;
  for (int rank = 0; rank < program.pp(); ++rank) {
    const RankProgram& rank_program = program.ranks[rank];
    const RankOrder& order = *rank_program.order;
    ends.push_back(WarmUpEnd(order));
    for (size_t position = 0; position < order.size(); ++position) {
      const Pass pass = order[position];
      const int32_t input = rank_program.lanes[pass.lane()].input;
      if (pass.kind() != PassKind::kForward) continue;
      double* const start_s = &(*times)[rank].start_s[position];
      if (input >= 0) starts[input][pass.key()] = start_s;
      if (static_cast<int64_t>(position) < ends[rank]) {
        forwards.push_back({*start_s, rank, static_cast<int64_t>(position)});
      }
    }
  }
  // Who consumes starts later, and so does what follows on the rank.
  std::stable_sort(forwards.begin(), forwards.end(),
                   [](const Forward& one, const Forward& other) {
                     return one.start_s != other.start_s
                                ? one.start_s > other.start_s
                                : one.position > other.position;
                   });
  for (const Forward& forward : forwards) {
    RankPassTimes& own = (*times)[forward.rank];
    const RankProgram& rank_program = program.ranks[forward.rank];
    const RankOrder& order = *rank_program.order;
    const auto next = static_cast<size_t>(forward.position) + 1;
    if (next == order.size()) continue;
    const Pass pass = order[forward.position];
    double end_s = own.start_s[next];
    const int32_t output = rank_program.lanes[pass.lane()].output;
    if (output >= 0) {
      const auto consumer = starts[output].find(pass.key());
      if (consumer != starts[output].end()) {
        end_s = std::min(end_s, *consumer->second - channel_s[output]);
      }
    }
    const double later_s = end_s - own.end_s[forward.position];
    if (later_s <= 0) continue;
    own.start_s[forward.position] += later_s;
    own.end_s[forward.position] += later_s;
  }
}

}  // namespace pipewright
