// Tables of measured rates (sim/profile/silicon_table.h) of a folder of CSV
// files: a user's own measurements, in the columns of the public data that
// calibrate/silicon/distil.py reads. The columns tell what a file holds:
//
// | columns | of |
// | dtype,m,n,k,latency_ms and layout or none (TN) | products |
// | batch,isl,heads,head_dim,latency_ms | causal attention, forward |
// | dtype,mask,batch,q_len,kv_len,heads,head_dim_qk,head_dim_v,pass,time_ms |
//   attention |
// | norm,rows,cols,pass,time_ms | norms |
// | op,dtype,gpus,bytes,latency_ms | collectives of one node |
//
// `campaign` may stand in any: the spread between campaigns makes the error.
// Other columns are left alone.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/profile/silicon_table.h"

namespace pipewright {

// Every *.csv and *.csv.gz of the folder, in the order of their names. Errors:
// kInvalidArgument with file, line and field: a column that is missing, a value
// that is no number above 0, a shape that a campaign has twice.
absl::StatusOr<std::vector<SiliconTable>> ImportSilicon(
    const std::string& folder);

// One file of them; `tables` holds what ImportSilicon has read so far.
class SiliconImporter {
 public:
  absl::Status Add(absl::string_view text, absl::string_view source);
  // Error: nothing was read.
  absl::StatusOr<std::vector<SiliconTable>> Finish() &&;

 private:
  struct Sample {
    std::vector<std::string> words;
    std::vector<double> sizes;
    std::string campaign;
    double seconds = 0;
    std::string place;  // "gemm.csv:3"
  };
  std::vector<Sample> samples_;
};

}  // namespace pipewright
