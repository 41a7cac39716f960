// `plan` against a search that shares nothing with it but the simulation, and
// what it says when nothing fits or nothing is legal.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/search/plan.h"
#include "sim/base/file.h"
#include "sim/config/run_config.h"
#include "sim/foreign/foreign_args.h"
#include "sim/report/memory_report.h"
#include "sim/report/report.h"
#include "sim/run/simulated_run.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::plan_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;

RunConfig Base(const std::string& memory) {
  return ReadConfig("", "",
                    {{{"model.preset", "llama3-8b", "test"},
                      {"system.preset", "dgx-h100", "test"},
                      {"system.nodes", "1", "test"},
                      {"system.memory", memory, "test"},
                      {"costs.analytic.device", "auto", "test"}}})
      .value();
}

constexpr int kBatch = 8;

PlanRequest SmallRequest(const std::string& memory) {
  PlanRequest request;
  request.base = Base(memory);
  request.global_batch = kBatch;
  request.fixed = {{"cp", {"1"}},
                   {"offload", {"none"}},
                   {"recompute", {"none", "full"}},
                   {"schedule", {"1f1b", "interleaved-1f1b"}},
                   {"vpp", {"1", "2"}},
                   {"layout", {"even"}}};
  return request;
}

// All degrees written down anew; what does not run or fit is left out.
double Exhaustive(const std::string& memory) {
  RunContext context;
  double best = std::numeric_limits<double>::infinity();
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {1, 2, 4, 8}) {
      if (tp * pp > 8) continue;
      const int dp = 8 / (tp * pp);
      for (const int size : {1, 2, 4, 8}) {
        if (kBatch % (dp * size) != 0) continue;
        for (const int vpp : {1, 2}) {
          if (pp == 1 && vpp > 1) continue;
          for (const char* schedule : {"1f1b", "interleaved-1f1b"}) {
            for (const Recompute recompute :
                 {Recompute::kNone, Recompute::kFull}) {
              for (const DataParallel mode :
                   {DataParallel::kDdp, DataParallel::kZero1,
                    DataParallel::kZero2, DataParallel::kFsdp}) {
                RunConfig config = Base(memory);
                config.engine = "fast";
                config.schedule.name.emplace(schedule);
                config.strategy.tp = tp;
                config.strategy.pp = pp;
                config.strategy.dp = dp;
                config.strategy.vpp = vpp;
                config.strategy.microbatch_size = size;
                config.strategy.microbatches = kBatch / (dp * size);
                config.strategy.recompute = recompute;
                if (dp > 1) config.strategy.data_parallel = mode;
                const auto run = Simulate(config, &context);
                if (!run.ok() || !run->report.fits.value_or(true)) continue;
                best = std::min(best, run->report.iteration_s);
              }
            }
          }
        }
      }
    }
  }
  return best;
}

TEST_CASE("cli: plan finds the best of an exhaustive search", "[cli][long]") {
  for (const char* memory : {"80GiB", "40GiB"}) {
    INFO(memory);
    RunContext context;
    PlanOptions options;
    options.confirm = false;
    const PlanOutcome plan =
        MakePlan(SmallRequest(memory), options, &context).value();
    REQUIRE(!plan.ranked.empty());
    CHECK(plan.ranked[0].iteration_s ==
          Approx(Exhaustive(memory)).epsilon(1e-9));
    const PlanCounts& counts = plan.counts;
    CHECK(counts.legal == counts.memory + counts.bound + counts.same +
                              counts.dominated + counts.simulated +
                              counts.refused);
    for (const PlanResult& result : plan.ranked) {
      CHECK(result.bound_s <= result.score * (1 + 1e-9));
    }
  }
  // A bound that is too high is seen by the same check.
  RunContext context;
  PlanOptions wrong;
  wrong.confirm = false;
  wrong.bound_factor = 2;
  const PlanOutcome plan =
      MakePlan(SmallRequest("80GiB"), wrong, &context).value();
  CHECK(std::any_of(plan.ranked.begin(), plan.ranked.end(),
                    [](const PlanResult& result) {
                      return result.bound_s > result.score * (1 + 1e-9);
                    }));
}

PlanOutcome SmallPlan(PlanObjective objective, const char* memory = "80GiB") {
  PlanRequest request = SmallRequest(memory);
  request.objective = objective;
  RunContext context;
  PlanOptions options;
  options.confirm = false;
  return MakePlan(request, options, &context).value();
}

TEST_CASE("cli: of what is as fast plan takes what needs least memory",
          "[cli]") {
  // gpipe takes as long as 1f1b and more memory.
  PlanRequest request = SmallRequest("80GiB");
  request.fixed["schedule"] = {"1f1b", "gpipe"};
  request.fixed["pp"] = {"2", "4"};
  request.fixed["vpp"] = {"1"};
  RunContext planning;
  PlanOptions options;
  options.confirm = false;
  const PlanOutcome plan = MakePlan(request, options, &planning).value();
  size_t as_fast = 0;
  for (size_t row = 1; row < plan.ranked.size(); ++row) {
    const PlanResult& one = plan.ranked[row - 1];
    const PlanResult& next = plan.ranked[row];
    if (next.score > one.score * (1 + 1e-10)) continue;
    CHECK(one.peak_bytes <= next.peak_bytes);
    ++as_fast;
  }
  CHECK(as_fast > 0);
  const auto report = testing::Json::try_parse(PlanToJson(plan));
  // The same numbers as when it is simulated again.
  const double peak = report["best"]["peak_memory_bytes"].get<double>();
  CHECK(peak == plan.ranked[0].peak_bytes);
  RunContext context;
  const SimulatedRun again =
      Simulate(plan.space->ConfigOf(plan.ranked[0].point), &context, {})
          .value();
  const auto simulated =
      testing::Json::try_parse(ReportToJson(again.report))["peak_memory_bytes"];
  double most = 0;
  for (size_t rank = 0; rank < simulated.size(); ++rank) {
    most = std::max(most, simulated[rank].get<double>());
  }
  CHECK(peak == most);
  CHECK(peak == MostPeakMemoryOf(again.report));
  CHECK(absl::StrContains(PlanToText(plan),
                          ", 1 GiB of it beyond the allocator's peak"));
  CHECK(report["margin"].get<double>() > 1e-9);
  CHECK(absl::StrContains(PlanToText(plan), "as fast as the best: "));
}

TEST_CASE("cli: plan says what too little memory keeps out", "[cli]") {
  const PlanOutcome plan = SmallPlan(PlanObjective::kTokensPerSecond, "40GiB");
  REQUIRE(plan.kept_out);
  CHECK(plan.kept_out_s < plan.ranked[0].score);
  CHECK(absl::StrContains(PlanToText(plan), "more memory would save at most"));
  const PlanOutcome plenty =
      SmallPlan(PlanObjective::kTokensPerSecond, "1000GiB");
  CHECK_FALSE(
      absl::StrContains(PlanToText(plenty), "more memory would save at most"));
}

BinaryResult RunPlan(const std::string& line) {
  return RunBinary(absl::StrSplit(line, ' ', absl::SkipEmpty()));
}

// Between sites the exchange of experts takes long, so passes of ep 16 are not
// those of ep 1: what is known of one may not keep out the other.
TEST_CASE("cli: plan keeps nothing out that fits", "[cli]") {
  const std::string sites =
      "plan --model qwen3-30b-a3b --system two-site-h100 --nodes 2 --analytic "
      "--set model.layers=4 --sequence 8192 "
      "--set system.params.site_bandwidth=40Gbps "
      "--set system.params.site_latency=100us "
      "--set system.params.nodes_per_site=1 --set strategy.optimizer=none "
      "--global-batch 512 --no-confirm --json --memory 103354423296B -j 1 "
      "--fix tp=1 --fix cp=1 --fix pp=1 --fix microbatch_size=1 "
      "--fix schedule=gpipe --fix data_parallel=ddp --fix layout=even "
      "--fix offload=none,full ";
  const BinaryResult few = RunPlan(sites + "--fix ep=16");
  const BinaryResult more = RunPlan(sites + "--fix ep=1,16");
  REQUIRE(few.exit_code == 0);
  REQUIRE(more.exit_code == 0);
  const testing::Json best = testing::Json::parse(few.out)["best"];
  CHECK(best["offload"] == "full");
  CHECK(testing::Json::parse(more.out)["best"]["iteration_s"] ==
        best["iteration_s"]);

  // With odc no device keeps weights of its own besides the optimizer's.
  const BinaryResult odc = RunPlan(
      "plan --model llama3-70b --system dgx-h100 --nodes 2 --analytic "
      "--sequence 512 --global-batch 4 --fix tp=2 --fix pp=2 --fix cp=1 "
      "--fix microbatch_size=1 --fix schedule=1f1b --fix data_parallel=odc "
      "--fix recompute=full --fix offload=none --no-confirm --json "
      "--memory 79247497728B");
  CHECK(odc.exit_code == 0);
}

TEST_CASE("cli: bounds of plan are seconds of a step for each objective",
          "[cli]") {
  const PlanOutcome plan = SmallPlan(PlanObjective::kCost);
  REQUIRE(!plan.ranked.empty());
  for (const PlanResult& result : plan.ranked) {
    CHECK(result.bound_s <= result.iteration_s * (1 + 1e-9));
  }
}

TEST_CASE("cli: plan gives the same counts for any number of threads",
          "[cli][long]") {
  RunContext context;
  PlanOptions one;
  one.confirm = false;
  PlanOptions three = one;
  three.workers = 3;
  const auto text = [&](const PlanOptions& options) {
    return PlanToJson(
        MakePlan(SmallRequest("80GiB"), options, &context).value());
  };
  CHECK(text(one) == text(three));
}

TEST_CASE("cli: plan says what would help where nothing fits", "[cli]") {
  const BinaryResult plan = RunBinary(
      {"plan",        "--model", "llama3-8b",    "--system",       "dgx-h100",
       "--nodes",     "1",       "--analytic",   "--global-batch", "8",
       "--memory",    "4GiB",    "--fix",        "schedule=1f1b",  "--fix",
       "layout=even", "--fix",   "offload=none", "--no-confirm",   "--json"});
  CHECK(plan.exit_code == 3);
  const auto report = testing::Json::try_parse(plan.out);
  REQUIRE(report.is_object());
  CHECK(report["fits"] == false);
  CHECK(!report["help"].empty());
  CHECK(report["counts"]["legal"] == report["counts"]["pruned_by_memory"]);
}

TEST_CASE("cli: plan warns of no field that nobody gave", "[cli]") {
  const auto said = [](std::vector<std::string> more) {
    std::vector<std::string> words = {
        "plan",       "gpt2", "--system",     "dgx-h100",
        "--pp",       "2",    "--tp",         "1",
        "--schedule", "1f1b", "--no-confirm", "--global-batch",
        "64"};
    words.insert(words.end(), more.begin(), more.end());
    const BinaryResult run = RunBinary(words);
    INFO(run.err);
    CHECK(run.exit_code == 0);
    return run.err;
  };
  CHECK(!absl::StrContains(said({}), "system.nodes"));
  CHECK(absl::StrContains(said({"--nodes", "1"}), "system.nodes"));
}

TEST_CASE("cli: plan refuses what it cannot search", "[cli]") {
  const auto refused = [](const std::vector<std::string>& more,
                          const char* words) {
    std::vector<std::string> call = {"plan",        "--model",  "llama3-8b",
                                     "--system",    "dgx-h100", "--analytic",
                                     "--no-confirm"};
    call.insert(call.end(), more.begin(), more.end());
    const BinaryResult plan = RunBinary(call);
    INFO(plan.err);
    CHECK(plan.exit_code == 2);
    CHECK(absl::StrContains(plan.err, words));
  };
  refused({"--global-batch", "0"}, "--global-batch");
  refused({"--global-batch", "8", "--fix", "tq=8"}, "axis");
  refused({"--global-batch", "8", "--fix", "tp"}, "AXIS=VALUE");
  refused({"--global-batch", "8", "--fix", "schedule=nothing"}, "schedule");
  refused({"--global-batch", "8", "--objective", "fun"}, "tokens_per_s, cost");
  refused({"--global-batch", "7", "--fix", "dp=8"}, "no combination is legal");
  refused({"--global-batch", "8", "--engine", "simgrid"}, "allowed: fast");
  refused({"--global-batch", "8", "--jitter", "3%"}, "allowed: none");
}

TEST_CASE("cli: what plan emits is read by the ending of its name", "[cli]") {
  const testing::TemporaryFolder folder;
  const auto plan = [&](const char* form, const std::string& file) {
    return RunBinary({"plan",     "--model",      "llama3-8b",
                      "--system", "dgx-h100",     "--nodes",
                      "1",        "--analytic",   "--global-batch",
                      "8",        "--no-confirm", "--fix",
                      "tp=8",     "--fix",        "schedule=1f1b",
                      "--fix",    "layout=even",  "--emit",
                      form,       "--emit-file",  file});
  };
  for (const auto& [form, name] :
       {std::pair("torchtitan", "t.toml"), std::pair("torchtitan", "t.py"),
        std::pair("megatron", "m.sh"), std::pair("bridge", "b.sh")}) {
    const std::string file = folder.Path(name);
    const BinaryResult written = plan(form, file);
    INFO(written.err);
    REQUIRE(written.exit_code == 0);
    const BinaryResult read =
        RunBinary({"simulate", "--from-args", file, "--engine", "fast"});
    INFO(read.err);
    CHECK(read.exit_code == 0);
  }
  // Another ending would be read as something else.
  const BinaryResult other = plan("torchtitan", folder.Path("t.sh"));
  CHECK(other.exit_code == 2);
  CHECK(absl::StrContains(other.err, ".py"));
}

TEST_CASE("cli: plan says what fits without fragmentation alone", "[cli]") {
  const auto plan = [](const char* memory) {
    return RunBinary({"plan",
                      "--model",
                      "llama3-8b",
                      "--system",
                      "dgx-h100",
                      "--nodes",
                      "1",
                      "--analytic",
                      "--global-batch",
                      "8",
                      "--framework",
                      "megatron",
                      "--no-confirm",
                      "--memory",
                      memory,
                      "--fix",
                      "tp=2",
                      "--fix",
                      "pp=1",
                      "--fix",
                      "layout=even",
                      "--fix",
                      "offload=none",
                      "--fix",
                      "recompute=none",
                      "--fix",
                      "data_parallel=fsdp",
                      "--fix",
                      "microbatches=1"});
  };
  const char* const words = ": fits tightly, without the ";
  const BinaryResult ample = plan("100GiB");
  const BinaryResult tight = plan("70GiB");
  INFO(ample.out << tight.out);
  CHECK(ample.exit_code == 0);
  CHECK(tight.exit_code == 0);
  CHECK_FALSE(absl::StrContains(ample.out, words));
  CHECK(absl::StrContains(tight.out, words));
}

TEST_CASE("cli: a plan that its target refuses is not lost", "[cli]") {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Path("m.sh");
  const auto plan = [&](const char* model,
                        const std::vector<std::string>& more) {
    std::vector<std::string> call = {
        "plan",     "--model",      model,
        "--system", "dgx-h100",     "--nodes",
        "1",        "--analytic",   "--global-batch",
        "8",        "--no-confirm", "--fix",
        "tp=2",     "--fix",        "layout=even",
        "--emit",   "megatron",     "--emit-file",
        file};
    call.insert(call.end(), more.begin(), more.end());
    return RunBinary(call);
  };
  const BinaryResult none = plan("bert-base", {"--fix", "pp=1"});
  INFO(none.err);
  CHECK(none.exit_code == 2);
  CHECK(absl::StrContains(none.out, "\nbest; no step was measured of "));
  CHECK(absl::StrContains(none.err,
                          "--emit megatron: the best plan is refused: its file "
                          "cannot say parts of BERT"));
  CHECK_FALSE(ReadFile(file).ok());
  // Weights in 8 bit need a sharded step, and flash attention has no scores to
  // recompute: neither ddp nor selective is searched.
  const std::vector<std::string> narrow = {
      "--fix", "pp=1",  "--precision",
      "fp8",   "--set", "strategy.narrow_weights=true",
      "--json"};
  const BinaryResult sharded = plan("llama3-8b", narrow);
  INFO(sharded.err);
  CHECK(sharded.exit_code == 0);
  CHECK(absl::StrContains(sharded.out, "zero1"));
  CHECK_FALSE(absl::StrContains(sharded.out, "\"ddp\""));
  CHECK_FALSE(absl::StrContains(sharded.out, "\"selective\""));
  CHECK_FALSE(absl::StrContains(sharded.err, "not modelled"));
  CHECK(absl::StrContains(ReadFile(file).value(), "--fp8-param-gather"));
  std::vector<std::string> given = narrow;
  given.insert(given.end(), {"--fix", "data_parallel=ddp"});
  const BinaryResult ddp = plan("llama3-8b", given);
  INFO(ddp.err);
  CHECK(ddp.exit_code == 2);
  CHECK(absl::StrContains(ddp.err, "zero1, fsdp with --emit megatron"));
}

TEST_CASE("cli: arguments that were emitted give the same run", "[cli]") {
  RunConfig config =
      ReadConfig("", "",
                 {{{"model.preset", "llama3-8b", "test"},
                   {"system.preset", "dgx-h100", "test"},
                   {"system.nodes", "2", "test"},
                   {"costs.analytic.device", "auto", "test"},
                   {"schedule.name", "interleaved-1f1b", "test"},
                   {"strategy.tp", "2", "test"},
                   {"strategy.cp", "1", "test"},
                   {"strategy.pp", "4", "test"},
                   {"strategy.vpp", "2", "test"},
                   {"strategy.dp", "2", "test"},
                   {"strategy.microbatches", "8", "test"},
                   {"strategy.microbatch_size", "1", "test"},
                   {"strategy.recompute", "full", "test"},
                   {"strategy.sequence_parallel", "true", "test"},
                   {"strategy.data_parallel", "fsdp", "test"},
                   {"strategy.layers", "4,4,4,4,4,5,4,3", "test"}}})
          .value();
  for (const bool megatron : {true, false}) {
    config.strategy.framework =
        megatron ? Framework::kMegatron : Framework::kTorchtitan;
    const PreparedRun run = Prepare(config).value();
    const EmittedArgs emitted =
        EmitArgs(
            config, run,
            megatron ? ForeignForm::kMegatron : ForeignForm::kTorchtitanToml,
            "")
            .value();
    INFO(emitted.text);
    const ForeignArgs read =
        ReadForeignArgs(emitted.text, megatron ? "a.sh" : "a.toml").value();
    const RunConfig again = ReadConfig("", "", {read.edits}).value();
    RunContext context;
    const SimulatedRun planned = Simulate(config, &context).value();
    const SimulatedRun runs = Simulate(again, &context).value();
    CHECK(runs.report.iteration_s ==
          Approx(planned.report.iteration_s).epsilon(1e-9));
    CHECK(MemoryVerdictLine(*runs.report.memory) ==
          MemoryVerdictLine(*planned.report.memory));
  }
}

TEST_CASE("cli: arguments say what a framework's defaults are", "[cli]") {
  RunConfig config = ReadConfig("", "",
                                {{{"model.preset", "llama3-8b", "test"},
                                  {"system.preset", "dgx-h100", "test"},
                                  {"system.nodes", "1", "test"},
                                  {"costs.analytic.device", "auto", "test"},
                                  {"schedule.name", "1f1b", "test"},
                                  {"strategy.tp", "2", "test"},
                                  {"strategy.pp", "2", "test"},
                                  {"strategy.dp", "2", "test"},
                                  {"strategy.microbatches", "4", "test"},
                                  {"strategy.framework", "megatron", "test"}}})
                         .value();
  for (const bool given : {false, true}) {
    if (given) {
      config.strategy.overlap_gradients = true;
      config.strategy.sequence_parallel = true;
    }
    const PreparedRun run = Prepare(config).value();
    const EmittedArgs emitted =
        EmitArgs(config, run, ForeignForm::kMegatron, "").value();
    INFO(emitted.text);
    for (const char* flag : {"--overlap-grad-reduce", "--sequence-parallel"}) {
      CHECK(absl::StrContains(emitted.text, flag) == given);
    }
    const ForeignArgs read = ReadForeignArgs(emitted.text, "a.sh").value();
    const PreparedRun again =
        Prepare(ReadConfig("", "", {read.edits}).value()).value();
    CHECK(again.lower.overlap_gradients == given);
    CHECK(again.lower.overlap_gradients == run.lower.overlap_gradients);
    CHECK(again.lower.data_parallel == run.lower.data_parallel);
    CHECK(again.prepared_model->training.sequence_parallel == given);
  }
}

// It came out as ddp, with a comment that contradicted it.
TEST_CASE("cli: arguments of a run with strategy.zero alone", "[cli]") {
  RunConfig config = ReadConfig("", "",
                                {{{"model.preset", "llama3-8b", "test"},
                                  {"system.preset", "dgx-h100", "test"},
                                  {"costs.analytic.device", "auto", "test"},
                                  {"schedule.name", "1f1b", "test"},
                                  {"strategy.pp", "2", "test"},
                                  {"strategy.dp", "2", "test"},
                                  {"strategy.microbatches", "4", "test"},
                                  {"system.memory", "1000GiB", "test"}}})
                         .value();
  const struct {
    int zero;
    const char* megatron;  // "": none of these arguments
    const char* torchtitan;
  } rows[] = {
      {0, "", "data_parallel_shard_degree = 1\n"},
      {1, "--use-distributed-optimizer\n", "data_parallel_shard_degree = 1\n"},
      {2, "--data-parallel-sharding-strategy optim_grads\n",
       "data_parallel_shard_degree = 2\n"},
      {3, "--data-parallel-sharding-strategy optim_grads_params\n",
       "data_parallel_shard_degree = 2\n"},
  };
  for (const auto& row : rows) {
    config.strategy.zero = row.zero;
    for (const bool megatron : {true, false}) {
      CAPTURE(row.zero, megatron);
      // torchtitan shards weights, or nothing and then without a pipeline.
      if (!megatron && row.zero != 3) continue;
      config.strategy.framework =
          megatron ? Framework::kMegatron : Framework::kTorchtitan;
      const PreparedRun run = Prepare(config).value();
      const EmittedArgs emitted =
          EmitArgs(
              config, run,
              megatron ? ForeignForm::kMegatron : ForeignForm::kTorchtitanToml,
              "")
              .value();
      INFO(emitted.text);
      const char* const has = megatron ? row.megatron : row.torchtitan;
      CHECK(absl::StrContains(emitted.text, has));
      CHECK(absl::StrContains(emitted.text, "--use-distributed-optimizer") ==
            (megatron && row.zero > 0));
      CHECK(!absl::StrContains(emitted.text, "strategy.zero"));
      const ForeignArgs read =
          ReadForeignArgs(emitted.text, megatron ? "a.sh" : "a.toml").value();
      const PreparedRun again =
          Prepare(ReadConfig("", "", {read.edits}).value()).value();
      CHECK(again.lower.data_parallel == run.lower.data_parallel);
      CHECK(again.prepared_model->training.zero == row.zero);
    }
  }
}

TEST_CASE("cli: a Megatron script is read, and what is ignored is named",
          "[cli]") {
  const ForeignArgs read =
      ReadForeignArgs(
          "#!/bin/bash\nTP=${TP:-4}\nARGS=(\n  --tensor-model-parallel-size "
          "$TP # degree\n  --pipeline-model-parallel-size 2\n)\n"
          "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py \\\n"
          "  \"${ARGS[@]}\" --micro-batch-size=2 --global-batch-size 32 \\\n"
          "  --lr 1e-4 --use-distributed-optimizer --overlap-grad-reduce "
          "--sequence-parallel\n",
          "run.sh")
          .value();
  const auto value = [&](const std::string& path) {
    for (const ConfigEdit& edit : read.edits) {
      if (edit.path == path) return edit.value;
    }
    return std::string("missing");
  };
  CHECK(value("strategy.tp") == "4");
  CHECK(value("strategy.pp") == "2");
  CHECK(value("strategy.dp") == "2");
  CHECK(value("strategy.microbatches") == "8");
  CHECK(value("strategy.data_parallel") == "zero1");
  CHECK(value("strategy.sequence_parallel") == "true");
  CHECK(value("strategy.overlap_gradients") == "true");
  CHECK(value("schedule.name") == "1f1b");
  REQUIRE(read.notes.size() == 1);
  CHECK(read.notes[0] == "run.sh: without effect on time and memory: --lr");
}

}  // namespace
}  // namespace pipewright::plan_test
