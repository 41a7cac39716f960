// The rows of a table of measured operations, one operation a row:
//
//   step,dp_rank,stage,optype,seq,mb,chunk,start_ns,duration_ns
//
// in any order of columns and rows; other columns are skipped. Whole numbers;
// ns from any zero that all rows of a step share. `seq` counts the operations
// of a type on a worker in a step, from 0. `mb` is the microbatch or -1,
// `chunk` the virtual stage or -1. The columns are those of the traces of
// ByteDance-Seed/StragglerAnalysis, as docs/dev/diagnose.md defines them.
#pragma once

#include <cstdint>
#include <deque>
#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

enum class TableKind : uint8_t {
  kForwardCompute,
  kBackwardCompute,
  kForwardSend,
  kForwardReceive,
  kBackwardSend,
  kBackwardReceive,
  kParamsAllGather,
  kGradsReduceScatter,
  kLayernormAllReduce,
  kEmbeddingAllReduce,
  kSeparateAllReduce,
  kClipGrad,
  kOptimizer,
  kGc,
};
inline constexpr int kNumTableKinds = 14;

// "forward-recv".
absl::string_view TableKindName(TableKind kind);
// Family of a kind in what-ifs: "forward-pp-comm" for forward-send and
// forward-recv.
absl::string_view TableKindFamily(TableKind kind);
bool IsCommunication(TableKind kind);

struct OpRow {
  int64_t line = 0;
  int64_t step = 0;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int32_t replica = 0;
  int32_t stage = 0;
  int32_t number = 0;
  int16_t chunk = 0;  // 0 where the file has -1
  TableKind kind = TableKind::kGc;
};

// A deque, so that no copy of all of them is ever made. Error:
// kInvalidArgument with file, line, column, value and what is allowed.
absl::StatusOr<std::deque<OpRow>> ReadTableRows(std::istream& in,
                                                const std::string& source);

}  // namespace pipewright
