// What a report says about the run that it is of, and what options change.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::report_options_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using Arguments = std::vector<std::string>;

BinaryResult Small(const Arguments& more) {
  Arguments arguments = {"simulate", "--schedule",     "1f1b", "--pp",
                         "2",        "--microbatches", "4",    "--engine",
                         "fast",     "--p2p",          "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunBinary(arguments);
}

constexpr char kPaired[] =
    "pipewright-schedule 1\n"
    "pp 1 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
    "0: F0 (F1&BW0) BW1\n";

TEST_CASE("cli: a limit that is exceeded is reported, exit 3", "[cli]") {
  const BinaryResult over = Small({"--max-activations", "1", "--json"});
  CHECK(over.exit_code == 3);
  CHECK(Json::parse(over.out)["fits"] == false);
  CHECK(Json::parse(over.out)["peak_activations"] ==
        std::vector<double>{2.0, 1.0});
  CHECK(absl::StrContains(over.err, "1 is exceeded"));
  const BinaryResult met = Small({"--max-activations", "2", "--json"});
  CHECK(met.exit_code == 0);
  CHECK(Json::parse(met.out)["fits"] == true);
  CHECK(!Json::parse(Small({"--json"}).out).contains("fits"));
}

TEST_CASE("cli: a report names what it is of", "[cli]") {
  const BinaryResult run = RunBinary({"simulate",
                                      "--schedule",
                                      "ScheduleInterleaved1F1B",
                                      "--pp",
                                      "2",
                                      "--vpp",
                                      "2",
                                      "--microbatches",
                                      "4",
                                      "--engine",
                                      "fast",
                                      "--model",
                                      "gpt-tiny",
                                      "--system",
                                      "dgx-h100",
                                      "--dp",
                                      "2",
                                      "--data-parallel",
                                      "zero1",
                                      "--optimizer",
                                      "synchronised",
                                      "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  CHECK(report["dp"] == 2);
  CHECK(report["data_parallel"] == "zero1");
  CHECK(report["gradient_sync"] == "zero1");
  CHECK(report["model"] == "gpt-tiny");
  CHECK(report["system"] == "dgx-h100");
  CHECK(report["optimizer"] == "synchronised");
  CHECK(report["waiting"] == "buffered");
  CHECK(!report["params"].empty());  // PyTorch's name implies its variant
  // gpt-tiny has 128 tokens a sample.
  CHECK(report["tokens_per_s"].get<double>() ==
        Approx(128 * 4 * 2 / report["iteration_s"].get<double>()));

  const Json plain = Json::parse(Small({"--json"}).out);
  CHECK(plain["model"].is_null());
  CHECK(plain["gradient_sync"] == "none");
  CHECK(plain["params"] == Json::parse("{}"));
  CHECK(!plain.contains("tokens_per_s"));
}

TEST_CASE("cli: a system with another shape says so", "[cli]") {
  // The shape counts whichever way the system is named.
  const auto run = [](const std::vector<std::string>& system) {
    std::vector<std::string> arguments = {
        "simulate", "--schedule",     "gpipe",     "--pp",        "16",
        "--engine", "fast",           "--waiting", "rendezvous",  "--forward",
        "1ms",      "--backward",     "2ms",       "--hop-bytes", "64MiB",
        "--json",   "--microbatches", "4"};
    arguments.insert(arguments.end(), system.begin(), system.end());
    return RunBinary(arguments);
  };
  const std::string shape = "system.shape=fat-tree";
  const std::string leaf = "system.nodes_per_leaf=1";
  const std::string slow = "system.params.oversubscription=8";
  std::vector<std::vector<std::string>> ways = {
      {"--set", "system.preset=dgx-h100"}, {"--system", "dgx-h100"}};
  std::vector<Json> reports;
  for (std::vector<std::string> way : ways) {
    way.insert(way.end(), {"--set", shape, "--set", leaf, "--set", slow});
    const BinaryResult other = run(way);
    INFO(other.err);
    REQUIRE(other.exit_code == 0);
    CHECK_FALSE(absl::StrContains(other.err, "has no effect"));
    reports.push_back(Json::parse(other.out));
    CHECK(reports.back()["system"] == "dgx-h100 as fat-tree");
    CHECK(reports.back()["waiting"] == "rendezvous");
  }
  for (const char* const key : {"iteration_s", "system", "network"}) {
    CHECK(reports[0][key] == reports[1][key]);
  }
  const Json own = Json::parse(run({"--system", "dgx-h100"}).out);
  CHECK(own["system"] == "dgx-h100");
  CHECK(own["iteration_s"] < reports[1]["iteration_s"]);
  // What the other shape needs is not taken for granted.
  const BinaryResult missing = run({"--system", "dgx-h100", "--set", shape});
  CHECK(missing.exit_code == 2);
  CHECK(absl::StrContains(missing.err, "system.params.nodes_per_leaf"));
}

TEST_CASE("cli: pair is taken by schedules and files, for timing only",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Write("paired.pws", kPaired);
  for (const char* pair : {"pair=joint", "pair=dependencies"}) {
    CHECK(Small({"--param", pair}).exit_code == 0);
    const BinaryResult run =
        RunBinary({"simulate", "--schedule", file, "--engine", "fast",
                   "--param", pair, "--json"});
    INFO(run.err);
    CHECK(run.exit_code == 0);
    const BinaryResult text = RunBinary({"schedule", file, "--param", pair});
    CHECK(text.out == kPaired);
  }
  const BinaryResult other =
      RunBinary({"schedule", file, "--param", "group-size=2"});
  CHECK(other.exit_code == 2);
  CHECK(absl::StrContains(other.err, "takes no other parameters"));
}

TEST_CASE("cli: schedule.name may be a file beside the configuration",
          "[cli]") {
  const TemporaryFolder folder;
  folder.Write("paired.pws", kPaired);
  const std::string config =
      folder.Write("run.yaml", "schedule: {name: paired.pws}\nengine: fast\n");
  const BinaryResult run = RunBinary({"simulate", config, "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(Json::parse(run.out)["ops"] == 4);
  const BinaryResult named =
      RunBinary({"simulate", config, "--schedule", "gpipe", "--pp", "2",
                 "--microbatches", "2", "--json"});
  INFO(named.err);
  REQUIRE(named.exit_code == 0);
  CHECK(Json::parse(named.out)["schedule"] == "gpipe");
}

TEST_CASE("cli: an empty --set takes a field of the file away", "[cli]") {
  const TemporaryFolder folder;
  const std::string config = folder.Write(
      "run.yaml",
      "schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 4}\n"
      "costs: {p2p: 1ms, hop_bytes: 1KB, uniform: {forward: 1ms, backward: "
      "2ms}}\nengine: fast\n");
  CHECK(RunBinary({"simulate", config, "--system", "dgx-h100"}).exit_code == 2);
  const BinaryResult run = RunBinary(
      {"simulate", config, "--system", "dgx-h100", "--set", "costs.p2p="});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(RunBinary({"simulate", config, "--set", "costs.p2q="}).exit_code == 2);
}

TEST_CASE("cli: a shape needs no PCIe while nothing is copied", "[cli]") {
  const BinaryResult run = RunBinary({"simulate",
                                      "--schedule",
                                      "1f1b",
                                      "--pp",
                                      "4",
                                      "--microbatches",
                                      "4",
                                      "--engine",
                                      "fast",
                                      "--set",
                                      "system.shape=node",
                                      "--set",
                                      "system.devices_per_node=4",
                                      "--set",
                                      "system.nvlink.bandwidth=100GBps",
                                      "--set",
                                      "system.nvlink.latency=1us",
                                      "--hop-bytes",
                                      "1KB",
                                      "--forward",
                                      "1ms",
                                      "--backward",
                                      "2ms"});
  INFO(run.err);
  CHECK(run.exit_code == 0);
}

TEST_CASE("cli: options without effect are warned of", "[cli]") {
  const BinaryResult run =
      Small({"--optimizer-time", "1ms", "--validation-time", "1ms",
             "--sequence", "64", "--hop-bytes", "1KB", "--offload-time", "1ms",
             "--load-time", "1ms", "--gradient-bytes", "1KB", "--forward",
             "1ms", "--backward", "2ms"});
  CHECK(run.exit_code == 0);
  for (const char* field :
       {"--optimizer-time: costs.optimizer_time", "costs.validation_time",
        "strategy.sequence", "costs.hop_bytes", "costs.uniform.offload",
        "costs.uniform.load", "costs.gradient_bytes"}) {
    INFO(field << "\n" << run.err);
    CHECK(absl::StrContains(run.err, absl::StrCat(field, " has no effect")));
  }
}

TEST_CASE("cli: check takes the semantics that it checks", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Write("paired.pws", kPaired);
  for (const char* semantics : {"buffered", "nccl"}) {
    const BinaryResult run =
        RunBinary({"check", file, "--semantics", semantics, "--json"});
    CHECK(run.exit_code == 0);
    const Json report = Json::parse(run.out);
    CHECK(report["semantics"] == semantics);
    CHECK(report["transfers_from"] == "posted-ahead");
    CHECK(report["transfers"] == 0);  // one rank
  }
}

TEST_CASE("cli: check proves calls on communicators for a device's room",
          "[cli]") {
  const TemporaryFolder folder;
  // As batches between two passes they end; one by one both send twice first.
  const std::string file = folder.Write(
      "crossed.csv",
      "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0F3,0SEND_F3,0RECV_B0,0B0,"
      "0RECV_B1,0B1,0RECV_B2,0B2,0RECV_B3,0B3\n"
      "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1B1,1SEND_B0,1SEND_B1,1RECV_F2,1RECV_F3,"
      "1F2,1B2,1SEND_B2,1F3,1B3,1SEND_B3\n");
  const auto check = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"check", file});
    return RunBinary(words);
  };
  const BinaryResult proven = check({"--semantics", "nccl"});
  INFO(proven.out << proven.err);
  CHECK(proven.exit_code == 0);
  CHECK(
      absl::StrContains(proven.out,
                        "(2, at most 2 on a rank): no circle with 32 hardware "
                        "queues and 128 resident kernels, whatever"));
  for (const char* const flag : {"--queues", "--resident-kernels"}) {
    const BinaryResult circle = check({"--semantics", "nccl", flag, "1"});
    INFO(circle.out << circle.err);
    CHECK(circle.exit_code == 4);
    CHECK(absl::StrContains(circle.err, "in a circle"));
    CHECK(absl::StrContains(circle.out, "but deadlocks with nccl transfers"));
    const BinaryResult alone = check({flag, "1"});
    CHECK(alone.exit_code == 2);
    CHECK(absl::StrContains(alone.err, flag));
  }
  CHECK(check({"--queues", "32"}).exit_code == 2);
  CHECK(check({"--semantics", "nccl", "--queues", "33"}).exit_code == 2);
  // Posted ahead there is one order that all ranks keep.
  const std::string ahead = folder.Path("1f1b.pws");
  REQUIRE(RunBinary({"schedule", "1f1b", "--pp", "4", "--microbatches", "8",
                     "-o", ahead})
              .exit_code == 0);
  const BinaryResult narrow = RunBinary(
      {"check", ahead, "--semantics", "nccl", "--queues", "1", "--json"});
  CHECK(narrow.exit_code == 0);
  const Json room = Json::parse(narrow.out)["communicators"];
  CHECK(room["count"] == 6);
  CHECK(room["most_on_a_rank"] == 4);
  CHECK(room["queues"] == 1);
  CHECK(room["any_order"] == false);
}

// What ends with NCCL ends in batches, in `check` and in both engines.
TEST_CASE("cli: check and simulate agree on batches over chunks", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("looped.pws");
  REQUIRE(RunBinary({"schedule", "interleaved-1f1b", "--pp", "4", "--vpp", "2",
                     "--microbatches", "8", "-o", file})
              .exit_code == 0);
  for (const char* semantics : {"buffered", "nccl", "batched"}) {
    const BinaryResult run =
        RunBinary({"check", file, "--semantics", semantics, "--json"});
    INFO(semantics << "\n" << run.err);
    REQUIRE(run.exit_code == 0);
    const Json report = Json::parse(run.out);
    CHECK(report["transfers"] == 112);
    CHECK(report["buffered_steps"] == 38);
    CHECK(report["transfers_from"] ==
          (report["semantics"] == "batched" ? "batched" : "posted-ahead"));
    const bool held = report["semantics"] == "nccl";
    CHECK((report["steps"] > 38) == held);
    CHECK((report["held_sends"] > 0) == held);
    CHECK(report.contains("longest_held") == held);
  }
  // The price is that of transfers that hold nobody, not of late sends.
  const std::string wave = folder.Path("hanayo.pws");
  REQUIRE(RunBinary({"schedule", "hanayo", "--pp", "4", "--microbatches", "8",
                     "-o", wave})
              .exit_code == 0);
  std::vector<int> counts;
  for (const char* semantics : {"buffered", "batched"}) {
    const BinaryResult run =
        RunBinary({"check", wave, "--semantics", semantics, "--json"});
    REQUIRE(run.exit_code == 0);
    counts.push_back(Json::parse(run.out)["buffered_steps"].get<int>());
  }
  CHECK(counts[0] == counts[1]);
  const std::string endless = folder.Path("endless.pws");
  REQUIRE(RunBinary({"schedule", "pipeoptim", "--pp", "4", "--microbatches",
                     "8", "-o", endless})
              .exit_code == 0);
  const BinaryResult refused =
      RunBinary({"check", endless, "--semantics", "batched"});
  CHECK(refused.exit_code == 2);
  CHECK(absl::StrContains(refused.err, "for a schedule that is never flushed"));
  CHECK_FALSE(absl::StrContains(refused.out, "not legal"));
  const BinaryResult text = RunBinary({"check", file, "--semantics", "nccl"});
  CHECK(absl::StrContains(text.out, "38 with buffered transfers"));
  CHECK(absl::StrContains(text.out, "sends wait for a receive in front"));
  for (const char* engine : {"fast", "simgrid"}) {
    const BinaryResult run =
        RunBinary({"simulate", "--schedule", file, "--forward", "2ms",
                   "--backward", "4ms", "--hop-bytes", "8MiB", "--system",
                   "dgx-h100", "--waiting", "batched", "--engine", engine});
    INFO(run.err);
    CHECK(run.exit_code == 0);
  }
}

TEST_CASE("cli: profiles that ship have a name, a device and a model",
          "[cli]") {
  const BinaryResult list = RunBinary({"list", "profiles", "--json"});
  CHECK(list.exit_code == 0);
  CHECK(list.err == "");
  const Json rows = Json::parse(list.out)["profiles"];
  CHECK(rows.size() >= 4);
  for (const Json& row : rows) {
    INFO(row);
    CHECK(absl::StrContains(row["summary"].get<std::string>(), ", 20"));
    CHECK_FALSE(row["layers"].empty());
    CHECK(row["passes"] > 0);
  }
  const BinaryResult shown =
      RunBinary({"calibrate", "show", "h100-gpt-1.7b", "--json"});
  INFO(shown.err);
  CHECK(shown.exit_code == 0);
  CHECK(Json::parse(shown.out)["complete"] == true);
}

TEST_CASE("cli: the measured times of a profile that ships are those of a run",
          "[cli]") {
  for (const char* precision : {"bf16", "fp8"}) {
    const BinaryResult run = RunBinary(
        {"simulate",    "--model", "llama3-8b", "--sequence",     "8192",
         "--precision", precision, "--profile", "h100-llama3-8b", "--schedule",
         "zb-h1",       "--pp",    "8",         "--microbatches", "16",
         "--p2p",       "0us",     "--engine",  "fast",           "--memory",
         "1TiB",        "--json"});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const Json costs = Json::parse(run.out)["costs"];
    CHECK(costs["profile"] == "h100-llama3-8b");
    CHECK(costs["type"] == precision);
  }
}

TEST_CASE("cli: an output that is a full device is exit 1", "[cli]") {
  const TemporaryFolder folder;
  const std::string link = folder.Path("full");
  REQUIRE(::symlink("/dev/full", link.c_str()) == 0);
  const BinaryResult run = Small({"-o", link});
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(run.err, "No space left"));
}

TEST_CASE("cli: a picture needs one iteration of one replica only", "[cli]") {
  const TemporaryFolder folder;
  const std::string svg = folder.Path("grid.svg");
  CHECK(Small({"--iterations", "10000", "--dp", "1000", "--svg", svg})
            .exit_code == 0);
  const BinaryResult trace = Small({"--iterations", "10000", "--dp", "1000",
                                    "--trace", folder.Path("t.json")});
  CHECK(trace.exit_code == 2);
  CHECK(absl::StrContains(trace.err, "would be traced"));
}

TEST_CASE("cli: an estimated run reports throughput and operations", "[cli]") {
  const BinaryResult run =
      RunBinary({"simulate", "--schedule", "1f1b",        "--pp",
                 "2",        "--tp",       "4",           "--microbatches",
                 "4",        "--model",    "llama3-8b",   "--system",
                 "dgx-h100", "--analytic", "--recompute", "full",
                 "--price",  "2",          "--engine",    "fast",
                 "--json"});
  INFO(run.err);
  REQUIRE(!run.out.empty());
  const Json report = Json::parse(run.out);
  CHECK(report["optimizer"] == "synchronised");
  CHECK(report["tp"] == 4);
  CHECK(report["devices"] == 8);
  const double tokens_per_s = report["tokens_per_s"].get<double>();
  CHECK(tokens_per_s == Approx(8192 * 4 / report["iteration_s"].get<double>()));
  CHECK(report["mfu"].get<double>() ==
        Approx(report["tflops_per_device"].get<double>() / 989.4));
  CHECK(report["tflops_per_device"].get<double>() ==
        Approx(report["flops_per_token"].get<double>() * tokens_per_s / 8e12));
  CHECK(report["hfu"].get<double>() > report["mfu"].get<double>());
  CHECK(report["cost_per_1e9_tokens"].get<double>() ==
        Approx(2 * 8 * 1e9 / tokens_per_s / 3600));
  CHECK(report["costs"]["stages"].size() == 2);
  for (const Json& op : report["costs"]["ops"]) {
    for (const char* key : {"name", "flops", "bytes", "seconds", "share"}) {
      CHECK(op.contains(key));
    }
  }
}

}  // namespace
}  // namespace pipewright::report_options_test
