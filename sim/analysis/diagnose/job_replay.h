// Re-creates the steps of a measured job from durations and dependencies.
//
// What an operation that meets others took by itself is its transfer time: its
// recorded end minus the latest recorded start in its group. The rest of its
// duration is waiting, which the replay finds by itself. Its gap is its
// recorded start minus the latest recorded end of what it waits for: host
// time, or a wait that the dependencies do not know.
//
// In a replay an operation starts at the latest end of its dependencies (plus
// its gap, where gaps are asked for), and those of a group end at the latest
// start in the group plus the time of each. A step lasts until the latest end.
// The rules are those of ByteDance-Seed/StragglerAnalysis, commit
// 8efcd7f37f15 (analyzer/simulator.py, analyzer/wia.py).
//
// Times and gaps of -10 ms and less are read as 0: clocks of two machines
// differ by less, so something else is wrong. Smaller negative ones stay.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/analysis/diagnose/job.h"

namespace pipewright {

enum class ComputeIdeal : uint8_t { kMean, kMedian };

// Which of its times an operation takes in a replay.
struct JobTimes {
  // By operation: its own times where not 0, else the ideal one of its kind.
  // nullptr: all their own.
  const std::vector<uint8_t>* own = nullptr;
  // By operation: keeps its gap where not 0. nullptr: none does.
  const std::vector<uint8_t>* gaps = nullptr;
};

class JobReplay {
 public:
  // `job` must outlive the object.
  JobReplay(const MeasuredJob& job, ComputeIdeal ideal);

  // Seconds of each step. `start_s` and `end_s`, if not null, get the times of
  // all operations, as [operation][step].
  std::vector<double> Run(const JobTimes& times,
                          std::vector<double>* start_s = nullptr,
                          std::vector<double>* end_s = nullptr);

  // As recorded: from the first start to the last end.
  std::vector<double> Recorded() const;

  // Ideal time of a kind: the mean over operations and steps if it computes
  // (the median, if asked), the median transfer time if it communicates.
  const std::vector<double>& ideal_s() const { return ideal_s_; }
  // [operation][step].
  const std::vector<double>& time_s() const { return time_s_; }
  const std::vector<double>& gap_s() const { return gap_s_; }
  // Times and gaps that were read as 0.
  int64_t cut_times() const { return cut_times_; }
  int64_t cut_gaps() const { return cut_gaps_; }

 private:
  double RunOneStep(const std::vector<uint8_t>* own);
  void FindTimes();
  void FindGaps();
  void FindIdeals(ComputeIdeal ideal);

  const MeasuredJob& job_;
  std::vector<double> time_s_;
  std::vector<double> gap_s_;
  std::vector<double> ideal_s_;
  std::vector<double> end_s_;  // by the replay at hand
  int64_t cut_times_ = 0;
  int64_t cut_gaps_ = 0;
};

double MeanOf(const std::vector<double>& values);

}  // namespace pipewright
