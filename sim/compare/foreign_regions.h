// The regions of a foreign trace and their time on the device (see
// foreign_trace.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/compare/foreign_trace.h"
#include "sim/trace/trace_events.h"

namespace pipewright {

struct ForeignRegion {
  Region region = Region::kForward;
  std::string process;
  double start_s = 0;
  double end_s = 0;
};

class RegionReader {
 public:
  using Patterns = std::array<std::regex, kNumRegions>;
  explicit RegionReader(const Patterns& patterns) : patterns_(patterns) {}

  absl::Status See(const TraceEvent& event);
  // By start.
  std::vector<ForeignRegion> Finish();
  // Some that are no region, for messages.
  const std::set<std::string>& other_names() const { return names_; }

 private:
  struct Named {
    Region region;
    bool on_device;  // gpu_user_annotation
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
  };
  using Launched = std::vector<std::pair<Launch, Kernel>>;

  void KeepOutermost();
  // Its start and end on the device; false where it launched nothing.
  static bool OnDevice(const Named& named, const Launched& launched,
                       ForeignRegion* region);

  const Patterns& patterns_;
  std::vector<Named> named_;
  std::vector<Kernel> kernels_;
  std::map<int64_t, Launch> launches_;
  std::set<std::string> names_;
};

}  // namespace pipewright
