#include <catch2/catch.hpp>
#include <regex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "calibrate/import_benchmarks.h"
#include "calibrate/import_kineto.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"

namespace pipewright::import_test {
namespace {

std::string DataOf(const std::string& name) {
  return *ReadFile(
      absl::StrCat(testing::SourcePath("tests/calibrate/data/"), name));
}

absl::StatusOr<Profile> Traced(const std::string& text,
                               const KinetoOptions& options) {
  std::istringstream in(text);
  return ImportKineto(in, "trace.json", options);
}

// Options with a model that a profile can name.
KinetoOptions ToyOptions() {
  KinetoOptions options;
  options.model = {.style = "gpt",
                   .hidden = 256,
                   .heads = 4,
                   .kv_heads = 4,
                   .head_dim = 64,
                   .ffn = 1024,
                   .vocabulary = 1024};
  options.sequence = 128;
  options.layers = 1;
  return options;
}

[[gnu::noinline]] absl::StatusOr<Profile> Traced(const std::string& text) {
  return Traced(text, ToyOptions());
}

const PassEntry* Find(const Profile& profile, ProfilePass pass) {
  for (const PassEntry& entry : profile.passes) {
    if (entry.pass == pass) return &entry;
  }
  return nullptr;
}

std::string ErrorOf(const absl::StatusOr<Profile>& profile) {
  return std::string(profile.status().message());
}

bool Matches(Region kind, const std::string& name) {
  return std::regex_search(
      name, std::regex(std::string(DefaultRegionPattern(kind)),
                       std::regex::ECMAScript | std::regex::icase));
}

}  // namespace

TEST_CASE("calibrate: a trace's regions take what their kernels take",
          "[calibrate]") {
  KinetoOptions options = ToyOptions();
  options.sequence = 128;
  options.layers = 2;
  options.parameters = 1000;
  const absl::StatusOr<Profile> profile =
      Traced(DataOf("kineto.json"), options);
  REQUIRE(profile.ok());
  REQUIRE(profile->passes.size() == 2);
  // 1100 to 1500 and 2100 to 2540 us, two layers each: kernels of the own
  // thread, the inner region part of the outer, the device's shadow left out.
  const PassEntry* forward = Find(*profile, ProfilePass::kForward);
  REQUIRE(forward != nullptr);
  CHECK(forward->time.count == 2);
  CHECK(forward->time.min_s == Approx(200e-6));
  CHECK(forward->time.max_s == Approx(220e-6));
  CHECK(forward->sequence == 128);
  CHECK(forward->part == ProfilePart::kLayer);
  // Launched by a thread of autograd's.
  const PassEntry* backward = Find(*profile, ProfilePass::kBackwardFull);
  REQUIRE(backward != nullptr);
  CHECK(backward->time.median_s == Approx(400e-6));
  REQUIRE(profile->optimizers.size() == 1);
  CHECK(profile->optimizers[0].parameters == 1000);
  CHECK(profile->optimizers[0].time.median_s == Approx(250e-6));
  REQUIRE(profile->sources.size() == 1);
  CHECK(profile->sources[0].kind == "kineto");
  CHECK(profile->sources[0].device == "Toy GPU 80GB");
  CHECK(profile->sources[0].memory_bytes == int64_t{80} << 30);

  options.sum_kernels = true;
  options.skip = 1;
  const absl::StatusOr<Profile> sums = Traced(DataOf("kineto.json"), options);
  REQUIRE(sums.ok());
  const PassEntry* later = Find(*sums, ProfilePass::kForward);
  REQUIRE(later != nullptr);
  CHECK(later->time.count == 1);
  CHECK(later->time.median_s == Approx(220e-6));
  CHECK(Find(*sums, ProfilePass::kBackwardFull) == nullptr);
}

TEST_CASE("calibrate: the user's own names of regions", "[calibrate]") {
  KinetoOptions options = ToyOptions();
  options.patterns[static_cast<int>(Region::kForward)] = "^data load";
  const absl::StatusOr<Profile> other = Traced(
      R"({"traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "Data loading",
         "pid": "a", "tid": "b", "ts": 5, "dur": 4}]})",
      options);
  REQUIRE(other.ok());
  // No kernels in the trace: the region's own length, and a warning.
  CHECK(other->passes[0].time.median_s == Approx(4e-6));
  CHECK(absl::StrContains(absl::StrJoin(other->sources.at(0).warnings, "\n"),
                          "no GPU kernels"));
}

TEST_CASE("calibrate: default patterns tell passes apart", "[calibrate]") {
  for (const char* name : {"forward-compute", "PP:0F12", "fwd", "Forward 3",
                           "TransformerLayer.forward"}) {
    CHECK(Matches(Region::kForward, name));
  }
  CHECK_FALSE(Matches(Region::kForward, "straightforwardly"));
  CHECK_FALSE(Matches(Region::kForward, "PP:0B12"));
  CHECK(Matches(Region::kBackwardInput, "PP:1I0"));
  CHECK(Matches(Region::kBackwardInput, "linear_dgrad"));
  CHECK(Matches(Region::kBackwardWeight, "PP:1W0"));
  CHECK(Matches(Region::kBackwardWeight, "backward_dw"));
  CHECK(Matches(Region::kBackwardWeight, "wgrad_compute"));
  CHECK(Matches(Region::kBackwardFull, "backward-compute"));
  CHECK(Matches(Region::kBackwardFull, "PP:1B0"));
  CHECK(Matches(Region::kOptimizer, "Optimizer.step#Adam.step"));
}

TEST_CASE("calibrate: traces that are none say what is wrong", "[calibrate]") {
  CHECK(absl::StrContains(ErrorOf(Traced("{")), "trace.json: no JSON"));
  CHECK(absl::StrContains(ErrorOf(Traced("{}")), "traceEvents"));
  CHECK(absl::StrContains(ErrorOf(Traced("\x1f\x8b")), "gunzip"));
  CHECK(absl::StrContains(ErrorOf(Traced(R"({"traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "mine", "ts": 1,
         "dur": 2, "pid": 1, "tid": 1}]})")),
                          "(mine)"));
  KinetoOptions options = ToyOptions();
  options.patterns[0] = std::string(1, '(');
  CHECK(absl::StrContains(ErrorOf(Traced("{}", options)), "--forward: ("));
}

TEST_CASE("calibrate: nccl-tests give transfers", "[calibrate]") {
  const absl::StatusOr<Profile> profile =
      ImportNcclTests(DataOf("nccl_tests.json"), "n.json");
  REQUIRE(profile.ok());
  REQUIRE(profile->transfers.size() == 2);
  CHECK(profile->transfers[0].operation == "all_reduce");
  CHECK(profile->transfers[0].ranks == 8);
  CHECK(profile->transfers[0].bytes == 1048576);
  CHECK(profile->transfers[0].time.median_s == Approx(35.5e-6));
  CHECK(profile->transfers[0].time.count == 20);
  CHECK(profile->transfers[1].time.median_s == Approx(50e-6));
  CHECK(profile->transfers[1].time.max_s == Approx(55e-6));
  CHECK(profile->sources[0].device == "Toy GPU 80GB");
  CHECK(absl::StrContains(ErrorOf(ImportNcclTests("[{}]", "n.json")),
                          "n.json: is no JSON object"));
  CHECK(absl::StrContains(
      ErrorOf(ImportNcclTests(R"({"args": ["x/broadcast_perf"]})", "n.json")),
      "'broadcast_perf'"));
  CHECK(absl::StrContains(
      ErrorOf(ImportNcclTests(R"({"args": ["sendrecv_perf"]})", "n.json")),
      "nccl-tests -J"));
}

// All-reduces of two devices, with `rows` in `results`.
absl::StatusOr<Profile> OfRows(const std::string& rows,
                               const std::string& config = "") {
  return ImportNcclTests(
      absl::StrCat(R"({"args": ["all_reduce_perf"], "config": {"ngpus": 2)",
                   config, R"(}, "results": [)", rows, "]}"),
      "n.json");
}

std::string WarningsOf(const absl::StatusOr<Profile>& profile) {
  return profile.ok() ? absl::StrJoin(profile->sources.at(0).warnings, "\n")
                      : ErrorOf(profile);
}

TEST_CASE("calibrate: what nccl-tests cannot have measured is refused",
          "[calibrate]") {
  constexpr char kGood[] =
      R"({"size": 8, "out_of_place": {"time": 2}, "in_place": {"time": 1}})";
  const struct {
    const char* row;
    const char* says;
  } rows[] = {
      {R"({"size": -1, "out_of_place": {"time": 2}})",
       "n.json: results[1].size is -1; allowed: bytes from 0"},
      {R"({"size": "x", "out_of_place": {"time": 2}})",
       "results[1].size is \"x\""},
      {R"({"size": 8.5, "out_of_place": {"time": 2}})",
       "results[1].size is 8.5"},
      {R"({"out_of_place": {"time": 2}})", "results[1].size is missing"},
      {R"({"size": 8, "out_of_place": {"time": -5}, "in_place": {"time": 1}})",
       "results[1].out_of_place.time is -5; allowed: microseconds above 0"},
      {R"({"size": 8, "out_of_place": {"time": 0}, "in_place": {"time": 1}})",
       "results[1].out_of_place.time is 0"},
      {R"({"size": 8, "out_of_place": {"time": 1}, "in_place": {"time": -1}})",
       "results[1].in_place.time is -1"},
      {R"({"size": 8, "out_of_place": {"time": "nan"}})",
       "results[1].out_of_place.time is \"nan\""},
      {R"({"size": 8, "out_of_place": {"time": "inf"}})", "is \"inf\""},
      {R"({"size": 8, "out_of_place_per_iter": {"times_us": [1, -2]}})",
       "results[1].out_of_place_per_iter.times_us[1] is -2"},
      {R"({"size": 8, "out_of_place_per_iter": {"times_us": [1, "x"]}})",
       "times_us[1] is \"x\""},
  };
  for (const auto& [row, says] : rows) {
    INFO(row);
    const std::string error = ErrorOf(OfRows(absl::StrCat(kGood, ", ", row)));
    INFO(error);
    CHECK(absl::StrContains(error, says));
  }
  CHECK(OfRows(kGood).value().transfers[0].time.median_s == Approx(2e-6));
  CHECK(WarningsOf(OfRows(kGood)).empty());
  for (const char* config :
       {R"(, "iterations": -3)", R"(, "nthreads": 0)", R"(, "iterations": 1.5)",
        R"(, "nthreads": "x")"}) {
    INFO(config);
    CHECK(absl::StrContains(ErrorOf(OfRows(kGood, config)),
                            "allowed: an integer from 1"));
  }
}

TEST_CASE("calibrate: rows of nccl-tests that are not taken are named",
          "[calibrate]") {
  constexpr char kGood[] = R"({"size": 8, "out_of_place": {"time": 2}})";
  const auto rows =
      OfRows(absl::StrCat(kGood, R"(, {"size": 0, "out_of_place": {"time": 2}},
                {"size": 16, "out_of_place": {"time": "N/A"},
                 "in_place": {"time": 3}},
                {"size": 24, "out_of_place": null, "in_place": {"time": 3}},
                {"size": 32})"));
  REQUIRE(rows.ok());
  CHECK(rows->transfers.size() == 3);
  const std::string warnings = WarningsOf(rows);
  INFO(warnings);
  CHECK(absl::StrContains(warnings,
                          "results[1]: left out, since nothing is sent"));
  CHECK(absl::StrContains(
      warnings,
      "results[2], results[3]: has no time out of place; the one in "
      "place is taken"));
  CHECK(absl::StrContains(warnings,
                          "results[4]: left out, since it has no time"));
  CHECK(absl::StrContains(ErrorOf(OfRows(R"({"size": 0})")),
                          "has no times (results[0]: left out"));
}

// A file of nvbandwidth with a good test and `more`.
absl::StatusOr<Profile> OfTests(const std::string& more) {
  return ImportNvbandwidth(absl::StrCat(R"({"nvbandwidth": {"testcases": [
          {"name": "host_to_device_memcpy_ce", "status": "Passed",
           "bandwidth_matrix": [["50"]]})",
                                        more.empty() ? "" : ", ", more, "]}}"),
                           "v.json");
}

TEST_CASE("calibrate: what nvbandwidth cannot have measured is refused",
          "[calibrate]") {
  for (const char* cell : {"\"-50\"", "-50", "0", "\"inf\"", "\"nan\"",
                           "\"Error\"", "\"\"", "{}", "1e300"}) {
    INFO(cell);
    const std::string error = ErrorOf(OfTests(absl::StrCat(
        R"({"name": "device_to_host_memcpy_ce", "status": "Passed",
            "bandwidth_matrix": [["40", )",
        cell, "]]}")));
    INFO(error);
    CHECK(absl::StrContains(
        error,
        absl::StrCat("v.json: testcases[1].bandwidth_matrix[0][1] is ")));
    CHECK(absl::StrContains(error, "allowed: GB/s above 0, or N/A"));
  }
  CHECK(absl::StrContains(
      ErrorOf(OfTests(R"({"name": "device_to_host_memcpy_ce"})")),
      "testcases[1].bandwidth_matrix is missing"));
  CHECK(absl::StrContains(ErrorOf(OfTests(R"({"status": "Passed"})")),
                          "testcases[1].name is missing"));
}

TEST_CASE("calibrate: tests of nvbandwidth that are not taken are named",
          "[calibrate]") {
  for (const char* status : {"Failed", "Waived", "Error", "Not Found"}) {
    const auto profile = OfTests(
        absl::StrCat(R"({"name": "device_to_host_memcpy_ce", "status": ")",
                     status, R"(", "bandwidth_matrix": [["40"]]})"));
    REQUIRE(profile.ok());
    CHECK(profile->copies.size() == 1);
    CHECK(WarningsOf(profile) ==
          absl::StrCat("device_to_host_memcpy_ce is left out, since its status "
                       "is \"",
                       status, "\""));
  }
  CHECK(absl::StrContains(
      WarningsOf(OfTests(R"({"name": "device_to_host_memcpy_ce",
                             "status": "Passed",
                             "bandwidth_matrix": [["N/A"]]})")),
      "device_to_host_memcpy_ce is left out, since it has no bandwidths"));
  CHECK(absl::StrContains(
      WarningsOf(OfTests(R"({"name": "device_to_device_memcpy_read_ce"})")),
      "by a copy engine: device_to_device_memcpy_read_ce"));
  CHECK(WarningsOf(OfTests("")).empty());
  // Nothing is left: the reason stands in the error.
  const std::string none = ErrorOf(ImportNvbandwidth(
      R"({"nvbandwidth": {"testcases": [{"name": "host_to_device_memcpy_ce",
          "status": "Failed", "bandwidth_matrix": [["50"]]}]}})",
      "v.json"));
  CHECK(absl::StrContains(none, "its status is \"Failed\""));
}

// Each process of nccl-tests has -t threads with -g devices each.
TEST_CASE("calibrate: ranks of nccl-tests are devices of all threads",
          "[calibrate]") {
  std::string text = DataOf("nccl_tests.json");
  const std::string one = "\"nthreads\": 1, \"ngpus\": 4";
  const size_t at = text.find(one);
  REQUIRE(at != std::string::npos);
  text.replace(at, one.size(), "\"nthreads\": 3, \"ngpus\": 2");
  const absl::StatusOr<Profile> profile = ImportNcclTests(text, "n.json");
  REQUIRE(profile.ok());
  for (const auto& transfer : profile->transfers) CHECK(transfer.ranks == 12);
}

TEST_CASE("calibrate: nvbandwidth gives copies", "[calibrate]") {
  const absl::StatusOr<Profile> profile =
      ImportNvbandwidth(DataOf("nvbandwidth.json"), "v.json", 1000000000);
  REQUIRE(profile.ok());
  REQUIRE(profile->copies.size() == 2);
  CHECK(profile->copies[0].direction == CopyDirection::kHostToDevice);
  CHECK_FALSE(profile->copies[0].beside_opposite);
  CHECK(profile->copies[0].time.count == 2);
  CHECK(profile->copies[0].time.min_s == Approx(1.0 / 55));
  CHECK(profile->copies[1].direction == CopyDirection::kDeviceToHost);
  CHECK(profile->copies[1].beside_opposite);
  CHECK(profile->copies[1].time.median_s == Approx(1.0 / 40));
  CHECK(profile->sources[0].driver == "580.65.06");
  CHECK(absl::StrContains(ErrorOf(ImportNvbandwidth("{\n\"a\": [1,\n}", "v")),
                          "v:3: not JSON: "));
  CHECK(absl::StrContains(ErrorOf(ImportNvbandwidth("{}", "v.json")),
                          "nvbandwidth -j"));
}

}  // namespace pipewright::import_test
