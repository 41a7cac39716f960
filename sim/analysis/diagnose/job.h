// The measured operations of a job, whatever form they came in: what each is,
// what it waits for, with whom it ends, and its times in every step. Read by
// read_table.h and trace_job.h, re-created by job_replay.h.
//
// Times are seconds from the first start of the step. All steps have the same
// operations. An operation starts when all its dependencies have ended. The
// operations of a group (a send and its receive, the members of a collective)
// start to move bytes when the last of them has started.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pipewright {

struct JobKind {
  std::string name;
  std::string family;  // with others in what-ifs: sends and their receives
  bool communication = false;
};

struct JobOp {
  int32_t kind = 0;
  int32_t stage = 0;    // or pipeline rank, where a rank has several
  int32_t replica = 0;  // data-parallel
  int32_t number = 0;   // among the operations of its kind on its worker
};

// In any order. Each operation is in exactly one group.
struct JobDraft {
  std::string source;  // file
  std::string form;    // "table", "pipewright", "kineto"
  int pp = 1;
  int dp = 1;
  int iterations = 1;  // in a step, in traces without a border between them
  std::string place = "stage";  // or "rank": what JobOp::stage counts
  std::vector<JobKind> kinds;
  std::vector<JobOp> ops;
  std::vector<std::vector<int32_t>> dependencies;  // by operation
  std::vector<std::vector<int32_t>> groups;
  std::vector<int64_t> steps;      // their numbers in the file
  std::vector<double> start_s;     // [operation][step]
  std::vector<double> duration_s;  // [operation][step]
  std::vector<std::string> warnings;
};

// In an order in which everything stands behind what it waits for; the
// operations of a group stand together.
struct MeasuredJob {
  std::string source;
  std::string form;
  int pp = 1;
  int dp = 1;
  int iterations = 1;
  bool in_units = false;  // what is called seconds is units of a pass
  std::string place;
  std::vector<JobKind> kinds;
  std::vector<JobOp> ops;
  std::vector<int32_t> group_begin;       // one more than there are groups
  std::vector<int32_t> dependency_begin;  // one more than there are operations
  std::vector<int32_t> dependencies;
  std::vector<int64_t> steps;
  std::vector<double> start_s;
  std::vector<double> duration_s;
  std::vector<std::string> warnings;

  size_t num_ops() const { return ops.size(); }
  size_t num_steps() const { return steps.size(); }
};

// "forward-send 3 (stage 1, replica 0)".
std::string JobOpName(const std::vector<JobKind>& kinds, const JobOp& op);

// Sorts. Operations that wait for each other: none of them can start, which
// `circle` then holds, in the draft's numbers, each waiting for the next one;
// the error is kInvalidArgument and names them.
absl::StatusOr<MeasuredJob> SortJob(const JobDraft& draft,
                                    std::vector<int32_t>* circle);

}  // namespace pipewright
