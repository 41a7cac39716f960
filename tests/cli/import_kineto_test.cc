// From traces with known times to a simulated step, as a user does it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/profile/profile.h"
#include "tests/support/gzip_text.h"
#include "tests/support/json.h"
#include "tests/support/kineto_trace.h"
#include "tests/support/run_binary.h"

namespace pipewright::import_kineto_test {
namespace {

using testing::BinaryResult;
using testing::FakeRank;
using testing::FakeTrace;
using testing::RunBinary;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// gpt-tiny on two stages of eight layers, of different speed.
std::vector<FakeRank> TinyStages() {
  std::vector<FakeRank> ranks(2);
  for (int number = 0; number < 2; ++number) {
    FakeRank& rank = ranks[static_cast<size_t>(number)];
    rank.rank = number;
    rank.world_size = 2;
    rank.layers = 8;
    rank.has_embedding = number == 0;
    rank.has_head = number == 1;
    rank.layer_us[0] = 20 + 3 * number;
    rank.layer_us[1] = 40 + 5 * number;
    rank.groups =
        "{\"pg_name\": \"1\", \"pg_desc\": \"mesh_pp\", \"pg_size\": 2, "
        "\"ranks\": \"[0, 1]\"}";
  }
  return ranks;
}

// The end of 1F1B on two stages, from its definition alone: stage 0 starts
// with two forwards, stage 1 with one; each microbatch goes down and comes
// back. Any unit.
double TwoStages1f1b(const double forward[2], const double backward[2],
                     int microbatches) {
  std::vector<double> down(microbatches);  // end of F on stage 0
  std::vector<double> back(microbatches);  // end of B on stage 1
  double first = 0;
  double last = 0;
  int sent = 0;
  int returned = 0;
  const auto send = [&] { down[sent++] = first += forward[0]; };
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    if (microbatch == 0) {
      send();
      if (microbatches > 1) send();
    }
    last = std::max(last, down[microbatch]) + forward[1] + backward[1];
    back[microbatch] = last;
    first = std::max(first, back[returned++]) + backward[0];
    if (sent < microbatches) send();
  }
  return first;
}

}  // namespace

TEST_CASE("kineto: a folder of ranks becomes a profile that simulates its run",
          "[cli]") {
  const TemporaryFolder folder;
  const std::vector<FakeRank> ranks = TinyStages();
  folder.Write("rank0.json", FakeTrace(ranks[0]));
  folder.Write("rank1.json.gz", testing::Gzip(FakeTrace(ranks[1])));
  const std::string profile = folder.Path("p.txtpb");
  const BinaryResult import =
      RunBinary({"calibrate", "import", "--kineto", folder.Path(""), "--model",
                 "gpt-tiny", "--device", "h100", "-o", profile});
  INFO(import.err);
  REQUIRE(import.exit_code == 0);
  CHECK(absl::StrContains(import.err, "layer F differs between ranks"));
  for (const int microbatches : {1, 3, 8}) {
    const BinaryResult run =
        RunBinary({"simulate", "--model", "gpt-tiny", "--profile", profile,
                   "--schedule", "1f1b", "--pp", "2", "--microbatches",
                   absl::StrCat(microbatches), "--p2p", "0us", "--json"});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const double forward[2] = {
        8 * ranks[0].layer_us[0] + ranks[0].embedding_us[0],
        8 * ranks[1].layer_us[0] + ranks[1].head_us[0]};
    const double backward[2] = {
        8 * ranks[0].layer_us[1] + ranks[0].embedding_us[1],
        8 * ranks[1].layer_us[1] + ranks[1].head_us[1]};
    const auto report = testing::Json::parse(run.out);
    CHECK(report["span_s"]["global"].get<double>() ==
          Approx(1e-6 * TwoStages1f1b(forward, backward, microbatches))
              .epsilon(1e-9));
    const auto& passes = report["costs"]["passes"];
    CHECK(std::count_if(passes.begin(), passes.end(), [](const auto& pass) {
            return pass.contains("rank");
          }) == 4);
  }
  // Another pipeline takes the layers of all ranks together.
  const BinaryResult other = RunBinary(
      {"simulate", "--model", "gpt-tiny", "--profile", profile, "--schedule",
       "1f1b", "--pp", "1", "--microbatches", "1", "--p2p", "0us", "--json"});
  INFO(other.err);
  REQUIRE(other.exit_code == 0);
  const auto report = testing::Json::parse(other.out);
  CHECK(report["span_s"]["global"].get<double>() ==
        Approx(1e-6 * (16 * (21.5 + 42.5) + 3 + 5 + 11 + 17)).epsilon(1e-9));
}

TEST_CASE("kineto: what contradicts the trace exits with 2", "[cli]") {
  const TemporaryFolder folder;
  FakeRank rank;
  rank.layers = 16;
  const std::string trace = folder.Write("a.json", FakeTrace(rank));
  const std::string profile = folder.Path("p.txtpb");
  const Words import = {"calibrate", "import",   "--kineto", trace,
                        "--model",   "gpt-tiny", "-o",       profile};
  const auto refused = [&](const Words& words, const Words& parts) {
    const BinaryResult run = RunBinary(words);
    INFO(run.err);
    CHECK(run.exit_code == 2);
    for (const std::string& part : parts) {
      INFO(part);
      CHECK(absl::StrContains(run.err, part));
    }
    CHECK_FALSE(ReadFile(profile).ok());
  };
  refused(With(import, {"--layers", "8"}), {"--layers: 8", "the 16 layers"});
  refused(With(import, {"--device", "b200"}),
          {"--device: b200", "NVIDIA H100 80GB HBM3"});
  refused(With(import, {"--sequence", "64"}), {"--sequence: 64", "the 128"});
  refused(With(import, {"--microbatch-size", "4"}),
          {"--microbatch-size: 4", "the 1"});
  refused(With(import, {"--kineto", trace}), {"rank: 0", "has it too"});
  FakeRank halved = rank;
  halved.layer_us[0] = 0.12;  // 0.213 us at the peak
  halved.has_shapes = false;
  Words fast = import;
  fast[3] = folder.Write("fast.json", FakeTrace(halved));
  refused(fast, {"layer F in 120 ns", "% of the 989.4 TFLOP/s of h100"});
  Words missing = import;
  halved = rank;
  halved.world_size = 3;
  missing[3] = folder.Write("b.json", FakeTrace(halved));
  halved.rank = 1;
  missing =
      With(missing, {"--kineto", folder.Write("c.json", FakeTrace(halved))});
  refused(missing, {"world_size: 3", "of rank 2 none"});
  Words cut = import;
  const std::string whole = FakeTrace(rank);
  cut[3] = folder.Write("cut.json", whole.substr(0, whole.size() / 2));
  refused(cut, {"cut.json: no JSON"});
  const TemporaryFolder empty;
  Words none = import;
  none[3] = empty.Path("");
  refused(none, {"--kineto", "a folder with a .json or .json.gz file"});
  const BinaryResult run = RunBinary(import);
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(ReadFile(profile).ok());
}

}  // namespace pipewright::import_kineto_test
