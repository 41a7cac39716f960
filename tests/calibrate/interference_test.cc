// The interference matrix of a GPU beside transfers with others, on kernels
// and a transport whose clocks are written down.
#include "calibrate/interference_subjects.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "calibrate/pass_subjects.h"
#include "tests/support/fake_kernels.h"

namespace pipewright::interference_test {
namespace {

using testing::FakeDevice;
using testing::FakeKernels;

constexpr int64_t kMiB = 1 << 20;
constexpr double kPass_s = 1e-3;

ModelSpec Tiny() {
  ModelSpec model;
  model.name = "tiny";
  model.layers = 2;
  model.hidden = 32;
  model.heads = model.kv_heads = 2;
  model.ffn_hidden = 64;
  model.vocabulary = 32;
  model.sequence = 16;
  return model;
}

// A transport that takes `piece_s` for each, or half as long again where
// passes were queued before it began; while it is under way passes take a
// quarter longer. What happens is noted in order.
struct Bench {
  double piece_s = 1e-4;  // time of 16 MiB
  bool under_way = false;
  bool passes_queued = false;
  int64_t bytes = 0;
  int count = 0;
  std::vector<std::string> calls;  // a run of "gemm" is one
  std::vector<std::string> violations;
  absl::Status fails;

  FakeDevice Device() {
    return {.seconds = kPass_s,
            .name = "cuda",
            .cache_bytes = 0,
            .elapsed = [this] { return kPass_s * (under_way ? 1.25 : 1); },
            .hear =
                [this](const std::string& call) {
                  if (call == "gemm" && !calls.empty() && calls.back() == call)
                    return;
                  calls.push_back(call);
                }};
  }

  Transport Of(int ranks) {
    Transport transport;
    transport.name = "nccl";
    transport.ranks = ranks;
    transport.sizes = {kMiB, 64 * kMiB};
    transport.run = [this, ranks](TransferKind kind, int64_t size,
                                  int) -> absl::StatusOr<double> {
      Note(ranks, kind, "run");
      return piece_s * static_cast<double>(size) / (16 * kMiB);
    };
    transport.begin = [this, ranks](TransferKind kind, int64_t size,
                                    int pieces) {
      Note(ranks, kind, "begin");
      if (under_way) violations.push_back("begin twice");
      passes_queued = calls.size() > 1 && calls[calls.size() - 2] == "gemm";
      under_way = true;
      bytes = size;
      count = pieces;
      return fails;
    };
    transport.end = [this]() -> absl::StatusOr<double> {
      calls.push_back("end");
      under_way = false;
      return piece_s * (passes_queued ? 1.5 : 1);
    };
    return transport;
  }

  void Note(int ranks, TransferKind kind, const std::string& call) {
    calls.push_back(call);
    // A pair for send-recv, all for collectives.
    if (ranks != (kind == TransferKind::kSendRecv ? 2 : 8)) {
      violations.push_back(std::string(TransferName(kind)));
    }
  }
};

struct Subjects {
  std::unique_ptr<MeasuredDevice> device;
  std::vector<Subject> all;
};

Subjects Make(const FakeDevice& fake,
              const std::vector<Transport>& transports) {
  Subjects out;
  out.device = MeasuredDevice::Open(FakeKernels(fake), 0).value();
  const Grid grid = MakeGrid(Tiny(), PW_FP32, {.quick = true}).value();
  const BenchMemory memory =
      EstimatePassMemory(out.device.get(), grid, 0).value();
  const PassSet passes = PassSubjects(out.device.get(), grid, memory).value();
  out.all = InterferenceSubjects(out.device.get(), passes, nullptr, transports)
                .value();
  return out;
}

const Subject* Named(const Subjects& subjects, const std::string& name) {
  for (const Subject& subject : subjects.all) {
    if (subject.name == name) return &subject;
  }
  return nullptr;
}

TEST_CASE("interference: on a GPU alone there are copies only", "[calibrate]") {
  Bench bench;
  const Subjects subjects = Make(bench.Device(), {});
  CHECK(subjects.all.size() == 3 * 3);
  CHECK(Named(subjects, "F beside d2h") != nullptr);
  CHECK(Named(subjects, "F beside send_recv") == nullptr);
  // Nor beside what cannot run beside: processes elsewhere.
  Transport processes;
  processes.ranks = 2;
  CHECK(Make(bench.Device(), {processes}).all.size() == 3 * 3);
}

TEST_CASE("interference: both sides of passes and transfers between GPUs",
          "[calibrate]") {
  for (const char* pass : {"F", "B", "W"}) {
    for (const char* beside : {"send_recv", "collective"}) {
      INFO(pass << " beside " << beside);
      Bench bench;
      const Subjects subjects =
          Make(bench.Device(), {bench.Of(2), bench.Of(4), bench.Of(8)});
      CHECK(subjects.all.size() == 3 * 5);
      const Subject* subject =
          Named(subjects, std::string(pass) + " beside " + beside);
      REQUIRE(subject != nullptr);
      bench.calls.clear();
      std::vector<double> samples;
      REQUIRE(subject->visit(&samples).ok());
      REQUIRE(samples.size() == 2);
      CHECK(samples[0] == Approx(1.25));
      CHECK(samples[1] == Approx(1.5));
      CHECK(bench.violations == std::vector<std::string>());
      // The pass is held until the transfers are under way, and timed before
      // they have ended.
      const auto begin =
          std::find(bench.calls.begin(), bench.calls.end(), "begin");
      REQUIRE(begin - bench.calls.begin() >= 2);
      REQUIRE(bench.calls.end() - begin >= 4);
      CHECK(begin[-1] == "gemm");
      CHECK(begin[-2] == "hold");
      CHECK(begin[1] == "release");
      CHECK(begin[2] == "wait");
      CHECK(begin[3] == "end");
    }
  }
}

TEST_CASE("interference: transfers outlast the pass", "[calibrate]") {
  // A pass of 1 ms is as long as 100 transfers of 16 MiB in 10 us; in 1 us as
  // 1000, which are no more than 256 calls.
  for (const double piece_s : {1e-5, 1e-6}) {
    Bench bench;
    bench.piece_s = piece_s;
    Transport transport = bench.Of(8);
    const auto begin = transport.begin;
    double longest_s = 0;
    int most = 0;
    transport.begin = [&](TransferKind kind, int64_t size, int pieces) {
      longest_s =
          std::max(longest_s,
                   pieces * piece_s * static_cast<double>(size) / (16 * kMiB));
      most = std::max(most, pieces);
      return begin(kind, size, pieces);
    };
    transport.ranks = 8;
    const Subjects subjects = Make(bench.Device(), {transport});
    std::vector<double> samples;
    REQUIRE(Named(subjects, "W beside collective")->visit(&samples).ok());
    CHECK(most <= 256);
    // Up to the largest that there is room for.
    CHECK(longest_s >= (piece_s == 1e-5 ? 3 * kPass_s : 1e-3));
  }
}

TEST_CASE("interference: a transport that fails lets the pass run",
          "[calibrate]") {
  Bench bench;
  bench.fails = absl::UnavailableError("gone");
  const Subjects subjects = Make(bench.Device(), {bench.Of(8), bench.Of(2)});
  bench.calls.clear();
  std::vector<double> samples;
  const absl::Status status =
      Named(subjects, "F beside send_recv")->visit(&samples);
  CHECK(status.message() == "gone");
  CHECK(bench.calls[bench.calls.size() - 3] == "begin");
  CHECK(bench.calls[bench.calls.size() - 2] == "release");
}

}  // namespace
}  // namespace pipewright::interference_test
