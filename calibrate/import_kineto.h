// A profile from a Kineto (Chrome) trace of somebody's own training run, as
// PyTorch's profiler writes it: regions that name a forward, a backward or an
// optimizer step, and the GPU kernels that were launched inside them. So users
// of TransformerEngine or fp8 need no kernels of ours. It runs nothing.
//
// sim/trace/trace_regions.h says what a region's time is.
#pragma once

#include <array>
#include <cstdint>
#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "sim/profile/profile.h"
#include "sim/trace/trace_regions.h"

namespace pipewright {

struct KinetoOptions {
  // See CompileRegions. Weight and input are tried before full; no region is a
  // recomputation.
  std::array<std::string, kNumRegions> patterns;
  ProfileModel model;
  ProfilePart part = ProfilePart::kLayer;  // or layers of experts, with ep
  std::string type = "bf16";
  int64_t microbatch_size = 1;
  int64_t sequence = 0;
  int64_t tp = 1;
  int64_t ep = 0;
  int64_t layers = 1;      // of one region
  int64_t parameters = 0;  // of one optimizer step; 0: no entry for it
  int64_t skip = 0;        // regions of each kind, for warming up
  // Sum of the kernels' times instead of the first start to the last end.
  bool sum_kernels = false;
};

// Reads as a stream: memory grows with kernels and regions, not with the file.
// Errors: kInvalidArgument for a file that is no such trace, for a pattern that
// is no regular expression, and where no region matches (it lists names that
// are there).
absl::StatusOr<Profile> ImportKineto(std::istream& in,
                                     const std::string& source_name,
                                     const KinetoOptions& options);

}  // namespace pipewright
