#include "tests/support/toy_ops.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "sim/base/check.h"

namespace pipewright::testing {
namespace {

// Bits of the pass and the stage that make it unique across ranks.
using Key = std::tuple<PassKind, int, uint64_t, int>;

Key KeyOf(PassKind kind, int stage, Pass pass) {
  // B and BW both hand a gradient back.
  if (kind == PassKind::kBackwardFull) kind = PassKind::kBackwardInput;
  return {kind, stage, pass.key(), pass.direction()};
}

std::shared_ptr<const Schedule> Finish(std::string name, int pp,
                                       int microbatches,
                                       std::vector<RankOrder> orders) {
  auto schedule = std::make_shared<Schedule>();
  schedule->name = std::move(name);
  schedule->placement = Placement::Plain(pp);
  schedule->microbatches = microbatches;
  for (RankOrder& order : orders) {
    schedule->orders.push_back(
        std::make_shared<const RankOrder>(std::move(order)));
  }
  return schedule;
}

double Seconds(const ToyCosts& costs, PassKind kind) {
  switch (kind) {
    case PassKind::kForward:
      return costs.forward_s;
    case PassKind::kBackwardInput:
      return costs.backward_input_s;
    case PassKind::kBackwardWeight:
      return costs.backward_weight_s;
    default:
      return costs.backward_input_s + costs.backward_weight_s;
  }
}

class Replayer {
 public:
  Replayer(std::shared_ptr<const Schedule> schedule, const ToyCosts& costs)
      : schedule_(*schedule), costs_(costs) {
    Program& program = out_.program;
    program.name = schedule->name;
    program.schedule = std::move(schedule);
    program.network.hop_s = costs.hop_s;
    program.ranks.resize(schedule_.pp());
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      program.ranks[rank].order = schedule_.orders[rank];
    }
  }

  ToyRun Run() {
    std::vector<size_t> next(schedule_.pp());
    std::vector<double> free_s(schedule_.pp());
    std::vector<RankTimes> times(schedule_.pp());
    bool progress = true;
    while (progress) {
      progress = false;
      for (int rank = 0; rank < schedule_.pp(); ++rank) {
        const RankOrder& order = schedule_.order(rank);
        while (next[rank] < order.size() &&
               RunPass(rank, order[next[rank]], &free_s[rank], &times[rank])) {
          ++next[rank];
          progress = true;
        }
      }
    }
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      PW_CHECK(next[rank] == schedule_.order(rank).size());
    }
    RunSummary& run = out_.run;
    run.times = {std::move(times)};
    run.row_of_replica = {0};
    run.iteration_end_s = {*std::max_element(free_s.begin(), free_s.end())};
    return std::move(out_);
  }

 private:
  // False while the input is missing.
  bool RunPass(int rank, Pass pass, double* free_s, RankTimes* times) {
    const Placement& placement = schedule_.placement;
    const int stage = placement.StageOf(rank, pass.chunk(), pass.direction());
    double start = *free_s;
    const bool forward = pass.kind() == PassKind::kForward;
    const int source = forward ? stage - 1 : stage + 1;
    const bool has_source = pass.kind() != PassKind::kBackwardWeight &&
                            source >= 0 && source < schedule_.stages();
    if (has_source) {
      const auto found = end_s_.find(KeyOf(pass.kind(), source, pass));
      if (found == end_s_.end()) return false;
      start =
          std::max(start, Arrival(placement.RankOf(source, pass.direction()),
                                  rank, found->second, forward, source, pass));
    }
    const double end = start + Seconds(costs_, pass.kind()) / schedule_.vpp();
    TraceOp op;
    op.start_s = start;
    op.end_s = end;
    op.rank = rank;
    op.stage = stage;
    op.pass = pass;
    out_.ops.push_back(op);
    end_s_[KeyOf(pass.kind(), stage, pass)] = end;
    if (times->busy_s == 0) times->first_start_s = start;
    times->busy_s += end - start;
    times->last_end_s = end;
    ++out_.run.passes;
    *free_s = end;
    return true;
  }

  // When what `from` sent at `sent_s` is there; writes the transfer down.
  double Arrival(int from, int to, double sent_s, bool forward, int stage,
                 Pass pass) {
    if (from == to) return sent_s;
    TraceOp send;
    send.kind = OpKind::kSend;
    send.stream = Stream::kSend;
    send.start_s = sent_s;
    send.end_s = sent_s + costs_.hop_s;
    send.bytes = costs_.hop_bytes;
    send.rank = from;
    send.stage = stage;
    send.channel = ChannelOf(from, to, forward, stage);
    send.pass = pass;
    out_.ops.push_back(send);
    TraceOp receive = send;
    receive.kind = OpKind::kReceive;
    receive.stream = Stream::kReceive;
    receive.rank = to;
    out_.ops.push_back(receive);
    out_.run.bytes_sent += costs_.hop_bytes;
    return send.end_s;
  }

  int ChannelOf(int from, int to, bool forward, int stage) {
    std::vector<Channel>& channels = out_.program.channels;
    const auto [found, added] = channel_of_.insert(
        {{forward, stage}, static_cast<int>(channels.size())});
    if (added) {
      Channel channel;
      channel.kind =
          forward ? ChannelKind::kActivation : ChannelKind::kGradient;
      channel.from_rank = from;
      channel.to_rank = to;
      channel.bytes = costs_.hop_bytes;
      channel.stage = stage;
      channels.push_back(channel);
    }
    return found->second;
  }

  const Schedule& schedule_;
  const ToyCosts costs_;
  ToyRun out_;
  std::map<Key, double> end_s_;
  std::map<std::pair<bool, int>, int> channel_of_;
};

}  // namespace

std::shared_ptr<const Schedule> ToyOneForwardOneBackward(int pp,
                                                         int microbatches) {
  std::vector<RankOrder> orders(pp);
  for (int rank = 0; rank < pp; ++rank) {
    const int warm_up = std::min(pp - 1 - rank, microbatches);
    for (int microbatch = 0; microbatch < warm_up; ++microbatch) {
      orders[rank].emplace_back(PassKind::kForward, microbatch);
    }
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      if (microbatch + warm_up < microbatches) {
        orders[rank].emplace_back(PassKind::kForward, microbatch + warm_up);
      }
      orders[rank].emplace_back(PassKind::kBackwardFull, microbatch);
    }
  }
  return Finish("1f1b", pp, microbatches, std::move(orders));
}

std::shared_ptr<const Schedule> ToySplitBackward(int pp, int microbatches) {
  std::vector<RankOrder> orders(pp);
  for (int rank = 0; rank < pp; ++rank) {
    RankOrder& order = orders[rank];
    const int warm_up = std::min(pp - 1 - rank, microbatches);
    for (int microbatch = 0; microbatch < warm_up; ++microbatch) {
      order.emplace_back(PassKind::kForward, microbatch);
    }
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      if (microbatch + warm_up < microbatches) {
        order.emplace_back(PassKind::kForward, microbatch + warm_up);
      }
      order.emplace_back(PassKind::kBackwardInput, microbatch);
      if (microbatch >= rank) {
        order.emplace_back(PassKind::kBackwardWeight, microbatch - rank);
      }
    }
    for (int microbatch = std::max(0, microbatches - rank);
         microbatch < microbatches; ++microbatch) {
      order.emplace_back(PassKind::kBackwardWeight, microbatch);
    }
  }
  return Finish("zb-h1", pp, microbatches, std::move(orders));
}

ToyRun Replay(std::shared_ptr<const Schedule> schedule, const ToyCosts& costs) {
  return Replayer(std::move(schedule), costs).Run();
}

}  // namespace pipewright::testing
