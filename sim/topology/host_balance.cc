#include "sim/topology/host_balance.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {

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
