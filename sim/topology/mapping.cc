#include "sim/topology/mapping.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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

struct Axis {
  absl::string_view name;
  int size = 1;
  int stride = 0;
};

std::vector<Axis>::iterator Find(absl::string_view name,
                                 std::vector<Axis>* axes) {
  return std::find_if(axes->begin(), axes->end(),
                      [&](const Axis& axis) { return axis.name == name; });
}

// Below 0: not there.
int Place(const std::vector<std::string>& names, absl::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

}  // namespace

RankMapping::RankMapping(int pp, int dp, int devices_per_rank,
                         std::vector<int> device_of)
    : pp_(pp),
      dp_(dp),
      device_of_(std::move(device_of)),
      devices_per_rank_(devices_per_rank),
      offset_of_(devices_per_rank) {
  std::iota(offset_of_.begin(), offset_of_.end(), 0);
}

absl::StatusOr<RankMapping> RankMapping::FromOrder(absl::string_view order,
                                                   int pp, int dp, int devices,
                                                   int devices_per_rank,
                                                   int contexts) {
  const bool pairs = order == "bitpipe";
  std::vector<std::string> names =
      absl::StrSplit(pairs ? absl::string_view("pp-dp") : order, '-');
  std::vector<Axis> axes = {{"tp", devices_per_rank / std::max(1, contexts)},
                            {"cp", contexts},
                            {"ep", 1},
                            {"dp", dp},
                            {"pp", pp}};
  for (const std::string& name : names) {
    const auto axis = Find(name, &axes);
    if (axis == axes.end()) {
      return UnknownName("rank order", order,
                         {"bitpipe", "dp-pp", "pp-dp", "tp-cp-ep-dp-pp"});
    }
    if (std::count(names.begin(), names.end(), name) > 1) {
      return BadValue(
          "rank order", order,
          absl::StrCat("each axis once: ", name, " is there ",
                       std::count(names.begin(), names.end(), name), " times"));
    }
  }
  PW_RETURN_IF_ERROR(CheckSizes(pp, dp, devices, devices_per_rank));
  if (Place(names, "tp") < 0 && Place(names, "cp") < 0) {
    names.insert(names.begin(), {"tp", "cp"});
  }
  for (const Axis& axis : axes) {
    if (axis.size == 1 || Place(names, axis.name) >= 0) continue;
    return BadValue(
        "rank order", order,
        absl::StrCat("one with ", axis.name, ", which is ", axis.size));
  }
  if (pairs && pp % 2 != 0) {
    return BadValue(
        "pp", absl::StrCat(pp),
        absl::StrCat(pp > 1 ? absl::StrCat(pp - 1, " or ") : "", pp + 1,
                     ", the nearest (order bitpipe pairs the "
                     "ranks: even)"));
  }
  int stride = 1;
  for (const std::string& name : names) {
    const auto axis = Find(name, &axes);
    axis->stride = stride;
    stride *= axis->size;
  }
  const int tensor = axes[0].size;
  std::vector<int> device_of(static_cast<size_t>(pp) * dp);
  for (int replica = 0; replica < dp; ++replica) {
    for (int rank = 0; rank < pp; ++rank) {
      const int place = pairs && rank % 2 != 0 ? pp - rank : rank;
      device_of[replica * pp + rank] =
          replica * axes[3].stride + place * axes[4].stride;
    }
  }
  RankMapping mapping(pp, dp, devices_per_rank, std::move(device_of));
  for (int index = 0; index < devices_per_rank; ++index) {
    const int offset =
        index % tensor * axes[0].stride + index / tensor * axes[1].stride;
    mapping.plain_ &= offset == index;
    mapping.offset_of_[index] = offset;
  }
  mapping.replicas_first_ =
      dp > 1 && contexts > 1 && Place(names, "dp") < Place(names, "cp");
  mapping.experts_apart_ = dp > 1 && Place(names, "ep") > Place(names, "dp");
  mapping.plain_ &= !mapping.replicas_first_ && !mapping.experts_apart_;
  return mapping;
}

std::vector<std::pair<int, int>> RankMapping::ExpertsWith(int replica,
                                                          int context,
                                                          int contexts,
                                                          int members) const {
  const int all = dp_ * contexts;
  const int place =
      replicas_first_ ? context * dp_ + replica : replica * contexts + context;
  const int apart = experts_apart_ ? all / members : 1;
  const int first = experts_apart_ ? place % apart : place / members * members;
  std::vector<std::pair<int, int>> with;
  for (int member = 0; member < members; ++member) {
    const int other = first + member * apart;
    if (replicas_first_) {
      with.emplace_back(other % dp_, other / dp_);
    } else {
      with.emplace_back(other / contexts, other % contexts);
    }
  }
  return with;
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
  const int last = DeviceOf(replica, rank, devices_per_rank_ - 1);
  PW_CHECK(last < cluster.num_devices());
  const std::string& name = cluster.devices()[device].name;
  if (last == device) return name;
  const bool apart = last - device >= devices_per_rank_ || !plain_;
  return absl::StrCat(
      name,
      apart && devices_per_rank_ > 2
          ? absl::StrCat(", ",
                         cluster.devices()[DeviceOf(replica, rank, 1)].name)
          : "",
      apart && devices_per_rank_ == 2 ? ", " : " to ",
      cluster.devices()[last].name);
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

absl::StatusOr<std::vector<int>> HostBalancedDevices(int pp, int dp,
                                                     int devices_per_node,
                                                     int devices_per_rank) {
  if (devices_per_node % devices_per_rank != 0) {
    return BadValue(
        "devices of a rank", absl::StrCat(devices_per_rank),
        absl::StrCat("with order ", kHostBalance, " a divisor of the ",
                     devices_per_node,
                     " devices of a node, so that no rank is on two"));
  }
  const int per_node = devices_per_node / devices_per_rank;  // ranks
  const bool fits = pp <= per_node;
  if (!fits && (per_node == 0 || per_node % 2 != 0 || pp % per_node != 0)) {
    return BadValue(
        "pp", absl::StrCat(pp),
        absl::StrCat("with order ", kHostBalance, " at most the ", per_node,
                     " ranks of a node, or a multiple of them where they are "
                     "an even number"));
  }
  const int half = per_node / 2;
  std::vector<int> device_of;
  device_of.reserve(static_cast<size_t>(pp) * dp);
  for (int replica = 0; replica < dp; ++replica) {
    for (int rank = 0; rank < pp; ++rank) {
      int place = rank;
      if (!fits) {
        const bool late = 2 * rank >= pp;
        const int from_end = late ? pp - 1 - rank : rank;
        const int node = from_end / half;
        place = node * per_node +
                (late ? per_node - 1 - from_end % half : from_end % half);
      }
      device_of.push_back((replica * pp + place) * devices_per_rank);
    }
  }
  return device_of;
}

}  // namespace pipewright
