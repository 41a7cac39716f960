// Does a trace fit what the user says of it? The device, the sizes of the
// recorded products and of attention, and the rates that times stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "calibrate/kineto_rank.h"
#include "sim/cost/device.h"
#include "sim/profile/profile.h"

namespace pipewright {

// Is that what drivers call the device ("NVIDIA H100 80GB HBM3" is "h100")? By
// the words of the names, the number of multiprocessors and, within 8 %, the
// memory, as far as the trace has them.
bool IsDevice(const TraceDevice& traced, const DeviceSpec& device);

// The fastest shipped device that it is; null where none is.
const DeviceSpec* FastestThatFits(const TraceDevice& traced);

// Do two texts name one device: has one all words of the other, or both the
// same word with letters and digits?
bool NamesOneDevice(absl::string_view one, absl::string_view other);

// The device whose peak bounds the trace's rates: `named` (a shipped device, a
// device file, or other words for it; "": not said), else the fastest shipped
// one that fits; nothing where none does. Error: kInvalidArgument with both
// names where the trace is of another device.
absl::StatusOr<std::optional<DeviceSpec>> DeviceOfTrace(
    const KinetoRank& rank, const std::string& named);

struct TracedShape {
  ProfileModel model;
  ProfilePart layer = ProfilePart::kLayer;
  int64_t microbatch_size = 1;
  int64_t sequence = 0;
  int64_t tp = 1;
};

// What could be checked, of the forwards.
struct CheckedShapes {
  int64_t products = 0;
  int64_t attentions = 0;
};

// Hidden size and tokens against most of the work of the recorded products,
// batch, sequence, heads and head_dim against attention. Rows of products of
// experts depend on the router and are not checked. Error: kInvalidArgument
// with the option or the model, both values, and the operator.
absl::StatusOr<CheckedShapes> CheckShapes(const KinetoRank& rank,
                                          const TracedShape& shape);

// FLOPs of a pass of one part on one device, at least: attention's causal half,
// its backward without the scores again.
double LeastFlops(ProfilePart part, ProfilePass pass, const TracedShape& shape);

// The peak that passes of `type` cannot beat; 0: not known.
double PeakOf(const DeviceSpec& device, absl::string_view type);

// Error: kInvalidArgument where the median of an entry beats the peak, with
// time, FLOPs and what is likely wrong. Between 75 and 100 % a warning is
// added.
absl::Status CheckRates(const std::vector<PassEntry>& entries,
                        const DeviceSpec& device, const std::string& source,
                        std::vector<std::string>* warnings);

// The same of each recorded product: its kernels against its sizes.
absl::Status CheckProductRates(const KinetoRank& rank, absl::string_view type,
                               const DeviceSpec& device);

}  // namespace pipewright
