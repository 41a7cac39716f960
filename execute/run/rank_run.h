// One rank of a running Program: does what comes next, in the order and under
// the rules of sim/program/program.h, as far as what it has been sent allows.
// Compute, copies, collectives and messages are streams of their own; what
// stands at the head of a stream runs as soon as its inputs are there.
//
// It knows no schedule: it walks the rank's order and its side operations
// (SideSequence), as the simulating engines do. Data is the Worker's, time the
// Clock's, delivery the Endpoint's.
//
// Parts: rank_run.cc is the loop and what messages do, rank_passes.cc the
// compute stream, rank_streams.cc the others, rank_meetings.cc collectives,
// rank_transfers.cc transfers that hold their ranks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "execute/run/arrivals.h"
#include "execute/run/clock.h"
#include "execute/run/faults.h"
#include "execute/run/rank_record.h"
#include "execute/run/rank_waits.h"
#include "execute/run/worker.h"
#include "execute/transport/transport.h"
#include "sim/base/fifo.h"
#include "sim/engine/engine.h"
#include "sim/engine/isolated_times.h"
#include "sim/program/compute_stream.h"
#include "sim/program/network_time.h"
#include "sim/program/side_sequence.h"

namespace pipewright {

struct RankRunOptions {
  // How long the rank waits for anything before it asks the others.
  double timeout_s = 60;
  // So many time-outs another may take for one thing without answering; then
  // `hopeless` is told, which may be null.
  double patience = 20;
  std::function<void(const absl::Status&)> hopeless;
  bool trace = false;
  Faults faults;
  Progress* progress = nullptr;  // may be null
  // What operations take is put into it; may be null.
  RankRecord* record = nullptr;
  // With the virtual clock: what they take instead of what worker and program
  // say; may be null.
  const RankRecord* takes = nullptr;
};

class RankRun {
 public:
  // `times`: of this replica (IsolatedTimes), what network and side operations
  // take. All must outlive the run.
  RankRun(const Program& program, Address self, const IsolatedTimes& times,
          Endpoint* endpoint, Worker* worker, std::shared_ptr<Clock> clock,
          RankRunOptions options);

  // All iterations. Error: kFailedPrecondition, a deadlock; kUnavailable, a
  // rank that is lost or has failed; what the worker says or throws.
  absl::Status Run();

  // What the rank waits for, one line; "" when it has ended.
  std::string Blocked() const;
  int64_t position() const { return position_; }

  const RankTimes& first_times() const { return times_of_first_; }
  const std::vector<double>& iteration_end_s() const { return ends_s_; }
  std::vector<TraceOp>& ops() { return ops_; }

 private:
  // A side of a transfer that holds the rank, once it is posted.
  struct Held {
    Handshake side;
    bool drop = false;  // no operation waits for what comes
    double ready_s = 0;
  };
  // What waits on a stream beside compute, or stands at the stop of compute.
  struct Issued {
    Start start;  // that has issued it
    int64_t start_number = 0;
    SideSequence::Item item;  // no side_op: the copy of `pass`
    Pass pass{};
    double ready_s = 0;
    int64_t meeting = 0;   // that it has come to; 0: not yet
    bool started = false;  // inputs are taken
    double start_s = 0;
    int64_t beside = 0;  // number of a thread's work; 0: none
    bool done = false;   // in a stream that does not run in order
  };
  struct Combined {
    std::shared_ptr<Collective> collective;
    bool begun = false;
    bool ended = false;
  };

  // rank_run.cc
  absl::Status RunAll();
  absl::StatusOr<bool> Step();
  absl::Status RunStart(const Start& start);
  bool Ended() const;
  void TellProgress();
  // False when it is too early; the rank then wakes up at `date_s`.
  bool Due(double date_s);
  // Something of `iteration` has ended.
  void EndedAt(int iteration, double end_s);

  // What carries the run on.
  absl::Status Take(RankMessage message);
  // Until a message comes, or until it goes on by itself.
  absl::Status Wait();
  absl::Status CheckLateCame(int iteration) const;

  // rank_passes.cc
  absl::StatusOr<bool> RunBlock();
  absl::StatusOr<bool> RunHeldBlock();
  absl::StatusOr<bool> DropNext();
  absl::StatusOr<double> RunPass(Pass pass);
  absl::Status IssueCopy(Pass pass);
  absl::StatusOr<bool> RunFree(Pass pass);
  void NoteCopyWait(Pass pass, double start_s, double end_s);
  absl::Status RunParts(const Pass* block, int parts, double start_s);
  void TracePass(Pass pass, bool joint, double start_s, double end_s);

  // rank_streams.cc
  absl::StatusOr<bool> RunItem();
  absl::StatusOr<bool> DrainStreams();
  bool MayCopy(const Issued& issued, double* start_s);
  void StartCopies(Stream stream);
  absl::StatusOr<bool> TryCopy(Issued& issued, double* stream_s);
  absl::StatusOr<bool> TrySideOp(Issued& issued, double* stream_s);
  bool TakeSideInputs(const SideOp& op, Issued& issued, double stream_s);
  absl::StatusOr<double> RunOwn(const SideOp& op, Issued& issued);
  absl::StatusOr<bool> DrainUnordered(Stream stream);
  std::function<void(absl::Status)> BeginBeside(Issued& issued);
  absl::StatusOr<bool> HasEnded(const Issued& issued, double* end_s);
  absl::StatusOr<bool> TryBeside(const SideOp& op, Issued& issued,
                                 double* end_s);
  const RankRecord::Block* TakenBlock();
  const double* TakenBeside(Stream stream);

  // rank_meetings.cc
  absl::StatusOr<bool> TryCollective(const SideOp& op, Issued& issued);

  // rank_transfers.cc
  void Send(int32_t channel, Pass pass, double now_s);
  void Plan(const HoldingSteps& steps);
  bool FinishHandshakes();
  void Post(Held& held);
  bool Finish(const Held& held, double* done_s);
  // When it arrives, by the rank's clock; below 0: it is lost on purpose.
  double SendMessage(Address to, RankMessage message);
  void TraceTransfer(int32_t channel, Pass either, double start_s,
                     double end_s);

  const DpClass& own() const { return program_.OfReplica(self_.replica); }
  const RankProgram& rank() const { return own().ranks[self_.rank]; }
  const Lane& LaneOf(Pass pass) const { return rank().lanes[pass.lane()]; }
  // Factor by factor, as the simulating engines multiply: to the last bit.
  double GivenSeconds(Pass pass) const {
    double seconds = times_.lane_s[self_.rank][pass.lane()];
    if (!own().microbatch_factor.empty()) {
      seconds *= own().microbatch_factor[pass.microbatch()];
    }
    if (!own().slice_factor.empty()) {
      seconds *= own().slice_factor[pass.slice()];
    }
    if (LaneOf(pass).factors >= 0) {
      seconds *= own().lane_factors[LaneOf(pass).factors][pass.microbatch()];
    }
    return seconds;
  }
  void Trace(const Start& start, TraceOp op);

  const Program& program_;
  const Address self_;
  const IsolatedTimes& times_;
  Endpoint& endpoint_;
  Worker& worker_;
  // Threads of copies hold it too.
  const std::shared_ptr<Clock> clock_;
  const RankRunOptions options_;
  const bool holds_;
  const bool frees_;  // FREE gives memory back, not the end of an O

  SideSequence sequence_;
  Start start_;
  // The earliest due date of an operation that waits for nothing else.
  double wake_s_ = std::numeric_limits<double>::infinity();
  int64_t position_ = 0;
  double compute_s_ = 0;  // the compute stream is free from here on
  bool passed_any_ = false;
  Issued at_stop_;  // the compute stream's side operation, while it waits
  HookEnds hook_ends_;
  std::array<Fifo<Issued>, kNumStreams> queues_;
  std::array<double, kNumStreams> stream_s_{};
  int pending_ = 0;                                 // in queues_
  size_t blocks_taken_ = 0;                         // out of options_.takes
  std::array<size_t, kNumStreams> beside_taken_{};  // the same

  Arrivals tokens_;
  HostActivations activations_;

  // Transfers that hold the rank, in the steps of the wait rule.
  std::vector<std::vector<Held>> steps_;
  bool posted_ = false;
  bool received_ = false;  // the next block has its inputs
  double received_s_ = 0;
  Arrivals send_ready_;
  Arrivals take_ready_;

  Meetings meetings_;
  std::map<std::pair<int, int64_t>, Combined> combined_;
  int64_t beside_ = 0;  // works that threads were given
  // [Issued::beside]: what it gave, and when.
  std::map<int64_t, std::pair<absl::Status, double>> ended_beside_;
  std::array<size_t, kNumStreams> copying_{};  // place in the queue

  RankWaits waits_;
  int64_t sent_ = 0;  // to other ranks in this iteration

  RankTimes times_of_first_;
  double pass_end_s_ = 0;
  double whole_begun_s_ = 0;  // when a pass that is cut into layers began
  std::vector<double> ends_s_;
  std::vector<TraceOp> ops_;
};

}  // namespace pipewright
