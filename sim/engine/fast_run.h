// One run of the fast engine. Replicas with equal network times are one Row;
// where times are drawn, each replica is.
// Parts: fast_engine.cc drives the ranks through their passes, fast_passes.cc
// runs them, fast_streams.cc runs what is not a pass, fast_handshakes.cc the
// transfers that hold ranks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/base/fifo.h"
#include "sim/engine/engine.h"
#include "sim/engine/isolated_times.h"
#include "sim/engine/known_times.h"
#include "sim/engine/trace_writer.h"
#include "sim/program/compute_stream.h"
#include "sim/program/side_sequence.h"
#include "sim/schedule/core.h"
#include "sim/schedule/rank_visits.h"

namespace pipewright {

class FastRun {
 public:
  // `known` may be null.
  FastRun(const Program& program, const EngineOptions& options,
          KnownTimes* known);

  // Error: kFailedPrecondition with the blocked operations marked.
  absl::StatusOr<RunSummary> Run();

  // Visits of ranks in all sweeps so far.
  int64_t visits() const;

 private:
  // An operation of a stream other than compute, waiting for its turn.
  struct Issued {
    SideSequence::Item item;  // no side_op: the copy of `pass`
    Pass pass{};
    double ready_s = 0;
    int64_t meeting = 0;  // its group's that it has come to; 0: not yet
    bool done = false;    // where others before it in the queue are not
  };
  // What most visits touch comes first, on a cache line of its own.
  struct alignas(64) RankState {
    explicit RankState(const RankProgram& rank)
        : sequence(rank), hook_ends(rank.hooks.size()) {}
    int64_t stop = 0;       // where `sequence` stops
    double pass_end_s = 0;  // end of the last pass so far
    bool plain = false;     // nothing but passes to run up to `stop`
    bool started = false;   // has run its first pass
    int pending = 0;        // operations in `queues`
    SideSequence sequence;
    double item_ready_s = 0;
    int64_t item_meeting = 0;
    HookEnds hook_ends;
    std::array<Fifo<Issued>, kNumStreams> queues;
    std::array<double, kNumStreams> stream_s{};  // free from here on
    HostActivations activations;
    // Transfers that hold the rank, in the steps of the wait rule.
    HoldingSteps steps;
    bool posted = false;    // the first step has been posted
    bool received = false;  // the next block has its inputs
    double received_s = 0;
    double late_load_s = 0;  // in the first iteration
    double late_free_s = 0;
  };
  // Where the two sides of a holding transfer find each other.
  struct MeetingPoint {
    TokenQueue sends;
    TokenQueue receives;
    TokenQueue sender_done;
    TokenQueue receiver_done;
  };
  // The meetings of a group, one after the other.
  struct Meeting {
    int expected = 0;
    int arrived = 0;
    double latest_s = 0;  // arrival so far
    double start_s = 0;   // start of the last one that took place
    double end_s = 0;
    int64_t completed = 0;  // meetings so far
  };
  // What replicas with equal network times have in common; cores point here.
  struct Kind {
    std::vector<std::vector<ReplayLane>> lanes;  // [rank]
    std::vector<std::vector<const double*>> lane_factors;
  };
  // What the passes of a replica take in this iteration.
  class ReplicaTimes : public DrawnTimes {
   public:
    ReplicaTimes(const Program* program, const int* iteration, int replica)
        : program_(program), iteration_(iteration), replica_(replica) {}
    double Seconds(int rank, Pass pass) const override {
      return program_->PassSeconds(*iteration_, replica_, rank, pass);
    }

   private:
    const Program* program_;
    const int* iteration_;
    int replica_;
  };
  struct Row {
    Row(const IsolatedTimes* alone, const DpClass& of, ReplayCore replay_core,
        RankVisits rank_visits)
        : times_alone(alone),
          own(&of),
          core(std::move(replay_core)),
          visits(std::move(rank_visits)) {}
    int replica = 0;   // the first of those it stands for
    int replicas = 0;  // how many
    const IsolatedTimes* times_alone;
    const DpClass* own;
    ReplayCore core;
    RankVisits visits;
    std::unique_ptr<ReplicaTimes> drawn;  // null: nothing is
    std::vector<RankState> ranks;
    std::vector<RankTimes> times;
    std::vector<Meeting> meetings;     // for groups inside one replica
    std::vector<MeetingPoint> points;  // [channel], holding rules only
  };

  // fast_engine.cc
  Kind KindOf(const IsolatedTimes& times) const;
  void AddRow(int kind, int replica, int replicas);
  bool RunStart(const Start& start);
  bool BeginsAnew(double end_s);
  bool Sweep(Row& row);
  void Tell();
  bool Ended(Row& row);
  bool Visit(Row& row, int rank);
  bool VisitSlowly(Row& row, int rank);
  bool RunAtStop(Row& row, int rank, SideSequence::Next next);
  double EndOf(Row& row);
  std::string Deadlock();

  // fast_passes.cc
  bool RunPasses(Row& row, int rank, int64_t stop);
  bool RunSpecial(Row& row, int rank);
  bool RunHooked(Row& row, int rank);
  bool RunFree(Row& row, int rank, Pass pass);
  bool RunBackward(Row& row, int rank, double earliest_s);
  bool RunBlock(Row& row, int rank, double earliest_s);
  bool Drop(Row& row, int rank);
  void NotePasses(Row& row, int rank);

  // fast_streams.cc
  bool RunItem(Row& row, int rank);
  bool DrainStreams(Row& row, int rank);
  bool DrainUnordered(Row& row, int rank, Stream stream);
  bool TryCopy(Row& row, int rank, const Issued& issued, double* stream_s);
  // Runs a side operation when its inputs, and its group, are there.
  // *ready_s, *meeting keep what it has of them between calls.
  bool TrySideOp(Row& row, int rank, const SideSequence::Item& item,
                 double* ready_s, int64_t* meeting, double* stream_s);
  Meeting& MeetingOf(Row& row, int group);

  // fast_handshakes.cc
  bool RunHeld(Row& row, int rank, int64_t stop);
  bool RunHeldBlock(Row& row, int rank);
  bool FinishHandshakes(Row& row, int rank);
  void Post(Row& row, const Handshake& handshake, double now_s);

  const Program& program_;
  TraceWriter writer_;
  const ReplicaRows rows_;
  const bool holds_;
  Progress* const progress_;
  int64_t done_ = 0;  // positions that ranks have passed, in all iterations
  int64_t all_ = 0;
  int iteration_ = 0;
  bool posted_ = false;      // something was, in this visit
  std::vector<Kind> kinds_;  // as rows_.times
  std::vector<Row> state_;
  // Meetings of groups that span replicas, [group][instance].
  std::vector<std::vector<Meeting>> meetings_;
};

}  // namespace pipewright
