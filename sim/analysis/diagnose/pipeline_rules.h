// What the operations of a table wait for, and with whom they end: the rules
// of a Megatron-like training step. They follow from the recorded order of one
// replica (dp_rank 0) in one step (the first) and hold for all others:
//
//  1. the compute operations of a stage are one chain, by their start;
//  2. each of the four kinds of transfers is a chain of its own;
//  3. the k-th send of a direction waits for the k-th compute of it, the k-th
//     compute for the k-th receive, which waits for compute k-1;
//  4. the first backward send and receive wait for the second forward before
//     the first backward;
//  5. params-all-gather and grads-reduce-scatter are one chain, by their
//     start; the first forward of a chunk waits for the last all-gather of it;
//  6. after the last compute come gc, layernorm, embedding,
//  grads-reduce-scatter,
//     clip, optimizer. With separate-grads-all-reduce the reduce-scatters run
//     beside the backwards: each waits for the last backward of its chunk, and
//     layernorm for the last of them; separate stands before clip.
//
// Groups: the k-th send and the k-th receive of neighbours; embedding of the
// first and the last stage; clip of all stages and replicas; all-gather,
// reduce-scatter and separate of all replicas. A transfer that would leave the
// pipeline (first receive of the first stage) stands alone.
//
// Source: ByteDance-Seed/StragglerAnalysis, commit 8efcd7f37f15,
// analyzer/dependency_model.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/analysis/diagnose/table_rows.h"

namespace pipewright {

struct RuleGroup {
  std::vector<int32_t> ops;
  bool all_replicas = false;  // else one group for each replica
};

// Rules of one replica; numbers are places in the list of rows given.
struct PipelineRules {
  std::vector<std::vector<int32_t>> dependencies;
  std::vector<RuleGroup> groups;
};

// `rows`: of one replica in one step; every stage from 0 to pp-1 has some.
// Error: kInvalidArgument with file, line, column, value and what is allowed,
// for numbers with a hole and transfers without a partner.
absl::StatusOr<PipelineRules> RulesOfPipeline(const std::vector<OpRow>& rows,
                                              int pp,
                                              const std::string& source);

}  // namespace pipewright
