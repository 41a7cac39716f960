// The origin of measured pass times: each pass of each part with its noise, and
// the error of interpolated ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cost/profile_costs.h"

namespace pipewright {

class Json;

// What a run takes as measured in place of what its system says.
struct MeasuredNumber {
  // What needs it: copies with the host, messages between ranks, an optimizer
  // on the host.
  enum class Use : uint8_t { kCopies, kMessages, kOptimizer };
  Use use = Use::kCopies;
  std::string name;  // "d2h bandwidth"
  std::string unit;  // "B/s", "s", "parameters/s"
  double measured = 0;
  double system = 0;  // 0: it says nothing
};

struct ProfileReport {
  std::string name;         // as given
  std::string description;  // device and date
  std::string type;         // "bf16"
  std::vector<ProfiledTime> times;
  std::vector<StageCosts> stages;  // for one microbatch
  double optimizer_s = 0;
  double split_price = 0;    // (B + W) / BW of a layer; 0: not measured
  std::string interference;  // what of it the run had: "off", "on"
  // Collectives of gradients and parameters that are timed as measured,
  // "all_reduce over 4"; "": none, the network times them.
  std::string collectives;
  std::vector<MeasuredNumber> measured;
  // Single kernels, which no time of a run is made of.
  int unused_kernels = 0;
  // Median error of the profile's shapes, each predicted from the others, and
  // their number; 0 without any.
  double left_out_median = 0;
  int left_out_shapes = 0;
};

// `costs`: as the run has them.
ProfileReport ReportProfile(const Profile& profile, std::string name,
                            const ProfileCosts& measured,
                            const PassCosts& costs);

// The value of the key "costs".
Json ProfileCostsToJson(const ProfileReport& report);
std::string ProfileCostsToText(const ProfileReport& report);

}  // namespace pipewright
