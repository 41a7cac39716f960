#include "sim/model/training.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace pipewright::training_test {
namespace {

TrainingSpec Training() {
  TrainingSpec training;
  training.sequence = 4096;
  return training;
}

std::string Message(absl::string_view model, const TrainingSpec& training,
                    int vpp = 1) {
  return std::string(
      CheckTraining(FindModel(model).value(), training, vpp).message());
}

TEST_CASE("training: what fits is taken", "[model]") {
  TrainingSpec training = Training();
  CHECK(Message("llama3-70b", training).empty());
  training.tp = 16;  // two devices a key-value head
  training.sequence_parallel = true;
  training.cp = 4;
  CHECK(Message("llama3-70b", training).empty());
  training = Training();
  training.ep = 64;
  training.dp = 64;
  training.tp = 4;
  training.recompute_chunks = {true, false};
  CHECK(Message("deepseek-v3", training, 2).empty());
}

TEST_CASE("training: what does not fit is told what would", "[model]") {
  const auto says = [](const std::string& message, const char* part) {
    INFO(message);
    return absl::StrContains(message, part);
  };
  TrainingSpec training = Training();
  training.tp = 6;
  CHECK(says(Message("llama3-70b", training),
             "strategy.tp: 6 is not allowed; allowed: 4, 8 (model.heads = 64"));
  training.tp = 128;
  CHECK(says(Message("llama3-70b", training), "allowed: 64"));
  training.tp = 7;
  CHECK(
      says(Message("qwen2.5-7b", training), "allowed: 4 (model.kv_heads = 4"));
  training = Training();
  training.ep = 2;
  CHECK(says(Message("llama3-8b", training), "strategy.ep: 2"));
  CHECK(says(Message("mixtral-8x7b", training),
             "allowed: 1 (it must divide model.experts = 8 and dp * cp = 1 * "
             "1 = 1)"));
  training.dp = 12;
  training.ep = 3;
  CHECK(says(Message("mixtral-8x7b", training), "allowed: 2, 4"));
  training = Training();
  training.cp = 3;
  CHECK(says(Message("llama3-8b", training), "strategy.cp: 3"));
  CHECK(says(Message("llama3-8b", training), "allowed: 2, 4"));
  training.cp = 2;
  training.slices = 3;
  CHECK(says(Message("llama3-8b", training), "strategy.slices: 3"));
  training = Training();
  training.sequence = 4;
  training.tp = 8;
  CHECK(Message("llama3-8b", training).empty());
  training.sequence_parallel = true;
  CHECK(says(Message("llama3-8b", training),
             "strategy.tp: 8 is not allowed; allowed: 4 "));
  training = Training();
  training.recompute_chunks = {true};
  CHECK(says(Message("llama3-8b", training, 2), "vpp = 2"));
  training.sequence = 0;
  CHECK(says(Message("llama3-8b", training, 1), "strategy.sequence: 0"));
}

}  // namespace
}  // namespace pipewright::training_test
