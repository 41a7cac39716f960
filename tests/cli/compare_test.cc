// The verb compare as a user runs it.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "tests/support/gzip_text.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"
#include "tests/support/xml_check.h"

namespace pipewright::compare_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;

std::string Simulate(const TemporaryFolder& folder, const std::string& name,
                     const std::string& forward,
                     const std::string& microbatches = "8",
                     const std::string& schedule = "zb-h1") {
  const std::string path = folder.Path(name);
  const BinaryResult run =
      RunBinary({"simulate", "--schedule", schedule, "--pp", "4",
                 "--microbatches", microbatches, "--forward", forward,
                 "--backward-input", "12ms", "--backward-weight", "8ms",
                 "--p2p", "1ms", "--iterations", "3", "--trace", path});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return path;
}

TEST_CASE("cli: compare reads gzip files", "[cli]") {
  const TemporaryFolder folder;
  const std::string simulated = Simulate(folder, "sim.json", "10ms");
  const std::string measured = Simulate(folder, "measured.json", "13ms");
  const auto packed = [&](const std::string& name, const std::string& path) {
    return folder.Write(name, testing::Gzip(ReadFile(path).value()));
  };
  const BinaryResult plain = RunBinary({"compare", simulated, measured});
  const BinaryResult run =
      RunBinary({"compare", packed("sim.json.gz", simulated),
                 packed("measured.json.gz", measured)});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  // Behind the lines that name the files.
  REQUIRE(absl::StrContains(plain.out, "(ms)"));
  CHECK(run.out.substr(run.out.find("(ms)")) ==
        plain.out.substr(plain.out.find("(ms)")));
  const std::string whole = testing::Gzip(ReadFile(measured).value());
  const std::string cut =
      folder.Write("cut.json.gz", whole.substr(0, whole.size() - 20));
  const BinaryResult broken = RunBinary({"compare", simulated, cut});
  CHECK(broken.exit_code == 2);
  CHECK(absl::StrContains(broken.err, "cut.json.gz: the gzip file"));
}

TEST_CASE("cli: compare prints, draws and holds a limit", "[cli]") {
  const TemporaryFolder folder;
  const std::string simulated = Simulate(folder, "sim.json", "10ms");
  const std::string measured = Simulate(folder, "measured.json", "13ms");
  const BinaryResult text =
      RunBinary({"compare", simulated, measured, "--svg", folder.Path("o.svg"),
                 "--html", folder.Path("o.html")});
  INFO(text.err);
  CHECK(text.exit_code == 0);
  CHECK(absl::StrContains(text.out, "F on all ranks: 1.30 times as long"));
  const std::string svg = ReadFile(folder.Path("o.svg")).value();
  CHECK(testing::XmlProblem(svg) == "");
  CHECK(absl::StrContains(svg, "measured"));
  CHECK(absl::StrContains(ReadFile(folder.Path("o.html")).value(),
                          "id=\"differences\""));

  const BinaryResult run =
      RunBinary({"compare", simulated, measured, "--json"});
  const auto report = Json::parse(run.out);
  CHECK(report["step_s"]["simulated"].get<double>() == Approx(0.294));
  CHECK(report["step_s"]["measured"].get<double>() == Approx(0.327));
  CHECK(report["step_s"]["error"].get<double>() ==
        Approx((0.294 - 0.327) / 0.327));
  CHECK(report["iteration"] == 2);
  CHECK(report["ranks"].size() == 4);
  CHECK(report["ranks"][0]["peak_activations"]["measured"] == 4);
  CHECK(report["differences"][0]["kind"] == "F");
  CHECK(report["differences"][0]["seconds"].get<double>() == Approx(0.033));
  REQUIRE(report["findings"].size() == 1);
  CHECK(report["findings"][0]["factor"].get<double>() == Approx(1.3));

  CHECK(
      RunBinary({"compare", simulated, measured, "--limit", "11%"}).exit_code ==
      0);
  const BinaryResult over =
      RunBinary({"compare", simulated, measured, "--limit", "5%"});
  CHECK(over.exit_code == 1);
  CHECK(absl::StrContains(over.out, "step time"));
  CHECK(absl::StrContains(over.err, "10.09 %"));
}

// BW of each rank in milliseconds, 0.5 B and 0.5 W.
std::string Backwards(const TemporaryFolder& folder, const std::string& name,
                      const std::string& milliseconds) {
  const std::string config = folder.Write(
      name + ".yaml",
      absl::StrCat("costs: {per_stage: {forward: [10ms, 10ms, 10ms, 10ms], "
                   "backward_input: ",
                   milliseconds, ", backward_weight: ", milliseconds, "}}\n"));
  const std::string path = folder.Path(name + ".json");
  const BinaryResult run =
      RunBinary({"simulate", config, "--schedule", "1f1b", "--pp", "4",
                 "--microbatches", "8", "--p2p", "0ms", "--trace", path});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return path;
}

TEST_CASE("cli: compare explains a difference once", "[cli]") {
  const TemporaryFolder folder;
  const BinaryResult run =
      RunBinary({"compare", Backwards(folder, "a", "[10ms, 10ms, 10ms, 10ms]"),
                 Backwards(folder, "b", "[9.5ms, 9.5ms, 15ms, 9.5ms]")});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  CHECK(absl::StrContains(run.out, "BW on rank 2: 1.50 times as long (+70"));
  CHECK(absl::StrContains(run.out,
                          "BW on ranks 0, 1, 3: 0.95 times as long (-4"));
  CHECK(absl::StrContains(run.out, "together: +67"));
  CHECK_FALSE(absl::StrContains(run.out, "1.05 times"));
  CHECK_FALSE(absl::StrContains(run.out, "on all ranks"));
}

TEST_CASE("cli: compare says what an executed run was given", "[cli]") {
  const TemporaryFolder folder;
  const std::string simulated =
      Simulate(folder, "sim.json", "10ms", "8", "1f1b");
  CHECK(absl::StrContains(ReadFile(simulated).value(),
                          "\"clock\":\"simulated\""));
  const std::string paced = folder.Path("paced.json");
  const BinaryResult run = RunBinary({"execute", "--schedule",
                                      "1f1b",    "--pp",
                                      "4",       "--microbatches",
                                      "8",       "--forward",
                                      "10ms",    "--backward-input",
                                      "12ms",    "--backward-weight",
                                      "8ms",     "--p2p",
                                      "1ms",     "--clock",
                                      "paced",   "--steps",
                                      "2",       "--trace",
                                      paced});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(absl::StrContains(ReadFile(paced).value(), "\"clock\":\"paced\""));
  const BinaryResult compared = RunBinary({"compare", simulated, paced});
  INFO(compared.out << compared.err);
  CHECK(compared.exit_code == 0);
  CHECK(absl::StrContains(compared.out,
                          "ran by the paced clock: its kernels, transfers, "
                          "copies, synchronisation and optimizer are the "
                          "program's own numbers"));
  const auto report =
      Json::parse(RunBinary({"compare", simulated, paced, "--json"}).out);
  CHECK(report["clock"]["measured"] == "paced");

  const std::string trained = folder.Path("virtual.json");
  const std::vector<std::string> run_of = {"--schedule",
                                           "1f1b",
                                           "--pp",
                                           "2",
                                           "--microbatches",
                                           "4",
                                           "--model",
                                           "gpt-tiny",
                                           "--set",
                                           "model.layers=2",
                                           "--set",
                                           "model.sequence=32",
                                           "--forward",
                                           "10ms",
                                           "--backward-input",
                                           "12ms",
                                           "--backward-weight",
                                           "8ms",
                                           "--p2p",
                                           "1ms",
                                           "--optimizer",
                                           "synchronised"};
  const auto with = [&](std::vector<std::string> before,
                        const std::vector<std::string>& behind) {
    before.insert(before.end(), run_of.begin(), run_of.end());
    before.insert(before.end(), behind.begin(), behind.end());
    return RunBinary(before);
  };
  const std::string model = folder.Path("model.json");
  REQUIRE(
      with({"simulate"}, {"--iterations", "2", "--trace", model}).exit_code ==
      0);
  const BinaryResult executed =
      with({"execute"}, {"--steps", "2", "--no-check", "--trace", trained});
  INFO(executed.err);
  REQUIRE(executed.exit_code == 0);
  const BinaryResult text = RunBinary(
      {"compare", model, trained, "--html", folder.Path("compare.html")});
  INFO(text.out << text.err);
  CHECK(text.exit_code == 0);
  CHECK(absl::StrContains(text.out, "ran by the virtual clock: its transfers"));
  CHECK(absl::StrContains(text.out, "given, not measured"));
  CHECK_FALSE(
      absl::StrContains(text.out, "transfers                          +"));
  const std::string page = ReadFile(folder.Path("compare.html")).value();
  CHECK(absl::StrContains(page, "given, not measured"));
  CHECK(absl::StrContains(page, "id=\"conditions\""));
  const auto json =
      Json::parse(RunBinary({"compare", model, trained, "--json"}).out);
  CHECK(json["memory"]["measured"]["meaning"] == "executor");
  // Paired where both mean the same, and only there.
  CHECK(json["ranks"][0].contains("peak_memory_bytes") ==
        (json["memory"]["simulated"]["meaning"] == "executor"));
}

TEST_CASE("cli: compare takes a training log as the measured side", "[cli]") {
  const TemporaryFolder folder;
  // 2 s a step; 4 devices with 8192 tokens each.
  const std::string report = folder.Write(
      "sim.json", R"({"iteration_s": 2.0, "tokens_per_s": 16384, "devices": 4,
                      "tflops_per_device": 300,
                      "peak_memory_bytes": [1073741824, 3221225472]})");
  std::string text =
      "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.0 | max "
      "allocated: 4096.0 | reserved: 1.0 | max reserved: 5120.0\n"
      "  seq_length ........ 4096\n  world_size ........ 4\n";
  for (int step = 1; step <= 3; ++step) {
    absl::StrAppend(
        &text, " iteration ", step,
        "/ 3 | elapsed time per iteration (ms): ", step == 1 ? "50000" : "2500",
        " | throughput per GPU (TFLOP/s/GPU): 240.0 | global batch "
        "size: 8 |\n");
  }
  const std::string log = folder.Write("train.log.gz", testing::Gzip(text));
  const BinaryResult run = RunBinary({"compare", report, log});
  INFO(run.err << run.out);
  REQUIRE(run.exit_code == 0);
  CHECK(absl::StrContains(run.out, "left out at the start, as warm-up: 1"));
  CHECK(absl::StrContains(run.out, "-20.00 %"));
  const Json json =
      Json::parse(RunBinary({"compare", report, log, "--json"}).out);
  const auto error = [&](const char* key) {
    return json[key]["error"].get<double>();
  };
  CHECK(error("step_s") == Approx(2.0 / 2.5 - 1));
  CHECK(error("tokens_per_s_per_device") ==
        Approx(16384.0 / 4 / (8 * 4096 / 4 / 2.5) - 1));
  CHECK(error("tflops_per_device") == Approx(300.0 / 240 - 1));
  CHECK(error("peak_memory_bytes") == Approx(3.0 / 4 - 1));
  CHECK(json["log"]["step_s"]["count"] == 2);
  CHECK(RunBinary({"compare", report, log, "--limit", "21%"}).exit_code == 0);
  const BinaryResult off =
      RunBinary({"compare", report, log, "--limit", "19%"});
  CHECK(off.exit_code == 1);
  CHECK(absl::StrContains(off.err, "off by 20.00 %, more than 19 %"));
  // A trace has the step alone: the last of its three periods.
  const std::string trace = Simulate(folder, "sim_trace.json", "10ms");
  const double period_s =
      Json::parse(RunBinary({"compare", trace, trace, "--json"})
                      .out)["step_s"]["simulated"]
          .get<double>();
  const Json of_trace =
      Json::parse(RunBinary({"compare", trace, log, "--json"}).out);
  CHECK(of_trace["step_s"]["simulated"].get<double>() == Approx(period_s));
  CHECK(of_trace["tflops_per_device"]["simulated"].is_null());
  for (const char* flag :
       {"--svg", "--html", "--iteration", "--forward", "--rank-of"}) {
    INFO(flag);
    const BinaryResult refused = RunBinary(
        {"compare", report, log, flag,
         std::string(flag) == "--iteration" ? "0" : folder.Path("x")});
    CHECK(refused.exit_code == 2);
    CHECK(absl::StrContains(refused.err, flag));
  }
  CHECK(RunBinary({"compare", report, log, log}).exit_code == 2);
  const BinaryResult other =
      RunBinary({"compare", folder.Write("other.json", "{\"a\": 1}"), log});
  CHECK(other.exit_code == 2);
  CHECK(absl::StrContains(other.err, "other.json: iteration_s: missing"));
}

TEST_CASE("cli: compare refuses what does not belong together", "[cli]") {
  const TemporaryFolder folder;
  const std::string simulated = Simulate(folder, "sim.json", "10ms");
  const std::string other = Simulate(folder, "other.json", "10ms", "9");
  const BinaryResult sizes = RunBinary({"compare", simulated, other});
  CHECK(sizes.exit_code == 2);
  CHECK(absl::StrContains(sizes.err, "has no F8 on rank 0"));
  const std::string another =
      Simulate(folder, "1f1b.json", "10ms", "8", "1f1b");
  const BinaryResult schedules = RunBinary({"compare", simulated, another});
  CHECK(schedules.exit_code == 2);
  CHECK(absl::StrContains(schedules.err, "is of schedule 1f1b"));
  // The same passes, two of them the other way round.
  const auto swap = [&](const std::string& from, const std::string& to) {
    std::string text = ReadFile(simulated).value();
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return folder.Write("swapped.json", text.replace(at, from.size(), to));
  };
  const BinaryResult order = RunBinary(
      {"compare", simulated, swap("\"ts\":0.000,", "\"ts\":25000.000,")});
  INFO(order.err);
  CHECK(order.exit_code == 2);
  CHECK(absl::StrContains(order.err, "runs F1 of iteration 0 before F0"));
  const BinaryResult far =
      RunBinary({"compare", simulated, simulated, "--iteration", "3"});
  CHECK(far.exit_code == 2);
  CHECK(absl::StrContains(far.err, "0 to 2"));
  const std::string cut =
      folder.Write("cut.json", ReadFile(simulated).value().substr(0, 30000));
  const BinaryResult broken = RunBinary({"compare", simulated, cut});
  CHECK(broken.exit_code == 2);
  CHECK(absl::StrContains(broken.err, "byte 3000"));
}

}  // namespace
}  // namespace pipewright::compare_test
