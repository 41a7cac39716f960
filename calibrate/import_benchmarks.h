// Transfers and copies of a profile from what other programs measured:
// nccl-tests and nvbandwidth, as they print it (import_text.h) or in the JSON
// of -J FILE and -j. They run nothing.
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
// part. A text with several runs gives the rows of all. Out-of-place times;
// warnings of the source name rows that have none, whose in-place times are
// taken, and rows that are left out. Error: kInvalidArgument with the source,
// the place in it and what is allowed, for a time, a size or a count that
// cannot be.
absl::StatusOr<Profile> ImportNcclTests(absl::string_view text,
                                        const std::string& source_name);

// CopyEntry for copies between host and device by copy engine, alone and
// beside the other direction, one sample a device. `bytes`: of a buffer
// (nvbandwidth -b), which the file need not say; 512 MiB is its default.
// Warnings of the source name tests that have not passed and those of other
// copies, which are left out. Error: as above, for a bandwidth that cannot be.
absl::StatusOr<Profile> ImportNvbandwidth(absl::string_view text,
                                          const std::string& source_name,
                                          int64_t bytes = int64_t{512} << 20);

}  // namespace pipewright
