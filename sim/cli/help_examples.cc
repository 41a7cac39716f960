// Examples of --help. A test runs every one, each verb's in a folder of its
// own, with the files that an example before it does not make.
#include <map>
#include <string>
#include <vector>

#include "sim/cli/help.h"

namespace pipewright {
namespace {

using Examples = std::vector<HelpExample>;

const std::map<std::string, Examples, std::less<>>& AllExamples() {
  static const auto* const all = new std::map<std::string, Examples,
                                              std::less<>>{
      {"",
       {{"simulate llama3-8b --system dgx-h100 --pp 4 --tp 2", "how fast"},
        {"plan llama3-8b --system dgx-h100 --nodes 2", "the fastest layout"},
        {"simulate --schedule zb-h1 --pp 4 --microbatches 8",
         "bubbles, without times"},
        {"list schedules", "also models, systems, devices"},
        {"help simulate", "a verb, or a topic"}}},
      {"simulate",
       {{"simulate llama3-8b --system dgx-h100 --pp 4 --tp 2", "one node"},
        {"simulate llama3-70b --system dgx-h100 --nodes 8 --pp 4 --tp 8 "
         "--global-batch 512",
         "degrees and batch"},
        {"simulate --schedule zb-h1 --pp 4 --microbatches 8",
         "no times: units of a pass"},
        {"simulate --pp 4 --microbatches 8 --forward 3ms --backward 6ms --svg "
         "run.svg",
         "times"},
        {"simulate train.sh --system dgx-h100 --html run.html",
         "a script of Megatron-LM"}}},
      {"schedule",
       {{"schedule 1f1b --pp 4 --microbatches 8", "print an order"},
        {"schedule interleaved-1f1b --pp 4 --vpp 2 --microbatches 8 --format "
         "svg -o order.svg",
         "draw it"},
        {"schedule zb-h1 --pp 4 --microbatches 8 -o order.pws", "a file"},
        {"schedule order.pws --format torch-csv -o order.csv",
         "as PyTorch reads it"},
        {"schedule zb-auto --pp 4 --microbatches 8 --max-activations 4",
         "plan one within a limit"}}},
      {"check",
       {{"schedule zb-h1 --pp 4 --microbatches 8 -o order.pws",
         "a file to check"},
        {"check order.pws", "complete, and ends"},
        {"check order.pws --semantics nccl", "as NCCL sends"},
        {"check order.pws --max-activations 8", "within a limit"},
        {"check order.pws --model llama3-8b --memory 640GiB",
         "whether it fits"}}},
      {"list",
       {{"list schedules", "with sources and formulas"},
        {"list models", "presets"},
        {"list systems", "what --system takes"},
        {"list schedules --html schedules.html", "all of them drawn"},
        {"list fields", "every field of a configuration"}}},
      {"compare",
       {{"simulate --pp 2 --microbatches 4 --forward 1ms --backward 2ms "
         "--trace sim.json",
         "a prediction"},
        {"execute gpt-tiny --pp 2 --microbatches 4 --sequence 16 --trace "
         "real.json",
         "a run"},
        {"compare sim.json real.json", "where they differ"},
        {"compare sim.json real.json --html compare.html", "as a page"},
        {"compare sim.json train.log --limit 5%", "with a training log"}}},
      {"reproduce",
       {{"reproduce zero-bubble-table8", "one published table"},
        {"reproduce korthikanti-memory --json", "for scripts"},
        {"reproduce zero-bubble-table8 --markdown table.md", "as a page"},
        {"reproduce zero-bubble-table8 --engine fast", "without contention"}}},
      {"explain",
       {{"explain llama3-8b --system dgx-h100 --pp 8 --microbatches 32",
         "a model on a node"},
        {"explain --pp 4 --microbatches 8", "in units of a pass"},
        {"explain --pp 4 --microbatches 8 --what-if W*0.8", "other times"},
        {"explain --pp 4 --microbatches 8 --svg parts.svg", "a picture"},
        {"explain --pp 4 --microbatches 8 --json", "for scripts"}}},
      {"diagnose",
       {{"simulate --pp 2 --microbatches 4 --slow-devices rank1*2 --trace "
         "job.json",
         "a job"},
        {"diagnose job.json", "what slows it down"},
        {"diagnose job.json --html job.html", "as a page"},
        {"diagnose traces/ --pp 4", "traces of PyTorch's profiler"},
        {"diagnose train.log", "a log of Megatron-LM"}}},
      {"plot",
       {{"simulate --schedule 1f1b --pp 4 --microbatches 8 --json -o a.json",
         "a report"},
        {"simulate --schedule zb-h2 --pp 4 --microbatches 8 --json -o b.json",
         "another"},
        {"plot a.json b.json --x peak_activations.max --series schedule -o "
         "f.svg",
         "bubble and memory"},
        {"plot a.json b.json --x microbatches --y iteration_s --csv f.csv",
         "as numbers"},
        {"plot runs.sqlite --x strategy.pp --y tokens_per_s -o f.svg",
         "of a sweep"}}},
      {"init",
       {{"init", "print a configuration with comments"},
        {"init run -o run.yaml", "as a file"},
        {"init system -o mine.textproto", "a network of your own"},
        {"init device --like h200", "a device of your own"},
        {"init sweep -o sweep.yaml", "a grid of runs"}}},
      {"calibrate",
       {{"calibrate --quick --model gpt-tiny -o cpu.textproto",
         "this CPU, in seconds"},
        {"calibrate --device cuda --model llama3-8b -o gpu.textproto",
         "this GPU"},
        {"simulate llama3-8b --profile gpu.textproto --pp 4 --microbatches 8",
         "simulate with it"},
        {"calibrate show cpu.textproto", "what a profile has"},
        {"calibrate import --kineto trace.json --model gpt-tiny -o p.textproto",
         "from a trace"}}},
      {"calibrate show",
       {{"calibrate show cpu.textproto", "what a profile has"},
        {"calibrate show cpu.textproto --model gpt-tiny", "what it lacks"}}},
      {"calibrate diff",
       {{"calibrate diff monday.textproto friday.textproto",
         "what has changed"}}},
      {"calibrate coverage",
       {{"calibrate coverage *.textproto", "how good intervals are"}}},
      {"calibrate import",
       {{"calibrate import --kineto trace.json --model gpt-tiny --device h100 "
         "-o p.textproto",
         "a trace of PyTorch"},
        {"calibrate import --kineto traces/ --pp 4 --model gpt-tiny -o "
         "p.textproto",
         "one of each rank"},
        {"calibrate import --nccl-tests all_reduce.txt -o p.textproto",
         "collectives"},
        {"calibrate import --silicon csv/ -o rates.txtpb", "kernel rates"}}},
      {"execute",
       {{"execute gpt-tiny --pp 2 --microbatches 4 --sequence 16",
         "train and check"},
        {"execute gpt-tiny --schedule zb-h1 --pp 2 --microbatches 4 --sequence "
         "16",
         "zero bubble"},
        {"execute gpt-tiny --microbatches 4 --sequence 16 --trace real.json",
         "a trace"},
        {"execute gpt-tiny --dp 2 --microbatches 4 --sequence 16",
         "two replicas"},
        {"execute gpt-1.7b --device cuda --pp 4 --microbatches 8",
         "on a GPU"}}},
      {"sweep",
       {{"sweep gpt2-xl --system dgx-h100 --microbatches 16 --sweep pp=1,2,4",
         "an axis"},
        {"sweep --microbatches 8 --sweep pp=2,4 --sweep schedule=1f1b,zb-h1 -o "
         "s.sqlite",
         "a grid"},
        {"sweep --microbatches 8 --sweep pp=2,4,8 --shard 1/3", "a part of it"},
        {"sweep --microbatches 8 --sweep pp=2,4 -o s.sqlite --csv s.csv",
         "as a table"},
        {"sweep sweep.yaml -j 8", "a file of init sweep"}}},
      {"sweep merge",
       {{"sweep --microbatches 8 --sweep pp=2,4 --shard 1/2", "a part"},
        {"sweep --microbatches 8 --sweep pp=2,4 --shard 2/2", "the other"},
        {"sweep merge runs-1-of-2.sqlite runs-2-of-2.sqlite -o all.sqlite",
         "both"}}},
      {"plan",
       {{"plan llama3-8b --system dgx-h100 --nodes 1", "all by default"},
        {"plan gpt2-xl --system dgx-h100 --pp 2 --tp 1 --schedule 1f1b "
         "--no-confirm",
         "less to search"},
        {"plan config.json --system dgx-b200 --nodes 4 --sequence 8192",
         "a Hugging Face model"},
        {"plan llama3-8b --system dgx-h100 --nodes 2 --emit megatron "
         "--emit-file run.sh",
         "a script"},
        {"plan llama3-8b --system dgx-h100 --price 2.5 --objective cost",
         "the cheapest"},
        {"plan gpt2-xl --system dgx-h100,dgx-h200 --tokens 1T "
         "--schedule 1f1b --no-confirm",
         "which of these clusters"}}},
      {"version",
       {{"version", "for people"}, {"version --json", "for scripts"}}},
      {"completion",
       {{"completion bash", "print it; source <(pipewright completion bash)"},
        {"completion zsh", "the same for zsh"},
        {"completion fish", "the same for fish"}}},
      {"man", {{"man", "print it; to read: man -l <(pipewright man)"}}},
      {"help",
       {{"help", "the verbs"},
        {"help simulate", "one of them"},
        {"help simulate all", "with every option"},
        {"help strategy", "a topic: flags of degrees, memory, overlap"},
        {"help defaults", "what holds if nothing is said"}}},
  };
  return *all;
}

}  // namespace

const std::vector<HelpExample>& HelpExamples(absl::string_view verb) {
  static const auto* const none = new Examples;
  const auto found = AllExamples().find(verb);
  return found == AllExamples().end() ? *none : found->second;
}

}  // namespace pipewright
