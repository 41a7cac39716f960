#include <sys/stat.h>

#include <memory>

#include "sim/base/status.h"
#include "sim/cli/verbs.h"

namespace pipewright {
namespace {

constexpr char kTemplate[] =
    R"(# A configuration for pipewright: pipewright simulate FILE
# Units are in the name (forward_ms: 18.5) or with the value (18.5ms, 80GiB).
# Flags and --set win over this file: pipewright simulate FILE --pp 4

model:
  preset: gpt-tiny        # pipewright list models; or hf: path/config.json;
                          # or layers, hidden, heads, ffn_hidden, vocabulary,
                          # sequence

# Leave the system out and give costs.p2p for a pure delay per hop.
system:
  preset: dgx-h100        # pipewright list systems; or file: ...; or shape
                          # and its numbers (pipewright list topologies)
  # nodes: 1              # default: as many as needed

strategy:
  pp: 4                   # pipeline ranks
  # vpp: 1                # stages a rank; default: the schedule's
  dp: 1                   # data-parallel replicas
  # tp: 1                 # tensor parallelism; pp * dp * tp * cp devices
  # cp: 1                 # context parallelism
  # ep: 1                 # expert parallelism, within dp * cp
  microbatches: 8         # of an iteration and replica
  microbatch_size: 1      # samples
  # sequence: 128         # tokens of a sample; default: the model's
  # slices: 1             # sequence slices of a microbatch
  # data_parallel: ddp    # none, ddp, zero1, zero2, fsdp
  # waiting: buffered     # buffered, rendezvous, batched
  # mapping: dp-pp        # dp-pp, pp-dp, bitpipe, or a list of devices
  # shard_blocks: pass    # of zero2 and fsdp: pass, run, unit
  # optimizer: none       # none, synchronised, post-validated
  # max_activations: 4    # limit per rank, in microbatches
  # recompute: none       # none, selective, norm-activation, full
  # split: even           # layers over stages: even, balanced; or layers:
                          # [4, ...]; or layout: "Et*4|(t*4|)*2t*4L"
  # vocabulary: ends      # ends, spread

schedule:
  name: zb-h1             # pipewright list schedules; or file: ...
  params: {}

costs:
  uniform:                # one microbatch through all stages of a rank
    forward: 18.522ms
    backward_input: 18.086ms
    backward_weight: 9.337ms
  # per_stage:            # or each stage's own, pp * vpp values
  #   forward: [18ms, 18ms, 18ms, 20ms]
  # analytic: {device: h100}  # instead of both: estimated from data sheets
  # p2p: 0.601ms          # instead of a system
  # hop_bytes: 32MiB      # default: from the model
  # optimizer_time: 3ms
  held_until_weight: 1    # part of the activations that B leaves to W
  # pair_factor: 0.8      # time of an overlapped pair (X&Y) over X and Y in turn

engine: simgrid           # simgrid, fast
# iterations: 1           # default: until the period is constant, at most 8
)";

absl::Status CheckAbsent(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return absl::OkStatus();
  return BadValue("-o", path, "a file that does not exist yet");
}

}  // namespace

void AddInit(CLI::App* app, Action* action) {
  CLI::App* verb =
      app->add_subcommand("init", "Write a commented configuration");
  auto files = std::make_shared<OutputFiles>();
  files->AddTo(verb, "-o", "instead of standard output", FileFormat::kYaml);
  verb->callback([verb, action, files] {
    *action = [verb, files]() -> absl::Status {
      PW_RETURN_IF_ERROR(files->Check());
      if (files->wanted("-o")) {
        PW_RETURN_IF_ERROR(
            CheckAbsent(verb->get_option("-o")->as<std::string>()));
      }
      files->Put("-o", kTemplate);
      return files->Write();
    };
  });
}

}  // namespace pipewright
