// Sections `slow` and `reliability` of a configuration: devices and links that
// are not as fast as they should be, and devices that fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipewright {

struct SlowChoice {
  std::vector<std::string> devices;  // "node0/gpu3*1.44", "replica2/rank1*2"
  std::optional<std::string> devices_law;  // "lognormal:3%" (slow_law.h)
  std::vector<std::string> links;          // "node0/nic1*2"
  std::optional<std::string> links_law;
  std::optional<int64_t> seed;  // of both laws; absent: costs.seed

  bool slows_devices() const { return !devices.empty() || devices_law; }
  bool slows_links() const { return !links.empty() || links_law; }
};

// See sim/cost/goodput.h.
struct ReliabilityChoice {
  std::optional<double> mtbf_per_device_s;
  std::optional<double> checkpoint_every_s;  // absent: Daly's interval
  std::optional<double> checkpoint_write_s;
  std::optional<double> restart_s;  // absent: 0
  std::optional<double> horizon_s;  // absent: a day
  std::optional<int> seeds;         // how many such stretches are drawn
  std::optional<int64_t> seed;      // absent: costs.seed

  bool given() const { return mtbf_per_device_s.has_value(); }
};

}  // namespace pipewright
