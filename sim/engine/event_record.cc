#include "sim/engine/event_record.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/check.h"
#include "sim/program/program.h"

namespace pipewright {

void EventRecord::IterationBuffer::OnOp(const TraceOp& op) {
  if (op.iteration < flushed_) return sink_->OnOp(op);
  if (ops_.size() <= static_cast<size_t>(op.iteration)) {
    ops_.resize(op.iteration + 1);
  }
  ops_[op.iteration].push_back(op);
}

void EventRecord::IterationBuffer::Flush(int iteration) {
  flushed_ = iteration + 1;
  if (ops_.size() <= static_cast<size_t>(iteration)) return;
  for (const TraceOp& op : ops_[iteration]) sink_->OnOp(op);
  std::vector<TraceOp>().swap(ops_[iteration]);
}

EventRecord::EventRecord(const Program& program, TraceSink* trace,
                         Progress* progress)
    : program_(program),
      buffer_(trace),
      writer_(program, trace == nullptr ? nullptr : &buffer_),
      times_(program.replicas, std::vector<RankTimes>(program.pp())),
      started_(static_cast<size_t>(program.replicas) * program.pp()),
      progress_(progress) {
  const std::vector<int> replicas = program.ReplicasOfClasses();
  for (int index = 0; index < program.num_classes(); ++index) {
    all_ops_ += static_cast<double>(program.dp_class(index).num_ops()) *
                replicas[index] * program.iterations;
  }
}

void EventRecord::OnBlock(const Block& block) {
  const double sum_s = block.alone_s[0] + block.alone_s[1];
  if (block.iteration == 0) {
    RankTimes& times = times_[block.replica][block.rank];
    const size_t device =
        static_cast<size_t>(block.replica) * program_.pp() + block.rank;
    if (!started_[device]) times.first_start_s = block.start_s;
    started_[device] = true;
    times.last_end_s = block.end_s;
    if (block.stretched) {
      times.busy_s += block.end_s - block.start_s;
    } else if (program_.jitter != nullptr) {
      times.busy_s += sum_s;
    }
  }
  TraceWriter* const trace = Trace(block.replica, block.iteration);
  if (trace == nullptr) return;
  const bool joint = block.passes->joint_with_next();
  const double part =
      !block.stretched || sum_s <= 0
          ? block.alone_s[0]
          : block.alone_s[0] / sum_s * (block.end_s - block.start_s);
  const double middle_s = joint ? block.start_s + part : block.end_s;
  trace->OnPass(block.rank, block.position, block.passes[0], block.start_s,
                middle_s, joint);
  if (joint) {
    trace->OnPass(block.rank, block.position + 1, block.passes[1], middle_s,
                  block.end_s, true);
  }
}

void EventRecord::OnCopyWait(int replica, int rank, int iteration, Pass pass,
                             double start_s, double end_s) {
  if (iteration == 0) {
    RankTimes& times = times_[replica][rank];
    (pass.kind() == PassKind::kFree ? times.late_free_s : times.late_load_s) +=
        end_s - start_s;
  }
  if (TraceWriter* const trace = Trace(replica, iteration)) {
    trace->OnCopyWait(rank, pass, start_s, end_s);
  }
}

void EventRecord::TellProgress() {
  constexpr int64_t kEvery = 4096;
  if (++told_ % kEvery != 0) return;
  // One more iteration may be under way than is asked for.
  progress_->At(std::min(0.999, static_cast<double>(ops_) / all_ops_));
}

IterationEnds::IterationEnds(const Program& program, bool shares, bool pools,
                             EventRecord* record, EventTimers* timers)
    : program_(program),
      record_(*record),
      timers_(*timers),
      may_begin_anew_(pools && program.jitter == nullptr &&
                      program.interference == nullptr) {
  const int64_t devices = int64_t{program.pp()} * program.replicas;
  // On shared links the end of an iteration meets the start of the next. So
  // that the last one counted is like those before it, one more is begun.
  const int issued =
      program.iterations + (shares && program.iterations > 1 ? 1 : 0);
  left_.assign(issued, devices);
  end_s_.assign(issued, 0);
  first_end_s_.assign(issued, std::numeric_limits<double>::infinity());
  // Bytes on shared links would be state that the ends do not show.
  if (program.until_steady && !shares && program.interference == nullptr &&
      EndsDecide(program)) {
    ends_of_devices_s_.assign(program.iterations, std::vector<double>(devices));
  }
}

void IterationEnds::EndDevice(int iteration, int device, double end_s) {
  first_end_s_[iteration] = std::min(first_end_s_[iteration], end_s);
  if (!ends_of_devices_s_.empty()) {
    ends_of_devices_s_[iteration][device] = end_s;
  }
}

// Everybody ended this iteration and the one before at one date, when nothing
// was under way: this one began as the next does, and so it is the same. Ends
// need not show it, since with thousands of sources that share links rounding
// decides who comes first.
bool IterationEnds::BeginsAnew(int iteration) const {
  if (!may_begin_anew_ || iteration <= program_.settled()) return false;
  for (const int each : {iteration - 1, iteration}) {
    if (first_end_s_[each] != iteration_end_s_[each]) return false;
  }
  return true;
}

void IterationEnds::End(int iteration) {
  if (--left_[iteration] > 0) return;
  const int ended = static_cast<int>(iteration_end_s_.size());
  PW_CHECK(iteration == ended);
  iteration_end_s_.push_back(std::max(
      end_s_[iteration], iteration == 0 ? 0.0 : iteration_end_s_.back()));
  record_.EndIteration(iteration);
  steady_ = IsSteady(program_, iteration_end_s_) ||
            (iteration > program_.settled() && !ends_of_devices_s_.empty() &&
             EndAlike(ends_of_devices_s_[iteration - 1],
                      ends_of_devices_s_[iteration])) ||
            BeginsAnew(iteration);
  if (ended + 1 == program_.iterations || (program_.until_steady && steady_)) {
    timers_.Stop();
  }
}

}  // namespace pipewright
