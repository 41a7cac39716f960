// The two runs of a PairedRun as one graph of operations, replayed with the
// lengths of either, operation by operation.
//
// Method. An operation starts when all that it is known to wait for has ended,
// plus its *gap*: what the trace shows beyond that (launches, a message that
// is on its way, waits whose cause the trace does not tell). With lengths and
// gaps of one run the replay is that run again, so that exchanging them class
// by class leads from the simulated step time to the measured one and the
// differences add up to the whole, exactly.
//
// Dependencies: the order of each rank's compute stream and of its other
// first-in-first-out streams; pass -> message -> pass by stage, microbatch and
// slice; both ranks of a message that holds them; pass -> offload -> load ->
// backward; all members of a meeting, and the last pass of a rank before one
// that comes behind it; and, for what is still unexplained, an
// operation of the same rank that ends exactly when this one starts, and the
// same step of the ranks beside it. Apart
// from those of messages, what either run contradicts is left out.
//
// Limits. A wait whose cause is in neither rule counts as a gap. What a class
// adds depends on what was exchanged before it (a slower kernel hides behind a
// later message, or the other way round): the order is fixed. Passes in
// another order in the two runs are gaps too.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/analysis/compare/paired_run.h"

namespace pipewright {

// Which part of an operation is exchanged.
enum Part : int { kSeconds = 1, kGap = 2, kBoth = 3 };

class PairReplay {
 public:
  explicit PairReplay(const PairedRun& run);

  // [operation] of `run`.
  double gap_s(Side side, size_t op) const { return gap_s_[side][op]; }

  // Which parts of each operation are the measured ones.
  using Choice = std::vector<uint8_t>;  // [operation], bits of Part
  Choice Nothing() const { return Choice(run_.ops.size(), 0); }

  // How long each operation takes, and its gap (see above), [operation].
  struct Times {
    std::vector<double> seconds;
    std::vector<double> gap_s;
  };
  Times TimesOf(const Choice& measured) const;

  // Last end of each iteration, from 0 s on.
  std::vector<double> IterationEnds(const Times& times) const;
  std::vector<double> IterationEnds(const Choice& measured) const {
    return IterationEnds(TimesOf(measured));
  }
  // Length of one iteration: its last end minus the last end of the one before.
  double StepSeconds(const Times& times, int iteration) const;
  double StepSeconds(const Choice& measured, int iteration) const {
    return StepSeconds(TimesOf(measured), iteration);
  }

 private:
  void Link(size_t from, size_t to, bool always = false);
  void LinkStreams();
  void LinkEnds();
  void LinkMessages();
  void LinkCopies();
  void LinkHolding();
  void LinkUnexplained();
  void LinkNeighbours(size_t op);
  void ShareMeetings();
  void MeasureGaps();
  double ReadySeconds(Side side, size_t op) const;

  const PairedRun& run_;
  std::vector<size_t> order_;                  // a topological one
  std::vector<size_t> place_;                  // its inverse
  std::vector<std::vector<uint32_t>> before_;  // [operation]
  std::vector<std::vector<size_t>> compute_;   // [replica * pp + rank]
  // First and last pass of an operation's block (X&Y), [operation].
  std::vector<size_t> block_first_;
  std::vector<size_t> block_last_;
  std::vector<std::vector<size_t>> members_;  // [meeting]
  std::vector<double> gap_s_[kNumSides];
};

}  // namespace pipewright
