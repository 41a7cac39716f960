// Traces whose events are broken or unusual; see import_kineto_test.cc.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "calibrate/import_kineto.h"
#include "calibrate/kineto_layers.h"
#include "calibrate/kineto_parts.h"
#include "tests/support/kineto_trace.h"

namespace pipewright::import_kineto_events_test {
namespace {

using testing::FakeEvent;
using testing::FakeEvents;
using testing::FakeRank;
using testing::FakeTrace;
using Lines = std::vector<std::string>;

absl::StatusOr<Profile> ImportEvents(const std::string& text,
                                     int64_t layers = 0) {
  KinetoOptions options;
  options.model = {.style = "gpt",
                   .hidden = 256,
                   .heads = 4,
                   .kv_heads = 4,
                   .head_dim = 64,
                   .ffn = 1024,
                   .vocabulary = 512};
  options.sequence = 128;
  options.layers = layers;
  std::istringstream in(text);
  return ImportKineto(in, "odd.json", options);
}

double MedianUs(const Profile& profile, ProfilePart part, ProfilePass pass) {
  for (const PassEntry& entry : profile.passes) {
    if (entry.part == part && entry.pass == pass) {
      return 1e6 * entry.time.median_s;
    }
  }
  return -1;
}

double LayerForward(const absl::StatusOr<Profile>& profile) {
  INFO(profile.status());
  REQUIRE(profile.ok());
  return MedianUs(*profile, ProfilePart::kLayer, ProfilePass::kForward);
}

bool Says(const Profile& profile, const std::string& part) {
  const Lines& warnings = profile.sources.at(0).warnings;
  return std::any_of(warnings.begin(), warnings.end(),
                     [&](const std::string& warning) {
                       return absl::StrContains(warning, part);
                     });
}

// A launch within the first forward, and its kernel.
void AddKernel(const std::string& name, const std::string& stream,
               double launch_us, double start_us, double duration_us,
               Lines* events, const std::string& thread = "7") {
  const std::string more = absl::StrCat(
      "\"args\": {\"device\": 0, \"correlation\": ", 900'000 + events->size(),
      "}");
  events->push_back(FakeEvent("cuda_runtime", "cudaLaunchKernel", thread,
                              launch_us, 0.1, more));
  events->push_back(
      FakeEvent("kernel", name, stream, start_us, duration_us, more));
}

// First start of the kernels of the forward of `microbatch`, from 0.
double DeviceStart(const FakeRank& rank, int microbatch) {
  double step = 20;  // the gaps
  for (const int pass : {0, 1}) {
    step += rank.layers * rank.layer_us[pass] + rank.embedding_us[pass] +
            rank.head_us[pass];
  }
  return 1'000'100 + microbatch * step;
}

}  // namespace

TEST_CASE("kineto: a trace that ends in the middle is refused", "[calibrate]") {
  const std::string text = FakeTrace(FakeRank());
  for (const size_t size :
       {text.size() / 3, text.size() / 2, text.size() - 3}) {
    const absl::StatusOr<Profile> profile = ImportEvents(text.substr(0, size));
    REQUIRE_FALSE(profile.ok());
    CHECK(profile.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(profile.status().message(), "odd.json: no JSON"));
  }
  const absl::StatusOr<Profile> negative = ImportEvents(
      absl::StrReplaceAll(text, {{"\"dur\": 0.5", "\"dur\": -0.5"}}));
  REQUIRE_FALSE(negative.ok());
  CHECK(absl::StrContains(negative.status().message(), "dur: -0.5"));
}

TEST_CASE("kineto: the order of events does not matter", "[calibrate]") {
  const FakeRank rank;
  Lines events = FakeEvents(rank);
  const absl::StatusOr<Profile> sorted = ImportEvents(FakeTrace(rank, events));
  REQUIRE(sorted.ok());
  std::mt19937 random(7);
  for (int turn = 0; turn < 3; ++turn) {
    std::shuffle(events.begin(), events.end(), random);
    const absl::StatusOr<Profile> shuffled =
        ImportEvents(FakeTrace(rank, events));
    INFO(shuffled.status());
    REQUIRE(shuffled.ok());
    CHECK(shuffled->passes == sorted->passes);
  }
}

TEST_CASE("kineto: streams that overlap are not counted twice", "[calibrate]") {
  const FakeRank rank;
  const Lines plain = FakeEvents(rank);
  const auto planted = [&](const char* name, double from_us, double us) {
    Lines events = plain;
    for (int microbatch = 0; microbatch < rank.microbatches; ++microbatch) {
      // Launched with the first layer's kernels: shortly before its flash
      // kernel.
      const std::string before = "flash_fwd_kernel";
      double launch_us = 0;
      int seen = 0;
      for (size_t at = 1; at < plain.size(); ++at) {
        if (!absl::StrContains(plain[at], "\"flash_fwd_kernel\"")) continue;
        if (seen++ != microbatch * rank.layers) continue;
        launch_us =
            std::stod(plain[at - 1].substr(plain[at - 1].find("\"ts\": ") + 6));
      }
      AddKernel(name, "stream 20", launch_us,
                DeviceStart(rank, microbatch) + from_us, us, &events);
    }
    return ImportEvents(FakeTrace(rank, events));
  };
  CHECK(LayerForward(planted("other_gemm", 10, 12)) ==
        Approx(rank.layer_us[0]).epsilon(1e-9));
  // Communication beside computation takes nothing away, ...
  const absl::StatusOr<Profile> beside =
      planted("ncclDevKernel_AllReduce", 10, 12);
  CHECK(LayerForward(beside) == Approx(rank.layer_us[0]).epsilon(1e-9));
  CHECK_FALSE(Says(*beside, "communication"));
  // ... and alone, in the gap behind the forward, adds nothing.
  const double forward_us = 4 * rank.layer_us[0] + 3 + 11;
  const absl::StatusOr<Profile> alone =
      planted("ncclDevKernel_AllReduce", forward_us - 2, 6);
  CHECK(LayerForward(alone) == Approx(rank.layer_us[0]).epsilon(1e-9));
  CHECK(Says(*alone, "communication beside which nothing computes"));
  // A layer's kernel there does.
  CHECK(LayerForward(planted("other_gemm", forward_us - 2, 6)) ==
        Approx(rank.layer_us[0] + 4.0 / 4).epsilon(1e-9));
}

TEST_CASE("kineto: events without duration", "[calibrate]") {
  const FakeRank rank;
  Lines events = FakeEvents(rank);
  AddKernel("instant", "stream 7", 1'000'003, 1'000'110, 0, &events);
  events.push_back(FakeEvent("user_annotation", "forward step 9", "7", 2e6, 0));
  const absl::StatusOr<Profile> profile = ImportEvents(FakeTrace(rank, events));
  CHECK(LayerForward(profile) == Approx(rank.layer_us[0]).epsilon(1e-9));
  CHECK(Says(*profile, "1 kernels have no duration"));
  FakeRank nothing = rank;
  nothing.layer_us[0] = nothing.layer_us[1] = 0;
  nothing.has_embedding = nothing.has_head = false;
  const absl::StatusOr<Profile> empty = ImportEvents(FakeTrace(nothing));
  REQUIRE_FALSE(empty.ok());
  CHECK(absl::StrContains(empty.status().message(), "takes any time"));
}

TEST_CASE("kineto: kernels of a CUDA graph belong to its launch",
          "[calibrate]") {
  FakeRank rank;
  rank.has_modules = rank.has_embedding = rank.has_head = false;
  Lines events;
  for (int step = 0; step < 2; ++step) {
    const double at = 1e6 + 1000 * step;
    const std::string more =
        absl::StrCat("\"args\": {\"correlation\": ", step + 1, "}");
    events.push_back(FakeEvent(
        "user_annotation", absl::StrCat("forward step ", step), "7", at, 100));
    events.push_back(
        FakeEvent("cuda_runtime", "cudaGraphLaunch", "7", at + 5, 3, more));
    for (int kernel = 0; kernel < 8; ++kernel) {
      events.push_back(FakeEvent("kernel", kernel % 2 == 0 ? "gemm" : "norm",
                                 "stream 7", at + 50 + 10 * kernel, 10, more));
    }
  }
  const absl::StatusOr<Profile> profile =
      ImportEvents(FakeTrace(rank, events), 4);
  CHECK(LayerForward(profile) == Approx(80.0 / 4));
  CHECK(Says(*profile, "of CUDA graphs"));
  // Kernels that nothing launched are said, not counted.
  events.push_back(FakeEvent("kernel", "lost", "stream 7", 1e6 + 60, 500,
                             "\"args\": {\"correlation\": 77}"));
  events.push_back(FakeEvent("kernel", "lost", "stream 7", 1e6 + 60, 500));
  const absl::StatusOr<Profile> orphans =
      ImportEvents(FakeTrace(rank, events), 4);
  CHECK(LayerForward(orphans) == Approx(80.0 / 4));
  CHECK(Says(*orphans, "2 kernels are left out"));
}

TEST_CASE("kineto: a backward that nobody can tell apart is refused",
          "[calibrate]") {
  FakeRank rank;
  rank.has_sequences = false;
  rank.has_shapes = false;
  const absl::StatusOr<Profile> whole = ImportEvents(FakeTrace(rank));
  REQUIRE_FALSE(whole.ok());
  CHECK(absl::StrContains(whole.status().message(), "sequence numbers"));
  // A rank of layers alone needs none.
  rank.has_embedding = rank.has_head = false;
  const absl::StatusOr<Profile> layers = ImportEvents(FakeTrace(rank));
  REQUIRE(layers.ok());
  CHECK(MedianUs(*layers, ProfilePart::kLayer, ProfilePass::kBackwardFull) ==
        Approx(rank.layer_us[1]).epsilon(1e-9));
}

// loss.backward() fills a gradient on its own thread before autograd's runs.
TEST_CASE("kineto: a backward is not its first kernel", "[calibrate]") {
  FakeRank rank;
  rank.microbatches = 1;
  Lines events = FakeEvents(rank);
  double region_us = 0;
  for (const std::string& event : events) {
    if (!absl::StrContains(event, "\"backward step 0\"")) continue;
    region_us = std::stod(event.substr(event.find("\"ts\": ") + 6));
  }
  const double start_us = DeviceStart(rank, 0) + 4 * rank.layer_us[0] + 3 + 11;
  AddKernel("fill_kernel", "stream 7", region_us + 0.5, start_us + 9, 1,
            &events);
  const absl::StatusOr<Profile> profile = ImportEvents(FakeTrace(rank, events));
  INFO(profile.status());
  REQUIRE(profile.ok());
  CHECK(MedianUs(*profile, ProfilePart::kLayer, ProfilePass::kBackwardFull) ==
        Approx(rank.layer_us[1]).epsilon(1e-9));
  CHECK(Says(*profile, "BW: 0.5 % of the time is of no layer"));
}

TEST_CASE("kineto: parts of a stretch add up to it", "[calibrate]") {
  std::mt19937 random(11);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<PartKernel> kernels;
    double first = 1e9;
    double last = 0;
    const auto count = static_cast<int>(1 + random() % 12);
    for (int index = 0; index < count; ++index) {
      PartKernel kernel;
      kernel.part = static_cast<TracePart>(random() % kNumTraceParts);
      kernel.start_us = static_cast<double>(random() % 40);
      kernel.end_us = kernel.start_us + static_cast<double>(random() % 9);
      first = std::min(first, kernel.start_us);
      last = std::max(last, kernel.end_us);
      kernels.push_back(kernel);
    }
    double sum = 0;
    for (const double us : ShareTimeline(kernels)) {
      CHECK(us >= 0);
      sum += us;
    }
    CHECK(sum == Approx(last - first));
  }
}

TEST_CASE("kineto: repeated kernels are counted", "[calibrate]") {
  const auto repeated = [](int64_t times, const std::vector<int32_t>& block) {
    std::vector<int32_t> names = {90, 91};
    for (int64_t turn = 0; turn < times; ++turn) {
      names.insert(names.end(), block.begin(), block.end());
    }
    names.push_back(92);
    return RepeatsOf(names);
  };
  CHECK(repeated(8, {1, 2, 3, 2, 4}) == 8);
  CHECK(repeated(3, {1, 1, 1, 2, 2, 5, 6, 7}) == 3);
  CHECK(repeated(9, {1}) == 0);
  CHECK(RepeatsOf({1, 2, 3, 4, 5, 6}) == 0);
  CHECK(RepeatsOf({}) == 0);
}

}  // namespace pipewright::import_kineto_events_test
