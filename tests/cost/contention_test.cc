// Collectives beside passes, and the slowest device of a job.
#include "sim/cost/contention.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "sim/cost/analytic.h"
#include "sim/cost/clock.h"

namespace pipewright::contention_test {
namespace {

AnalyticOptions OnDgx() {
  AnalyticOptions options;
  options.device = *FindDevice("h100");
  options.network = {.devices_per_node = 8,
                     .nvlink_bytes_per_s = 450e9,
                     .nic_bytes_per_s = 50e9};
  return options;
}

ModelSpec Dense() {
  ModelSpec model;
  model.layers = 4;
  model.hidden = 8192;
  model.heads = model.kv_heads = 64;
  model.ffn_hidden = 28672;
  model.vocabulary = 32000;
  return model;
}

// Over all passes: what operations take, and what of exchanges is not hidden.
double Sum(const std::vector<OpTime>& times, double (OpTime::*part)[3],
           const std::string& of = "") {
  double sum = 0;
  for (const OpTime& time : times) {
    if (!of.empty() && time.name != of) continue;
    for (const double seconds : time.*part) sum += seconds;
  }
  return sum;
}

TEST_CASE("contention: as long as a collective runs, less of a pass gets done",
          "[cost]") {
  // 2 s beside a pass of 10 s do 2 / 1.25 s of it: 0.4 s are missing.
  CHECK(ContentionSeconds(1.25, 10, 2) == Approx(0.4));
  // No longer than beside all of it.
  CHECK(ContentionSeconds(1.25, 10, 1e9) == Approx(2.5));
  CHECK(ContentionSeconds(1.25, 10, 0) == 0);
  CHECK(ContentionSeconds(1, 10, 5) == 0);
}

TEST_CASE(
    "contention: the gather of W and rings slow passes, copy engines do "
    "not",
    "[cost]") {
  const ModelSpec model = Dense();
  TrainingSpec training;
  training.tp = 4;
  training.sequence_parallel = true;
  training.sequence = 4096;
  training.microbatch_size = 1;
  AnalyticOptions apart = OnDgx();
  AnalyticOptions beside = apart;
  beside.contention = 1.25;
  const auto times = [&](const AnalyticOptions& options) {
    return BlockTimes(model, training, options, BlockKind::kDenseLayer, 0);
  };
  // Kernels keep their own times.
  CHECK(Sum(times(beside), &OpTime::seconds) ==
        Sum(times(apart), &OpTime::seconds));
  // The inputs of qkv and gate-up are gathered beside W: 4096 x 8192 in bf16.
  const OpComm gather = {
      .kind = CommKind::kAllGather, .members = 4, .bytes = 2.0 * 4096 * 8192};
  const double gather_s = CommSeconds(apart, training, gather);
  CHECK(Sum(times(beside), &OpTime::comm_seconds) -
            Sum(times(apart), &OpTime::comm_seconds) ==
        Approx(2 * gather_s * (1 - 1 / 1.25)));
  // In pieces copy engines send. What qkv and gate-up reduce beside W is moved
  // by kernels, as what they gather is.
  training.execution.overlap_tensor = true;
  OpComm scatter = gather;
  scatter.kind = CommKind::kReduceScatter;
  const double scatter_s = CommSeconds(apart, training, scatter);
  CHECK(Sum(times(beside), &OpTime::comm_seconds) -
            Sum(times(apart), &OpTime::comm_seconds) ==
        Approx(2 * (gather_s + scatter_s) * (1 - 1 / 1.25)));
  // A ring of keys and values runs beside attention, forward and backward.
  training.execution.overlap_tensor = false;
  training.tp = 1;
  training.sequence_parallel = false;
  training.cp = 4;
  training.sequence = 32768;
  const double ring_s = Sum(times(beside), &OpTime::comm_seconds, "attention") -
                        Sum(times(apart), &OpTime::comm_seconds, "attention");
  CHECK(ring_s > 0);
  CHECK(ring_s < 0.25 * Sum(times(apart), &OpTime::seconds, "attention"));
}

TEST_CASE("contention: fewer multiprocessors lose more of a pass", "[cost]") {
  DeviceSpec device;
  device.architecture = "hopper";
  device.multiprocessors = kHopperMultiprocessors;
  CHECK(ContentionOf(device) == Approx(kHopperContention));
  // 78 multiprocessors (H20): 0.31 of a pass is lost.
  device.multiprocessors = 78;
  CHECK(ContentionOf(device) ==
        Approx(1 / (1 - 0.1837 * 132 / 78)).margin(0.01));
  device.architecture = "blackwell";
  CHECK(ContentionOf(device) == kContention);
}

TEST_CASE("slowest: the energy of the slowest of several devices", "[cost]") {
  CHECK(EnergyOfSlowest(0.08, 1) == 1);
  CHECK(EnergyOfSlowest(0, 64) == 1);
  // Expected largest of 8 and 50 normal draws: 1.424 and 2.249 (H. L. Harter,
  // Biometrika 48, 1961).
  const double deviation = std::log(1.08) / 5.4;
  CHECK(std::log(EnergyOfSlowest(0.08, 8)) ==
        Approx(3 * deviation * 1.424).epsilon(0.01));
  CHECK(std::log(EnergyOfSlowest(0.08, 50)) ==
        Approx(3 * deviation * 2.249).epsilon(0.01));
}

}  // namespace
}  // namespace pipewright::contention_test
