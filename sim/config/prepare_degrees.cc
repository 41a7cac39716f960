// The degrees of parallelism against the devices of the system.
#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {
namespace {

constexpr int64_t kMostDevices = int64_t{1} << 30;
constexpr int64_t kMostNodes = int64_t{1} << 20;

struct Degree {
  const char* name;
  int value;
};

// pp and dp, and those of the others that are above 1.
std::vector<Degree> Degrees(const RunSizes& sizes) {
  std::vector<Degree> degrees = {{"pp", sizes.pp}, {"dp", sizes.dp}};
  if (sizes.tp > 1) degrees.push_back({"tp", sizes.tp});
  if (sizes.cp > 1) degrees.push_back({"cp", sizes.cp});
  return degrees;
}

// "pp * dp = 8 * 3 = 24"
std::string ProductText(const RunSizes& sizes) {
  std::vector<std::string> names;
  std::vector<int> values;
  for (const Degree& degree : Degrees(sizes)) {
    names.push_back(degree.name);
    values.push_back(degree.value);
  }
  return absl::StrCat(absl::StrJoin(names, " * "), " = ",
                      absl::StrJoin(values, " * "), " = ", sizes.devices());
}

// "dp 2, 4; pp 4": of each degree the nearest values with which the product
// divides `available`, the others as they are. "" where nothing helps.
std::string NearestDegrees(const RunSizes& sizes, int64_t available) {
  std::vector<std::string> found;
  for (const Degree& degree : Degrees(sizes)) {
    const int64_t others = sizes.devices() / degree.value;
    if (available % others != 0) continue;
    found.push_back(absl::StrCat(
        degree.name, " ", NearestDivisors(available / others, degree.value)));
  }
  return absl::StrJoin(found, "; ");
}

std::string ThereAre(int nodes, int per_node) {
  return absl::StrCat("nodes * devices_per_node = ", nodes, " * ", per_node,
                      " = ", int64_t{nodes} * per_node);
}

}  // namespace

int64_t RunSizes::devices() const { return int64_t{pp} * dp * tp * cp; }

absl::Status CheckDegrees(const RunConfig& config, const RunSizes& sizes) {
  const double devices = static_cast<double>(sizes.pp) * sizes.dp * sizes.tp *
                         static_cast<double>(sizes.cp);
  if (devices <= static_cast<double>(kMostDevices)) return absl::OkStatus();
  return BadValue(config.Field(sizes.tp > 1 ? "strategy.tp" : "strategy.dp"),
                  absl::StrCat("pp * dp * tp * cp = ", sizes.pp, " * ",
                               sizes.dp, " * ", sizes.tp, " * ", sizes.cp),
                  "at most 2^30 devices");
}

absl::StatusOr<int> NodesFor(const RunConfig& config, const RunSizes& sizes,
                             int devices_per_node,
                             const std::vector<int>& devices,
                             std::vector<std::string>* warnings) {
  const int per_node = std::max(devices_per_node, 1);
  const int64_t needed = sizes.devices();
  if (!config.system.nodes) {
    int64_t highest = needed;
    for (const int device : devices) {
      highest =
          std::max(highest, int64_t{device} + int64_t{sizes.tp} * sizes.cp);
    }
    const int64_t nodes = (highest + per_node - 1) / per_node;
    if (nodes > kMostNodes) {
      return BadValue("system.nodes", absl::StrCat(nodes),
                      "at most 2^20, the number that this run would need");
    }
    return static_cast<int>(nodes);
  }
  const int nodes = *config.system.nodes;
  const int64_t available = int64_t{nodes} * per_node;
  const std::string nearest = NearestDegrees(sizes, available);
  if (needed > available) {
    return BadValue(
        config.Field("system.nodes"), absl::StrCat(nodes),
        absl::StrCat((needed + per_node - 1) / per_node,
                     " or more: ", ProductText(sizes), " devices are needed, ",
                     ThereAre(nodes, per_node), " are there",
                     nearest.empty() ? "" : absl::StrCat("; or ", nearest)));
  }
  // A list of devices says itself which ones stay idle.
  if (!devices.empty() || needed == available) return nodes;
  if (available % needed != 0) {
    return BadValue(
        config.Field("system.nodes"), absl::StrCat(nodes),
        absl::StrCat(
            "nodes whose devices the degrees divide; ", ProductText(sizes),
            " does not divide ", ThereAre(nodes, per_node), "; nearest: ",
            nearest.empty() ? absl::StrCat("degrees with product ",
                                           NearestDivisors(available, needed))
                            : nearest));
  }
  warnings->push_back(absl::StrCat(available - needed, " of ", available,
                                   " devices stay idle: ", ProductText(sizes),
                                   "; dp ", available / needed * sizes.dp,
                                   " would use all"));
  return nodes;
}

}  // namespace pipewright
