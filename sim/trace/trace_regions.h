// The regions of another program's trace, PyTorch's profiler (Kineto) or any
// other Chrome JSON with a region around each pass, and their time on the
// device. What they are called is the caller's business: compare reads a
// measured run, calibrate a profile.
//
// A region's time is that of the GPU kernels launched inside it, by its own
// thread, of backwards also by autograd's threads; where none of these launched
// any, by any thread of its process; without kernels in the trace its own
// length. A region inside another of its kind is a part of it. The kernels of a
// CUDA graph are those of its launch.
//
// Facts of the format: events of phase X with "cat" user_annotation,
// gpu_user_annotation, cpu_op, cuda_runtime, kernel; "args.correlation" joins
// a launch and its kernel (pytorch/kineto, libkineto/src/output_json.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "sim/trace/trace_events.h"

namespace pipewright {

enum class Region {
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kBackwardFull,
  kRecompute,
  kOptimizer,
};
inline constexpr int kNumRegions = 6;

// Fits record_function names of PyTorch, its pipelining schedules ("PP:0F1",
// with I for the gradient of the input), Megatron-LM's timers and
// TransformerEngine.
absl::string_view DefaultRegionPattern(Region region);

// The option that takes the pattern: "--forward".
absl::string_view RegionFlag(Region region);

struct RegionPattern {
  Region region;
  std::regex pattern;
};

// In the order in which names are asked, which is that of `order`. `given`, by
// Region: ECMAScript regular expressions, found anywhere in a region's name,
// in any case; empty: the default. Error: kInvalidArgument with the option.
absl::StatusOr<std::vector<RegionPattern>> CompileRegions(
    const std::array<std::string, kNumRegions>& given,
    absl::Span<const Region> order);

struct LaunchedKernel {
  std::string thread;  // that launched it
  double launch_us = 0;
  double start_us = 0;
  double end_us = 0;
  int32_t name = 0;  // in RegionReader::kernel_names()
};

struct TraceRegion {
  Region region = Region::kForward;
  std::string process;
  std::string thread;
  std::string name;
  // On the host.
  double host_start_us = 0;
  double host_end_us = 0;
  // First start to last end, on the device where that is known.
  double start_us = 0;
  double end_us = 0;
  double sum_us = 0;  // sum of its kernels; without kernels its length
  // By launch; only with keep_kernels.
  std::vector<LaunchedKernel> kernels;
};

// For ReadTraceEvents. Memory grows with kernels and regions.
class RegionReader {
 public:
  // `categories`: those that have regions; empty: all.
  explicit RegionReader(const std::vector<RegionPattern>& patterns,
                        std::set<std::string> categories = {},
                        bool keep_kernels = false)
      : patterns_(patterns),
        categories_(std::move(categories)),
        keep_kernels_(keep_kernels) {}

  // Error: kInvalidArgument for an event of phase X without its time.
  absl::Status See(const TraceEvent& event);
  // By start on the host; those that launched nothing are left out. To be
  // called once.
  std::vector<TraceRegion> Finish();

  bool has_kernels() const { return !kernels_.empty(); }
  // Only with keep_kernels.
  const std::vector<std::string>& kernel_names() const { return kernel_names_; }
  // Kernels that no event of the trace launched: of no region.
  int64_t num_orphans() const { return num_orphans_; }
  // Some names that are no region, for messages.
  const std::set<std::string>& other_names() const { return names_; }

 private:
  struct Named {
    Region region;
    bool on_device;    // gpu_user_annotation
    bool is_operator;  // cpu_op
    std::string name;
    std::string process;
    std::string thread;
    double start_us;
    double end_us;
  };
  struct Launch {
    std::string process;
    std::string thread;
    double start_us = 0;
  };
  struct Kernel {
    int64_t correlation;
    double start_us;
    double end_us;
    int32_t name;
  };
  using Launched = std::vector<std::pair<Launch, Kernel>>;

  void KeepOutermost();
  // Its time on the device; false where it launched nothing.
  bool OnDevice(const Named& named, const Launched& launched,
                TraceRegion* region) const;
  int32_t KernelName(const std::string& name);

  const std::vector<RegionPattern>& patterns_;
  const std::set<std::string> categories_;
  const bool keep_kernels_;
  std::vector<Named> named_;
  std::vector<Kernel> kernels_;
  std::map<int64_t, Launch> launches_;
  // "PROCESS THREAD" of those that run backwards.
  std::set<std::string> autograd_;
  std::vector<std::string> kernel_names_;
  std::map<std::string, int32_t> name_numbers_;
  int64_t num_orphans_ = 0;
  std::set<std::string> names_;
};

}  // namespace pipewright
