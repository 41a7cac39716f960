// What holds for both engines on every registered shape: numbers of devices
// mean nothing, and time scales with the network and the passes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/topology/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/shapes.h"

namespace pipewright::shapes_test {
namespace {

constexpr int kRanks = 4;
constexpr int kReplicas = 2;
constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

struct Times {
  double fast_s = 0;
  double fluid_s = 0;
  double simgrid_s = 0;
};

// Every third device, so that ranks and replicas are on all kinds of ways.
std::vector<int> Spread(int devices) {
  std::vector<int> places(devices);
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [](int one, int other) { return one % 3 < other % 3; });
  places.resize(kRanks * kReplicas);
  return places;
}

Times Run(std::shared_ptr<const Cluster> cluster, std::vector<int> devices,
          double pass_scale) {
  const auto schedule = Registered("zb-h1", kRanks, 8);
  LowerOptions options;
  options.costs = CostsOf(*schedule, {.forward = 1e-3 * pass_scale,
                                      .backward_input = 1.5e-3 * pass_scale,
                                      .backward_weight = 0.5e-3 * pass_scale});
  options.hop_bytes = 40e6;
  options.replicas = kReplicas;
  options.iterations = 2;
  options.gradient_bytes.assign(kRanks, 200e6);
  options.network =
      NetworkOf(std::move(cluster), std::move(devices), kRanks, kReplicas);
  const Program program = Lowered(schedule, options);
  const auto end = [](const absl::StatusOr<RunSummary>& summary) {
    INFO(summary.status());
    REQUIRE(summary.ok());
    return summary->iteration_end_s.back();
  };
  return {end(RunFast(program, {})), end(RunOnFluidClock(program, {})),
          end(RunSimgrid(program, {}))};
}

void CheckSame(const Times& one, const Times& other, double factor) {
  CHECK(one.fast_s == Approx(factor * other.fast_s).epsilon(kSame));
  CHECK(one.fluid_s == Approx(factor * other.fluid_s).epsilon(kSame));
  CHECK(one.simgrid_s == Approx(factor * other.simgrid_s).epsilon(kSame));
}

// The same cluster whose device `d` is what was device `old_of[d]`.
std::shared_ptr<const Cluster> Relabelled(
    std::shared_ptr<const Cluster> cluster, std::vector<int> old_of) {
  std::vector<Device> devices;
  for (const int old : old_of) devices.push_back(cluster->devices()[old]);
  const auto append = [](const std::vector<LinkId>& route,
                         std::vector<LinkId>* links) {
    links->insert(links->end(), route.begin(), route.end());
  };
  return std::make_shared<const Cluster>(
      "relabelled", std::move(devices), cluster->links(),
      [cluster, old_of, append](int from, int to, std::vector<LinkId>* links) {
        append(cluster->Route(old_of[from], old_of[to]), links);
      },
      [cluster, old_of, append](int device, std::vector<LinkId>* links) {
        append(cluster->DeviceToHost(old_of[device]), links);
      },
      [cluster, old_of, append](int device, std::vector<LinkId>* links) {
        append(cluster->HostToDevice(old_of[device]), links);
      });
}

TEST_CASE("engine: on every shape, relabelled and twice as fast", "[engine]") {
  REQUIRE_FALSE(AllShapes().empty());
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    ShapeParams params =
        testing::SampleParams(shape->name, shape->example_nodes, 4);
    // A node alone has no others: eight devices.
    if (shape->example_nodes == 1) params.devices_per_node = 8;
    params.nics_per_node = 2;
    params.own = shape->example;
    const auto cluster =
        std::make_shared<const Cluster>(BuildCluster(params).value());
    const std::vector<int> devices = Spread(cluster->num_devices());
    const Times times = Run(cluster, devices, 1);
    CHECK(times.fluid_s >= times.fast_s * (1 - kSame));
    CHECK(times.simgrid_s == Approx(times.fluid_s).epsilon(1e-6));

    const auto twice = std::make_shared<const Cluster>(
        BuildCluster(testing::TimesAsFast(params, 2)).value());
    CheckSame(times, Run(twice, devices, 0.5), 2);

    // Backwards by a stride that has no divisor in common with their number.
    const int count = cluster->num_devices();
    std::vector<int> old_of(count), new_of(count);
    int stride = count / 2 + 1;
    while (std::gcd(stride, count) != 1) ++stride;
    for (int device = 0; device < count; ++device) {
      old_of[device] = static_cast<int>(
          (static_cast<int64_t>(count - 1 - device) * stride) % count);
      new_of[old_of[device]] = device;
    }
    std::vector<int> renamed;
    for (const int device : devices) renamed.push_back(new_of[device]);
    CHECK(renamed != devices);
    CheckSame(times, Run(Relabelled(cluster, old_of), renamed, 1), 1);
  }
}

}  // namespace
}  // namespace pipewright::shapes_test
