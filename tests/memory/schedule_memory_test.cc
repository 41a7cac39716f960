#include "sim/memory/schedule_memory.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"

namespace pipewright::schedule_memory_test {
namespace {

ModelSpec Model(int64_t layers) {
  ModelSpec model;
  model.layers = layers;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = 256;
  model.gated = true;
  model.vocabulary = 128;
  model.sequence = 16;
  return model;
}

TrainingSpec Training(Recompute recompute) {
  TrainingSpec training;
  training.sequence = 16;
  training.recompute = recompute;
  training.flash_attention = false;
  return training;
}

// A layer a stage, no embedding, no head: all stages are alike.
StageLayout Alike(int stages) {
  StageLayout layout;
  for (int stage = 0; stage < stages; ++stage) {
    layout.stages.push_back(
        {{.kind = BlockKind::kDenseLayer, .first_layer = stage}});
  }
  return layout;
}

Schedule Parse(const std::string& orders) {
  const auto schedule =
      ParseSchedule("pipewright-schedule 1\n" + orders + "\n", "f");
  INFO(schedule.status());
  REQUIRE(schedule.ok());
  return *schedule;
}

TEST_CASE("memory: the timeline ends empty for every schedule and recompute",
          "[memory]") {
  int checked = 0;
  for (const ScheduleInfo* info : AllSchedules()) {
    for (const int pp : {1, 2, 4}) {
      for (const int vpp : {1, 2, 4}) {
        for (const int slices : {1, 2}) {
          ScheduleParams params;
          params.pp = pp;
          params.vpp = vpp;
          params.microbatches = 8;
          params.slices = slices;
          const auto schedule = BuildSchedule(info->name, params);
          if (!schedule.ok()) continue;
          const StageLayout layout = Alike(schedule->stages());
          for (const Recompute recompute :
               {Recompute::kNone, Recompute::kSelective,
                Recompute::kNormActivation, Recompute::kFull}) {
            TrainingSpec training = Training(recompute);
            training.slices = slices;
            const ScheduleMemory memory = BuildScheduleMemory(
                Model(schedule->stages()), training, layout, *schedule, {});
            INFO(info->name << " pp " << pp << " vpp " << vpp << " slices "
                            << slices << " recompute "
                            << static_cast<int>(recompute));
            for (int rank = 0; rank < pp; ++rank) {
              const RankMemory& row = memory.ranks[rank];
              CHECK(row.activations_at_end == 0);
              CHECK(row.peak() >= row.fixed.total() + row.peak_activations);
              CHECK(row.pass_index >= 0);
              const auto again = RunAgain(schedule->order(rank));
              int64_t activations = 0;
              bool negative = false;
              for (const Pass pass : schedule->order(rank)) {
                const int stage = schedule->placement.StageOf(
                    rank, pass.chunk(), pass.direction());
                const bool runs_again = again.contains(pass.activation());
                activations += ChangeOf(pass.kind(),
                                        *(runs_again ? memory.again
                                                     : memory.stages)[stage],
                                        runs_again)
                                   .activations;
                // The first of a joint pair may free what the other brings.
                negative |= activations < 0 && !pass.joint_with_next();
              }
              CHECK(!negative);
              ++checked;
            }
          }
        }
      }
    }
  }
  CHECK(checked > 100);
}

TEST_CASE("memory: with equal stages bytes and microbatches agree",
          "[memory]") {
  for (const ScheduleInfo* info : AllSchedules()) {
    for (const int vpp : {1, 2}) {
      ScheduleParams params;
      params.pp = 4;
      params.vpp = vpp;
      params.microbatches = 8;
      const auto schedule = BuildSchedule(info->name, params);
      if (!schedule.ok()) continue;
      TrainingSpec training = Training(Recompute::kNone);
      training.slices = schedule->slices;
      const ScheduleMemory memory =
          BuildScheduleMemory(Model(schedule->stages()), training,
                              Alike(schedule->stages()), *schedule, {});
      const StageMemory& stage = *memory.stages[0];
      const std::vector<double> peaks =
          PeakActivations(*schedule, static_cast<double>(stage.weight_part) /
                                         static_cast<double>(stage.kept));
      bool joint = false;
      for (const auto& order : schedule->orders) {
        for (const Pass pass : *order) joint |= pass.joint_with_next();
      }
      // A joint pair counts both its passes at once; between passes the
      // timeline has only what stays.
      if (joint) continue;
      INFO(info->name << " vpp " << vpp);
      for (int rank = 0; rank < 4; ++rank) {
        CHECK(static_cast<double>(memory.ranks[rank].peak_activations) ==
              Approx(peaks[rank] * schedule->vpp() * schedule->slices *
                     static_cast<double>(stage.kept)));
      }
    }
  }
}

TEST_CASE("memory: 1F1B, interleaved and ZB-H2 peak as published", "[memory]") {
  const auto activations = [](const char* name, int vpp, int rank) {
    ScheduleParams params;
    params.pp = 4;
    params.vpp = vpp;
    params.microbatches = 16;
    const auto schedule = BuildSchedule(name, params);
    REQUIRE(schedule.ok());
    const ScheduleMemory memory = BuildScheduleMemory(
        Model(schedule->stages()), Training(Recompute::kNone),
        Alike(schedule->stages()), *schedule, {});
    return static_cast<double>(memory.ranks[rank].peak_activations) /
           static_cast<double>(memory.stages[0]->kept);
  };
  // p - d microbatches in flight.
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(activations("1f1b", 1, rank) == 4 - rank);
  }
  // arXiv 2205.05198: p + (p-1)/v microbatches of v chunks on the first rank.
  CHECK(activations("interleaved-1f1b", 3, 0) == 3 * (4 + 3.0 / 3));
  CHECK(activations("interleaved-1f1b", 2, 0) == 2 * (4 + 3.0 / 2));
  // arXiv 2401.10241, section 2: the first rank of ZB-H2 holds 2p - 1.
  CHECK(activations("zb-h2", 1, 0) == 7);
}

TEST_CASE("memory: the two directions of a schedule hold two copies",
          "[memory]") {
  const std::string orders = "0: aF0 bF0 bBW0 aBW0\n1: bF0 aF0 aBW0 bBW0";
  const Schedule both =
      Parse("pp 2 vpp 1 microbatches 2 slices 1 replicas 2 placement plain\n" +
            orders);
  const Schedule one = Parse("pp 2 vpp 1 microbatches 1\n0: F0 BW0\n1: F0 BW0");
  const auto weights = [](const Schedule& schedule) {
    return BuildScheduleMemory(Model(2), Training(Recompute::kNone), Alike(2),
                               schedule, {})
        .ranks[0]
        .fixed[MemoryKind::kWeights];
  };
  CHECK(weights(both) == 2 * weights(one));
}

TEST_CASE("memory: a pipeline that is never flushed holds more weights",
          "[memory]") {
  ScheduleParams params;
  params.pp = 4;
  params.microbatches = 8;
  const auto weights = [&params](const char* name) {
    const auto schedule = BuildSchedule(name, params);
    REQUIRE(schedule.ok());
    const ScheduleMemory memory =
        BuildScheduleMemory(Model(4), Training(Recompute::kNone),
                            Alike(schedule->stages()), *schedule, {});
    std::vector<int64_t> out;
    for (const RankMemory& rank : memory.ranks) {
      out.push_back(rank.fixed[MemoryKind::kWeights]);
    }
    return out;
  };
  const int64_t one = weights("1f1b")[0];
  REQUIRE(one > 0);
  CHECK(weights("pipedream-2bw") == std::vector<int64_t>(4, 2 * one));
  // The last rank predicts nothing.
  CHECK(weights("pipeoptim") ==
        std::vector<int64_t>{2 * one, 2 * one, 2 * one, one});
}

TEST_CASE("memory: offload and load, recomputation as a pass, joint pairs",
          "[memory]") {
  const auto memory = [](const std::string& order, Recompute recompute) {
    const Schedule schedule = Parse("pp 1 vpp 1 microbatches 2\n0: " + order);
    return BuildScheduleMemory(Model(1), Training(recompute), Alike(1),
                               schedule, {});
  };
  const ScheduleMemory plain = memory("F0 F1 BW1 BW0", Recompute::kNone);
  const ScheduleMemory offloaded =
      memory("F0 O0 FREE0 F1 BW1 L0 BW0", Recompute::kNone);
  const int64_t kept = plain.stages[0]->kept;
  CHECK(plain.ranks[0].peak_activations == 2 * kept);
  CHECK(offloaded.ranks[0].peak_activations == kept);
  CHECK(plain.ranks[0].peak() - offloaded.ranks[0].peak() == kept);

  // With R as a pass of its own all of the stage is there before B.
  const ScheduleMemory inside = memory("F0 F1 BW1 BW0", Recompute::kFull);
  const ScheduleMemory apart = memory("F0 F1 R1 BW1 R0 BW0", Recompute::kFull);
  CHECK(apart.ranks[0].activations_at_end == 0);
  CHECK(inside.ranks[0].peak_activations == 2 * apart.stages[0]->kept);
  CHECK(apart.ranks[0].at_peak[MemoryKind::kRecomputed] > 0);

  // R says by itself which passes keep less, as with full recomputation.
  const ScheduleMemory some = memory("F0 F1 R0 BW0 BW1", Recompute::kNone);
  CHECK(some.again[0]->kept == apart.stages[0]->kept);
  CHECK(some.stages[0]->kept == kept);
  CHECK(some.ranks[0].activations_at_end == 0);
  CHECK(some.ranks[0].peak_activations == some.again[0]->kept + kept);
  CHECK(some.ranks[0].at_peak[MemoryKind::kRecomputed] > 0);

  const ScheduleMemory joint = memory("F0 (BW0&F1) BW1", Recompute::kNone);
  CHECK(joint.ranks[0].peak() ==
        joint.ranks[0].fixed.total() + kept +
            joint.stages[0]->forward.peak.total() +
            joint.stages[0]->backward_full.peak.total());
  CHECK(joint.ranks[0].pass_index == 1);
}

TEST_CASE("memory: context and fragmentation stand beside the peak",
          "[memory]") {
  const Schedule schedule = Parse("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  const auto rank = [&](MemoryOptions options) {
    return BuildScheduleMemory(Model(1), Training(Recompute::kNone), Alike(1),
                               schedule, options)
        .ranks[0];
  };
  const RankMemory none = rank({.context_bytes = 0});
  CHECK(none.needed() == none.peak());
  const RankMemory some = rank({.context_bytes = 1000, .fragmentation = 0.1});
  CHECK(some.peak() == none.peak());
  CHECK(some.context == 1000);
  CHECK(some.fragmentation ==
        std::llround(0.1 * static_cast<double>(some.peak())));
  CHECK(some.needed() == some.peak() + some.context + some.fragmentation);
  const RankMemory no_placeholders = rank({.placeholders = false});
  CHECK(no_placeholders.fixed[MemoryKind::kPlaceholders] == 0);
  // One a shape: a single layer has four, of which none are alike.
  const double linear = Model(1).LayerParameters(0) - 2 * 64;
  CHECK(static_cast<double>(none.fixed[MemoryKind::kPlaceholders]) ==
        2 * linear);
}

TEST_CASE("memory: the peak names its pass, stage and operation", "[memory]") {
  ScheduleParams params;
  params.pp = 2;
  params.vpp = 2;
  params.microbatches = 4;
  const auto schedule = BuildSchedule("interleaved-1f1b", params);
  REQUIRE(schedule.ok());
  const ScheduleMemory memory = BuildScheduleMemory(
      Model(4), Training(Recompute::kNone), Alike(4), *schedule, {});
  for (int rank = 0; rank < 2; ++rank) {
    const RankMemory& row = memory.ranks[rank];
    CHECK(schedule->order(rank)[row.pass_index] == row.pass);
    CHECK(schedule->placement.StageOf(rank, row.pass.chunk()) == row.stage);
    // A layer a stage, numbered as in the model.
    CHECK_THAT(row.op,
               Catch::StartsWith("layer " + std::to_string(row.stage) + " "));
  }
}

}  // namespace
}  // namespace pipewright::schedule_memory_test
