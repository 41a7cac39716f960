// Tables of measured rates: reading, interpolation, the clock under a lasting
// load, and what an estimate takes of them.
#include "sim/cost/silicon.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/cost/analytic.h"
#include "sim/cost/clock.h"
#include "sim/cost/estimate_error.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"

namespace pipewright::silicon_test {
namespace {

constexpr char kTwoByTwo[] =
    "pipewright-silicon 1\n"
    "# a comment\n"
    "table gemm bfloat16 TN\n"
    "m,n,k,us,error_percent\n"
    "1024,1024,1024,10,5\n"
    "4096,1024,1024,30,5\n"
    "1024,4096,1024,32,5\n"
    "4096,4096,1024,100,5\n"
    "1024,1024,4096,36,5\n"
    "4096,1024,4096,110,5\n"
    "1024,4096,4096,112,5\n"
    "4096,4096,4096,400,9\n";

SiliconTable TableOf(const std::string& text) {
  const auto tables = ReadSiliconTables(text, "t.csv");
  INFO(tables.status());
  REQUIRE(tables.ok());
  return tables->front();
}

// A model without tiles: time is work.
double Work(double m, double n, double k) { return m * n * k; }

TEST_CASE("silicon: a measured shape gives its own time and error", "[cost]") {
  const SiliconTable table = TableOf(kTwoByTwo);
  const SiliconGrid grid(table);
  for (int row = 0; row < table.rows(); ++row) {
    const double* sizes = table.row(row);
    const SiliconTime time = grid.At(sizes[0], sizes[1], sizes[2], &Work);
    CHECK(time.seconds == Approx(table.seconds(row)));
    CHECK(time.error == Approx(table.error(row)));
    CHECK(time.is_inside);
  }
}

// With a model in proportion to the work both halves are the same: the rate is
// the geometric mean of the corners' half way (in logarithms) between them.
TEST_CASE("silicon: half way the rate is the geometric mean", "[cost]") {
  const SiliconGrid grid(TableOf(kTwoByTwo));
  const SiliconTime one = grid.At(2048, 1024, 1024, &Work);
  CHECK(one.seconds == Approx(std::sqrt(10e-6 * 30e-6)));
  CHECK(one.error > 0.05);
  const SiliconTime all = grid.At(2048, 2048, 2048, &Work);
  double log = 0;
  for (const double us : {10, 30, 32, 100, 36, 110, 112, 400}) {
    log += std::log(us * 1e-6) / 8;
  }
  CHECK(all.seconds == Approx(std::exp(log)));
}

TEST_CASE("silicon: beyond the ends the time goes on as the model does",
          "[cost]") {
  const SiliconGrid grid(TableOf(kTwoByTwo));
  const SiliconTime end = grid.At(4096, 4096, 4096, &Work);
  const SiliconTime beyond = grid.At(16384, 4096, 4096, &Work);
  CHECK(beyond.seconds == Approx(4 * end.seconds));
  CHECK_FALSE(beyond.is_inside);
  CHECK(beyond.error > end.error);
}

// If a shape is not in the table, its neighbours along the axes fill it.
TEST_CASE("silicon: a hole is filled from its neighbours", "[cost]") {
  const SiliconGrid grid(
      TableOf("pipewright-silicon 1\n"
              "table gemm bfloat16 TN\n"
              "m,n,k,us,error_percent\n"
              "1000,8,8,10,5\n"
              "4000,8,8,40,5\n"
              "1000,8,16,20,5\n"
              "2000,8,16,40,5\n"
              "4000,8,16,80,5\n"));
  const SiliconTime time = grid.At(2000, 8, 8, &Work);
  CHECK(time.seconds == Approx(20e-6));
  CHECK(time.error > 0.05);
}

TEST_CASE("silicon: bad tables are refused with file, line and field",
          "[cost]") {
  const struct {
    const char* text;
    const char* says;
    int line;
    const char* field;
  } cases[] = {
      {"m,n,k\n", "the line pipewright-silicon 1", 1, "header"},
      {"pipewright-silicon 1\ntable gemms bfloat16 TN\n", "gemm TYPE", 2,
       "table"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,us\n", "m,n,k,us", 3,
       "columns"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
       "8,8,8,1,5\n16,8,8,nan,5\n",
       "finite", 5, "us"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
       "8,8,8,-1,5\n",
       "above 0", 4, "us"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
       "8,8,8,1,inf\n",
       "at most 1000", 4, "error_percent"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
       "8,8,8,1,5000\n",
       "at most 1000", 4, "error_percent"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
       "8,8.5,8,1,5\n",
       "integer", 4, "n"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
       "8,8,8,1\n",
       "a row of 5", 4, "us"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
       "8,8,8,1,5\n16,8,8,2,5\n8,8,8,1,5\n",
       "each shape once (line 4 has it)", 6, "m,n,k"},
      {"pipewright-silicon 1\ntable nccl all_gather bfloat16\n"
       "gpus,bytes,us,error_percent\n2,8,1,5\n"
       "table nccl all_gather bfloat16\ngpus,bytes,us,error_percent\n2,8,1,5\n",
       "each table once", 5, "table"},
      {"pipewright-silicon 1\ntable gemm bfloat16 TN\n"
       "m,n,k,us,error_percent\n",
       "rows of numbers", 3, "table"},
  };
  for (const auto& bad : cases) {
    INFO(bad.text);
    const auto tables = ReadSiliconTables(bad.text, "t.csv");
    REQUIRE_FALSE(tables.ok());
    INFO(tables.status());
    const ErrorParts parts = PartsOf(tables.status());
    CHECK(absl::StrContains(tables.status().message(), bad.says));
    CHECK(parts.file == "t.csv");
    CHECK(parts.line == bad.line);
    CHECK(parts.field == bad.field);
  }
}

TEST_CASE("silicon: a table is the same after writing and reading", "[cost]") {
  const auto tables = ReadSiliconTables(kTwoByTwo, "t.csv");
  REQUIRE(tables.ok());
  const auto again =
      ReadSiliconTables(SiliconToText(*tables, {"note"}), "u.csv");
  INFO(again.status());
  REQUIRE(again.ok());
  CHECK((*again)[0].words == (*tables)[0].words);
  REQUIRE((*again)[0].values.size() == (*tables)[0].values.size());
  for (size_t at = 0; at < (*tables)[0].values.size(); ++at) {
    CHECK((*again)[0].values[at] == Approx((*tables)[0].values[at]));
  }
}

// 8192^3 on each device against what its two campaigns say (silicon's own
// README): the tables are of this device and in these units.
TEST_CASE("silicon: every shipped table reads, with plausible rates",
          "[cost]") {
  size_t files = 0;
  for (const std::string& name : ShippedSiliconNames()) {
    INFO(name);
    const std::vector<SiliconTable>* tables = ShippedSilicon(name);
    REQUIRE(tables != nullptr);
    REQUIRE_FALSE(tables->empty());
    CHECK(ShippedSilicon(name) == tables);
    ++files;
  }
  CHECK(files > 30);
  CHECK(ShippedSilicon("h100_gemm_int3") == nullptr);
  const struct {
    const char* device;
    double low, high;  // TFLOP/s
  } rates[] = {{"a100", 255, 300},   {"h100", 700, 800},
               {"h200", 660, 810},   {"b200", 1450, 1700},
               {"b300", 1300, 1650}, {"gb200", 1350, 1450},
               {"gb300", 1800, 2150}};
  for (const auto& rate : rates) {
    INFO(rate.device);
    const auto silicon = Silicon::Shipped(rate.device);
    REQUIRE(silicon != nullptr);
    const auto time = silicon->Product("bfloat16", "TN", 8192, 8192, 8192);
    REQUIRE(time);
    const double tflops = 2 * std::pow(8192.0, 3) / time->seconds / 1e12;
    CHECK(tflops > rate.low);
    CHECK(tflops < rate.high);
    CHECK(time->error > 0.01);
    CHECK(time->error < 0.5);
  }
  CHECK(Silicon::Shipped("mi300x") == nullptr);
}

TEST_CASE("silicon: attention and norms are near their sheets", "[cost]") {
  for (const char* const name : {"h100", "h200", "b200", "gb300"}) {
    INFO(name);
    const auto silicon = Silicon::Shipped(name);
    REQUIRE(silicon != nullptr);
    const DeviceSpec& device = silicon->device();
    for (const bool forward : {true, false}) {
      const auto time =
          silicon->Attention("bfloat16", forward, true, 128, 64, 8192);
      if (!time) continue;
      const double flops =
          0.5 * 4 * 64 * 8192.0 * 8192 * 128 * (forward ? 1 : 2.5);
      CHECK(flops / time->seconds < device.bf16_flops);
      CHECK(flops / time->seconds > 0.3 * device.bf16_flops);
      const double bytes = 16384.0 * 4096 * 2 * (forward ? 2 : 3);
      const auto norm = silicon->Norm(forward, bytes);
      REQUIRE(norm);
      CHECK(bytes / norm->seconds < device.hbm_bytes_per_s);
      CHECK(bytes / norm->seconds > 0.3 * device.hbm_bytes_per_s);
    }
  }
}

// Board 1000 W, idle 200 W, 1 pJ/FLOP: at 1e15 FLOP/s 800 W of 1000 W are
// left, so the clock is the cube root of 0.8.
TEST_CASE("clock: the cube root of the power that is left", "[cost]") {
  DeviceSpec device;
  device.bf16_flops = 2e15;
  device.fp8_flops = 4e15;
  device.board_watts = 1000;
  device.idle_watts = 200;
  device.bf16_joules_per_flop = 1e-12;
  CHECK(LastingClock(device, "bfloat16", 1e15) == Approx(std::cbrt(0.8)));
  // A FLOP of fp8 takes 1.07 times half the energy.
  CHECK(LastingClock(device, "fp8", 2e15) == Approx(std::cbrt(0.8 / 1.07)));
  CHECK(LastingClock(device, "bfloat16", 0.5e15) == 1);
  device.board_watts = 0;
  CHECK(LastingClock(device, "bfloat16", 1e18) == 1);
}

// 800 W for two kernels of a millisecond each: one computes with 1000 W, the
// other moves data with 300 W. Alone the first would have a clock of 0.928.
TEST_CASE("clock: what runs in turn shares the power", "[cost]") {
  DeviceSpec device;
  device.bf16_flops = 2e15;
  device.board_watts = 1000;
  device.idle_watts = 200;
  device.bf16_joules_per_flop = 1e-12;
  const LoadedKernel computes = {.clocked_s = 1e-3, .clocked_joules = 1};
  const LoadedKernel streams = {.steady_s = 1e-3, .steady_joules = 0.3};
  const LoadedKernel hungry = {.clocked_s = 1e-3, .clocked_joules = 2};
  CHECK(ClockUnder(device, {computes}, 0) == Approx(std::cbrt(0.8)));
  // 1.3 J in 2 ms are 650 W.
  CHECK(ClockUnder(device, {computes, streams}, 0) == 1);
  CHECK(ClockUnder(device, {streams}, 0) == 1);
  const double clock = ClockUnder(device, {hungry, streams}, 0);
  CHECK(clock > ClockUnder(device, {hungry}, 0));
  CHECK(clock < 1);
  CHECK(2 * clock * clock + 0.3 ==
        Approx(800 * (1e-3 / clock + 1e-3)).epsilon(1e-9));
  // The order does not matter, nor how often all of it runs.
  CHECK(ClockUnder(device, {streams, hungry}, 0) == Approx(clock));
  CHECK(ClockUnder(device, {hungry, streams, streams, hungry}, 0) ==
        Approx(clock));
  CHECK(ClockUnder(device, {hungry, streams}, 1e-3) > clock);
  CHECK(ClockUnder(device, {hungry}, 1) == 1);
}

// Measured on an H100 (experiments/h100_load): products of bf16 and fp8 keep
// 0.85 of their rate, attention 0.86 and 0.88.
TEST_CASE("clock: an H100 under products and attention", "[cost]") {
  const DeviceSpec h100 = *FindDevice("h100");
  CHECK(LastingClock(h100, "bfloat16", 798e12) == Approx(0.842).epsilon(0.02));
  CHECK(LastingClock(h100, "fp8", 1502e12) == Approx(0.843).epsilon(0.02));
  const auto attention = [&](double rate, double factor) {
    const LoadedKernel second = {
        .clocked_s = 1,
        .clocked_joules = factor * rate * JoulesOfFlop(h100, "bfloat16")};
    return ClockUnder(h100, {second}, 0);
  };
  CHECK(attention(615e12, kAttentionForwardJoules) ==
        Approx(0.861).epsilon(0.01));
  CHECK(attention(532e12, kAttentionBackwardJoules) ==
        Approx(0.879).epsilon(0.01));
  // A copy at the memory's rate stays below the limit: 524 W.
  CHECK(h100.idle_watts + kJoulesOfByte * 3.03e12 == Approx(524).epsilon(0.01));
}

// A group whose host is slower than the device waits, and waiting draws
// nothing.
TEST_CASE("clock: what the host holds up leaves power to others", "[cost]") {
  const DeviceSpec h100 = *FindDevice("h100");
  const LoadedKernel product = {.clocked_s = 1e-3, .clocked_joules = 0.8};
  LoadedKernel held = product;
  held.least_s = 4e-3;
  CHECK(held.Seconds(1) == 4e-3);
  CHECK(ClockUnder(h100, {product, product}, 0) < 1);
  CHECK(ClockUnder(h100, {product, held}, 0) == 1);
}

// On an H100 a sum in fp32 makes the W of Llama's products 3 to 31 % longer
// (experiments/torch_layers/h100_steps.csv): 41 us of 300 for 6144 x 4096 with
// 4096 tokens, 27 us of 589 with 8192.
TEST_CASE("sums: W pays for a part of the traffic of its sum", "[cost]") {
  TrainingSpec training;
  AnalyticOptions options = {.device = *FindDevice("h100"),
                             .silicon = Silicon::Shipped("h100")};
  ModelOp op;
  op.kind = OpClass::kGemm;
  op.has_weight_pass = true;
  op.n = 6144;
  op.k = 4096;
  const auto weight = [&](double tokens) {
    op.m = tokens;
    for (OpWork& work : op.work) {
      work = {.flops = 2 * op.m * op.n * op.k, .bytes = op.n * op.k};
    }
    return EstimateKernel(options, training, true, op, OpPass::kBackwardWeight);
  };
  const auto longer = [&](double tokens) {
    training.gradient_bytes = 4;
    const double with_s = weight(tokens).seconds;
    training.gradient_bytes = 2;
    return with_s - weight(tokens).seconds;
  };
  // 6 bytes a value at 3.0 TB/s are 50 us.
  CHECK(longer(4096) == Approx(27e-6).margin(1e-6));
  CHECK(longer(8192) == Approx(longer(4096)));
  // Sums in 16 bit cost nothing.
  training.gradient_bytes = 2;
  const double bare_s = weight(4096).seconds;
  training.gradient_bytes = 1;
  CHECK(weight(4096).seconds == bare_s);
  // The clock leaves it as it is.
  training.gradient_bytes = 4;
  KernelEstimate slow = weight(4096);
  const double short_s = slow.seconds;
  LowerClock(options.device, 0.5, &slow);
  CHECK(slow.seconds == Approx(2 * bare_s + short_s - bare_s));
  // Layers that are reduced as they come are not summed.
  training.sharded.shard_group = 8;
  CHECK(weight(4096).seconds > bare_s);
  training.zero = 3;
  training.dp = 8;
  CHECK(weight(4096).seconds == Approx(bare_s));
  training = {};
  // No other pass has it, nor PyTorch, which adds up elsewhere, nor the curves.
  CHECK(EstimateKernel(options, training, true, op, OpPass::kBackwardInput)
            .seconds < 1.1 * bare_s);
  options.kernels = FrameworkKernels::kCompiled;
  CHECK(weight(4096).seconds == Approx(bare_s));
  options.kernels = FrameworkKernels::kFused;
  options.silicon = nullptr;
  CHECK(longer(4096) == 0);
}

// 16 experts with 2048 rows each of 2048 x 1536 on an H100, forward, bf16: 351
// to 367 us in three ways, where one product of all rows takes 304
// (experiments/torch_layers/h100_grouped.csv).
TEST_CASE("grouped: Hopper hides more than half of the traffic", "[cost]") {
  const DeviceSpec& h100 = *FindDevice("h100");
  const double rows = 16 * 2048.0;
  const double bytes = 2 * (16 * 1536 * 2048 + rows * 2048 + rows * 1536);
  CHECK(GroupedSeconds(h100, bytes, 16, 304e-6) ==
        Approx(359e-6).epsilon(0.05));
  const DeviceSpec& b200 = *FindDevice("b200");
  CHECK(GroupedSeconds(b200, bytes, 16, 304e-6) ==
        Approx(304e-6 + StreamSeconds(b200, bytes)));
  // What the host needs stays.
  CHECK(GroupedSeconds(h100, 0, 64, 1e-6) == Approx(64 * kGroupSeconds));
}

TEST_CASE("clock: an exchange reads and writes what it sends and receives",
          "[cost]") {
  const AnalyticOptions options = {.device = *FindDevice("h100"),
                                   .network = {.devices_per_node = 8,
                                               .nvlink_bytes_per_s = 450e9,
                                               .nic_bytes_per_s = 50e9}};
  const auto bytes = [&](CommKind kind, int members, double copies = 0) {
    return ExchangedBytes(options, TrainingSpec(),
                          {.kind = kind,
                           .group = CommGroup::kExpert,
                           .members = members,
                           .bytes = 120,
                           .copies = copies});
  };
  CHECK(bytes(CommKind::kAllGather, 4) == Approx(180));
  CHECK(bytes(CommKind::kReduceScatter, 4) == Approx(180));
  CHECK(bytes(CommKind::kAllToAll, 3) == Approx(160));
  // A reduce-scatter and an all-gather.
  CHECK(bytes(CommKind::kAllReduce, 4) == Approx(360));
  // `bytes` with each of the others.
  CHECK(bytes(CommKind::kRing, 4) == Approx(720));
  CHECK(bytes(CommKind::kAllGather, 1) == 0);
  // Two copies of a token go to 3 devices at random, 1 in 9 to the same one as
  // the other: 2 (1 - 4/9) devices in the mean, 2/3 of them others.
  CHECK(bytes(CommKind::kAllToAll, 3, 2) ==
        Approx(2 * 120 / 2.0 * 3 * (1 - 4 / 9.0) * 2 / 3));
}

// All products and attention of a block have one clock: that of their power and
// of the power of exchanges, which is less.
TEST_CASE("clock: passes of a layer share it", "[cost]") {
  const ModelSpec* model = nullptr;
  for (const ModelSpec& each : AllModels()) {
    if (each.name == "llama3-8b") model = &each;
  }
  REQUIRE(model != nullptr);
  TrainingSpec training;
  training.sequence = 8192;
  // The traffic of sums of gradients does not go by the clock.
  training.gradient_bytes = 2;
  AnalyticOptions options = {.device = *FindDevice("h100"),
                             .silicon = Silicon::Shipped("h100")};
  options.network = {.nvlink_bytes_per_s = 450e9, .nic_bytes_per_s = 50e9};
  const auto clocks = [&] {
    options.sustained = true;
    const auto lasting =
        BlockTimes(*model, training, options, BlockKind::kDenseLayer, 0);
    options.sustained = false;
    const auto burst =
        BlockTimes(*model, training, options, BlockKind::kDenseLayer, 0);
    std::vector<double> found;
    for (size_t op = 0; op < burst.size(); ++op) {
      for (int pass = 0; pass < kNumOpPasses; ++pass) {
        const double clock =
            burst[op].seconds[pass] / lasting[op].seconds[pass];
        if (burst[op].seconds[pass] > 0 && clock < 1) found.push_back(clock);
      }
    }
    return found;
  };
  const std::vector<double> alone = clocks();
  // Four products and attention, three and two passes.
  CHECK(alone.size() == 14);
  for (const double clock : alone) CHECK(clock == Approx(alone[0]));
  CHECK(alone[0] > 0.8);
  training.tp = 2;
  const std::vector<double> apart = clocks();
  REQUIRE(!apart.empty());
  CHECK(apart[0] > alone[0]);
  // The same by hand.
  options.sustained = true;
  double exchanged_s = 0;
  double exchanged_bytes = 0;
  std::vector<LoadedKernel> loads;
  for (const ModelOp& op :
       BlockOps(*model, training, BlockKind::kDenseLayer, 0)) {
    for (const OpPass pass :
         {OpPass::kForward, OpPass::kBackwardInput, OpPass::kBackwardWeight}) {
      loads.push_back(
          EstimateKernel(options, training, model->causal, op, pass).load);
    }
    for (const OpComm& comm : op.comms) {
      exchanged_s += CommSeconds(options, training, comm);
      exchanged_bytes += ExchangedBytes(options, training, comm);
    }
  }
  // Forward, backward: two all-reduces of 8192 x 4096 values of two bytes each.
  CHECK(exchanged_bytes == Approx(4 * 2 * 8192 * 4096 * 2));
  const double rest = ClockUnder(options.device, loads, exchanged_s);
  const double no_rest = ClockUnder(options.device, loads, 0);
  loads.push_back(
      {.steady_s = exchanged_s, .steady_joules = 133e-12 * exchanged_bytes});
  const double working = ClockUnder(options.device, loads, 0);
  CHECK(apart[0] == Approx(working).epsilon(1e-6));
  CHECK(working < 0.998 * rest);
  // The ends of what it may be, which the interval of a step has inside.
  options.exchange_power = ExchangePower::kNone;
  CHECK(clocks()[0] == Approx(rest).epsilon(1e-6));
  options.exchange_power = ExchangePower::kLimit;
  CHECK(clocks()[0] == Approx(no_rest).epsilon(1e-6));
  options.exchange_power = ExchangePower::kCopy;
  options.sustained = true;
  const auto layout = EvenLayout(*model, training, 1, 1);
  REQUIRE(layout.ok());
  options.network.nvlink_bytes_per_s = 50e9;
  const auto interval = [&](ExchangePower power) {
    options.exchange_power = power;
    return EstimateError(*model, training, options, *layout);
  };
  // At the upper end nothing is left above, and more below.
  const RatioInterval middle = interval(ExchangePower::kCopy);
  CHECK(interval(ExchangePower::kLimit).high < 0.999 * middle.high);
  CHECK(interval(ExchangePower::kLimit).low < 0.999 * middle.low);
}

ModelOp ProductOp() {
  ModelOp op;
  op.kind = OpClass::kGemm;
  op.m = 8192;
  op.n = 4096;
  op.k = 16384;
  for (OpWork& work : op.work) {
    work.flops = 2 * op.m * op.n * op.k;
    work.bytes = 2 * (op.m * op.n + op.n * op.k + op.m * op.k);
  }
  return op;
}

// Tables of attention alone: products are of the curves, which are of lasting
// loads and so take no power from attention.
TEST_CASE("clock: curves take no more than the board gives", "[cost]") {
  const DeviceSpec h100 = *FindDevice("h100");
  const TrainingSpec training;
  const AnalyticOptions options = {.device = h100};
  const KernelEstimate curve =
      EstimateKernel(options, training, true, ProductOp(), OpPass::kForward);
  CHECK(curve.load.steady_joules <=
        (h100.board_watts - h100.idle_watts) * curve.seconds * (1 + 1e-12));
}

TEST_CASE("silicon: an estimate says where its time is from", "[cost]") {
  const TrainingSpec training;
  AnalyticOptions options = {.device = *FindDevice("h100")};
  const ModelOp op = ProductOp();
  const KernelEstimate curve =
      EstimateKernel(options, training, true, op, OpPass::kForward);
  CHECK(curve.how == "curve");
  CHECK(curve.seconds ==
        OpSeconds(options.device, training, true, op, OpPass::kForward));
  options.silicon = Silicon::Shipped("h100");
  const KernelEstimate burst =
      EstimateKernel(options, training, true, op, OpPass::kForward);
  CHECK(burst.how == "silicon");
  CHECK(burst.seconds ==
        Approx(options.silicon->Product("bfloat16", "TN", 8192, 4096, 16384)
                   ->seconds));
  KernelEstimate lasting = burst;
  LowerClock(options.device, 0.8, &lasting);
  CHECK(lasting.how == "silicon");
  CHECK(lasting.seconds == Approx(burst.seconds / 0.8));
  CHECK(lasting.error > burst.error);
  // The law was measured on this very chip and on an H200; on the card of 500 W
  // it is carried over.
  lasting = burst;
  LowerClock(*FindDevice("h200"), 0.8, &lasting);
  CHECK(lasting.how == "silicon");
  const double error = lasting.error;
  lasting = burst;
  LowerClock(*FindDevice("h100-96gb"), 0.8, &lasting);
  CHECK(lasting.how == "silicon, clock transferred");
  CHECK(lasting.error > error);
  CHECK(lasting.error < 0.2);
  lasting = burst;
  LowerClock(*FindDevice("b200"), 0.8, &lasting);
  CHECK(lasting.error > 0.25);
  lasting = curve;
  LowerClock(options.device, 0.8, &lasting);
  CHECK(lasting.seconds == curve.seconds);
  // The gradients are products of other shapes.
  CHECK(EstimateKernel(options, training, true, op, OpPass::kBackwardWeight)
            .seconds != burst.seconds);
  options.device = *FindDevice("b200");
  options.silicon = Silicon::Shipped("b200");
  CHECK(EstimateKernel(options, training, true, op, OpPass::kForward).how ==
        "silicon");
  // Grouped products take the rate of all their rows in one.
  ModelOp grouped = op;
  grouped.kind = OpClass::kGroupedGemm;
  grouped.count = 8;
  grouped.m = 1024;
  CHECK(
      EstimateKernel(options, training, true, grouped, OpPass::kForward).how ==
      "silicon, grouped");
}

// A card of the same chip with less power runs slower, and no faster with a
// short load than its peak allows.
TEST_CASE("silicon: tables carry over to a card with other limits", "[cost]") {
  const TrainingSpec training;
  const ModelOp op = ProductOp();
  const auto seconds = [&](const char* device, bool sustained) {
    const AnalyticOptions options = {.device = *FindDevice(device),
                                     .silicon = Silicon::Shipped("h100")};
    KernelEstimate estimate =
        EstimateKernel(options, training, true, op, OpPass::kForward);
    if (sustained) {
      LowerClock(options.device, ClockUnder(options.device, {estimate.load}, 0),
                 &estimate);
    }
    return estimate.seconds;
  };
  CHECK(seconds("h100-96gb", false) == Approx(seconds("h100", false)));
  CHECK(seconds("h100-96gb", true) > 1.05 * seconds("h100", true));
  CHECK(seconds("h100-nvl", false) / seconds("h100", false) ==
        Approx(989.4 / 835.5).epsilon(0.02));
}

}  // namespace
}  // namespace pipewright::silicon_test
