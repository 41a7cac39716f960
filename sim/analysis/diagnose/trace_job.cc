#include "sim/analysis/diagnose/trace_job.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/schedule/pass.h"

namespace pipewright {
namespace {

// Half of the trace's nanosecond.
constexpr double kTraceTick = 0.5e-9;

// As the trace has it, without the error of a difference.
double WholeTicks(double seconds) { return std::round(seconds * 1e9) / 1e9; }

bool IsTransfer(OpKind kind) {
  return kind == OpKind::kSend || kind == OpKind::kReceive;
}

// True for transfers of passes: sends and receives of something else have no
// stage.
bool IsPassTransfer(const TraceOp& op) {
  return IsTransfer(op.kind) && op.stage >= 0;
}

std::string KindOf(const TraceOp& op) {
  const std::string pass(PassKindName(op.pass.kind()));
  if (op.kind == OpKind::kPass) return pass;
  if (!IsTransfer(op.kind)) return std::string(OpKindName(op.kind));
  return absl::StrCat(OpKindName(op.kind), op.stage < 0 ? "" : " ",
                      op.stage < 0 ? "" : pass);
}

std::string FamilyOf(const TraceOp& op) {
  if (!IsTransfer(op.kind)) return KindOf(op);
  if (op.stage < 0) return "messages";
  return absl::StrCat("transfers of ", PassKindName(op.pass.kind()));
}

bool IsMessage(OpKind kind) {
  return IsTransfer(kind) || IsCollective(kind) || IsOneSided(kind) ||
         IsHostCopy(kind) || kind == OpKind::kOffload ||
         kind == OpKind::kLoad || kind == OpKind::kFlush;
}

class TraceJobMaker {
 public:
  explicit TraceJobMaker(const ReadTrace& trace) : trace_(trace) {
    for (const ReadOp& read : trace.ops) ops_.push_back(read);
    // By start; of those that start together those without length first, as
    // others may wait for them.
    std::stable_sort(ops_.begin(), ops_.end(),
                     [](const ReadOp& a, const ReadOp& b) {
                       return std::make_tuple(a.op.start_s, a.op.end_s) <
                              std::make_tuple(b.op.start_s, b.op.end_s);
                     });
  }

  absl::StatusOr<MeasuredJob> Make() {
    Describe();
    waits_.resize(ops_.size());
    group_of_.resize(ops_.size(), -1);
    PairTransfers();
    for (const auto& [worker, own] : workers_) OrderWorker(own);
    for (size_t op = 0; op < ops_.size(); ++op) {
      if (IsPassTransfer(ops_[op].op) || ops_[op].op.kind == OpKind::kPass) {
        WaitForInput(static_cast<int32_t>(op));
      }
    }
    Meetings();
    PW_RETURN_IF_ERROR(CheckPairs());
    for (size_t op = 0; op < ops_.size(); ++op) {
      if (group_of_[op] < 0) Join({static_cast<int32_t>(op)});
    }
    draft_.dependencies = std::move(waits_);
    std::vector<int32_t> circle;
    absl::StatusOr<MeasuredJob> job = SortJob(draft_, &circle);
    if (job.ok()) return job;
    return InFile(trace_.source, 0, job.status());
  }

 private:
  using Worker = std::pair<int32_t, int32_t>;  // replica, rank
  using Own = std::array<std::vector<int32_t>, kNumStreams>;
  // Replica, iteration, stage, direction, microbatch and slice, and 0 of F, 1
  // of B and BW, 2 and more of what has no consumer.
  using Place = std::tuple<int32_t, int32_t, int32_t, int, uint64_t, int>;

  static int Role(PassKind kind) {
    if (kind == PassKind::kForward) return 0;
    return IsBackward(kind) ? 1 : 2 + static_cast<int>(kind);
  }
  static Place PlaceOf(const TraceOp& op, int32_t stage) {
    return {op.replica,          op.iteration,  stage,
            op.pass.direction(), op.pass.key(), Role(op.pass.kind())};
  }

  void Describe() {
    draft_.source = trace_.source;
    draft_.form = "pipewright";
    draft_.place = "rank";
    draft_.steps = {0};
    std::map<int32_t, int32_t> replicas;
    std::map<std::string, int32_t> kinds;
    std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> numbers;
    double first = 0;
    int32_t iterations = 0;
    for (const ReadOp& read : ops_) replicas.emplace(read.op.replica, 0);
    int32_t next = 0;
    for (auto& [replica, place] : replicas) place = next++;
    draft_.dp = next;
    if (!ops_.empty()) first = ops_[0].op.start_s;
    for (size_t index = 0; index < ops_.size(); ++index) {
      const TraceOp& op = ops_[index].op;
      const auto [kind, is_new] = kinds.try_emplace(
          KindOf(op), static_cast<int32_t>(draft_.kinds.size()));
      if (is_new) {
        draft_.kinds.push_back({KindOf(op), FamilyOf(op), IsMessage(op.kind)});
      }
      draft_.ops.push_back({kind->second, op.rank, replicas.at(op.replica),
                            numbers[{op.replica, op.rank, kind->second}]++});
      draft_.start_s.push_back(WholeTicks(op.start_s - first));
      draft_.duration_s.push_back(WholeTicks(op.end_s - op.start_s));
      draft_.pp = std::max(draft_.pp, op.rank + 1);
      iterations = std::max(iterations, op.iteration + 1);
      Own& own = IsPassTransfer(op) ? transfers_[{op.replica, op.rank}]
                                    : workers_[{op.replica, op.rank}];
      own[static_cast<size_t>(op.stream)].push_back(
          static_cast<int32_t>(index));
    }
    draft_.iterations = std::max(iterations, 1);
  }

  void Wait(int32_t op, int32_t before) {
    if (op != before) waits_[op].push_back(before);
  }

  void Join(std::vector<int32_t> ops) {
    for (const int32_t op : ops) {
      group_of_[op] = static_cast<int32_t>(draft_.groups.size());
    }
    draft_.groups.push_back(std::move(ops));
  }

  // The n-th send from one rank to another of one pass, or of no pass, with the
  // n-th receive.
  void PairTransfers() {
    using Key = std::tuple<Place, int32_t, int32_t>;  // from, to
    std::map<Key, std::array<std::vector<int32_t>, 2>> pairs;
    for (size_t index = 0; index < ops_.size(); ++index) {
      const TraceOp& op = ops_[index].op;
      if (!IsTransfer(op.kind)) continue;
      const bool sends = op.kind == OpKind::kSend;
      const int32_t peer = ops_[index].peer;
      Place place = PlaceOf(op, op.stage);
      if (op.stage < 0) place = {op.replica, op.iteration, -1, 0, 0, 0};
      pairs[{place, sends ? op.rank : peer, sends ? peer : op.rank}]
           [sends ? 0 : 1]
               .push_back(static_cast<int32_t>(index));
    }
    for (const auto& [key, both] : pairs) {
      const size_t count = std::min(both[0].size(), both[1].size());
      for (size_t each = 0; each < count; ++each) {
        Join({both[0][each], both[1][each]});
      }
    }
    // What has a consumer on another rank finds it by this.
    for (size_t index = 0; index < ops_.size(); ++index) {
      const TraceOp& op = ops_[index].op;
      const auto number = static_cast<int32_t>(index);
      if (op.kind == OpKind::kPass) {
        passes_[PlaceOf(op, op.stage)].push_back(number);
      } else if (op.kind == OpKind::kReceive && op.stage >= 0) {
        receives_[PlaceOf(op, op.stage)].push_back(number);
      }
    }
  }

  // The last of `list` that starts no later than `op`; -1 without one.
  int32_t LastBy(const std::map<Place, std::vector<int32_t>>& map,
                 const Place& place, int32_t op) const {
    const auto found = map.find(place);
    if (found == map.end()) return -1;
    int32_t last = -1;
    for (const int32_t each : found->second) {
      if (each != op &&
          ops_[each].op.start_s <= ops_[op].op.start_s + kTraceTick) {
        last = each;
      }
    }
    return last;
  }

  void WaitForInput(int32_t index) {
    const TraceOp& op = ops_[index].op;
    if (op.kind == OpKind::kReceive) return;
    if (op.kind == OpKind::kSend) {
      const int32_t pass = LastBy(passes_, PlaceOf(op, op.stage), index);
      if (pass >= 0) HoldSend(index, Of(second_of_, pass));
      return;
    }
    const PassKind kind = op.pass.kind();
    if (kind != PassKind::kForward && !IsBackward(kind)) return;
    const int32_t from = op.stage + (kind == PassKind::kForward ? -1 : 1);
    const int32_t receive = LastBy(receives_, PlaceOf(op, from), index);
    const int32_t taker = Of(first_of_, index);
    if (receive >= 0) {
      Wait(taker, receive);
      if (trace_.wait_rule == WaitRule::kBuffered) return;
      if (PostsTogether()) return HoldInStep(receive, taker);
      const auto before = before_.find(taker);
      if (before == before_.end()) return;
      Wait(receive, before->second);
      // A rank that has both to do sends first.
      for (const int32_t send : SendsOf(before->second)) Wait(receive, send);
      return;
    }
    const int32_t pass = LastBy(passes_, PlaceOf(op, from), index);
    if (pass < 0) return;
    const int32_t maker = Of(second_of_, pass);
    // Passes of one block do not wait for each other's end.
    if (maker != taker && maker != index) Wait(taker, maker);
  }

  // Batches and time steps: a transfer may stand behind or in front of more
  // than its pass.
  bool PostsTogether() const {
    return trace_.wait_rule == WaitRule::kBatched ||
           trace_.wait_rule == WaitRule::kStepped;
  }

  // The send of `last` waits for it and what its rank had run by then; what the
  // rank runs next waits for a send that holds it.
  void HoldSend(int32_t send, int32_t last) {
    const double start_s = ops_[send].op.start_s + kTraceTick;
    auto next = after_.find(last);
    while (PostsTogether() && next != after_.end() &&
           ops_[Of(second_of_, next->second)].op.end_s <= start_s) {
      last = Of(second_of_, next->second);
      next = after_.find(last);
    }
    Wait(send, last);
    if (trace_.wait_rule != WaitRule::kBuffered && next != after_.end()) {
      Wait(next->second, send);
    }
  }

  // The receive waits for what its rank had run by then, and what the rank runs
  // next, which may stand before `taker`, waits for it.
  void HoldInStep(int32_t receive, int32_t taker) {
    const double start_s = ops_[receive].op.start_s + kTraceTick;
    int32_t next = taker;
    auto before = before_.find(next);
    while (before != before_.end() && ops_[before->second].op.end_s > start_s) {
      next = Of(first_of_, before->second);
      before = before_.find(next);
    }
    Wait(next, receive);
    if (before != before_.end()) Wait(receive, before->second);
  }

  // The chain of the compute stream, and the recorded order of the others.
  void OrderWorker(const Own& own) {
    const std::vector<int32_t>& compute =
        own[static_cast<size_t>(Stream::kCompute)];
    for (size_t at = 1; at < compute.size(); ++at) {
      const int32_t op = compute[at];
      const int32_t before = compute[at - 1];
      // The two passes of a block stand one behind the other. The first needs
      // the inputs of both, and the second gives the results of both.
      const bool block = ops_[op].op.joint && ops_[before].op.joint &&
                         first_of_.count(before) == 0;
      if (!block) {
        WaitOnStream(op, before);
        continue;
      }
      Wait(op, before);
      first_of_[op] = before;
      second_of_[before] = op;
    }
    for (size_t stream = 0; stream < own.size(); ++stream) {
      const bool computes = stream == static_cast<size_t>(Stream::kCompute);
      std::array<size_t, kNumStreams> done{};
      for (const int32_t op : own[stream]) {
        for (size_t other = 0; other < own.size(); ++other) {
          // A pass that waits for messages is told so by their names.
          if (computes && other == stream) continue;
          if (const int32_t before = LastEnded(own[other], op, &done[other]);
              before >= 0) {
            Wait(op, before);
          }
        }
      }
    }
  }

  // `op` behind `before` on the compute stream.
  void WaitOnStream(int32_t op, int32_t before) {
    Wait(op, before);
    before_[op] = before;
    after_[before] = op;
  }

  static int32_t Of(const std::map<int32_t, int32_t>& map, int32_t op) {
    const auto found = map.find(op);
    return found == map.end() ? op : found->second;
  }

  std::vector<int32_t> SendsOf(int32_t pass) const {
    std::vector<int32_t> sends;
    const TraceOp& op = ops_[pass].op;
    if (op.kind != OpKind::kPass) return sends;
    const auto found = transfers_.find({op.replica, op.rank});
    if (found == transfers_.end()) return sends;
    for (const int32_t each :
         found->second[static_cast<size_t>(Stream::kSend)]) {
      const TraceOp& send = ops_[each].op;
      if (send.stage == op.stage && send.iteration == op.iteration &&
          send.pass.key() == op.pass.key() &&
          send.pass.direction() == op.pass.direction() &&
          send.pass.kind() == op.pass.kind() && send.start_s >= op.start_s) {
        sends.push_back(each);
      }
    }
    return sends;
  }

  // Which of `list` ended last before `op` began, and stands in front of it.
  // `from`: where to go on, as `op` comes by its start.
  int32_t LastEnded(const std::vector<int32_t>& list, int32_t op,
                    size_t* from) const {
    int32_t last = -1;
    while (*from < list.size() && list[*from] < op) ++*from;
    for (size_t at = *from; at-- > 0;) {
      const TraceOp& each = ops_[list[at]].op;
      if (each.end_s > ops_[op].op.start_s + kTraceTick) continue;
      last = list[at];
      break;
    }
    return last;
  }

  void Meetings() {
    std::map<std::tuple<int32_t, OpKind, int32_t>, std::vector<int32_t>> meet;
    std::map<std::tuple<int32_t, OpKind, int32_t, int32_t>, int32_t> counts;
    for (size_t index = 0; index < ops_.size(); ++index) {
      const ReadOp& read = ops_[index];
      if (!IsCollective(read.op.kind) || read.group < 0) continue;
      const int32_t number =
          counts[{read.group, read.op.kind, read.op.replica, read.op.rank}]++;
      meet[{read.group, read.op.kind, number}].push_back(
          static_cast<int32_t>(index));
    }
    for (auto& [key, ops] : meet) Join(std::move(ops));
  }

  absl::Status CheckPairs() const {
    for (size_t index = 0; index < ops_.size(); ++index) {
      const TraceOp& op = ops_[index].op;
      if (!IsPassTransfer(op) || group_of_[index] >= 0) continue;
      const bool sends = op.kind == OpKind::kSend;
      return BadValue(
          FieldPlace::InFile(trace_.source, 0, "cat"),
          absl::StrCat(OpKindName(op.kind), " ", PassLabel(op.pass),
                       " of rank ", op.rank, ", replica ", op.replica,
                       ", iteration ", op.iteration, " alone"),
          absl::StrCat("with its ", sends ? "receive" : "send", " on rank ",
                       ops_[index].peer));
    }
    return absl::OkStatus();
  }

  const ReadTrace& trace_;
  std::vector<ReadOp> ops_;          // by start
  std::map<Worker, Own> workers_;    // all but transfers of passes
  std::map<Worker, Own> transfers_;  // these
  std::map<Place, std::vector<int32_t>> passes_;
  std::map<Place, std::vector<int32_t>> receives_;
  // On the compute stream: what the first pass of a block stands behind, and
  // the other way.
  std::map<int32_t, int32_t> before_;
  std::map<int32_t, int32_t> after_;
  // First pass of a block (X&Y) by the second, and the other way.
  std::map<int32_t, int32_t> first_of_;
  std::map<int32_t, int32_t> second_of_;
  std::vector<std::vector<int32_t>> waits_;
  std::vector<int32_t> group_of_;
  JobDraft draft_;
};

}  // namespace

absl::StatusOr<MeasuredJob> JobOfTrace(const ReadTrace& trace) {
  PW_ASSIGN_OR_RETURN(MeasuredJob job, TraceJobMaker(trace).Make());
  job.in_units = trace.origin.in_units;
  return job;
}

}  // namespace pipewright
