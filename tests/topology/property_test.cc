// What holds for every registered shape, at every size that it takes and for
// every legal value of its own parameters, one at a time. No shape is named:
// facts of one are in the file of its name.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/topology/registry.h"
#include "tests/support/shapes.h"

namespace pipewright::property_test {
namespace {

using testing::IllegalValuesOf;
using testing::LegalValuesOf;
using testing::LinkNames;
using testing::SampleParams;

// Variants of one shape: its parameters as given at each size, own parameters
// as Bases() has them and then with each legal value of each.
std::vector<ShapeParams> Variants(const ShapeInfo& shape) {
  std::vector<ShapeParams> variants;
  for (const int nodes : {1, 2, 3, 5, 8, shape.example_nodes}) {
    for (const int devices : {1, 2, 4}) {
      for (const int nics : {0, 1, 2}) {
        if (nics > devices) continue;
        for (ShapeParams params : testing::Bases(shape, nodes, devices)) {
          params.nics_per_node = nics;
          params.pcie_per_switch = std::max(nics, 1);
          variants.push_back(params);
          for (const ShapeParam& param : shape.params) {
            for (const std::string& value : LegalValuesOf(param)) {
              variants.push_back(params);
              variants.back().own[param.key] = value;
            }
          }
        }
      }
    }
  }
  return variants;
}

std::string Describe(const ShapeParams& params) {
  std::string text =
      absl::StrCat(params.shape, ", nodes ", params.nodes, ", devices ",
                   params.devices_per_node, ", nics ", params.nics_per_node);
  for (const auto& [key, value] : params.own) {
    absl::StrAppend(&text, ", ", key, " ", value);
  }
  return text;
}

// InvalidArgument about `field`, with what is allowed.
void CheckRefused(const absl::Status& status, absl::string_view field) {
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  const ErrorParts parts = PartsOf(status);
  CHECK(parts.field == std::string(field));
  CHECK(parts.allowed.value_or("") != "");
}

using Visitor =
    std::function<void(const ShapeInfo&, const ShapeParams&, const Cluster&)>;

// Calls `visit` with each variant that the shape takes. A refusal names a size
// that all shapes have or an own parameter; no value is always refused.
void ForEachCluster(const Visitor& visit) {
  REQUIRE_FALSE(AllShapes().empty());
  for (const ShapeInfo* shape : AllShapes()) {
    std::map<std::string, int> accepted;
    for (const ShapeParams& params : Variants(*shape)) {
      INFO(Describe(params));
      const absl::StatusOr<Cluster> cluster = BuildCluster(params);
      for (const auto& [key, value] : params.own) {
        accepted[absl::StrCat(key, "=", value)] += cluster.ok();
      }
      accepted[""] += cluster.ok();
      if (!cluster.ok()) {
        const std::string field = PartsOf(cluster.status()).field.value_or("");
        CHECK((field == "nodes" || field == "devices_per_node" ||
               field == "nics_per_node" || field == "pcie_per_switch" ||
               absl::StartsWith(field, "params.")));
        CheckRefused(cluster.status(), field);
        continue;
      }
      visit(*shape, params, *cluster);
    }
    for (const auto& [value, times] : accepted) {
      INFO(shape->name << " " << value);
      CHECK(times > 0);
    }
  }
}

TEST_CASE("topology: rows are sorted and complete", "[topology]") {
  std::string previous;
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    CHECK(previous < shape->name);
    previous = shape->name;
    CHECK_FALSE(shape->summary.empty());
    CHECK(shape->build != nullptr);
    CHECK(FindShape(shape->name) == shape);
    const int nodes = shape->example_nodes;
    CHECK(BuildCluster(testing::Bases(*shape, nodes, 4).back()).ok());
    std::set<std::string> keys;
    for (const ShapeParam& param : shape->params) {
      INFO(param.key);
      CHECK(keys.insert(param.key).second);
      CHECK(FindShapeParam(*shape, param.key) == &param);
      CHECK_FALSE(param.key.empty());
      CHECK_FALSE(param.help.empty());
      const bool is_choice = param.kind == ShapeParam::Kind::kChoice;
      CHECK(is_choice != param.choices.empty());
      CHECK(param.least <= param.most);
      if (!param.fallback.empty()) {
        CHECK(CheckShapeParam(param, param.key, param.fallback).ok());
      }
    }
  }
}

TEST_CASE("topology: devices and links are counted and named", "[topology]") {
  ForEachCluster([](const ShapeInfo&, const ShapeParams& params,
                    const Cluster& cluster) {
    REQUIRE(cluster.num_devices() == params.nodes * params.devices_per_node);
    CHECK(cluster.name() == "test");
    std::set<std::string> names;
    for (int device = 0; device < cluster.num_devices(); ++device) {
      CHECK(cluster.devices()[device].node == device / params.devices_per_node);
      names.insert(cluster.devices()[device].name);
    }
    CHECK(static_cast<int>(names.size()) == cluster.num_devices());
    names.clear();
    for (const Link& link : cluster.links()) {
      CHECK((link.bytes_per_s > 0 && std::isfinite(link.bytes_per_s)));
      CHECK((link.latency_s >= 0 && std::isfinite(link.latency_s)));
      names.insert(link.name);
    }
    CHECK(names.size() == cluster.links().size());
  });
}

TEST_CASE("topology: a route joins every two devices", "[topology]") {
  ForEachCluster([](const ShapeInfo&, const ShapeParams& params,
                    const Cluster& cluster) {
    std::set<LinkId> used;
    int wrong = 0;
    for (int from = 0; from < cluster.num_devices(); ++from) {
      for (const LinkId link : cluster.DeviceToHost(from)) used.insert(link);
      for (const LinkId link : cluster.HostToDevice(from)) used.insert(link);
      wrong += cluster.DeviceToHost(from).empty();
      wrong += cluster.HostToDevice(from).empty();
      for (int to = 0; to < cluster.num_devices(); ++to) {
        const std::vector<LinkId> route = cluster.Route(from, to);
        wrong += route.empty() != (from == to);
        wrong +=
            std::set<LinkId>(route.begin(), route.end()).size() != route.size();
        used.insert(route.begin(), route.end());
        if (from == to) continue;
        // No faster than the slowest class on the way.
        const bool inside =
            cluster.devices()[from].node == cluster.devices()[to].node;
        const LinkClass& own = inside ? params.nvlink : params.nic;
        wrong += cluster.BandwidthOf(route) > own.bytes_per_s;
        wrong += cluster.LatencyOf(route) < own.latency_s;
      }
    }
    CHECK(wrong == 0);
    // All ids exist, and no link is there for nothing.
    CHECK(used.size() == cluster.links().size());
    CHECK(*used.begin() == 0);
    CHECK(*used.rbegin() == static_cast<LinkId>(cluster.links().size()) - 1);
  });
}

TEST_CASE("topology: one way is like the other where a row says so",
          "[topology]") {
  ForEachCluster(
      [](const ShapeInfo& shape, const ShapeParams&, const Cluster& cluster) {
        if (!shape.symmetric) return;
        int wrong = 0;
        for (int from = 0; from < cluster.num_devices(); ++from) {
          for (int to = 0; to < from; ++to) {
            const std::vector<LinkId> there = cluster.Route(from, to);
            const std::vector<LinkId> back = cluster.Route(to, from);
            wrong += cluster.BandwidthOf(there) != cluster.BandwidthOf(back);
            wrong += cluster.LatencyOf(there) !=
                     Approx(cluster.LatencyOf(back)).epsilon(1e-12);
          }
        }
        CHECK(wrong == 0);
      });
}

TEST_CASE("topology: twice the bandwidth and half the latency halve times",
          "[topology]") {
  ForEachCluster([](const ShapeInfo&, const ShapeParams& params,
                    const Cluster& cluster) {
    const Cluster other = BuildCluster(testing::TimesAsFast(params, 2)).value();
    // All devices of the first node send to all others at once.
    std::vector<std::vector<LinkId>> routes;
    for (int from = 0; from < params.devices_per_node; ++from) {
      for (int to = 0; to < cluster.num_devices(); ++to) {
        const std::vector<LinkId> route = cluster.Route(from, to);
        CHECK(LinkNames(cluster, route) ==
              LinkNames(other, other.Route(from, to)));
        if (from != to) routes.push_back(route);
      }
    }
    if (routes.empty()) return;
    const FlowBundle bundle = cluster.Bundle(routes);
    const auto time = [&](const Cluster& of) {
      return of.Bundle(routes).latency_s + 1e6 / of.RateOf(bundle.loads);
    };
    CHECK(time(cluster) == Approx(2 * time(other)).epsilon(1e-12));
  });
}

TEST_CASE("topology: devices share host links by PCIe switch", "[topology]") {
  ForEachCluster([](const ShapeInfo&, const ShapeParams& params,
                    const Cluster& cluster) {
    int wrong = 0;
    for (int device = 0; device < cluster.num_devices(); ++device) {
      for (int other = 0; other < cluster.num_devices(); ++other) {
        // A switch serves whole blocks, and nodes hold whole switches.
        const bool shared =
            device / params.pcie_per_switch == other / params.pcie_per_switch;
        wrong += shared !=
                 (cluster.DeviceToHost(device) == cluster.DeviceToHost(other));
        wrong += shared !=
                 (cluster.HostToDevice(device) == cluster.HostToDevice(other));
      }
      wrong += cluster.LatencyOf(cluster.DeviceToHost(device)) !=
               params.pcie.latency_s;
    }
    CHECK(wrong == 0);
  });
}

// The links of a route with their numbers.
std::string RouteText(const Cluster& cluster,
                      const std::vector<LinkId>& route) {
  std::string text;
  for (const LinkId id : route) {
    const Link& link = cluster.links()[id];
    absl::StrAppend(&text, " ", link.name, " ", link.bytes_per_s, " ",
                    link.latency_s);
  }
  return text;
}

bool Crosses(const Cluster& cluster, const std::vector<LinkId>& route,
             const std::string& part) {
  const std::vector<std::string> names = LinkNames(cluster, route);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return absl::StrContains(name, part);
  });
}

TEST_CASE("topology: every own parameter changes something, and only its links",
          "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    for (const ShapeParam& param : shape->params) {
      INFO(shape->name << " " << param.key);
      std::set<std::string> clusters;
      std::set<std::string> sizes;
      bool exist = false;
      for (const int index : {0, 1, 2, 3, 4, 5}) {
        const int nodes = std::vector<int>{1, 5, 8}[index % 3];
        const std::vector<ShapeParams> bases = testing::Bases(*shape, nodes, 4);
        const size_t base = index / 3;
        if (base >= bases.size()) continue;
        // Without crossing its links, a route is the same for all values.
        std::map<std::pair<int, int>, std::string> apart;
        for (const std::string& value : LegalValuesOf(param)) {
          ShapeParams params = bases[base];
          params.own[param.key] = value;
          const absl::StatusOr<Cluster> cluster = BuildCluster(params);
          if (!cluster.ok()) continue;
          sizes.insert(absl::StrCat(base, " ", nodes));
          std::string all;
          for (int from = 0; from < cluster->num_devices(); ++from) {
            for (int to = 0; to < cluster->num_devices(); ++to) {
              const std::vector<LinkId> route = cluster->Route(from, to);
              const std::string text = RouteText(*cluster, route);
              absl::StrAppend(&all, text, "\n");
              if (param.links.empty()) continue;
              if (Crosses(*cluster, route, param.links)) {
                exist = true;
                continue;
              }
              const auto [other, is_new] = apart.insert({{from, to}, text});
              if (!is_new) CHECK(other->second == text);
            }
          }
          clusters.insert(absl::StrCat(base, " ", nodes, "\n", all));
        }
      }
      CHECK(clusters.size() > sizes.size());
      CHECK(exist == !param.links.empty());
    }
  }
}

TEST_CASE("topology: own parameters are refused by their names", "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    const ShapeParams good = SampleParams(shape->name, 1, 4);
    REQUIRE(BuildCluster(good).ok());
    for (const ShapeParam& param : shape->params) {
      const std::string field = absl::StrCat("params.", param.key);
      for (const std::string& value : IllegalValuesOf(param)) {
        INFO(param.key << " '" << value << "'");
        ShapeParams params = good;
        params.own[param.key] = value;
        CheckRefused(BuildCluster(params).status(), field);
      }
      ShapeParams params = good;
      params.own.erase(param.key);
      const absl::Status without = BuildCluster(params).status();
      CHECK(without.ok() == !param.fallback.empty());
      if (!without.ok()) CheckRefused(without, field);
    }
    ShapeParams params = good;
    params.own["no_such_key"] = std::string("1");
    const absl::Status status = BuildCluster(params).status();
    INFO(status);
    CHECK(absl::StrContains(status.message(), "no_such_key"));
    CHECK(absl::StrContains(status.message(), shape->name));
    CHECK(PartsOf(status).field.value_or("").rfind("params", 0) == 0);
  }
}

TEST_CASE("topology: what all shapes share is refused by its name",
          "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    // The largest size of two that the shape takes.
    ShapeParams good = SampleParams(shape->name, 2, 8);
    if (!BuildCluster(good).ok()) good = SampleParams(shape->name, 1, 8);
    REQUIRE(BuildCluster(good).ok());
    const auto refused = [&](void (*change)(ShapeParams&),
                             const std::string& field) {
      ShapeParams params = good;
      change(params);
      CheckRefused(BuildCluster(params).status(), field);
    };
    refused([](ShapeParams& p) { p.nodes = 0; }, "nodes");
    refused([](ShapeParams& p) { p.devices_per_node = -1; },
            "devices_per_node");
    refused([](ShapeParams& p) { p.nodes = 1 << 30; },
            "nodes * devices_per_node");
    for (const int nics : {3, 16, -1}) {
      ShapeParams params = good;
      params.nics_per_node = nics;
      CheckRefused(BuildCluster(params).status(), "nics_per_node");
    }
    refused([](ShapeParams& p) { p.pcie_per_switch = 0; }, "pcie_per_switch");
    // With PCIe it is a node without NVLink.
    refused([](ShapeParams& p) { p.nvlink.bytes_per_s = 0, p.pcie = {}; },
            "nvlink.bandwidth");
    refused([](ShapeParams& p) { p.nvlink.latency_s = std::nan(""); },
            "nvlink.latency");
    refused(
        [](ShapeParams& p) {
          p.pcie.bytes_per_s = std::numeric_limits<double>::infinity();
        },
        "pcie.bandwidth");
    if (good.nodes == 1) continue;
    refused([](ShapeParams& p) { p.nic.bytes_per_s = -1; }, "nic.bandwidth");
    refused([](ShapeParams& p) { p.nic.latency_s = -1e-6; }, "nic.latency");
  }
}

TEST_CASE("topology: an unknown shape gets the nearest one", "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    ShapeParams params = SampleParams(shape->name, 1, 1);
    params.shape += "x";
    const absl::Status status = BuildCluster(params).status();
    INFO(status);
    CHECK(absl::StrContains(status.message(),
                            absl::StrCat("did you mean '", shape->name, "'?")));
  }
}

}  // namespace
}  // namespace pipewright::property_test
