// What a measured job answers: how well its step is re-created, how fast it
// would be without stragglers, and which operations make it slow.
//
// All times are seconds, means over the steps unless said. The ideal job has
// the ideal time of every operation (job_replay.h) and no gaps. For a set of
// operations (a kind, a stage, a replica, a worker):
//
//   slowdown_keep   step with everything ideal but the set, over the ideal step
//   speedup_fix     step without gaps, over the same with only the set ideal
//   gap_s           how much the gaps of the set alone lengthen the step
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/analysis/diagnose/job.h"
#include "sim/analysis/diagnose/job_replay.h"

namespace pipewright {

struct StepAnswer {
  int64_t step = 0;
  double recorded_s = 0;
  double with_gaps_s = 0;  // replay; the recorded one, but for cut times
  double no_gap_s = 0;
  // no_gap_s / recorded_s - 1: below 0 the replay is too fast.
  double gap_error = 0;
};

struct JobWhatIf {
  std::string name;
  int stage = -1;    // for a stage or a worker
  int replica = -1;  // for a replica or a worker
  int64_t operations = 0;
  double slowdown_keep = 1;
  double speedup_fix = 1;
  double gap_s = 0;  // for kinds
};

struct KindIdeal {
  std::string kind;
  bool communication = false;
  int64_t operations = 0;  // in one step
  double ideal_s = 0;
  // Largest time of any operation in any step.
  double largest_s = 0;
};

struct IdealTimeline {
  std::vector<double> start_s;  // by operation
  std::vector<double> end_s;
};

struct Diagnosis {
  ComputeIdeal ideal = ComputeIdeal::kMean;
  std::vector<StepAnswer> steps;
  double recorded_s = 0;
  double no_gap_s = 0;
  double ideal_s = 0;
  double gap_error = 0;           // mean of the steps'
  double worst_gap_error = 0;     // the one of the largest size
  double gap_slowdown = 1;        // recorded_s / no_gap_s
  double straggler_slowdown = 1;  // no_gap_s / ideal_s
  std::vector<KindIdeal> kind_ideals;
  // In the order of the file; a report sorts.
  std::vector<JobWhatIf> kinds;
  std::vector<JobWhatIf> stages;
  std::vector<JobWhatIf> replicas;
  std::vector<JobWhatIf> workers;  // by replica, then by stage
  // Workers were too many to try one by one: each has the smaller slowdown of
  // its stage and its replica.
  bool workers_estimated = false;
  IdealTimeline timeline;
  std::vector<std::string> warnings;
};

Diagnosis Diagnose(const MeasuredJob& job, ComputeIdeal ideal);

// A diagnosis as text, as JSON, and its ideal timeline as a Chrome trace and as
// a picture. Keys are those of docs/diagnose.md.
std::string DiagnosisToText(const MeasuredJob& job, const Diagnosis& diagnosis);
// Pretty-printed; numbers read back exactly.
std::string DiagnosisToJson(const MeasuredJob& job, const Diagnosis& diagnosis);

// Chrome's JSON: a process a replica, a thread a stage (and one beside it for
// what communicates).
std::string IdealTimelineJson(const MeasuredJob& job,
                              const Diagnosis& diagnosis);
// Timeline of one replica, a row a stage: the first step as recorded above the
// ideal one, on one axis.
std::string TimelineSvg(const MeasuredJob& job, const Diagnosis& diagnosis,
                        int replica);

// The replica of the slowest worker.
int SlowestReplica(const Diagnosis& diagnosis);

}  // namespace pipewright
