// What runs tell of how far they are.
#include "sim/engine/engine.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "tests/support/lowering.h"

namespace pipewright::progress_test {
namespace {

class Heard : public Progress {
 public:
  void At(double part) override { parts.push_back(part); }
  std::vector<double> parts;
};

Program Noisy(int replicas, int microbatches, double hop_s) {
  const auto schedule = Registered("1f1b", 4, microbatches);
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.replicas = replicas;
  options.data_parallel = DataParallel::kDdp;
  options.gradient_bytes.assign(4, 1);
  options.network.hop_s = hop_s;
  options.iterations = 3;
  auto jitter = std::make_shared<Jitter>();
  jitter->seed = 1;
  jitter->sigma = 0.05;
  options.jitter = jitter;
  return Lowered(schedule, options);
}

// Rises all the time, evenly, and says that it is over once.
void CheckHeard(const std::vector<double>& parts, double widest) {
  REQUIRE(parts.size() > 10);
  double before = 0;
  for (size_t index = 0; index + 1 < parts.size(); ++index) {
    INFO(index);
    CHECK(parts[index] >= before);
    CHECK(parts[index] <= before + widest);
    CHECK(parts[index] < 1);
    before = parts[index];
  }
  CHECK(before > 1 - widest);
  CHECK(parts.back() == 1);
}

TEST_CASE("progress: of drawn sweeps it never falls", "[engine]") {
  for (const int replicas : {1, 2, 16}) {
    INFO(replicas);
    Heard heard;
    REQUIRE(RunFast(Noisy(replicas, 64, 0.1), {.progress = &heard}).ok());
    CheckHeard(heard.parts, 0.35);
  }
}

TEST_CASE("progress: of events it never falls, and they are counted",
          "[engine]") {
  for (const bool run_ahead : {true, false}) {
    INFO(run_ahead);
    Heard heard;
    REQUIRE(RunOnFluidClock(Noisy(16, 1024, 0.1),
                            {.progress = &heard, .run_ahead = run_ahead})
                .ok());
    CheckHeard(heard.parts, 0.35);
  }
}

}  // namespace
}  // namespace pipewright::progress_test
