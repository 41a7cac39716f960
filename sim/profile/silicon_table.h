// Tables of measured kernel rates, as calibrate/silicon/distil.py and
// `pipewright calibrate import --silicon` write them: text, or the same packed
// with gzip. They hold the times of single kernels by shape, and no training
// run.
//
//   pipewright-silicon 1
//   # comments
//   table gemm bfloat16 TN
//   m,n,k,us,error_percent
//   4096,4096,4096,185.2,6
//
// us: microseconds of one call. error_percent: half of a 90 % interval of what
// another campaign would have measured.
//
// | table | words | columns before us |
// | gemm | type, layout (TN forward, NN gradient of the input, NT of the
//   weights) | m,n,k of C[m,n] |
// | attention | type, pass (fwd, bwd), mask (causal, full), head_dim |
//   heads (times batch), seq |
// | window | type, pass, head_dim: causal | heads, seq, window |
// | experts | type: forward of a whole gated layer of experts on one device |
//   groups, rows (of each), hidden, inner (of each) |
// | norm | kind (rms_norm, layer_norm), pass | rows, cols |
// | cast | type, scale (static, tensor, token) of a bf16 matrix | rows, cols |
// | nccl | operation, type | gpus (of one node), bytes (whole buffer) |
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct SiliconTable {
  // "gemm", "bfloat16", "TN".
  std::vector<std::string> words;
  int sizes = 0;  // columns before us
  // Row by row: the sizes, seconds, error (0.06 for 6 %). Sorted by the sizes,
  // each of which is an integer above 0 and stands there once.
  std::vector<double> values;

  int width() const { return sizes + 2; }
  int rows() const { return static_cast<int>(values.size()) / width(); }
  const double* row(int index) const { return &values[index * width()]; }
  double seconds(int index) const { return row(index)[sizes]; }
  double error(int index) const { return row(index)[sizes + 1]; }
};

// Columns of a kind of table before us; empty for no kind.
std::vector<std::string> SiliconColumns(absl::string_view kind);
// Every kind, for messages.
std::vector<std::string> SiliconKinds();

// Errors: kInvalidArgument with file, line and field: a table or a shape that
// stands there twice, a value that is no number, not finite or not above 0.
absl::StatusOr<std::vector<SiliconTable>> ReadSiliconTables(
    absl::string_view text, absl::string_view source);

// The table with these words; null where there is none.
const SiliconTable* FindTable(const std::vector<SiliconTable>& tables,
                              const std::vector<std::string>& words);

// As text; `notes` become comments.
std::string SiliconToText(const std::vector<SiliconTable>& tables,
                          const std::vector<std::string>& notes);

// The tables of a shipped file, by its name ("h100_gemm_bfloat16"), read at the
// first call; null where none ships.
const std::vector<SiliconTable>* ShippedSilicon(const std::string& name);
std::vector<std::string> ShippedSiliconNames();

// A user's file, packed or not.
absl::StatusOr<std::vector<SiliconTable>> ReadSiliconFile(
    const std::string& path);

}  // namespace pipewright
