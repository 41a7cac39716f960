// Offload of activations from the command line: what is refused, what the
// report says, and that a printed order runs as the plan does.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::testing::offload_test {
namespace {

// Options separated by blanks.
BinaryResult Run(const std::string& options) {
  return RunBinary(absl::StrSplit(options, ' ', absl::SkipEmpty()));
}

constexpr char kTimes[] =
    " --forward 12ms --backward-input 12ms --backward-weight 12ms"
    " --engine fast --p2p 0ms --json ";

Json Report(const std::string& options) {
  const BinaryResult run =
      Run(absl::StrCat("simulate --pp 4 --microbatches 8", kTimes, options));
  INFO(options << run.err);
  REQUIRE(run.exit_code == 0);
  return Json::parse(run.out);
}

TEST_CASE("offload: refusals name field, value and what is allowed",
          "[offload]") {
  struct Refusal {
    std::string options;
    std::string field;
    std::string allowed;
  };
  const std::string po = "--schedule po-f --vpp 2 ";
  const Refusal refusals[] = {
      {po + "--offload-ratio -1", "costs.offload_ratio", "0"},
      {po + "--offload-fraction 1.5 --offload-ratio 1",
       "strategy.offload_fraction", "1"},
      {po + "--offload-chunks 2 --offload-ratio 1", "strategy.offload_chunks",
       "0..1"},
      {"--schedule 1f1b --offload full", "costs.offload_ratio",
       "a model and a system with PCIe"},
      {po + "--offload-time 1ms", "costs.uniform.load", "a time"},
      {"--schedule gis --offload-chunks 0 --offload-ratio 0.7",
       "strategy.offload", "since --offload-chunks: strategy.offload_chunks"},
      {"--schedule 1f1b --offload-fraction 0.5 --offload-ratio 0.7",
       "strategy.offload", "selective or full, since --offload-fraction"},
      {"--schedule pipedream-2bw --offload full --offload-ratio 1",
       "strategy.offload", "never flushed"},
      {po + "--offload-ratio 1 --offload-time 1ms", "costs.offload_ratio",
       "one of them"},
      {po + "--offload-ratio 1 --offload-chunks 0 --offload-fraction 0.5",
       "strategy.offload_chunks", "one of them"},
  };
  for (const Refusal& refusal : refusals) {
    const BinaryResult run = Run(absl::StrCat(
        "simulate --pp 4 --microbatches 8", kTimes, refusal.options));
    INFO(refusal.options << run.out << run.err);
    CHECK(run.exit_code == 2);
    const Json error = Json::parse(run.out)["error"];
    CHECK(error["field"] == refusal.field);
    CHECK(absl::StrContains(error["message"].get<std::string>(),
                            refusal.allowed));
  }
}

// They stood still, or lost the turns of their copies.
TEST_CASE("offload: only buffered hops go with copies", "[offload]") {
  const std::string base =
      "simulate --microbatches 8 --engine fast --model gpt-tiny "
      "--system dgx-a100 --forward 1ms --backward-input 1ms "
      "--backward-weight 1ms ";
  const TemporaryFolder folder;
  const std::string file = folder.Path("copies.pws");
  const BinaryResult written = Run(
      "schedule 1f1b --pp 4 --microbatches 8 --offload full --offload-ratio "
      "0.5 -o " +
      file);
  INFO(written.err);
  REQUIRE(written.exit_code == 0);
  for (const std::string rule : {"batched", "rendezvous"}) {
    for (const std::string& copies :
         {std::string("--schedule 1f1b --offload full"),
          "--schedule " + file}) {
      CAPTURE(rule, copies);
      const BinaryResult run =
          Run(absl::StrCat(base, "--pp 4 ", copies, " --waiting ", rule));
      INFO(run.err);
      CHECK(run.exit_code == 2);
      CHECK(absl::StrContains(run.err, "strategy.waiting: " + rule));
      CHECK(absl::StrContains(run.err, "allowed: buffered with activations"));
    }
    // One rank waits for nobody.
    const BinaryResult one = Run(absl::StrCat(
        base, "--schedule 1f1b --pp 1 --offload full", " --waiting ", rule));
    INFO(one.err);
    CHECK(one.exit_code == 0);
  }
  CHECK(Run(base + "--schedule 1f1b --pp 4 --waiting batched").exit_code == 0);
}

TEST_CASE("offload: a system without PCIe or host memory is refused",
          "[offload]") {
  const std::string base =
      "simulate --schedule po-h --pp 4 --vpp 2 --microbatches 8 --json "
      "--engine fast --model gpt-tiny --set system.shape=node "
      "--set system.devices_per_node=4 --set system.nvlink.bandwidth=100GBps "
      "--forward 1ms --backward-input 1ms --backward-weight 1ms ";
  const BinaryResult without = Run(base);
  INFO(without.out << without.err);
  CHECK(without.exit_code == 2);
  CHECK(Json::parse(without.out)["error"]["field"] == "system.pcie.bandwidth");
  const BinaryResult host = Run(base + "--set system.pcie.bandwidth=20GBps");
  CHECK(host.exit_code == 2);
  CHECK(Json::parse(host.out)["error"]["field"] == "system.host_memory");
  const BinaryResult good =
      Run(base + "--set system.pcie.bandwidth=20GBps --host-memory 1GiB");
  INFO(good.err);
  CHECK(good.exit_code == 0);
  // What is there does not suffice: a result all the same.
  const BinaryResult little =
      Run(base + "--set system.pcie.bandwidth=20GBps --host-memory 64KiB");
  CHECK(little.exit_code == 3);
  const Json report = Json::parse(little.out);
  CHECK_FALSE(report["fits"].get<bool>());
  CHECK(report["memory"]["host_needed_bytes"] > 64 * 1024);
  CHECK(absl::StrContains(little.err, "offload_fraction"));
  // What would make the device need less does not help.
  CHECK(!absl::StrContains(little.err, "strategy.tp"));
}

TEST_CASE("offload: memory moves from the device to the host", "[offload]") {
  const std::string base =
      "simulate --schedule po-f --pp 4 --vpp 2 --microbatches 8 --json "
      "--model gpt-tiny --system dgx-a100 --forward 1ms --backward-input 1ms "
      "--backward-weight 1ms ";
  for (const char* const engine : {"fast", "simgrid"}) {
    CAPTURE(engine);
    const BinaryResult with = Run(absl::StrCat(base, "--engine ", engine));
    const BinaryResult without =
        Run(absl::StrCat(base, "--offload none --engine ", engine));
    INFO(with.err);
    REQUIRE(with.exit_code == 0);
    REQUIRE(without.exit_code == 0);
    const Json offloaded = Json::parse(with.out);
    const Json plain = Json::parse(without.out);
    CHECK(offloaded["iteration_s"].get<double>() ==
          Approx(plain["iteration_s"].get<double>()).epsilon(1e-6));
    CHECK(!plain.contains("offload"));
    for (int rank = 0; rank < 4; ++rank) {
      CAPTURE(rank);
      CHECK(plain["peak_host_bytes"][rank] == 0);
      CHECK(offloaded["peak_host_bytes"][rank] > 0);
      CHECK(offloaded["memory"]["ranks"][rank]["peak_activation_bytes"] <
            plain["memory"]["ranks"][rank]["peak_activation_bytes"]);
    }
  }
}

// A FREE stood in front of its own forward: exit code 4.
TEST_CASE("offload: stages without layers leave nothing to copy", "[offload]") {
  const std::string base =
      "simulate --model gpt-1.7b --system dgx-a100 --analytic --engine fast "
      "--memory 1000GiB --optimizer none --offload full --json ";
  for (const char* const split :
       {"--schedule interleaved-1f1b --pp 4 --vpp 2 --microbatches 8 --layers "
        "4,4,4,4,4,0,2,2 --set system.pcie.bandwidth=200GBps",
        // More stages than layers.
        "--schedule po-f --pp 8 --vpp 4 --microbatches 16 --split balanced",
        "--schedule zb-v --pp 16 --microbatches 32 --split balanced"}) {
    const BinaryResult run = Run(base + split);
    INFO(split << run.err);
    REQUIRE(run.exit_code == 0);
    const Json offload = Json::parse(run.out)["offload"];
    int64_t activations = 0;
    int64_t candidates = 0;
    for (const Json& rank : offload["ranks"]) {
      activations += rank["activations"].get<int64_t>();
      candidates += rank["candidates"].get<int64_t>();
    }
    CHECK(candidates > 0);
    CHECK(candidates < activations);
  }
}

// Copies that matter, over switches that two devices share.
TEST_CASE("offload: no schedule's step is longer on shared links",
          "[offload]") {
  for (const char* const schedule :
       {"po-h --vpp 4", "po-f --vpp 4", "1f1b", "zb-v", "dualpipe",
        "interleaved-1f1b --vpp 4"}) {
    CAPTURE(schedule);
    const std::string base = absl::StrCat(
        "simulate --model llama3-8b --system dgx-a100 --analytic --pp 8 "
        "--memory 1000GiB --microbatches 16 --engine simgrid --json "
        "--schedule ",
        schedule);
    const BinaryResult plain = Run(base + " --offload none");
    const double plain_s = Json::parse(plain.out)["iteration_s"];
    for (const std::string sharing : {"together", "in-turn"}) {
      CAPTURE(sharing);
      const BinaryResult with =
          Run(base + " --offload full --offload-sharing " + sharing);
      INFO(with.err);
      REQUIRE(with.exit_code == 0);
      const Json offload = Json::parse(with.out)["offload"];
      CHECK(offload["devices_on_switch"] == 2);
      const double step_s = Json::parse(with.out)["iteration_s"];
      CHECK(offload["exposed_s"].get<double>() < 1e-9 * step_s);
      CHECK(offload["step_cost_s"].get<double>() < 1e-6 * step_s);
      CHECK(step_s == Approx(plain_s).epsilon(1e-6));
    }
  }
}

TEST_CASE("offload: a cost that is left out is null, and said so",
          "[offload]") {
  const std::string base =
      "simulate --model llama3-8b --system dgx-a100 --analytic --pp 4 "
      "--memory 1000GiB --vpp 2 --microbatches 32 --engine fast --json "
      "--schedule interleaved-1f1b --offload full --iterations ";
  for (const bool long_run : {false, true}) {
    const BinaryResult run = Run(base + (long_run ? "10000" : "2"));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const Json offload = Json::parse(run.out)["offload"];
    REQUIRE(offload.contains("step_cost_s"));
    CHECK(offload["step_cost_s"].is_null() == long_run);
    CHECK(offload.contains("step_cost_left_out") == long_run);
  }
}

// One tensor of each layer, with and without what is computed again.
TEST_CASE("offload: the tensors that a copy takes are chosen", "[offload]") {
  const std::string plain =
      "simulate --model llama3-8b --system dgx-a100 --analytic --pp 4 --vpp 2 "
      "--microbatches 8 --engine fast --json --schedule interleaved-1f1b "
      "--memory 1000GiB --offload ";
  const std::string base = plain + "full";
  // Ratio of the stage whose copies take the smallest part of its passes' time.
  const auto least_ratio = [&](const std::string& more) {
    const BinaryResult run = Run(base + more);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const Json offload = Json::parse(run.out)["offload"];
    REQUIRE(offload["ranks"][1]["offloaded"].get<int>() > 0);
    return offload["ratio"][0].get<double>();
  };
  const double all = least_ratio("");
  const double input = least_ratio(" --offload-tensors input");
  const double attention = least_ratio(" --offload-tensors attention");
  const double mlp = least_ratio(" --offload-tensors mlp");
  CHECK(least_ratio(" --offload-tensors mlp,input,attention") == all);
  CHECK(std::min({input, attention, mlp}) > 0);
  CHECK(std::max({input, attention, mlp}) < all);
  // Two latencies of PCIe are in each.
  CHECK(least_ratio(" --offload-tensors attention,mlp") ==
        Approx(attention + mlp).epsilon(1e-3));
  // What is computed again is not copied: of recomputed chunks only the input
  // is there, so that a choice without it leaves them on the device.
  const std::string again =
      " --recompute full --set strategy.recompute_chunks=0";
  const BinaryResult mixed = Run(base + again + " --offload-tensors attention");
  INFO(mixed.err);
  REQUIRE(mixed.exit_code == 0);
  const Json ranks = Json::parse(mixed.out)["offload"]["ranks"];
  CHECK(ranks[1]["candidates"] == 8);
  CHECK(ranks[1]["activations"] == 16);
  // Half of what is held goes away: the peak falls by less.
  const double held = Json::parse(Run(base).out)["peak_activations"][0];
  const double some = Json::parse(
      Run(base + " --offload-tensors attention").out)["peak_activations"][0];
  const double none =
      Json::parse(Run(plain + "none").out)["peak_activations"][0];
  CHECK(held < some);
  CHECK(some < none);
  const BinaryResult bad = Run(base + " --offload-tensors ffn");
  CHECK(bad.exit_code == 2);
  CHECK(absl::StrContains(
      bad.err, "ffn is not allowed; allowed: input, attention, mlp"));
  const BinaryResult executed =
      Run("execute --model gpt-tiny --pp 2 --microbatches 4 --schedule 1f1b "
          "--offload full --offload-ratio 0.7 --forward 5ms --backward 10ms "
          "--offload-tensors mlp");
  CHECK(executed.exit_code == 2);
  CHECK(absl::StrContains(executed.err, "strategy.offload_tensors"));
}

TEST_CASE("offload: an O without FREE gives nothing back in a check",
          "[offload]") {
  const TemporaryFolder folder;
  const std::string file = folder.Write(
      "some.pws",
      "pipewright-schedule 1\n"
      "pp 1 vpp 1 microbatches 3 slices 1 replicas 1 placement plain\n"
      "0: F0 O0 FREE0 F1 O1 F2 L1 L0 BW2 BW1 BW0\n");
  const BinaryResult check = Run("check --json " + file);
  INFO(check.out << check.err);
  CHECK(Json::parse(check.out)["peak_activations"] == std::vector<double>{3.0});
  const BinaryResult run =
      Run(absl::StrCat("simulate --schedule ", file,
                       " --forward 10ms --backward 10ms --engine fast --json "
                       "--offload-time 1s --load-time 1ms"));
  INFO(run.err);
  // O1 ends behind F2, so its memory is there until the loads.
  const Json report = Json::parse(run.out);
  CHECK(report["peak_activations"][0] <= 3.0);
  CHECK(report["offload"]["held_back_s"] > 0.5);
}

TEST_CASE("offload: a printed order runs as planned", "[offload]") {
  const TemporaryFolder folder;
  for (const char* const schedule :
       {"po-h --vpp 2", "zb-v --offload selective", "1f1b --offload full",
        "dualpipe-v --offload full", "interleaved-1f1b --vpp 2 --offload full",
        "bitpipe --offload full"}) {
    CAPTURE(schedule);
    const std::string file = folder.Path("order.pws");
    const BinaryResult written = Run(absl::StrCat(
        "schedule ", schedule, " --pp 4 --microbatches 8 --offload-ratio 0.6",
        " --forward 12ms --backward-input 12ms --backward-weight 12ms",
        " --p2p 0ms --format text -o ", file));
    INFO(written.err);
    REQUIRE(written.exit_code == 0);
    REQUIRE(absl::StrContains(*ReadFile(file), "FREE"));
    const Json named =
        Report(absl::StrCat("--schedule ", schedule, " --offload-ratio 0.6"));
    const BinaryResult run = Run(absl::StrCat("simulate --schedule ", file,
                                              kTimes, " --offload-ratio 0.6"));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const Json read = Json::parse(run.out);
    CHECK(read["iteration_s"] == named["iteration_s"]);
    CHECK(read["peak_activations"] == named["peak_activations"]);
    CHECK(read["offload"]["mode"] == "file");
    CHECK(named["offload"]["exposed_s"] == 0);
  }
}

TEST_CASE(
    "offload: po-h and po-f say that they offload nothing where no time "
    "of copies is known",
    "[offload]") {
  const BinaryResult run = Run(absl::StrCat(
      "simulate --schedule po-h --pp 4 --vpp 2 --microbatches 8", kTimes));
  CHECK(run.exit_code == 0);
  CHECK(absl::StrContains(run.err, "nothing is offloaded"));
  const BinaryResult meant = Run(
      absl::StrCat("simulate --schedule po-h --pp 4 --vpp 2 --microbatches 8 "
                   "--offload none",
                   kTimes));
  CHECK(!absl::StrContains(meant.err, "nothing is offloaded"));
}

}  // namespace
}  // namespace pipewright::testing::offload_test
