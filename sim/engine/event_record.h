// What an EventRun counts and tells while it goes on: the trace, the times of
// ranks, how far it has come, and the ends of iterations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/event_timers.h"
#include "sim/engine/trace_writer.h"
#include "sim/schedule/pass.h"

namespace pipewright {

class EventRecord {
 public:
  // `trace` and `progress` may be null.
  EventRecord(const Program& program, TraceSink* trace, Progress* progress);

  // A block of passes (X, or X&Y) of a rank.
  struct Block {
    int replica = 0;
    int rank = 0;
    int iteration = 0;
    int64_t position = 0;
    const Pass* passes = nullptr;
    double start_s = 0;
    double end_s = 0;
    std::array<double, 2> alone_s{};  // what each pass takes with nothing else
    bool stretched = false;           // may take longer than that
  };
  void OnBlock(const Block& block);
  // False if blocks of this iteration need not be told.
  bool Wants(int iteration) const { return iteration == 0 || writer_.active(); }
  // The compute stream waits for a copy, and for nothing else.
  void OnCopyWait(int replica, int rank, int iteration, Pass pass,
                  double start_s, double end_s);
  // Null: nobody wants a trace. Else what follows is of this replica and
  // iteration.
  TraceWriter* Trace(int replica, int iteration) {
    if (!writer_.active()) return nullptr;
    writer_.replica = replica;
    writer_.iteration = iteration;
    return &writer_;
  }
  // Hands on what has been told of an iteration, which is over. A run that
  // stops at its end has begun the next.
  void EndIteration(int iteration) { buffer_.Flush(iteration); }

  // So many of all devices do not run.
  void LeaveOut(int64_t devices, int64_t of_all) {
    all_ops_ *= 1 - static_cast<double>(devices) / static_cast<double>(of_all);
  }
  void AddOps(int count) { ops_ += count; }
  // Something has happened that is worth telling of, now and then.
  void Tell() {
    if (progress_ != nullptr) TellProgress();
  }
  void EndRun() {
    if (progress_ != nullptr) progress_->At(1);
  }

  int64_t ops() const { return ops_; }  // operations really run, all replicas
  // [replica][rank]; `busy_s` only of blocks that were stretched or drawn.
  const std::vector<std::vector<RankTimes>>& times() const { return times_; }

 private:
  // Keeps what is told until its iteration is over.
  class IterationBuffer : public TraceSink {
   public:
    explicit IterationBuffer(TraceSink* sink) : sink_(sink) {}
    void OnOp(const TraceOp& op) override;
    void Flush(int iteration);

   private:
    TraceSink* sink_;
    int flushed_ = 0;  // iterations; of those only transfers are still to end
    std::vector<std::vector<TraceOp>> ops_;  // [iteration]
  };

  void TellProgress();

  const Program& program_;
  IterationBuffer buffer_;
  TraceWriter writer_;
  std::vector<std::vector<RankTimes>> times_;
  std::vector<bool> started_;  // [device] has run its first pass
  Progress* const progress_;
  int64_t told_ = 0;  // times that progress could be told of
  int64_t ops_ = 0;
  double all_ops_ = 0;  // in the iterations that are asked for
};

// When iterations end, and whether they are enough.
class IterationEnds {
 public:
  // `shares`: some transfers may share links. `pools`: some are spread over
  // others (spread.h).
  IterationEnds(const Program& program, bool shares, bool pools,
                EventRecord* record, EventTimers* timers);

  // Iterations that are begun, which may be one more than are asked for.
  int issued() const { return static_cast<int>(left_.size()); }
  // So many devices do not run.
  void LeaveOut(int64_t devices) {
    for (int64_t& left : left_) left -= devices;
  }
  // One operation more in the iteration, beside the passes of its devices.
  void Begin(int iteration) { ++left_[iteration]; }
  void NoteEnd(int iteration, double end_s) {
    if (end_s > end_s_[iteration]) end_s_[iteration] = end_s;
  }
  // The compute stream of a device has come to its end.
  void EndDevice(int iteration, int device, double end_s);
  // One operation less. The last one, or the last device, ends the iteration,
  // and with enough of them the run.
  void End(int iteration);

  const std::vector<double>& ends_s() const { return iteration_end_s_; }
  bool steady() const { return steady_; }

 private:
  bool BeginsAnew(int iteration) const;

  const Program& program_;
  EventRecord& record_;
  EventTimers& timers_;
  // False if two iterations may differ that begin alike.
  const bool may_begin_anew_;
  std::vector<int64_t> left_;        // [iteration] devices and operations
  std::vector<double> end_s_;        // [iteration]
  std::vector<double> first_end_s_;  // [iteration] of a compute stream
  // [iteration][device] of compute streams; empty unless they tell all.
  std::vector<std::vector<double>> ends_of_devices_s_;
  std::vector<double> iteration_end_s_;
  bool steady_ = false;
};

}  // namespace pipewright
