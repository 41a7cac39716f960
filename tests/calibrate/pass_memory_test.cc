// How many copies of weights take turns.
#include "calibrate/pass_memory.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "calibrate/kernel_subjects.h"
#include "calibrate/pass_subjects.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/tiny_calibration.h"

namespace pipewright::pass_memory_test {
namespace {

using testing::FakeDevice;
using testing::FakeKernels;
using testing::TinyCalibration;

// Most of its weights are the embedding's and the head's.
Grid QuickGrid() {
  ModelSpec model = TinyCalibration().model;
  model.vocabulary = 2048;
  return MakeGrid(model, PW_FP32, {.quick = true}).value();
}

BenchMemory MemoryOn(const FakeDevice& fake) {
  const auto device = MeasuredDevice::Open(FakeKernels(fake), 0).value();
  return EstimatePassMemory(device.get(), QuickGrid(), 0).value();
}

int CopiesOf(const BenchMemory& memory, PwPart part) {
  return memory.copies.at(WeightsKeyOf(part, QuickGrid().shapes.front()));
}

TEST_CASE("calibrate: weights many times the cache need no four copies",
          "[calibrate]") {
  const BenchMemory unknown = MemoryOn({.cache_bytes = 0});
  CHECK(CopiesOf(unknown, PW_LAYER) == 4);
  CHECK(CopiesOf(unknown, PW_HEAD) == 4);
  const BenchMemory large = MemoryOn({.cache_bytes = int64_t{1} << 30});
  CHECK(large.copies == unknown.copies);
  // With one layer alone B would find F's activations in the cache.
  const BenchMemory small = MemoryOn({.cache_bytes = 1});
  CHECK(CopiesOf(small, PW_LAYER) == 2);
  CHECK(CopiesOf(small, PW_HEAD) == 1);
  CHECK(small.bytes < large.bytes);
}

// Each kernel's timing goes round the layers, of which there are more.
TEST_CASE("calibrate: fewer heads than layers take turns", "[calibrate]") {
  const int64_t all = MemoryOn({.cache_bytes = 0}).bytes;
  const FakeDevice fake = {.free_bytes = all, .cache_bytes = 0};
  const BenchMemory memory = MemoryOn(fake);
  REQUIRE(CopiesOf(memory, PW_LAYER) == 4);
  REQUIRE(CopiesOf(memory, PW_HEAD) < 4);
  const auto device = MeasuredDevice::Open(FakeKernels(fake), 0).value();
  const PassSet passes =
      PassSubjects(device.get(), QuickGrid(), memory).value();
  for (const Subject& subject :
       KernelSubjects(device.get(), passes.layers, passes.heads)) {
    std::vector<double> samples;
    for (int visit = 0; visit < 5; ++visit) {
      CHECK(subject.visit(&samples).ok());
      CHECK(samples.size() == subject.series.size());
    }
  }
}

}  // namespace
}  // namespace pipewright::pass_memory_test
