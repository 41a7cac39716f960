#include <sys/stat.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"
#include "sim/cost/device.h"

namespace pipewright {
namespace {

constexpr char kRunTemplate[] =
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
  # data_parallel: ddp    # none, ddp, zero1, zero2, fsdp, odc
  # waiting: buffered     # buffered, rendezvous, batched, stepped
  # mapping: dp-pp        # dp-pp, pp-dp, bitpipe, host-balance, or devices
  # shard_blocks: pass    # of zero2 and fsdp: pass, run, unit, layer
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

# engine: fast            # simgrid, fluid, fast; default: simgrid, fluid if large
# iterations: 1           # default: until the period is constant, at most 8
)";

constexpr char kSystemTemplate[] =
    R"(# A system for pipewright: pipewright simulate run.yaml --system ./FILE
# Every number has a source; write where yours is from. Numbers here are those
# of a DGX H100 (pipewright list systems has more).
name: "my-cluster"
summary: "what it is, in one line"
shape: "nic-switch"            # pipewright list topologies
device_name: "H100 SXM5 80GB"  # as in profiles and estimates
memory { value: "81559MiB" source: "nvidia-smi" }
host_memory { value: "2TB" source: "data sheet" }
# Of the host's memory, one device's share: for copies and steps on the host.
# host_memory_bandwidth { value: "50GBps" source: "STREAM over 8 devices" }
# Parameters a second of a flush that a device waits for:
# host_flush_rate { value: 1.1e9 source: "backward with and without it" }
devices_per_node { value: 8 source: "data sheet" }
nics_per_node { value: 8 source: "data sheet" }
# Bandwidths are those of one direction. A latency is that of one link: a
# message between two devices crosses at least two.
nvlink {
  bandwidth { value: "450GBps" source: "data sheet: 900 GB/s both ways" }
  latency { value: "0.3us" source: "half of a measured hop" }
}
nic {
  bandwidth { value: "400Gbps" source: "data sheet" }
  latency { value: "1.35us" source: "half of a measured hop" }
}
pcie {
  bandwidth { value: "63GBps" source: "PCI Express 5.0 x16" }
  latency { value: "1us" source: "measured" }
}
# GPUs behind one PCIe switch, which share its link to the host.
pcie_per_switch { value: 1 source: "data sheet" }
# What only the shape has, such as cables_per_rail of `rail`:
# params { key: "cables_per_rail" value: "1" source: "wiring plan" }
)";

constexpr char kSweepTemplate[] =
    R"(# A grid for pipewright: pipewright sweep FILE -o runs.sqlite
# `base` is an ordinary configuration; each point is it with one value of every
# axis. docs/sweep.md has ranges, conditions and linked axes.
base:
  strategy:
    microbatches: 16
  costs:
    uniform:
      forward: 10ms
      backward_input: 10ms
      backward_weight: 10ms
    p2p: 0.5ms
  engine: fast

axes:
  schedule.name: [1f1b, zb-h1, zb-h2]
  strategy.pp: [4, 8, 16]
)";

absl::Status CheckAbsent(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return absl::OkStatus();
  return BadValue("-o", path, "a file that does not exist yet");
}

// What can be written; `device` goes with "device" alone.
absl::StatusOr<std::string> Template(const std::string& what,
                                     const std::string& device) {
  if (what != "device" && !device.empty()) {
    return BadValue("--like", device, "with: pipewright init device");
  }
  if (what == "run") return std::string(kRunTemplate);
  if (what == "system") return std::string(kSystemTemplate);
  if (what == "sweep") return std::string(kSweepTemplate);
  if (what != "device") {
    return AboutField("WHAT", UnknownName("template", what, InitTemplates()));
  }
  const std::string like = device.empty() ? "h100" : device;
  const absl::StatusOr<std::string> text = DeviceFileText(like);
  PW_RETURN_IF_ERROR(InField("--like", text.status()));
  // Its name is its own, so that nothing takes it for the other.
  const std::string named =
      absl::StrReplaceAll(*text, {{absl::StrCat("\nname: \"", like, "\""),
                                   absl::StrCat("\nname: \"my-", like, "\"")}});
  return absl::StrCat(
      "# A device for pipewright: simulate --analytic FILE\n"
      "# Peaks are dense, a second; efficiencies are parts of them. Every\n"
      "# number says where it is from. Without `silicon` no table of measured\n"
      "# rates is taken; without the three powers the clock stays up.\n",
      named);
}

}  // namespace

const std::vector<std::string>& InitTemplates() {
  static const auto* const names =
      new std::vector<std::string>{"run", "system", "device", "sweep"};
  return *names;
}

void AddInit(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "init", "Write a commented file: a configuration, or what it names");
  auto what = std::make_shared<std::string>("run");
  verb->add_option("WHAT", *what,
                   "run, a configuration (default); system, a network; "
                   "device, for estimates; sweep, a grid of runs")
      ->type_name("");
  auto device = std::make_shared<std::string>();
  verb->add_option("--like", *device,
                   "device to begin with (default: h100; pipewright list "
                   "devices)");
  auto files = std::make_shared<OutputFiles>();
  files->AddTo(verb, "-o", "instead of standard output", FileFormat::kYaml);
  verb->callback([verb, action, files, what, device] {
    *action = [verb, files, what, device]() -> absl::Status {
      if (*what == "system" || *what == "device") {
        files->SetFormat("-o", FileFormat::kTextProto);
      }
      PW_RETURN_IF_ERROR(files->Check());
      PW_ASSIGN_OR_RETURN(const std::string text, Template(*what, *device));
      if (files->wanted("-o")) {
        PW_RETURN_IF_ERROR(
            CheckAbsent(verb->get_option("-o")->as<std::string>()));
      }
      files->Put("-o", text);
      return files->Write();
    };
  });
}

}  // namespace pipewright
