// Logs of training runs in the shapes that Megatron-LM, Megatron-Bridge and
// torchtitan print: step times and memory against values that are computed by
// hand, and lines that are broken, mixed or repeated.
#include "sim/trace/training_log.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/base/error_parts.h"

namespace pipewright::training_log_test {
namespace {

std::string Iteration(int step, double millis, const std::string& more = "") {
  return absl::StrFormat(
      " [2025-04-13 23:41:12] iteration %8d/    1000 | consumed samples: %12d "
      "| elapsed time per iteration (ms): %.1f |%s learning rate: 4.0E-05 | "
      "global batch size:    16 | lm loss: 1.0E+01 | grad norm: 3.874 |\n",
      step, 16 * step, millis, more);
}

std::string TitanStep(int step, int second, int millis,
                      const std::string& tps = "10,050") {
  return absl::StrFormat(
      "[titan] 2026-02-24 19:46:%02d,%03d - root - INFO - step: %2d  loss:  "
      "7.62585  grad_norm: 26.6250  memory: %d.50GiB(37.51%%)  tps: %s  "
      "tflops: 314.71  mfu: 13.99%%\n",
      second, millis, step, 60 + step, tps);
}

TrainingLog Log(const std::string& text) {
  const absl::StatusOr<TrainingLog> log = ReadTrainingLog(text, "train.log");
  INFO(log.status());
  REQUIRE(log.ok());
  return *log;
}

LogSummary Summary(const std::string& text, int64_t skip = -1) {
  const absl::StatusOr<LogSummary> summary = SummarizeLog(Log(text), skip);
  INFO(summary.status());
  REQUIRE(summary.ok());
  return *summary;
}

std::string ErrorOf(const std::string& text) {
  return std::string(ReadTrainingLog(text, "train.log").status().message());
}

TEST_CASE("training log: Megatron-LM's step times without the warm-up",
          "[trace]") {
  const std::string text = absl::StrCat(
      "  seq_length ................................. 4096\n"
      "  world_size ................................. 8\n",
      Iteration(10, 9000, " throughput per GPU (TFLOP/s/GPU): 40.0 |"),
      "[Rank 0] (after 10 iterations) memory (MB) | allocated: 1464.25 | max "
      "allocated: 2048.0 | reserved: 1576.0 | max reserved: 3072.0\n"
      "[Rank 4] (after 10 iterations) memory (MB) | allocated: 1.0 | max "
      "allocated: 4096.0 | reserved: 1576.0 | max reserved: 5120.0\n",
      Iteration(20, 1000, " throughput per GPU (TFLOP/s/GPU): 400.0 |"),
      " validation loss at iteration 20 | lm loss value: 1.0E+01 |\n",
      Iteration(30, 1010, " throughput per GPU (TFLOP/s/GPU): 396.0 |"),
      Iteration(40, 1500, " throughput per GPU (TFLOP/s/GPU): 266.0 |"));
  const TrainingLog log = Log(text);
  CHECK(log.program == "Megatron-LM");
  CHECK(log.steps.size() == 4);
  CHECK(log.steps[1].line == 6);
  CHECK(*log.allocated_bytes == 4096.0 * 1048576);
  CHECK(*log.reserved_bytes == 5120.0 * 1048576);
  const LogSummary summary = Summary(text);
  CHECK(summary.warm_up == std::vector<int64_t>{10});
  REQUIRE(summary.step_s);
  CHECK(summary.step_s->count == 3);
  CHECK(summary.step_s->median == Approx(1.010));
  CHECK(summary.step_s->mean == Approx(3.510 / 3));
  // Of 1, 1.01 and 1.5: squares of -0.17, -0.16 and 0.33 over 2.
  CHECK(summary.step_s->deviation == Approx(0.285832).epsilon(1e-5));
  CHECK(summary.step_s->least == Approx(1));
  CHECK(summary.step_s->most == Approx(1.5));
  CHECK(summary.tflops->median == Approx(396));
  // 16 samples of 4096 tokens on 8 devices.
  CHECK(summary.tokens_per_s->median == Approx(16 * 4096 / 8 / 1.010));
  REQUIRE(summary.slow.size() == 1);
  CHECK(summary.slow[0].step == 40);
  // The user's number of lines wins over the rule.
  CHECK(Summary(text, 0).warm_up.empty());
  CHECK(Summary(text, 2).warm_up == std::vector<int64_t>{10, 20});
  CHECK_FALSE(SummarizeLog(log, 4).ok());
}

TEST_CASE("training log: Megatron-Bridge's rates and gigabytes", "[trace]") {
  const TrainingLog log = Log(absl::StrCat(
      "Step Time : 9.00s GPU utilization: 40.0MODEL_TFLOP/s/GPU\n",
      Iteration(1, 9000),
      // A launcher has joined the reports of two ranks.
      "p4/0 [Rank 1] (after 2 iterations) memory (GB) | "
      "mem-max-allocated-gigabytes: 63.5 | mem-max-reserved-gigabytes: 70.25 | "
      "mem-alloc-retires: 0[Rank 2] (after 2 iterations) memory (GB) | "
      "mem-max-allocated-gigabytes: 64.75 | mem-max-reserved-gigabytes: 70 |\n"
      "Step Time : 1.00s GPU utilization: 693.1MODEL_TFLOP/s/GPU\n",
      Iteration(2, 1000), Iteration(3, 1000)));
  REQUIRE(log.steps.size() == 3);
  CHECK(*log.steps[0].tflops == 40);
  CHECK(*log.steps[1].tflops == 693.1);
  CHECK_FALSE(log.steps[2].tflops);
  CHECK(*log.allocated_bytes == 64.75e9);
  CHECK(*log.reserved_bytes == 70.25e9);
}

TEST_CASE("training log: torchtitan's steps last from line to line",
          "[trace]") {
  const std::string text =
      absl::StrCat(TitanStep(1, 10, 0, "950"), TitanStep(2, 11, 600),
                   "[titan] 2026-02-24 19:46:12,000 - root - INFO - validate "
                   "step:  2  loss: 7.1  memory: 99.00GiB(1%)  tps: 1\n",
                   TitanStep(4, 14, 800), TitanStep(5, 16, 400));
  const LogSummary summary = Summary(text);
  const TrainingLog log = Log(text);
  CHECK(log.program == "torchtitan");
  CHECK_FALSE(log.steps[0].seconds);
  CHECK(summary.warm_up == std::vector<int64_t>{1});
  // Two steps lie between the lines of 2 and 4.
  CHECK(summary.step_s->least == Approx(1.6));
  CHECK(summary.step_s->most == Approx(1.6));
  CHECK(summary.tokens_per_s->median == 10050);
  CHECK_FALSE(log.allocated_bytes);
  CHECK(*log.reserved_bytes == 99.0 * 1073741824 - 33.5 * 1073741824);
}

TEST_CASE("training log: what terminals and launchers add", "[trace]") {
  std::vector<std::string> lines;
  for (int step = 1; step <= 4; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      lines.push_back(absl::StrCat(
          "[rank", rank, "]:",
          absl::StrReplaceAll(TitanStep(step, 10 + 2 * step, 7 * rank),
                              {{"step:", "\x1b[31mstep:"},
                               {"loss:", "\x1b[38;2;1;2;3mloss:"},
                               {"\n", "\x1b[39m\r\n"}})));
    }
  }
  const std::string marked = absl::StrJoin(lines, "");
  for (const std::string& text :
       {marked, absl::StrCat("\xef\xbb\xbf", marked),
        absl::StrReplaceAll(marked, {{"[rank0]:", ""}, {"[rank1]:", ""}}),
        absl::StrReplaceAll(marked, {{"[rank0]:", "0: "}, {"[rank1]:", "1: "}}),
        absl::StrReplaceAll(marked, {{"[rank0]:", " [1,0]<stdout>:"},
                                     {"[rank1]:", "[1,1]<stderr>:"}})}) {
    INFO(text);
    const TrainingLog log = Log(text);
    REQUIRE(log.steps.size() == 4);
    CHECK(log.warnings.empty());
    CHECK(*log.steps[3].seconds == Approx(2));
  }
}

TEST_CASE("training log: a run that was started again", "[trace]") {
  const TrainingLog log = Log(
      absl::StrCat(Iteration(1, 5000), Iteration(2, 1000), Iteration(3, 1000),
                   Iteration(4, 1000), Iteration(5, 1000), Iteration(3, 4000),
                   Iteration(4, 2000)));
  REQUIRE(log.steps.size() == 2);
  CHECK(*log.steps[1].seconds == 2);
  REQUIRE(log.warnings.size() == 1);
  CHECK(absl::StrContains(log.warnings[0],
                          "line 6: step 3 follows step 5, so the run was "
                          "started again; the 5 lines before are left out"));
}

std::vector<int64_t> StepsOf(const TrainingLog& log) {
  std::vector<int64_t> steps;
  for (const LoggedStep& step : log.steps) steps.push_back(step.step);
  return steps;
}

// Without times of day.
std::string Untimed(const std::vector<int>& steps) {
  std::string text;
  for (const int step : steps) {
    text += absl::StrReplaceAll(Iteration(step, 1000),
                                {{" [2025-04-13 23:41:12]", ""}});
  }
  return text;
}

TEST_CASE("training log: steps that a restart repeats", "[trace]") {
  // From the checkpoint of step 8, with and without the times of day.
  std::string timed;
  std::string seconds;
  int second = 0;
  for (const int step : {7, 8, 9, 10, 9, 10, 11, 12}) {
    second += step == 9 && second > 2 ? 40 : 1;
    timed += TitanStep(step, second, 0);
    seconds += absl::StrReplaceAll(
        Iteration(step, 1000), {{":12]", absl::StrFormat(":%02d]", second)}});
  }
  for (const std::string& text :
       {timed, seconds, Untimed({7, 8, 9, 10, 9, 10, 11, 12})}) {
    INFO(text);
    const TrainingLog log = Log(text);
    CHECK(StepsOf(log) == std::vector<int64_t>{9, 10, 11, 12});
    CHECK(log.steps[0].line == 5);
    REQUIRE(log.warnings.size() == 1);
    CHECK(absl::StrContains(log.warnings[0],
                            "line 5: step 9 follows step 10, so the run was "
                            "started again; the 4 lines before are left out"));
    CHECK(Summary(text).slow.empty());
  }
}

TEST_CASE("training log: ranks without marks that lie apart", "[trace]") {
  std::string timed;
  std::vector<int> both;
  for (int step = 1; step <= 10; ++step) {
    for (const int of : {step, step - 3}) {
      if (of < 1) continue;
      both.push_back(of);
      timed += TitanStep(of, 10 + 2 * of, of == step ? 0 : 9);
    }
  }
  for (const std::string& text : {timed, Untimed(both)}) {
    INFO(text);
    const TrainingLog log = Log(text);
    CHECK(log.steps.size() == 10);
    CHECK(log.warnings.empty());
    CHECK(*log.steps[9].seconds == Approx(timed == text ? 2 : 1));
  }
  // The log begins in the middle: step 1 looks like a restart, once.
  const TrainingLog log = Log(Untimed({4, 1, 5, 2, 6, 3, 7, 4, 8, 5, 9, 6}));
  CHECK(StepsOf(log) == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(log.warnings.size() == 1);
}

TEST_CASE("training log: a last line without its end", "[trace]") {
  const std::string first = TitanStep(1, 10, 0);
  const std::string titan = TitanStep(2, 12, 0);
  const std::string megatron = Iteration(2, 1000);
  const auto steps = [](const std::string& text) {
    const TrainingLog log = Log(text);
    const bool warns = !log.warnings.empty() &&
                       absl::StrContains(log.warnings[0], "line 2 is cut off");
    CHECK(warns == (log.steps.size() == 1));
    return log.steps.size();
  };
  const auto until = [](const std::string& text, const std::string& last) {
    return text.substr(0, text.find(last) + last.size());
  };
  for (const char* last :
       {"tps: 1", "tps: 10,", "tps: 10,050", "tflops: 314.7", "mfu: 13."}) {
    INFO(last);
    CHECK(steps(first + until(titan, last)) == 1);
  }
  CHECK(steps(first + until(titan, "tps: 10,050  tfl")) == 2);
  CHECK(steps(first + until(titan,
                            "%)  tps: 10,050  tflops: 314.71  mfu: "
                            "13.99%")) == 2);
  for (const char* last : {"(ms): 1", "(ms): 1000.0", "(ms): 1000.0 | lear"}) {
    INFO(last);
    CHECK(steps(Iteration(1, 1000) + until(megatron, last)) == 1);
  }
  CHECK(steps(Iteration(1, 1000) + until(megatron, "grad norm: 3.874 |")) == 2);
  // Nor is memory what a cut number says.
  const TrainingLog log =
      Log(Iteration(1, 1000) + "[Rank 0] memory (MB) | max allocated: 20");
  CHECK_FALSE(log.allocated_bytes);
}

TEST_CASE("training log: broken lines are named", "[trace]") {
  const std::string good = Iteration(1, 1000);
  const std::string cut = Iteration(2, 1000).substr(0, 70);
  // At the end the log may still be written.
  const TrainingLog log = Log(absl::StrCat(good, cut));
  CHECK(log.steps.size() == 1);
  REQUIRE(log.warnings.size() == 1);
  CHECK(absl::StrContains(log.warnings[0], "line 2 is cut off"));
  const std::string inside = ErrorOf(absl::StrCat(good, cut, "\n", good));
  CHECK(absl::StrContains(inside, "train.log:2: elapsed time per iteration"));
  CHECK(absl::StrContains(inside, "allowed: milliseconds above 0"));
  for (const double millis : {0.0, -5.0}) {
    CHECK(absl::StrContains(
        ErrorOf(absl::StrCat(good, Iteration(2, millis), good)),
        "train.log:2:"));
  }
  CHECK(absl::StrContains(
      ErrorOf(absl::StrCat(good, absl::StrReplaceAll(good, {{"1000.0", "nan"}}),
                           good)),
      "train.log:2:"));
  CHECK(absl::StrContains(
      ErrorOf(absl::StrCat(
          TitanStep(1, 1, 0),
          absl::StrReplaceAll(TitanStep(2, 2, 0), {{"tps:", "tp"}}),
          TitanStep(3, 3, 0))),
      "train.log:2: tps: missing"));
  const std::string other = ErrorOf("epoch 1 took 3 s\n");
  CHECK(absl::StrContains(other, "train.log: reports no step; allowed: "));
  CHECK(absl::StrContains(other, "torchtitan"));
  CHECK_FALSE(ReadTrainingLog("", "train.log").ok());
}

}  // namespace
}  // namespace pipewright::training_log_test
