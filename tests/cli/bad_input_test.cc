// A table of what users get wrong: message and exit code, nothing on standard
// output but with --json the same as an object, no file touched.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::bad_input_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;
using Arguments = std::vector<std::string>;

struct BadCall {
  Arguments arguments;
  int exit_code;
  Arguments parts;  // parts of standard error
};

void CheckAll(const std::vector<BadCall>& table) {
  for (const BadCall& bad : table) {
    const BinaryResult run = RunBinary(bad.arguments);
    INFO(absl::StrJoin(bad.arguments, " ") << "\n" << run.err);
    CHECK(run.exit_code == bad.exit_code);
    const bool json =
        std::count(bad.arguments.begin(), bad.arguments.end(), "--json") > 0;
    if (json) {
      const auto object = testing::Json::try_parse(run.out);
      REQUIRE(object.is_object());
      CHECK(object.size() == 1);
      CHECK(object["error"]["exit"] == bad.exit_code);
      CHECK(absl::StrContains(run.err,
                              object["error"]["message"].get<std::string>()));
    } else {
      CHECK(run.out.empty());
    }
    for (const std::string& part : bad.parts) {
      INFO(part);
      CHECK(absl::StrContains(run.err, part));
    }
  }
}

const Arguments kSmall = {"simulate", "--schedule",     "1f1b", "--pp",
                          "2",        "--microbatches", "4",    "--engine",
                          "fast",     "--json"};

Arguments Explain(const std::string& what_if) {
  return {"explain", "--schedule", "1f1b", "--pp",  "2",   "--forward",
          "1ms",     "--backward", "2ms",  "--p2p", "1ms", "--microbatches",
          "4",       "--what-if",  what_if};
}

Arguments Small(const Arguments& more) {
  Arguments arguments = kSmall;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("cli: bad usage is exit 2 and named", "[cli]") {
  CheckAll({
      {{}, 2, {"a verb is missing", "simulate"}},
      {{"--pp", "4", "simulate"},
       2,
       {"'--pp' stands in front of the verb; allowed: pipewright simulate"}},
      {{"simulat"}, 2, {"unknown verb 'simulat'; did you mean 'simulate'?"}},
      {{"simulate", "--schdule", "1f1b"},
       2,
       {"unknown option '--schdule'; did you mean '--schedule'?"}},
      {{"simulate", "--micro-batches=4"}, 2, {"'--microbatches'?"}},
      {{"simulate", "--pp"}, 2, {"--pp"}},
      {Small({"--pp", "4"}), 2, {"--pp is given twice"}},
      {Small({"extra.yaml", "more.yaml"}), 2, {"more.yaml"}},
      {{"plan", "--model", "llama3-8b"}, 2, {"--system", "--analytic"}},
      {{"sweep"}, 2, {"--sweep: missing", "FIELD=VALUES"}},
      {{"sweep", "--sweep", "strategy.pp=1,x", "--json"},
       2,
       {"axis strategy.pp: value 'x'"}},
      {{"explain"}, 2, {"strategy.pp", "missing"}},
      {Explain("X*2"), 2, {"--what-if: X", "p2p, network, optimizer"}},
      {Explain("W"), 2, {"--what-if: W", "NAME*FACTOR"}},
      {Explain("stage9*2"), 2, {"--what-if: stage9", "stages 0..1"}},
      {Explain("network*2"), 2, {"--what-if: network", "no system"}},
      {{"diagnose"}, 2, {"TRACE"}},
      {{"diagnose", "none.csv"}, 2, {"none.csv"}},
      {{"diagnose", "none.csv", "--ideal", "best"}, 2, {"best"}},
      {{"diagnose", "none.csv", "--pp", "0"}, 2, {"--pp", "from 1 to"}},
      {{"diagnose", "none.csv", "--skip", "-1"}, 2, {"--skip", "-1"}},
      {{"plot"}, 2, {"FILE"}},
      {{"plot", "none.json"}, 2, {"none.json"}},
      {{"plot", "none.json", "-o", "/tmp/figure.xyz"},
       2,
       {"-o: /tmp/figure.xyz", ".svg, .pdf, .png, .csv or .html"}},
      {{"plot", "none.json", "--size", "5x5"},
       2,
       {"--size: 5x5", "20 to 1000"}},
      {{"plot", "none.json", "--kind", "pie"}, 2, {"pie"}},
      {{"execute"}, 2, {"strategy.pp", "missing"}},
      {{"execute", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4"},
       2,
       {"model: missing", "--clock paced"}},
      {{"execute", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
        "--model", "gpt-tiny", "--clock", "vitual"},
       2,
       {"--clock", "did you mean 'virtual'?"}},
      {{"execute", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
        "--model", "gpt-tiny", "--steps", "0"},
       2,
       {"--steps", "1 to"}},
      {{"execute", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
        "--model", "gpt-tiny", "--fault-slow", "Q:2"},
       2,
       {"--fault-slow", "Q:2", "B@2:1.3"}},
      {{"compare"}, 2, {"SIM"}},
      {{"compare", "/no/sim.json", "/no/measured.json"}, 2, {"/no/sim.json"}},
      {{"compare", "a", "b", "--limit", "much"}, 2, {"--limit", "5%"}},
      {{"list"}, 2, {"WHAT"}},
      {{"list", "schedule"}, 2, {"did you mean 'schedules'?"}},
      {{"reproduce"}, 2, {"NAME"}},
      {{"reproduce", "zero-bubble-tabel5"},
       2,
       {"did you mean 'zero-bubble-table5'?"}},
      {{"reproduce", "all", "--engine", "slow"}, 2, {"unknown engine 'slow'"}},
      {{"reproduce", "all", "--diff", "/no/such.json"}, 2, {"/no/such.json"}},
      {{"reproduce", "all", "--diff", "/dev/null"},
       2,
       {"/dev/null", "allowed: a file or a pipe"}},
      {{"check"}, 2, {"FILE"}},
      {{"check", "/no/such.pws"}, 2, {"/no/such.pws"}},
      {{"check", "x", "--semantics", "ncl"}, 2, {"did you mean 'nccl'?"}},
      {{"check", "x", "--memory", "74Gigs"}, 2, {"system.memory", "GiB"}},
      {{"schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--format",
        "yaml"},
       2,
       {"unknown format 'yaml'"}},
  });
}

TEST_CASE("cli: impossible parameters are exit 2 and named", "[cli]") {
  CheckAll({
      {{"simulate", "/no/such.yaml"}, 2, {"/no/such.yaml"}},
      {{"simulate", "/"}, 2, {"/"}},
      {{"simulate"}, 2, {"strategy.pp: missing"}},
      {{"simulate", "--schedule", "1f1b"}, 2, {"strategy.pp: missing"}},
      {{"simulate", "--schedule", "1f2b", "--pp", "2"},
       2,
       {"--schedule: schedule.name: unknown schedule '1f2b'"}},
      {{"simulate", "--schedule", "no/such.pws"}, 2, {"no/such.pws"}},
      {{"simulate", "--schedule", "1f1b", "--pp", "0", "--microbatches", "2"},
       2,
       {"--pp: strategy.pp: 0", "from 1 to"}},
      {{"simulate", "--schedule", "1f1b", "--pp", "-4"},
       2,
       {"--pp: strategy.pp: -4"}},
      {{"simulate", "--schedule", "1f1b", "--pp", "eight"},
       2,
       {"strategy.pp: eight", "integer"}},
      {{"simulate", "--schedule", "1f1b", "--pp", "2.5"}, 2, {"2.5"}},
      {{"simulate", "--schedule", "1f1b", "--pp", "99999999999"},
       2,
       {"99999999999"}},
      {Small({"--p2p", "1"}), 2, {"--p2p: costs.p2p: '1' has no unit"}},
      {Small({"--p2p", "-1ms"}), 2, {"negative"}},
      {Small({"--p2p", "nanms"}), 2, {"--p2p: costs.p2p"}},
      {Small({"--p2p", "1e999ms"}), 2, {"out of the range"}},
      {Small({"--p2p", ""}), 2, {"--p2p"}},
      {Small({"--p2p", "1ms", "--system", "dgx-h100"}),
       2,
       {"costs.p2p", "together with a system"}},
      {Small({"--forward", "1ms"}),
       2,
       {"costs.uniform.backward_input, costs.uniform.backward_weight: "
        "missing"}},
      {Small({"--forward", "1ms,2ms,3ms", "--backward-input", "1ms",
              "--backward-weight", "1ms"}),
       2,
       {"--forward: costs.per_stage.forward: a list of 3"}},
      {Small({"--held-until-weight", "1.5"}), 2, {"from 0 to 1"}},
      {Small({"--held-until-weight", "nan"}), 2, {"held_until_weight"}},
      {Small({"--set", "network=fluit"}), 2, {"did you mean 'fluid'?"}},
      {Small({"--iterations", "0"}), 2, {"iterations: 0"}},
      {Small({"--data-parallel", "hsdp"}), 2, {"not available"}},
      {Small({"--waiting", "rendezvous"}), 2, {"does not block a rank"}},
      {Small({"--param", "color"}), 2, {"--param: color", "KEY=VALUE"}},
      {Small({"--param", "color=red"}),
       2,
       {"--param color=red: schedule.params.color: red"}},
      {Small({"--set", "strategy.ppp=3"}), 2, {"did you mean 'pp'?"}},
      {Small({"--set", "strategy.pp"}), 2, {"PATH=VALUE"}},
      {Small({"--set", "costs.profile=x"}),
       2,
       {"costs.profile: needs a model"}},
      {Small({"--model", "gpt-tiny", "--profile", "none/here.txtpb"}),
       2,
       {"none/here.txtpb"}},
      {Small({"--jitter", "3"}),
       2,
       {"--jitter: costs.jitter: 3", "a percentage"}},
      {Small({"--jitter", "profile"}), 2, {"profile needs costs.profile"}},
      {Small({"--system", "dgx-h100"}), 2, {"costs.hop_bytes: missing"}},
      {Small({"--system", "dgx-h10"}), 2, {"did you mean 'dgx-h100'?"}},
      {Small({"--system", "H100"}), 2, {"did you mean 'dgx-h100'?"}},
      {Small({"--memory", "40"}),
       2,
       {"--memory: system.memory: '40' has no unit"}},
      {Small({"--sequence", "8k"}),
       2,
       {"--sequence: strategy.sequence: 8k is not allowed; allowed: an "
        "integer from 1 to",
        "; did you mean 8192 or 8000?"}},
      {Small({"--set", "model.vocabulary=128Ki"}), 2, {"did you mean 131072?"}},
      {Small({"--global-batch", "1k"}), 2, {"did you mean 1024 or 1000?"}},
      {Small({"--gbs", "8"}),
       2,
       {"unknown option '--gbs'; did you mean '--global-batch'?"}},
      {Small({"--set", "strategy.seq_len=8"}), 2, {"did you mean 'sequence'?"}},
      {Small({"--p2p", "1\u00b5"}), 2, {"unknown unit"}},
      {Small({"--nodes", "2"}), 2, {"no system"}},
      {Small({"--model", "gpt-tiny", "--vpp", "3"}),
       2,
       {"--vpp: strategy.vpp: 3 is not allowed; allowed: 1 (schedule 1f1b)"}},
      {Small({"--param", "pair=never"}),
       2,
       {"--param pair=never: schedule.params.pair: never",
        "joint|dependencies"}},
      {{"simulate", "--schedule", "PipelineScheduleSingle", "--pp", "2"},
       2,
       {"schedule 'PipelineScheduleSingle' is an abstract class of PyTorch; "
        "allowed: 1F1B, GPipe, which derive from it"}},
      {{"simulate", "--schedule", "pipelineschedulemulti", "--pp", "2"},
       2,
       {"schedule 'pipelineschedulemulti' is an abstract class of PyTorch; "
        "allowed: DualPipeV, Interleaved1F1B, InterleavedZeroBubble, "
        "LoopedBFS, ZBVZeroBubble, which derive from it"}},
      {{"simulate", "--schedule", "madpipe", "--pp", "2"},
       2,
       {"unknown schedule 'madpipe'; did you mean 'bitpipe'?"}},
      {Small({"--data-parallel", "hsdp"}),
       2,
       {"strategy.data_parallel: hsdp is not available in this version; "
        "allowed: none, ddp, zero1, zero2, fsdp, odc\n"}},
      {Small({"--set", "system.shape=node", "--set",
              "system.devices_per_node=4", "--set", "system.nvlink.latency=1us",
              "--hop-bytes", "1KB"}),
       2,
       {"system.nvlink.bandwidth: missing or 0"}},
  });
}

TEST_CASE("cli: models and degrees that cannot be are exit 2 and named",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string no_width = folder.Write(
      "config.json", R"({"model_type": "llama", "num_hidden_layers": 4})");
  const std::string unknown =
      folder.Write("llma.json", R"({"model_type": "llma"})");
  const std::string states =
      folder.Write("mamba.json", R"({"model_type": "mamba"})");
  CheckAll({
      {Small({"--model", "llama3-8", "--tp", "3"}),
       2,
       {"--model: model.preset: unknown model 'llama3-8'; did you mean "
        "'llama3-8b'?"}},
      {Small({"--model", "llama3-8b", "--tp", "3"}),
       2,
       {"--tp: strategy.tp: 3 is not allowed; allowed: 2, 4 (model.heads = "
        "32"}},
      {Small({"--model", "llama3-8b", "--layers", "10,20"}),
       2,
       {"--layers: strategy.layers: 10, 20", "32 layers"}},
      {{"simulate", "--schedule", "1f1b", "--pp", "5", "--microbatches", "8",
        "--model", "llama3-8b"},
       2,
       {"--pp: strategy.pp: pp * vpp = 5 * 1 = 5", "4, 8", "balanced"}},
      {Small({"--model", no_width}),
       2,
       {"config.json: hidden_size: missing; needed for the width "
        "(model.hidden)"}},
      {Small({"--model", unknown}),
       2,
       {"llma.json: model_type: unknown model type 'llma'", "llama"}},
      {Small({"--model", states}),
       2,
       {"mamba.json: model_type: \"mamba\": Mamba layers of the first kind "
        "have no field"}},
      {Small({"--model", folder.Path("none.json")}),
       2,
       {"--model: model.hf", "none.json"}},
      {Small({"--model", "llama3-8b", "--system", "dgx-h100", "--nodes", "1",
              "--dp", "3"}),
       2,
       {"--nodes: system.nodes: 1", "pp * dp = 2 * 3 = 6 does not divide",
        "dp 2, 4"}},
      {Small({"--model", "llama3-8b", "--system", "dgx-h100", "--nodes", "1",
              "--tp", "8"}),
       2,
       {"--nodes: system.nodes: 1", "2 or more", "tp 4"}},
      {Small({"--analytic"}), 2, {"--analytic: costs.analytic"}},
      {Small({"--analytic", "h10", "--model", "llama3-8b"}), 2, {"h100"}},
      {Small({"--price", "-1"}), 2, {"price_per_device_hour: -1"}},
      {Small({"--recompute", "ful"}), 2, {"did you mean 'full'?"}},
      {Small({"--model", folder.Write("broken.json", "{\n\"a\": 1,\n}")}),
       2,
       {"broken.json:3: not JSON: "}},
  });
  const BinaryResult precision =
      RunBinary(Small({"--model", "llama3-8b", "--precision", "fp32"}));
  CHECK(precision.exit_code == 2);
  CHECK(absl::StrContains(precision.err, "unknown value 'fp32' (known: bf16"));
}

// In every kind of file, as text and as what is packed.
TEST_CASE("cli: a byte order mark stands in no reader's way", "[cli]") {
  constexpr char kMark[] = "\xef\xbb\xbf";
  const TemporaryFolder folder;
  const Arguments times = {"--forward", "1ms",   "--backward",
                           "2ms",       "--p2p", "0ms"};
  const std::string schedule =
      RunBinary({"schedule", "1f1b", "--pp", "2", "--microbatches", "4"}).out;
  const std::string json =
      RunBinary({"schedule", "1f1b", "--pp", "2", "--microbatches", "4",
                 "--format", "json"})
          .out;
  const auto file = [&](const char* name, const std::string& text) {
    return folder.Write(name, kMark + text);
  };
  const auto simulate = [&](const Arguments& arguments) {
    Arguments words = {"simulate"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.insert(words.end(), times.begin(), times.end());
    return words;
  };
  const std::string trace = folder.Path("trace.json");
  REQUIRE(RunBinary(simulate({"--schedule", "1f1b", "--pp", "2",
                              "--microbatches", "4", "--trace", trace}))
              .exit_code == 0);
  const std::string marked = file("marked.json", ReadFile(trace).value());
  const std::string model =
      R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 64,
          "max_position_embeddings": 64})";
  const std::string schedule_of_config =
      "schedule:\n  name: 1f1b\nstrategy:\n  pp: 2\n  microbatches: 4\n";
  for (const Arguments& arguments : std::vector<Arguments>{
           simulate({file("a.yaml", schedule_of_config)}),
           simulate({file("a.json", R"({"schedule": {"name": "1f1b"},
               "strategy": {"pp": 2, "microbatches": 4}})")}),
           simulate({file("a.txtpb",
                          "schedule { name: \"1f1b\" }\n"
                          "strategy { pp: 2 microbatches: 4 }")}),
           simulate({file("a.run",
                          "schedule { name: \"1f1b\" }\n"
                          "strategy { pp: 2 microbatches: 4 }")}),
           simulate({"--schedule", file("a.pws", schedule)}),
           simulate({"--schedule", file("b.json", json)}),
           {"check", file("a.pws", schedule)},
           {"check", file("b.json", json)},
           {"compare", marked, marked},
           simulate({"--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
                     "--model", file("config.json", model)})}) {
    const BinaryResult run = RunBinary(arguments);
    INFO(absl::StrJoin(arguments, " ") << "\n" << run.err);
    CHECK(run.exit_code == 0);
  }
}

TEST_CASE("cli: a schedule that cannot run is exit 4", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Write(
      "dead.pws",
      "pipewright-schedule 1\n"
      "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
      "0: F0 BW0 F1 BW1\n1: F1 BW1 F0 BW0\n");
  CheckAll({{{"simulate", "--schedule", file, "--engine", "fast"}, 4, {"F1"}},
            {{"simulate", "--schedule", file}, 4, {"error: " + file + ":"}},
            {{"schedule", file}, 4, {"F1"}}});
}

TEST_CASE("cli: a PyTorch file is refused by line, or named as a deadlock",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string cell = folder.Write("cell.csv", "0F0,0B0\n1F0,1B0x\n");
  const std::string pair =
      folder.Write("pair.csv", "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n");
  const std::string slices =
      folder.Write("slices.pws",
                   "pipewright-schedule 1\npp 1 vpp 1 microbatches 1 slices 2\n"
                   "0: F0s0 F0s1 BW0s1 BW0s0\n");
  CheckAll(
      {{{"simulate", "--schedule", cell}, 2, {cell + ":2: cell 2 '1B0x'"}},
       {{"check", cell}, 2, {cell + ":2: cell 2 '1B0x'"}},
       {{"simulate", "--schedule", pair},
        4,
        {pair + ":1: rank 0, position 2: RECV_B0 (stage 0) has no send "
                "on rank 1"}},
       {{"schedule", slices, "--format", "torch-csv"},
        2,
        {"slices 2 is not allowed; allowed: slices 1, because"}},
       {{"schedule", slices, "--format", "torch-csv-comms"}, 2, {"slices 2"}}});
}

TEST_CASE("cli: check says under which rule of transfers a file deadlocks",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("1f1b.pws");
  REQUIRE(RunBinary({"schedule", "1f1b", "--pp", "2", "--microbatches", "4",
                     "-o", file})
              .exit_code == 0);
  CHECK(RunBinary({"check", file, "--semantics", "buffered"}).exit_code == 0);
  CHECK(RunBinary({"check", file, "--semantics", "nccl"}).exit_code == 0);
  const BinaryResult held =
      RunBinary({"check", file, "--semantics", "rendezvous"});
  CHECK(held.exit_code == 4);
  CHECK(absl::StrContains(held.err, file + ":3: deadlock: with rendezvous"));
  CHECK(absl::StrContains(held.err, ">SEND_"));
}

TEST_CASE("cli: a bad run leaves every output file as it was", "[cli]") {
  const TemporaryFolder folder;
  const std::string old = folder.Write("old.svg", "old");
  const std::string fresh = folder.Path("fresh.json");
  const Arguments outputs = {"--svg", old,  "--trace",
                             fresh,   "-o", folder.Path("report")};
  const auto unchanged = [&] {
    return ReadFile(old).value() == "old" &&
           folder.Files() == Arguments{"old.svg"};
  };
  Arguments bad = Small(outputs);
  bad.insert(bad.end(), {"--vpp", "0"});
  CheckAll({{bad, 2, {"strategy.vpp: 0"}}});
  CHECK(unchanged());

  Arguments no_folder =
      Small({"--svg", old, "--html", folder.Path("none/x.html")});
  CheckAll({{no_folder, 2, {"--html: ", "none does not"}},
            {Small({"--svg", folder.Path("")}), 2, {"this is a folder"}},
            {Small({"--svg", ""}), 2, {"--svg"}},
            {Small({"--svg", "-"}), 2, {"--svg: - is not allowed"}},
            {Small({"-o", "-"}), 2, {"-o: - is not allowed"}},
            {Small({"--svg", fresh, "--html", fresh}),
             2,
             {"another file than that of --svg"}}});
  CHECK(unchanged());

  // Too much to trace: refused before anything runs.
  CheckAll({{{"simulate", "--schedule", "1f1b", "--pp", "8", "--microbatches",
              "1000000", "--engine", "fast", "--svg", old},
             2,
             {"would be traced", "20000000"}}});
  CHECK(unchanged());

  CHECK(RunBinary(Small(outputs)).exit_code == 0);
  CHECK(folder.Files() == Arguments{"fresh.json", "old.svg", "report"});
}

}  // namespace
}  // namespace pipewright::bad_input_test
