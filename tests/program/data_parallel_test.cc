#include "sim/program/data_parallel.h"

#include <catch2/catch.hpp>
#include <string>

namespace pipewright::data_parallel_test {

TEST_CASE("data parallel: a row a mode, by ZeRO's stage", "[program]") {
  for (size_t row = 0; row < kDataParallelModes.size(); ++row) {
    INFO(kDataParallelModes[row].name);
    CHECK(static_cast<size_t>(kDataParallelModes[row].mode) == row);
  }
  CHECK(TraitsOf(DataParallel::kNone).zero_stage() == 0);
  CHECK(TraitsOf(DataParallel::kDdp).zero_stage() == 0);
  CHECK(TraitsOf(DataParallel::kZero1).zero_stage() == 1);
  CHECK(TraitsOf(DataParallel::kZero2).zero_stage() == 2);
  CHECK(TraitsOf(DataParallel::kFsdp).zero_stage() == 3);
  CHECK_FALSE(TraitsOf(DataParallel::kNone).reduces);
  CHECK(TraitsOf(DataParallel::kDdp).reduces);
  CHECK(std::string(TraitsOf(DataParallel::kFsdp).name) == "fsdp");
}

TEST_CASE("data parallel: who shards more shards all that others do",
          "[program]") {
  for (const DataParallelTraits& mode : kDataParallelModes) {
    INFO(mode.name);
    CHECK(mode.shards_weights <= mode.shards_gradients);
    CHECK(mode.shards_gradients <= mode.shards_step);
    CHECK(mode.shards_step <= mode.reduces);
  }
}

}  // namespace pipewright::data_parallel_test
