#include "sim/analysis/compare/paired_run.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/status.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

// Replica, rank, iteration, kind, stream, peer, pass. What has the same key is
// told apart by the order of time.
using Key = std::tuple<int, int, int, int, int, int, uint64_t>;

Key KeyOf(const ReadOp& read) {
  const TraceOp& op = read.op;
  return {op.replica,
          op.rank,
          op.iteration,
          static_cast<int>(op.kind),
          static_cast<int>(op.stream),
          read.peer,
          op.pass.WithJoint(false).bits()};
}

// The most operations of all replicas together; they take some 10 GB.
constexpr double kMostOps = 50e6;

bool IsPass(const TraceOp& op) { return op.kind == OpKind::kPass; }

std::string PassPlace(const ReadOp& read) {
  return absl::StrCat(PassLabel(read.op.pass), " on rank ", read.op.rank,
                      " in iteration ", read.op.iteration);
}

// From 0 s on, in the order of time, without what says a transfer again.
std::vector<ReadOp> Prepared(const ReadTrace& trace) {
  std::vector<ReadOp> ops;
  ops.reserve(trace.ops.size());
  double first_s = std::numeric_limits<double>::infinity();
  for (const ReadOp& read : trace.ops) {
    if (read.op.kind == OpKind::kReceive) continue;
    first_s = std::min(first_s, read.op.start_s);
    ops.push_back(read);
  }
  for (ReadOp& read : ops) {
    read.op.start_s -= first_s;
    read.op.end_s -= first_s;
  }
  std::stable_sort(ops.begin(), ops.end(),
                   [](const ReadOp& a, const ReadOp& b) {
                     return std::tie(a.op.start_s, a.op.end_s) <
                            std::tie(b.op.start_s, b.op.end_s);
                   });
  return ops;
}

// Passes of each iteration.
std::vector<int64_t> CountPasses(const std::vector<ReadOp>& ops) {
  std::vector<int64_t> passes;
  for (const ReadOp& read : ops) {
    if (!IsPass(read.op)) continue;
    if (passes.size() <= static_cast<size_t>(read.op.iteration)) {
      passes.resize(read.op.iteration + 1);
    }
    ++passes[read.op.iteration];
  }
  return passes;
}

// From 0 on, in both; the last one only where neither was cut off in it.
int CommonIterations(const std::vector<ReadOp>& simulated,
                     const std::vector<ReadOp>& measured) {
  const std::vector<int64_t> one = CountPasses(simulated);
  const std::vector<int64_t> other = CountPasses(measured);
  size_t common = std::min(one.size(), other.size());
  if (common > 1 && one[common - 1] != other[common - 1]) --common;
  return static_cast<int>(common);
}

int CountReplicas(const std::vector<ReadOp>& ops) {
  int replicas = 0;
  for (const ReadOp& read : ops) {
    replicas = std::max(replicas, read.op.replica + 1);
  }
  return replicas;
}

// An engine reports replicas that are alike once, as the first of them.
// `classes`: TraceOrigin::dp_classes.
void RepeatReplicas(const std::string& classes, int replicas, int* groups,
                    std::vector<ReadOp>* ops) {
  const std::vector<std::string> class_of =
      absl::StrSplit(classes, ' ', absl::SkipEmpty());
  const auto alike = [&class_of](int one, int other) {
    const auto last = static_cast<int>(class_of.size());
    return one < last && other < last ? class_of[one] == class_of[other]
                                      : class_of.empty();
  };
  std::set<int> told;
  for (const ReadOp& read : *ops) told.insert(read.op.replica);
  const std::vector<ReadOp> first = *ops;
  for (int replica = 1; replica < replicas; ++replica) {
    if (told.count(replica) > 0) continue;
    const auto like = std::find_if(told.begin(), told.end(), [&](int other) {
      return alike(other, replica);
    });
    for (ReadOp read : first) {
      if (like == told.end() || read.op.replica != *like) continue;
      read.op.replica = replica;
      ops->push_back(read);
    }
  }
  // Groups of replicas that were not reported cannot be told apart.
  *groups = static_cast<int>(told.size()) < replicas ? 0 : *groups;
}

class Pairer {
 public:
  explicit Pairer(PairedRun* run) : run_(*run) {}

  absl::Status Pair(std::array<std::vector<ReadOp>, kNumSides> ops) {
    std::array<std::map<Key, std::vector<const ReadOp*>>, kNumSides> found;
    for (const int side : {kSimulated, kMeasured}) {
      for (const ReadOp& read : ops[side]) {
        if (read.op.iteration < run_.iterations) {
          found[side][KeyOf(read)].push_back(&read);
        }
      }
    }
    const std::array<std::string, kNumSides> names = {run_.simulated,
                                                      run_.measured};
    for (const int side : {kSimulated, kMeasured}) {
      for (const auto& [key, reads] : found[side]) {
        const auto other = found[1 - side].find(key);
        const size_t partners =
            other == found[1 - side].end() ? 0 : other->second.size();
        if (partners == 0 && IsPass(reads[0]->op)) {
          return absl::InvalidArgumentError(absl::StrCat(
              names[1 - side], ": has no ", PassPlace(*reads[0]), ", which ",
              names[side],
              " has; allowed: traces of one schedule with the same sizes"));
        }
        for (size_t index = 0; index < reads.size(); ++index) {
          if (index < partners) {
            if (side == kSimulated) Add(*reads[index], other->second[index]);
          } else {
            AddAlone(*reads[index], static_cast<Side>(side));
          }
        }
      }
    }
    PlaceAlone();
    return absl::OkStatus();
  }

 private:
  void Add(const ReadOp& simulated, const ReadOp* measured) {
    PairedOp paired;
    paired.op = simulated.op;
    paired.peer = simulated.peer;
    paired.meeting = simulated.group;
    paired.start_s = {simulated.op.start_s, measured->op.start_s};
    paired.end_s = {simulated.op.end_s, measured->op.end_s};
    run_.ops.push_back(paired);
  }

  void AddAlone(const ReadOp& read, Side side) {
    PairedOp paired;
    paired.op = read.op;
    paired.peer = read.peer;
    paired.start_s[side] = read.op.start_s;
    paired.end_s[side] = read.op.end_s;
    paired.present[1 - side] = false;
    alone_.push_back(paired);
    ++counts_[side][std::string(OpKindName(read.op.kind))];
  }

  // An operation that only one trace has goes to the end of the pass before it.
  void PlaceAlone() {
    std::map<std::pair<int, int>, std::vector<size_t>> passes;
    for (size_t index = 0; index < run_.ops.size(); ++index) {
      const TraceOp& op = run_.ops[index].op;
      if (IsPass(op)) passes[{op.replica, op.rank}].push_back(index);
    }
    for (PairedOp& paired : alone_) {
      const int side = paired.present[kSimulated] ? kSimulated : kMeasured;
      double before_s = -1;
      double place_s = 0;
      for (const size_t index : passes[{paired.op.replica, paired.op.rank}]) {
        const PairedOp& pass = run_.ops[index];
        if (pass.end_s[side] <= paired.start_s[side] &&
            pass.end_s[side] > before_s) {
          before_s = pass.end_s[side];
          place_s = pass.end_s[1 - side];
        }
      }
      paired.start_s[1 - side] = paired.end_s[1 - side] = place_s;
      run_.ops.push_back(paired);
    }
    const std::array<std::string, kNumSides> names = {"the simulation",
                                                      "the measurement"};
    for (const int side : {kSimulated, kMeasured}) {
      for (const auto& [kind, count] : counts_[side]) {
        run_.warnings.push_back(
            absl::StrCat("only ", names[side], " has ", count, " × ", kind));
      }
    }
  }

  PairedRun& run_;
  std::vector<PairedOp> alone_;
  std::array<std::map<std::string, int>, kNumSides> counts_;
};

// A rank runs its passes in the order of the schedule, whatever time they take.
absl::Status CheckOrder(const PairedRun& run) {
  const PairedOp* before = nullptr;
  for (const PairedOp& paired : run.ops) {
    if (!IsPass(paired.op) || paired.op.joint || !paired.present[kSimulated] ||
        !paired.present[kMeasured]) {
      continue;
    }
    if (before != nullptr && before->op.replica == paired.op.replica &&
        before->op.rank == paired.op.rank &&
        before->start_s[kSimulated] < paired.start_s[kSimulated] &&
        before->start_s[kMeasured] > paired.start_s[kMeasured]) {
      return absl::InvalidArgumentError(absl::StrCat(
          run.measured, ": rank ", paired.op.rank, " runs ",
          PassLabel(paired.op.pass), " of iteration ", paired.op.iteration,
          " before ", PassLabel(before->op.pass), " of iteration ",
          before->op.iteration, ", unlike ", run.simulated,
          "; allowed: traces of one schedule in one order"));
    }
    before = &paired;
  }
  return absl::OkStatus();
}

// Members of a meeting get its number; it begins when the last has come, even
// where a trace says when each came.
void NumberMeetings(std::vector<PairedOp>* ops) {
  std::map<std::tuple<int, int, int, int>, int> nth;
  std::map<std::tuple<int, int, int>, int> numbers;
  std::vector<std::array<double, kNumSides>> starts;
  for (PairedOp& paired : *ops) {
    if (paired.meeting < 0) continue;
    const int count = nth[{paired.meeting, paired.op.iteration,
                           paired.op.replica, paired.op.rank}]++;
    const auto entry =
        numbers.try_emplace({paired.meeting, paired.op.iteration, count},
                            static_cast<int>(starts.size()));
    if (entry.second) starts.push_back(paired.start_s);
    paired.meeting = entry.first->second;
    for (const int side : {kSimulated, kMeasured}) {
      double& start_s = starts[paired.meeting][side];
      start_s = std::max(start_s, paired.start_s[side]);
    }
  }
  for (PairedOp& paired : *ops) {
    if (paired.meeting < 0) continue;
    for (const int side : {kSimulated, kMeasured}) {
      paired.start_s[side] =
          std::min(starts[paired.meeting][side], paired.end_s[side]);
    }
  }
}

}  // namespace

absl::StatusOr<PairedRun> PairRuns(const ReadTrace& simulated,
                                   const ReadTrace& measured) {
  PairedRun run;
  run.simulated = simulated.source;
  run.measured = measured.source;
  run.schedule = simulated.schedule;
  run.wait_rule = simulated.wait_rule;
  std::array<std::vector<ReadOp>, kNumSides> ops = {Prepared(simulated),
                                                    Prepared(measured)};
  if (!simulated.schedule.empty() && !measured.schedule.empty() &&
      simulated.schedule != measured.schedule) {
    return absl::InvalidArgumentError(
        absl::StrCat(measured.source, ": is of schedule ", measured.schedule,
                     ", but ", simulated.source, " of ", simulated.schedule,
                     "; allowed: traces of one schedule"));
  }
  run.replicas = CountReplicas(ops[kMeasured]);
  if (static_cast<double>(run.replicas) *
          static_cast<double>(ops[kSimulated].size()) >
      kMostOps) {
    return absl::InvalidArgumentError(absl::StrCat(
        measured.source, ": has ", run.replicas,
        " replicas, which makes more than ", kMostOps,
        " operations; allowed: a trace of fewer replicas or iterations"));
  }
  int groups = 1;
  RepeatReplicas(simulated.origin.dp_classes, run.replicas, &groups,
                 &ops[kSimulated]);
  if (groups == 0) {
    for (ReadOp& read : ops[kSimulated]) read.group = -1;
  }
  run.iterations = CommonIterations(ops[kSimulated], ops[kMeasured]);
  if (run.iterations == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(simulated.source, ", ", measured.source,
                     ": no iteration is in both; allowed: traces that begin "
                     "with iteration 0"));
  }
  PW_RETURN_IF_ERROR(Pairer(&run).Pair(std::move(ops)));
  std::stable_sort(
      run.ops.begin(), run.ops.end(), [](const PairedOp& a, const PairedOp& b) {
        return std::tie(a.op.replica, a.op.rank, a.start_s[kSimulated],
                        a.end_s[kSimulated]) < std::tie(b.op.replica, b.op.rank,
                                                        b.start_s[kSimulated],
                                                        b.end_s[kSimulated]);
      });
  if (!measured.schedule.empty()) PW_RETURN_IF_ERROR(CheckOrder(run));
  NumberMeetings(&run.ops);
  for (const PairedOp& paired : run.ops) {
    run.pp = std::max(run.pp, paired.op.rank + 1);
  }
  return run;
}

std::string OpLabel(const PairedOp& paired) {
  const TraceOp& op = paired.op;
  switch (op.kind) {
    case OpKind::kPass:
    case OpKind::kOffload:
    case OpKind::kLoad:
      return absl::StrCat(PassLabel(op.pass), " on rank ", op.rank);
    case OpKind::kSend:
      return absl::StrCat("message ",
                          op.stage >= 0 ? PassLabel(op.pass) + " " : "",
                          "rank ", op.rank, " -> ", paired.peer);
    default:
      return absl::StrCat(OpKindName(op.kind), " on rank ", op.rank);
  }
}

}  // namespace pipewright
