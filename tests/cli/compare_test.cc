// The verb compare as a user runs it.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/base/file.h"
#include "tests/support/gzip_text.h"
#include "tests/support/run_binary.h"
#include "tests/support/xml_check.h"

namespace pipewright {
namespace {

using testing::BinaryResult;
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
  const auto report = nlohmann::json::parse(run.out);
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
  const BinaryResult order =
      RunBinary({"compare", simulated, swap("\"ts\":0.000,", "\"ts\":25000.000,")});
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
}  // namespace pipewright
