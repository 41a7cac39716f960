#include "sim/analysis/compare/replay_pair.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "sim/base/check.h"
#include "sim/schedule/pass.h"

namespace pipewright {
namespace {

// Times are whole nanoseconds: two that touch are this far apart at most.
constexpr double kTouch_s = 1.6e-9;
// Enough to tell what a collective or an optimizer step waits for.
constexpr int kMostInferred = 4;

// Data-parallel replica, iteration, direction, stage, microbatch and slice,
// forward or not.
using PassKey = std::tuple<int, int, int, int, uint64_t, bool>;

PassKey KeyOf(const TraceOp& op, int stage) {
  return {op.replica, op.iteration,  op.pass.direction(),
          stage,      op.pass.key(), op.pass.kind() == PassKind::kForward};
}

bool Sends(const TraceOp& op) {
  return op.kind == OpKind::kPass &&
         (op.pass.kind() == PassKind::kForward || IsBackward(op.pass.kind()));
}

}  // namespace

PairReplay::PairReplay(const PairedRun& run)
    : run_(run), before_(run.ops.size()) {
  order_.resize(run.ops.size());
  for (size_t op = 0; op < order_.size(); ++op) order_[op] = op;
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    const PairedOp& one = run.ops[a];
    const PairedOp& other = run.ops[b];
    return std::tie(one.start_s[kSimulated], one.end_s[kSimulated],
                    one.start_s[kMeasured]) <
           std::tie(other.start_s[kSimulated], other.end_s[kSimulated],
                    other.start_s[kMeasured]);
  });
  place_.resize(order_.size());
  for (size_t place = 0; place < order_.size(); ++place) {
    place_[order_[place]] = place;
  }
  LinkStreams();
  LinkEnds();
  LinkMessages();
  LinkCopies();
  if (run_.wait_rule != WaitRule::kBuffered) LinkHolding();
  for (size_t op = 0; op < run_.ops.size(); ++op) {
    const int32_t meeting = run_.ops[op].meeting;
    if (meeting < 0) continue;
    if (members_.size() <= static_cast<size_t>(meeting)) {
      members_.resize(meeting + 1);
    }
    members_[meeting].push_back(op);
  }
  ShareMeetings();
  LinkUnexplained();
  ShareMeetings();
  MeasureGaps();
}

void PairReplay::Link(size_t from, size_t to, bool always) {
  if (place_[from] >= place_[to]) return;
  for (const int side : {kSimulated, kMeasured}) {
    if (!always &&
        run_.ops[from].end_s[side] > run_.ops[to].start_s[side] + kTouch_s) {
      return;
    }
  }
  before_[to].push_back(static_cast<uint32_t>(from));
}

void PairReplay::LinkStreams() {
  compute_.resize(static_cast<size_t>(run_.replicas) * run_.pp);
  block_first_.resize(run_.ops.size());
  block_last_.resize(run_.ops.size());
  for (size_t op = 0; op < run_.ops.size(); ++op) {
    block_first_[op] = block_last_[op] = op;
  }
  std::map<std::tuple<int, int, int>, size_t> last;
  for (const size_t op : order_) {
    const TraceOp& trace = run_.ops[op].op;
    if (trace.stream == Stream::kCompute) {
      std::vector<size_t>& rank =
          compute_[static_cast<size_t>(trace.replica) * run_.pp + trace.rank];
      // Joint passes come in twos.
      if (trace.joint && !rank.empty() && run_.ops[rank.back()].op.joint &&
          block_last_[rank.back()] == rank.back() &&
          block_first_[rank.back()] == rank.back()) {
        block_first_[op] = rank.back();
        block_last_[rank.back()] = op;
      }
      rank.push_back(op);
    }
    // Messages overtake each other.
    if (trace.stream == Stream::kSend) continue;
    const auto entry = last.try_emplace(
        {trace.replica, trace.rank, static_cast<int>(trace.stream)}, op);
    if (entry.second) continue;
    Link(entry.first->second, op);
    entry.first->second = op;
  }
}

// A collective that begins when a rank has run its last pass, as that of the
// gradient norm does, waits for it, whoever came last in these two runs.
void PairReplay::LinkEnds() {
  // Replica, rank, iteration.
  std::map<std::tuple<int, int, int>, size_t> last;
  for (const std::vector<size_t>& rank : compute_) {
    for (const size_t op : rank) {
      const TraceOp& trace = run_.ops[op].op;
      if (trace.kind == OpKind::kPass) {
        last[{trace.replica, trace.rank, trace.iteration}] = op;
      }
    }
  }
  for (const size_t op : order_) {
    const PairedOp& paired = run_.ops[op];
    if (paired.meeting < 0) continue;
    const auto pass =
        last.find({paired.op.replica, paired.op.rank, paired.op.iteration});
    if (pass != last.end()) Link(pass->second, op);
  }
}

void PairReplay::LinkMessages() {
  std::map<PassKey, std::vector<size_t>> passes;
  for (const size_t op : order_) {
    const TraceOp& trace = run_.ops[op].op;
    if (Sends(trace)) passes[KeyOf(trace, trace.stage)].push_back(op);
  }
  std::map<PassKey, size_t> sent;  // an iteration may begin twice
  for (const size_t op : order_) {
    const TraceOp& trace = run_.ops[op].op;
    if (trace.kind != OpKind::kSend || trace.stage < 0) continue;
    const size_t nth = sent[KeyOf(trace, trace.stage)]++;
    const auto find = [&](int stage) -> const size_t* {
      const auto found = passes.find(KeyOf(trace, stage));
      if (found == passes.end()) return nullptr;
      return &found->second[std::min(nth, found->second.size() - 1)];
    };
    if (const size_t* from = find(trace.stage)) {
      Link(block_last_[*from], op, /*always=*/true);
    }
    const bool forward = trace.pass.kind() == PassKind::kForward;
    if (const size_t* to = find(trace.stage + (forward ? 1 : -1))) {
      Link(op, block_first_[*to], /*always=*/true);
    }
  }
}

// Forward -> offload -> load -> the first pass behind it that reads the same.
void PairReplay::LinkCopies() {
  // Replica, rank, iteration, chunk and direction, microbatch and slice.
  using CopyKey = std::tuple<int, int, int, int, uint64_t>;
  const auto key = [](const TraceOp& op) {
    return CopyKey{op.replica, op.rank, op.iteration,
                   op.pass.chunk() * 2 + op.pass.direction(), op.pass.key()};
  };
  std::map<CopyKey, size_t> last;
  for (const size_t op : order_) {
    const TraceOp& trace = run_.ops[op].op;
    const bool copy =
        trace.kind == OpKind::kOffload || trace.kind == OpKind::kLoad;
    if (!copy && trace.kind != OpKind::kPass) continue;
    const auto entry = last.try_emplace(key(trace), op);
    if (entry.second) continue;
    const size_t from = entry.first->second;
    if (copy) {
      Link(block_last_[from], op);
    } else if (run_.ops[from].op.kind != OpKind::kPass) {
      Link(from, block_first_[op]);
    }
    entry.first->second = op;
  }
}

// Both ranks come to the message, and neither goes on before it has ended.
void PairReplay::LinkHolding() {
  const auto at = [&](int replica, int rank, size_t op) {
    std::vector<size_t>& list =
        compute_[static_cast<size_t>(replica) * run_.pp + rank];
    const double start_s = run_.ops[op].start_s[kSimulated];
    return std::make_pair(
        &list, std::lower_bound(list.begin(), list.end(), start_s - kTouch_s,
                                [&](size_t entry, double time_s) {
                                  return run_.ops[entry].start_s[kSimulated] <
                                         time_s;
                                }));
  };
  std::map<std::pair<int, int>, size_t> last;  // message of a rank
  for (const size_t op : order_) {
    const PairedOp& paired = run_.ops[op];
    if (paired.op.kind != OpKind::kSend || paired.op.stage < 0) continue;
    for (const int rank : {paired.op.rank, paired.peer}) {
      const auto [list, next] = at(paired.op.replica, rank, op);
      if (next != list->begin()) Link(*std::prev(next), op);
      if (next != list->end()) Link(op, *next);
      if (run_.wait_rule == WaitRule::kBatched) continue;
      const auto entry = last.try_emplace({paired.op.replica, rank}, op);
      if (!entry.second) Link(entry.first->second, op);
      entry.first->second = op;
    }
  }
}

// Every member of a meeting waits for what any of them waits for.
void PairReplay::ShareMeetings() {
  for (const std::vector<size_t>& members : members_) {
    std::vector<uint32_t> all;
    for (const size_t op : members) {
      all.insert(all.end(), before_[op].begin(), before_[op].end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (const size_t op : members) {
      before_[op].clear();
      for (const uint32_t from : all) {
        if (place_[from] < place_[op]) before_[op].push_back(from);
      }
    }
  }
}

double PairReplay::ReadySeconds(Side side, size_t op) const {
  double ready_s = 0;
  for (const uint32_t from : before_[op]) {
    ready_s = std::max(ready_s, run_.ops[from].end_s[side]);
  }
  return ready_s;
}

void PairReplay::LinkUnexplained() {
  for (const Side side : {kSimulated, kMeasured}) {
    // Ends of operations that a rank sees: its own, and messages to it.
    std::vector<std::vector<std::pair<double, size_t>>> ends(compute_.size());
    const auto rank_of = [&](const TraceOp& op, int rank) {
      return static_cast<size_t>(op.replica) * run_.pp + rank;
    };
    for (const size_t op : order_) {
      const PairedOp& paired = run_.ops[op];
      const double end_s = paired.end_s[side];
      ends[rank_of(paired.op, paired.op.rank)].emplace_back(end_s, op);
      if (paired.op.kind == OpKind::kSend && paired.peer >= 0 &&
          paired.peer < run_.pp) {
        ends[rank_of(paired.op, paired.peer)].emplace_back(end_s, op);
      }
    }
    for (auto& list : ends) std::sort(list.begin(), list.end());
    for (const size_t op : order_) {
      const PairedOp& paired = run_.ops[op];
      const double start_s = paired.start_s[side];
      if (start_s - ReadySeconds(side, op) <= kTouch_s) continue;
      const auto& list = ends[rank_of(paired.op, paired.op.rank)];
      auto at = std::lower_bound(list.begin(), list.end(),
                                 std::make_pair(start_s - kTouch_s, size_t{0}));
      int links = 0;
      for (; at != list.end() && at->first <= start_s + kTouch_s &&
             links < kMostInferred;
           ++at) {
        const TraceOp& from = run_.ops[at->second].op;
        if (from.iteration > paired.op.iteration) continue;
        Link(at->second, op);
        ++links;
      }
      if (paired.op.kind != OpKind::kPass) LinkNeighbours(op);
    }
  }
}

// Steps that ranks take one after the other tell each other by messages that
// are not in the trace.
void PairReplay::LinkNeighbours(size_t op) {
  const TraceOp& trace = run_.ops[op].op;
  for (const int rank : {trace.rank - 1, trace.rank + 1}) {
    if (rank < 0 || rank >= run_.pp) continue;
    for (const size_t other :
         compute_[static_cast<size_t>(trace.replica) * run_.pp + rank]) {
      const TraceOp& from = run_.ops[other].op;
      if (from.kind == trace.kind && from.iteration == trace.iteration) {
        Link(other, op);
      }
    }
  }
}

void PairReplay::MeasureGaps() {
  for (const Side side : {kSimulated, kMeasured}) {
    gap_s_[side].resize(run_.ops.size());
    for (size_t op = 0; op < run_.ops.size(); ++op) {
      gap_s_[side][op] = run_.ops[op].start_s[side] - ReadySeconds(side, op);
    }
  }
}

PairReplay::Times PairReplay::TimesOf(const Choice& measured) const {
  PW_CHECK(measured.size() == run_.ops.size());
  Times times;
  times.seconds.reserve(measured.size());
  times.gap_s.reserve(measured.size());
  for (size_t op = 0; op < measured.size(); ++op) {
    const auto side = [&](Part part) {
      return (measured[op] & part) != 0 ? kMeasured : kSimulated;
    };
    times.seconds.push_back(run_.ops[op].seconds(side(kSeconds)));
    times.gap_s.push_back(gap_s_[side(kGap)][op]);
  }
  return times;
}

std::vector<double> PairReplay::IterationEnds(const Times& times) const {
  std::vector<double> end_s(run_.ops.size());
  std::vector<double> ends(run_.iterations, 0);
  for (const size_t op : order_) {
    double ready_s = 0;
    for (const uint32_t from : before_[op]) {
      ready_s = std::max(ready_s, end_s[from]);
    }
    end_s[op] = ready_s + times.gap_s[op] + times.seconds[op];
    double& last_s = ends[run_.ops[op].op.iteration];
    last_s = std::max(last_s, end_s[op]);
  }
  return ends;
}

double PairReplay::StepSeconds(const Times& times, int iteration) const {
  const std::vector<double> ends = IterationEnds(times);
  return iteration == 0 ? ends[0] : ends[iteration] - ends[iteration - 1];
}

}  // namespace pipewright
