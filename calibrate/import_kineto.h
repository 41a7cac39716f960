// A profile from a Kineto (Chrome) trace of somebody's own training run, as
// PyTorch's profiler writes it: regions that name a forward, a backward or an
// optimizer step, and the GPU kernels that were launched inside them. So users
// of TransformerEngine or fp8 need no kernels of ours. It runs nothing.
//
// Facts of the format: "traceEvents" of phase X with "cat" user_annotation,
// gpu_user_annotation, cpu_op, cuda_runtime, kernel; "ts" and "dur" in
// microseconds; "args.correlation" joins a launch and its kernel
// (pytorch/kineto, libkineto/src/output_json.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/cost/profile.h"

namespace pipewright {

// What a region of a trace is.
enum class RegionKind {
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kBackwardFull,
  kOptimizer
};
inline constexpr int kNumRegionKinds = 5;

struct KinetoOptions {
  // ECMAScript regular expressions, found anywhere in a region's name, in any
  // case; empty: that of DefaultRegionPattern. Weight and input are asked
  // before full.
  std::array<std::string, kNumRegionKinds> patterns;
  ProfileModel model;
  std::string type = "bf16";
  int64_t microbatch_size = 1;
  int64_t sequence = 0;
  int64_t tp = 1;
  int64_t layers = 1;      // of one region
  int64_t parameters = 0;  // of one optimizer step; 0: no entry for it
  int64_t skip = 0;        // regions of each kind, for warming up
  // Sum of the kernels' times instead of the first start to the last end.
  bool sum_kernels = false;
};

// Fits record_function names of PyTorch, its pipelining schedules ("PP:0F1",
// with I for the gradient of the input), Megatron-LM's timers and
// TransformerEngine.
absl::string_view DefaultRegionPattern(RegionKind kind);

// Reads as a stream: memory grows with kernels and regions, not with the
// file. Errors: kInvalidArgument for what is no such trace, for a pattern that
// is no regular expression, and where no region matches (with names that are
// there).
absl::StatusOr<Profile> ImportKineto(std::istream& in,
                                     const std::string& source_name,
                                     const KinetoOptions& options);

}  // namespace pipewright
