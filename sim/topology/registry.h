// Shapes (how devices are wired, one file each in topologies/) and systems (a
// shape with the numbers of real hardware, one text file each in topologies/).
//
// Tests run over every registered shape, its sizes and legal values of its
// parameters. What they hold it to:
// - A route between nodes goes over NicUp and NicDown (layout.h) unless the
//   shape's own links begin at the node (topologies/torus.cc), is no wider than
//   a NIC, has at least its latency, and no link twice.
// - Names of links are unique, and some route uses each link. `NAME/up` and
//   `NAME/down` are the two ways of one cable; pictures take switches from the
//   routes.
// - Twice all bandwidths and half all latencies halve all times.
// - A parameter changes something, and only on links that its `links` names.
// - A size that cannot be is refused as BadValue("nodes", "2", "1 with shape
//   node").
// They do not know which way a message should go: a longer way that is longer
// both ways passes. A test of the shape names the links of some routes, and
// tests/topology/formulas_test.cc has closed forms of loads and bisections.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/shared_texts.h"
#include "sim/topology/cluster.h"

namespace pipewright {

// A parameter of system.params: one that only some shapes have, or one of the
// inside of a node. Its row says what it means and what is legal; the registry
// holds values against that, so that a shape reads a value without a check of
// its own.

// Values by key, as given or complete with defaults.
using ShapeParamValues = std::map<std::string, std::string>;

struct ShapeParam {
  enum class Kind {
    kInteger,
    kNumber,
    kChoice,
    kSizes,      // "4x4x2" or "auto": 1 to `most` integers of 1 or more
    kBandwidth,  // with its unit, "400Gbps"; inside, bytes per second
    kTime,       // with its unit, "5ms"; inside, seconds
  };

  std::string key;  // "nodes_per_leaf"
  Kind kind = Kind::kInteger;
  // Range of integers and numbers, both ends included. A bandwidth or a time
  // may be 0 if `least` is.
  double least = 1;
  double most = 1;
  std::vector<std::string> choices = {};
  std::string fallback = "";  // default, as text; "": it has to be given
  std::string help;
  // The parameter bears on nothing but links with this in their names
  // ("leaf"): a run that crosses none of them does not depend on it. "": it
  // may bear on all.
  std::string links = "";
};

// "1..1048576", "1..1e+06", "minimal|valiant", "auto|AxBxC", "a bandwidth".
std::string LegalValues(const ShapeParam& param);

// The same in words: "an integer from 1 to 1048576".
std::string AllowedValues(const ShapeParam& param);

// Error: kInvalidArgument, "FIELD: VALUE is not allowed; allowed: ...".
absl::Status CheckShapeParam(const ShapeParam& param, absl::string_view field,
                             absl::string_view value);

// One direction of one link of a kind. Latency is of that link alone: a route
// over two NVLink links (up to the switch, down from it) has twice it. The
// latency of a switch is part of its links. `source` says where the numbers
// are from.
struct LinkClass {
  double bytes_per_s = 0;
  double latency_s = 0;
  std::string source;
  friend bool operator==(const LinkClass&, const LinkClass&) = default;
};

// Parameters a second that a host may be said to step, cast or take.
inline constexpr double kMostHostRate = 1e15;

// What the hosts of a system can do, of one device's share of its node. 0:
// nobody says.
struct HostClass {
  // Rate of its memory. A node has that of all its devices, which copies share;
  // the host's cores get no more than this for one device.
  double bytes_per_s = 0;
  // Bytes that it reads and writes for each parameter: gradient, weight and
  // both moments in fp32 for Adam; fp32 in, bf16 out, allocated, for a cast.
  double adam_bytes = 28;
  double cast_bytes = 8;
  // Parameters a second at most.
  double adam_rate = 0;
  double cast_rate = 0;
  double flush_rate = 0;           // for gradients that the device waits for
  int slots = 2;                   // operations of the host at once
  double device_adam_rate = 25e9;  // for the device itself
  double device_cast_rate = 0;     // its casts to fp32; 0: as it steps
  friend bool operator==(const HostClass&, const HostClass&) = default;
};

// As many devices as a cluster may have: ids of devices and links stay well
// inside 32 bits.
inline constexpr int kMostClusterDevices = 1 << 20;

// All that a shape needs; a system file or the configuration fills it in. What
// only some shapes know is in `own`.
struct ShapeParams {
  std::string name;   // name of the system, for messages and reports
  std::string shape;  // registered name
  int nodes = 1;
  int devices_per_node = 1;
  int nics_per_node = 0;    // 0: one a device; devices share in blocks; has to
                            // divide devices_per_node
  int pcie_per_switch = 1;  // devices that share one host link each way
  ShapeParamValues own;     // the shape's own parameters, as given
  LinkClass nvlink;         // device to the node's switch; 0: none
  LinkClass nic;            // node to the fabric, per NIC
  LinkClass pcie;           // PCIe switch to host memory
  HostClass host;
  std::string device_name;       // "H100 SXM5 80GB"
  double memory_bytes = 0;       // on one device
  double host_memory_bytes = 0;  // on one node; 0: not known
  std::string summary;
  // Where the other numbers are from: field name ("params.KEY" of `own`) ->
  // source.
  SharedTexts sources;

  // Without PCIe there are no links to the hosts and their routes are empty.
  bool has_pcie() const { return pcie.bytes_per_s != 0 || pcie.latency_s != 0; }
  // Devices of a node without NVLink talk over PCIe.
  bool has_nvlink() const {
    return devices_per_node > 1 && nvlink.bytes_per_s != 0;
  }
  // Bytes per second that no message between two devices of a node exceeds.
  // PCIe's alone_factor is at most 2.
  double MostInNode() const {
    return has_nvlink() ? nvlink.bytes_per_s : 2 * pcie.bytes_per_s;
  }

  // The value of an own parameter. For a shape's `build`, which is given legal
  // values of all the parameters in its row.
  int OwnInt(absl::string_view key) const;
  double OwnReal(absl::string_view key) const;
  const std::string& OwnChoice(absl::string_view key) const;
  std::vector<int> OwnSizes(absl::string_view key) const;  // {} for "auto"
  double OwnBandwidth(absl::string_view key) const;        // bytes per second
  double OwnSeconds(absl::string_view key) const;

  friend bool operator==(const ShapeParams&, const ShapeParams&) = default;
};

// A row. A parameter is a count, a ratio, a choice, or sizes that multiply to
// something; one without `fallback` has to be given. Times and bandwidths come
// from the link classes, and a ratio scales them; only a link of a kind of its
// own (topologies/multi_site.cc) has them as parameters.
struct ShapeInfo {
  std::string name;
  std::string summary;
  std::vector<ShapeParam> params = {};
  // Every message takes as long one way as the other; tests check it.
  bool symmetric = true;
  // A size at which all kinds of links exist, for tests and pictures
  // (`list topologies --svg`).
  int example_nodes = 2;
  ShapeParamValues example = {};
  // Where a picture puts a node, in steps to the right and down; null: nodes
  // stand in a row and switches above them. For legal values of all parameters.
  std::function<std::pair<double, double>(const ShapeParams&, int node)> place =
      nullptr;
  // Sizes, links and own parameters have been checked. Error: kInvalidArgument
  // with field, value and what is allowed.
  std::function<absl::StatusOr<Cluster>(const ShapeParams&)> build;
};

// Static object in each file of topologies/. A second shape of the same name
// aborts at start-up.
class RegisterShape {
 public:
  explicit RegisterShape(ShapeInfo info);
};

// Sorted by name.
const std::vector<const ShapeInfo*>& AllShapes();

// Null for a name that no row has.
const ShapeInfo* FindShape(absl::string_view name);

// Parameters of the inside of a node, which all shapes have: PCIe roots and
// NUMA nodes of the host (sim/topology/node_params.h).
const std::vector<ShapeParam>& NodeParams();

// Null where neither the shape's own parameters nor NodeParams() have `key`.
const ShapeParam* FindShapeParam(const ShapeInfo& shape, absl::string_view key);

// Every key has to be one of the shape's, with a legal value; none has to be
// there. Error: kInvalidArgument about "params.KEY"; for an unknown key the
// nearest.
absl::Status CheckOwnParams(const ShapeInfo& shape,
                            const ShapeParamValues& values);

// The same with all of the shape's parameters and NodeParams(), defaults for
// what is not given. Errors as BuildCluster's.
absl::StatusOr<ShapeParams> CompleteParams(const ShapeParams& params);

// Checks what all shapes share and the shape's own parameters, then builds:
// counts at least 1 and at most kMostClusterDevices devices, links that the
// shape needs with a finite bandwidth above 0 and a finite latency of at least
// 0 (NVLink or PCIe if a node has several devices, NICs if there are several
// nodes, PCIe if it is given). Error: kInvalidArgument with field, value
// and what is allowed; for an unknown shape the nearest. Time and memory
// O(devices); routes are computed when asked for.
absl::StatusOr<Cluster> BuildCluster(const ShapeParams& params);

}  // namespace pipewright
