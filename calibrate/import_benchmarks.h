// Transfers and copies of a profile from what other programs measured:
// nccl-tests (-J FILE) and nvbandwidth (-j). They run nothing.
//
// Facts of the formats: NVIDIA/nccl-tests, src/util.cu (its version 2 of the
// file); NVIDIA/nvbandwidth, json_output.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/profile/profile.h"

namespace pipewright {

// TransferEntry for every size. The operation is that of the program that ran
// (all_reduce_perf, all_gather_perf, reduce_scatter_perf, sendrecv_perf);
// sendrecv is filed between two ranks, both ways at once, however many took
// part. Out-of-place times, in-place ones where those are missing. Error:
// kInvalidArgument with the source and what is allowed.
absl::StatusOr<Profile> ImportNcclTests(absl::string_view text,
                                        const std::string& source_name);

// CopyEntry for copies between host and device by copy engine, alone and
// beside the other direction, one sample a device. `bytes`: of a buffer
// (nvbandwidth -b), which the file need not say; 512 MiB is its default.
absl::StatusOr<Profile> ImportNvbandwidth(absl::string_view text,
                                          const std::string& source_name,
                                          int64_t bytes = int64_t{512} << 20);

}  // namespace pipewright
