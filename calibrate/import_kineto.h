// A profile from Kineto (Chrome) traces of somebody's own training run, as
// PyTorch's profiler writes them, one a rank: regions that name a forward, a
// backward or an optimizer step, and the GPU kernels that were launched inside
// them. So users of TransformerEngine or fp8 need no kernels of ours. It runs
// nothing.
//
// kineto_parts.h says what of a region is the layers', the embedding's and the
// head's; kineto_checks.h what a trace is checked against. What a trace does
// not tell is a warning of the profile's source, or an error; nothing is
// guessed.
#pragma once

#include <array>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/kineto_layout.h"
#include "calibrate/kineto_rank.h"
#include "sim/profile/profile.h"
#include "sim/trace/trace_regions.h"

namespace pipewright {

struct KinetoOptions {
  // See CompileRegions. Weight and input are tried before full; no region is a
  // recomputation.
  std::array<std::string, kNumRegions> patterns;
  std::string layer_name;  // see PartNames
  ProfileModel model;
  int64_t model_layers = 0;                // in all stages; 0: not checked
  ProfilePart part = ProfilePart::kLayer;  // or layers of experts, with ep
  std::string type = "bf16";
  std::string device;  // the user's name of it; "": the trace's
  int64_t microbatch_size = 1;
  int64_t sequence = 0;
  int64_t ep = 0;  // as in the profile's entries
  KinetoAxes axes;
  int64_t layers = 0;      // in one region; 0: as the trace tells
  int64_t parameters = 0;  // in one optimizer step; 0: no entry for it
  int64_t skip = 0;        // regions of each kind, for warming up
  // Sum of the kernels' times instead of the first start to the last end.
  bool sum_kernels = false;
};

class KinetoImport {
 public:
  explicit KinetoImport(KinetoOptions options) : options_(std::move(options)) {}

  // Reads one rank, as a stream. Errors: those of ReadKinetoRank.
  absl::Status Add(std::istream& in, const std::string& source_name);
  // Errors, kInvalidArgument: no region matches (it lists names that are
  // there); ranks, device, sizes or layers contradict each other or the
  // options; a time that no device reaches; a backward whose head or embedding
  // cannot be told from its layers.
  absl::StatusOr<Profile> Finish() const;

 private:
  KinetoOptions options_;
  std::vector<KinetoRank> ranks_;
};

// One rank.
absl::StatusOr<Profile> ImportKineto(std::istream& in,
                                     const std::string& source_name,
                                     const KinetoOptions& options);

}  // namespace pipewright
