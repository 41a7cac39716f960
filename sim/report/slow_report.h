// Devices and links of a run that are not as fast as they should be, for every
// form of the report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipewright {

class Json;

struct SlowReport {
  struct Row {
    std::string name;  // "node0/gpu3", "replica2/rank3", "node0/nic1/up"
    double factor = 1;
    int replica = -1;  // for devices
    int rank = -1;
  };
  // Devices, or links.
  struct Part {
    std::string law;  // "" without one
    uint64_t seed = 0;
    int64_t all = 0;
    int64_t slower = 0;  // factor above 1
    int64_t faster = 0;
    std::vector<Row> slowest;  // the first of the slower ones, kRows at most
  };
  static constexpr size_t kRows = 16;

  std::optional<Part> devices;
  std::optional<Part> links;
};

// Lines "slow devices ...", ended.
std::string SlowToText(const SlowReport& report);
// The value of the key "slow".
Json SlowToJson(const SlowReport& report);
// A section of a page.
std::string SlowToHtml(const SlowReport& report);

}  // namespace pipewright
