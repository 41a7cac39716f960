// Profiles on disk and in memory: what is written is read again as it was,
// what is wrong is named with its line, merged ones keep the newer entries.
#include "sim/profile/profile.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/example_profile.h"

namespace pipewright::profile_test {
namespace {

using testing::ExampleProfile;

constexpr char kPass[] = R"(passes {
  model { style: "gpt" hidden: 256 heads: 4 kv_heads: 4 head_dim: 64 ffn: 1024 }
  part: "layer"
  pass: "F"
  type: "fp32"
  microbatch_size: 1
  sequence: 128
  tp: 1
  time {
    count: 9
    median_us: 12.5
  }
}
complete: true
)";

TEST_CASE("profile: written and read again it is the same", "[cost]") {
  const Profile profile = ExampleProfile();
  const std::string text = WriteProfile(profile);
  const absl::StatusOr<Profile> read = ReadProfile(text, "p.txtpb");
  REQUIRE(read.status().message() == "");
  CHECK(*read == profile);
  CHECK(WriteProfile(*read) == text);
  CHECK(absl::StrContains(text, "median_us: 18522.125\n"));
  CHECK(absl::StrContains(text, "complete: true\n"));
}

TEST_CASE("profile: any times are written as they were read", "[cost]") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-9, 3);
  Profile profile = ExampleProfile();
  for (int round = 0; round < 2000; ++round) {
    Distribution& time = profile.passes[0].time;
    time = {.count = 1, .median_s = std::pow(10, exponent(random))};
    const std::string text = WriteProfile(profile);
    const Profile read = ReadProfile(text, "p").value();
    CHECK(read.passes[0].time.median_s ==
          Approx(time.median_s).epsilon(1e-8).margin(0));
    CHECK(WriteProfile(read) == text);
  }
}

TEST_CASE("profile: an unfinished one says so", "[cost]") {
  Profile profile = ExampleProfile();
  profile.complete = false;
  const std::string text = WriteProfile(profile);
  CHECK(absl::StrContains(text, "complete: false\n"));
  CHECK(!ReadProfile(text, "p").value().complete);
  // Cut off where the last line stood.
  CHECK(
      !ReadProfile(absl::StrReplaceAll(kPass, {{"complete: true\n", ""}}), "p")
           .value()
           .complete);
}

TEST_CASE("profile: what is wrong is named with its line", "[cost]") {
  REQUIRE(ReadProfile(kPass, "p.txtpb").ok());
  const auto error = [](const std::string& from, const std::string& to) {
    const std::string text = absl::StrReplaceAll(kPass, {{from, to}});
    REQUIRE(text != kPass);
    return std::string(ReadProfile(text, "p.txtpb").status().message());
  };
  CHECK(error("median_us", "median_ms") ==
        "p.txtpb:11: unknown field 'median_ms'; did you mean 'median_us'? "
        "(known: " +
            [] {
              const std::string all(
                  ReadProfile("x: 1", "p").status().message());
              return all.substr(all.find("(known: ") + 8);
            }());
  CHECK(error("median_us: 12.5", "median_us: 0") ==
        "p.txtpb:11: passes[0].time.median_us: 0 is not allowed; allowed: "
        "more than 0");
  CHECK(error("median_us: 12.5", "median_us: -3") ==
        "p.txtpb:11: passes[0].time.median_us: -3 is not allowed; allowed: a "
        "finite number, 0 or more");
  CHECK(error("median_us: 12.5", "median_us: inf") ==
        "p.txtpb:11: passes[0].time.median_us: inf is not allowed; allowed: a "
        "finite number, 0 or more");
  CHECK(error("count: 9", "count: 0") ==
        "p.txtpb:10: passes[0].time.count: 0 is not allowed; allowed: 1 or "
        "more");
  CHECK(error("count: 9", "") ==
        "p.txtpb:9: passes[0].time.count: 0 is not allowed; allowed: 1 or "
        "more");
  CHECK(error("pass: \"F\"", "pass: \"I\"") ==
        "p.txtpb:4: passes[0].pass: 'I' is not allowed; allowed: F, B, W, BW, "
        "R");
  CHECK(error("type: \"fp32\"", "") ==
        "p.txtpb:1: passes[0].type: '' is not allowed; allowed: fp32, bf16, "
        "fp8");
  CHECK(error("time {\n    count: 9\n    median_us: 12.5\n  }", "") ==
        "p.txtpb:1: passes[0].time: missing is not allowed; allowed: a value");
  CHECK(error("median_us: 12.5", "median_us: 12.5 p10_us: 13") ==
        "p.txtpb:11: passes[0].time.p10_us: 13 is not allowed; allowed: at "
        "most 12.5");
  CHECK(error("median_us: 12.5", "median_us: 12.5 quantiles_us: [2, 1]") ==
        "p.txtpb:11: passes[0].time.quantiles_us: 1 is not allowed; allowed: "
        "numbers that do not fall");
  CHECK(absl::StrContains(error("complete: true", "complete: 7"),
                          "p.txtpb:14: "));
  CHECK(absl::StrContains(error("count: 9", "count: 99999999999999999999"),
                          "p.txtpb:10: Integer out of range"));
  const std::string twice =
      std::string(ReadProfile(absl::StrReplaceAll(std::string(kPass) + kPass,
                                                  {{"complete: true\n", ""}}),
                              "p.txtpb")
                      .status()
                      .message());
  CHECK(twice ==
        "p.txtpb:14: passes[1]: 'layer F gpt h256 a4 d64 f1024 bidirectional "
        "fp32 b1 s128 tp1' again is not allowed; allowed: each once; the first "
        "is passes[0]");
}

// A few thousand broken files: an error or a profile that is written and read
// to the same, never a crash.
TEST_CASE("profile: mutated files are refused or read to the same", "[cost]") {
  const std::string text = WriteProfile(ExampleProfile());
  const std::vector<std::string> pieces = {"-1",
                                           "nan",
                                           "1e400",
                                           "{",
                                           "}",
                                           "\"",
                                           ":",
                                           "[",
                                           "]",
                                           "0",
                                           "#",
                                           "\n",
                                           "9223372036854775808",
                                           "passes {",
                                           "time {",
                                           "\xff",
                                           ","};
  std::mt19937_64 random(11);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string mutated = text;
    for (uint64_t edits = 1 + random() % 3; edits > 0 && !mutated.empty();
         --edits) {
      const size_t at = random() % mutated.size();
      switch (random() % 3) {
        case 0:
          mutated.erase(at, 1 + random() % 40);
          break;
        case 1:
          mutated.insert(at, pieces[random() % pieces.size()]);
          break;
        default:
          mutated[at] = static_cast<char>(random() % 256);
      }
    }
    const absl::StatusOr<Profile> read = ReadProfile(mutated, "m");
    if (!read.ok()) {
      ++refused;
      CHECK(absl::StartsWith(read.status().message(), "m"));
      continue;
    }
    const std::string again = WriteProfile(*read);
    const absl::StatusOr<Profile> twice = ReadProfile(again, "m");
    REQUIRE(twice.ok());
    CHECK(WriteProfile(*twice) == again);
  }
  CHECK(refused > 1000);
  CHECK(refused < 4000);
}

TEST_CASE("profile: keys tell entries apart", "[cost]") {
  const Profile profile = ExampleProfile();
  CHECK(KeyOf(profile.passes[0]) ==
        "layer F llama h4096 a32/8 d128 f14336 bf16 b1 s4096 tp1");
  CHECK(KeyOf(profile.passes[1]) ==
        "head BW llama h4096 v128256 bf16 b1 s4096 "
        "tp2");
  CHECK(KeyOf(profile.passes[2]) ==
        "expert-layer F llama h4096 a32/8 d128 e8/2 f14336 shared f1024 bf16 "
        "b1 s4096 tp1 ep4");
  CHECK(KeyOf(profile.splits[0]) ==
        "split F+R+B+W llama h4096 a32/8 d128 f14336 bf16 b1 s4096 tp1");
  CHECK(KeyOf(profile.kernels[0]) == "gemm.forward 4096x4096x4096 bf16");
  CHECK(KeyOf(profile.optimizers[0]) == "adam host 1000000");
  CHECK(KeyOf(profile.optimizers[1]) == "prediction device 1000000");
  CHECK(KeyOf(profile.copies[0]) == "d2h 64 MiB beside h2d");
  CHECK(KeyOf(profile.copies[1]) == "d2d 1000 B");
  CHECK(KeyOf(profile.transfers[0]) == "all_reduce 1 MiB 8 ranks nccl");
  CHECK(KeyOf(profile.interference[0]) == "W beside collective");
}

TEST_CASE("profile: merging keeps the newer entries", "[cost]") {
  const Profile older = ExampleProfile();
  Profile newer;
  newer.sources = {{.kind = "nccl-tests", .file = "all_reduce.json"}};
  newer.passes = {older.passes[0], older.passes[0]};
  newer.passes[0].time.median_s = 1;
  newer.passes[1].sequence = 8192;
  newer.device_memory_bytes_per_s = 4e12;
  const Profile merged = MergeProfiles(older, newer).value();
  CHECK(merged.sources.size() == older.sources.size() + 1);
  REQUIRE(merged.passes.size() == older.passes.size() + 1);
  CHECK(merged.passes[0].time.median_s == 1);
  CHECK(merged.passes[1] == older.passes[1]);
  CHECK(merged.passes.back().sequence == 8192);
  CHECK(merged.copies == older.copies);
  CHECK(merged.host_memory_bytes_per_s == older.host_memory_bytes_per_s);
  CHECK(merged.device_memory_bytes_per_s == 4e12);
  CHECK(merged.complete);
  newer.complete = false;
  CHECK(!MergeProfiles(older, newer).value().complete);
  newer.sources[0].device = "NVIDIA A100-SXM4-80GB";
  CHECK(MergeProfiles(older, newer).status().message() ==
        "profiles of different devices cannot be one: 'NVIDIA H100 80GB HBM3' "
        "and 'NVIDIA A100-SXM4-80GB'");
}

}  // namespace
}  // namespace pipewright::profile_test
