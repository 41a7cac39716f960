#include "sim/topology/mapping.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// More columns than this do not fit a line.
constexpr int kPrintedReplicas = 4;

absl::Status CheckSizes(int pp, int dp, int devices, int per_rank) {
  if (pp < 1) return BadValue("pp", absl::StrCat(pp), "1 or more");
  if (dp < 1) return BadValue("dp", absl::StrCat(dp), "1 or more");
  if (per_rank < 1) {
    return BadValue("devices of a rank", absl::StrCat(per_rank), "1 or more");
  }
  if (static_cast<int64_t>(pp) * dp > devices / per_rank) {
    return BadValue(
        per_rank == 1 ? "pp * dp" : "pp * dp * devices of a rank",
        per_rank == 1
            ? absl::StrCat(pp, " * ", dp, " = ", static_cast<int64_t>(pp) * dp)
            : absl::StrCat(pp, " * ", dp, " * ", per_rank),
        absl::StrCat("at most the ", devices, " devices of the system"));
  }
  return absl::OkStatus();
}

}  // namespace

RankMapping::RankMapping(int pp, int dp, int devices_per_rank,
                         std::vector<int> device_of)
    : pp_(pp),
      dp_(dp),
      device_of_(std::move(device_of)),
      devices_per_rank_(devices_per_rank) {}

absl::StatusOr<RankMapping> RankMapping::FromOrder(absl::string_view order,
                                                   int pp, int dp, int devices,
                                                   int devices_per_rank) {
  const bool replica_fastest = order == "dp-pp";
  const bool pairs = order == "bitpipe";
  if (!replica_fastest && !pairs && order != "pp-dp") {
    return UnknownName("rank order", order, {"bitpipe", "dp-pp", "pp-dp"});
  }
  PW_RETURN_IF_ERROR(CheckSizes(pp, dp, devices, devices_per_rank));
  if (pairs && pp % 2 != 0) {
    return BadValue(
        "pp", absl::StrCat(pp),
        absl::StrCat(pp > 1 ? absl::StrCat(pp - 1, " or ") : "", pp + 1,
                     ", the nearest (order bitpipe pairs the "
                     "ranks: even)"));
  }
  std::vector<int> device_of(static_cast<size_t>(pp) * dp);
  for (int replica = 0; replica < dp; ++replica) {
    for (int rank = 0; rank < pp; ++rank) {
      const int place = pairs && rank % 2 != 0 ? pp - rank : rank;
      device_of[replica * pp + rank] =
          (replica_fastest ? rank * dp + replica : replica * pp + place) *
          devices_per_rank;
    }
  }
  return RankMapping(pp, dp, devices_per_rank, std::move(device_of));
}

absl::StatusOr<RankMapping> RankMapping::FromList(std::vector<int> device_of,
                                                  int pp, int dp, int devices,
                                                  int devices_per_rank) {
  PW_RETURN_IF_ERROR(CheckSizes(pp, dp, devices, devices_per_rank));
  const size_t expected = static_cast<size_t>(pp) * dp;
  if (device_of.size() != expected) {
    return BadValue("devices", absl::StrCat(device_of.size(), " entries"),
                    absl::StrCat("pp * dp = ", expected, " entries"));
  }
  std::vector<bool> used(devices, false);
  for (size_t index = 0; index < device_of.size(); ++index) {
    const int device = device_of[index];
    const std::string field = absl::StrCat("devices[", index, "]");
    const int last = devices - devices_per_rank;
    if (device < 0 || device > last) {
      return BadValue(field, absl::StrCat(device), absl::StrCat("0 to ", last));
    }
    for (int next = device; next < device + devices_per_rank; ++next) {
      if (used[next]) {
        return BadValue(
            field, absl::StrCat(device),
            devices_per_rank == 1
                ? "each device once"
                : absl::StrCat("each device once; a rank has ",
                               devices_per_rank, " from the one named on"));
      }
      used[next] = true;
    }
  }
  return RankMapping(pp, dp, devices_per_rank, std::move(device_of));
}

std::string RankMapping::NameOf(const Cluster& cluster, int replica,
                                int rank) const {
  const int device = DeviceOf(replica, rank);
  const int last = device + devices_per_rank_ - 1;
  PW_CHECK(last < cluster.num_devices());
  const std::string& name = cluster.devices()[device].name;
  if (last == device) return name;
  return absl::StrCat(name, " to ", cluster.devices()[last].name);
}

std::string RankMapping::ToString(const Cluster& cluster) const {
  const int columns = std::min(dp_, kPrintedReplicas);
  std::vector<size_t> width(columns, 0);
  for (int replica = 0; replica < columns; ++replica) {
    for (int rank = 0; rank < pp_; ++rank) {
      width[replica] =
          std::max(width[replica], NameOf(cluster, replica, rank).size());
    }
  }
  const size_t rank_width = absl::StrCat(pp_ - 1).size();
  std::string out;
  for (int rank = 0; rank < pp_; ++rank) {
    const std::string number = absl::StrCat(rank);
    absl::StrAppend(&out, "rank ", std::string(rank_width - number.size(), ' '),
                    number, ":");
    for (int replica = 0; replica < columns; ++replica) {
      const std::string name = NameOf(cluster, replica, rank);
      absl::StrAppend(&out, replica > 0 && devices_per_rank_ > 1 ? "  " : " ",
                      name);
      if (replica + 1 < columns) out.append(width[replica] - name.size(), ' ');
    }
    if (dp_ > columns) absl::StrAppend(&out, " ...");
    out += '\n';
  }
  if (dp_ > columns) {
    absl::StrAppend(&out, "(", columns, " of ", dp_, " replicas)\n");
  }
  return out;
}

}  // namespace pipewright
