#include "sim/config/flags.h"

#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

bool IsList(const std::string& value) { return absl::StrContains(value, ','); }

bool IsSystemFile(const std::string& value) {
  return absl::StrContains(value, '/') || absl::EndsWith(value, ".textproto") ||
         absl::EndsWith(value, ".txtpb") || absl::EndsWith(value, ".pbtxt");
}

bool IsModelFile(const std::string& value) {
  return absl::StrContains(value, '/') || absl::EndsWith(value, ".json");
}

}  // namespace

bool IsScheduleFile(const std::string& value, const std::string& path) {
  if (absl::StrContains(value, '/') || absl::EndsWith(value, ".pws") ||
      absl::EndsWith(value, ".txt") || absl::EndsWith(value, ".json") ||
      absl::EndsWith(value, ".csv")) {
    return true;
  }
  struct stat info;
  return !FindSchedule(value).ok() && ::stat(path.c_str(), &info) == 0 &&
         S_ISREG(info.st_mode);
}

const std::vector<ConfigFlag>& ConfigFlags() {
  static const auto* flags = new std::vector<ConfigFlag>{
      {"--schedule", "schedule.name", "NAME|FILE",
       "registered schedule, or schedule file", "schedule.file",
       &IsScheduleFile},
      {"--param", "schedule.params", "KEY=VALUE",
       "own parameter of the schedule; may be repeated", "", nullptr, true},
      {"--pp", "strategy.pp", "N", "pipeline ranks"},
      {"--vpp", "strategy.vpp", "N", "stages a rank"},
      {"--dp", "strategy.dp", "N", "data-parallel replicas"},
      {"--tp", "strategy.tp", "N", "tensor parallelism"},
      {"--sequence-parallel", "strategy.sequence_parallel", "true|false",
       "norms and residuals split over tp too (default: true with tp)"},
      {"--scatter-gather", "strategy.scatter_gather", "true|false",
       "without sequence parallelism a device sends 1/tp of a hop's bytes and "
       "the receivers gather (default: with --analytic)"},
      {"--cp", "strategy.cp", "N", "context parallelism"},
      {"--ep", "strategy.ep", "N", "expert parallelism, within dp * cp"},
      {"--microbatches", "strategy.microbatches", "N",
       "microbatches of an iteration and data-parallel replica; those of both "
       "directions of a bidirectional schedule"},
      {"--microbatch-size", "strategy.microbatch_size", "N",
       "samples of a microbatch"},
      {"--sequence", "strategy.sequence", "N", "tokens of a sample"},
      {"--slices", "strategy.slices", "N", "sequence slices of a microbatch"},
      {"--data-parallel", "strategy.data_parallel", "KIND",
       "none, ddp, zero1, zero2, fsdp"},
      {"--shard-blocks", "strategy.shard_blocks", "BLOCK",
       "what fsdp and zero2 communicate for: pass, run, unit"},
      {"--zero", "strategy.zero", "0..3",
       "ZeRO's stage, another word for --data-parallel ddp (0), zero1, zero2, "
       "fsdp (3)"},
      {"--overlap-gradients", "strategy.overlap_gradients", "true|false",
       "reduce a chunk's gradients as soon as they are there (default), or "
       "all of them behind the last pass"},
      {"--recompute", "strategy.recompute", "KIND",
       "none, selective, norm-activation, full"},
      {"--attention", "strategy.attention", "KIND", "flash, unfused"},
      {"--precision", "strategy.precision", "KIND", "bf16, fp8"},
      {"--layers", "strategy.layers", "N,N,...", "layers of each stage"},
      {"--layout", "strategy.layout", "STRING",
       "Megatron's layout string: Et*3|(tt|)*29,m|L"},
      {"--split", "strategy.split", "KIND",
       "layers over stages: even, balanced (by FLOPs)"},
      {"--vocabulary", "strategy.vocabulary", "WHERE",
       "embedding and head: ends, spread (over all stages)"},
      {"--waiting", "strategy.waiting", "RULE",
       "whom a transfer holds: buffered, rendezvous, batched"},
      {"--mapping", "strategy.mapping", "ORDER|LIST",
       "dp-pp, pp-dp, bitpipe, or the device of each rank: 0,1,2,3"},
      {"--optimizer", "strategy.optimizer", "MODE",
       "none, synchronised, post-validated"},
      {"--validation", "strategy.validation", "PLACE",
       "where a post-validated step is checked: no-wait, released"},
      {"--rollback-iterations", "strategy.rollback_iterations", "N[,N...]",
       "iterations, from 0 on, whose post-validated step fails"},
      {"--max-activations", "strategy.max_activations", "X",
       "limit per rank in microbatches; planners keep to it"},
      {"--forward", "costs.uniform.forward", "TIME[,TIME...]",
       "one microbatch through a rank; a list: through each stage",
       "costs.per_stage.forward", &IsList},
      {"--backward-input", "costs.uniform.backward_input", "TIME[,TIME...]",
       "the same, gradient of the input", "costs.per_stage.backward_input",
       &IsList},
      {"--backward-weight", "costs.uniform.backward_weight", "TIME[,TIME...]",
       "the same, gradient of the weights", "costs.per_stage.backward_weight",
       &IsList},
      {"--backward", "costs.uniform.backward", "TIME[,TIME...]",
       "both gradients, instead of the two: half of it each",
       "costs.per_stage.backward", &IsList},
      {"--recompute-time", "costs.uniform.recompute", "TIME",
       "a forward run again (default: the forward's)"},
      {"--offload-time", "costs.uniform.offload", "TIME",
       "activations of one microbatch to the host"},
      {"--load-time", "costs.uniform.load", "TIME", "and back"},
      {"--p2p", "costs.p2p", "TIME",
       "pure delay of a hop, instead of a network"},
      {"--hop-bytes", "costs.hop_bytes", "BYTES",
       "bytes of one microbatch over a hop, from each device of a rank"},
      {"--gradient-bytes", "costs.gradient_bytes", "BYTES",
       "gradients of one rank"},
      {"--optimizer-time", "costs.optimizer_time", "TIME",
       "optimizer step of a rank"},
      {"--validation-time", "costs.validation_time", "TIME",
       "check of a post-validated step"},
      {"--rollback-time", "costs.rollback_time", "TIME",
       "undoing a step (default: the optimizer's)"},
      {"--prediction-time", "costs.prediction_time", "TIME",
       "predicting a rank's weights for one microbatch (pipeoptim)"},
      {"--held-until-weight", "costs.held_until_weight", "0..1",
       "part of the activations that B leaves to W"},
      {"--pair-factor", "costs.pair_factor", "0.1..10",
       "time of an overlapped pair (X&Y) over that of X and Y in turn"},
      {"--analytic", "costs.analytic.device", "[DEVICE]",
       "estimate pass times for a device; default: the system's", "", nullptr,
       false, "auto"},
      {"--profile", "costs.profile", "NAME|FILE",
       "pass times as calibrate measured them (pipewright list profiles)"},
      {"--scale-shapes", "costs.scale_shapes", "true|false",
       "carry measured times over to other layer shapes by their work "
       "(default: false)"},
      {"--jitter", "costs.jitter", "none|profile|X%",
       "draw the time of every pass and step from what was measured, or "
       "lognormal (default: none)"},
      {"--seed", "costs.seed", "N", "of the draws (default: 0)"},
      {"--interference", "costs.interference", "on|off",
       "passes and what runs beside them slow each other down as measured "
       "(default: on where the profile has it)"},
      {"--price", "costs.price_per_device_hour", "X",
       "of one device for an hour, in any currency"},
      {"--model", "model.preset", "NAME|FILE",
       "model (pipewright list models), or a Hugging Face config.json",
       "model.hf", &IsModelFile},
      {"--system", "system.preset", "NAME|FILE",
       "system (pipewright list systems), or system file", "system.file",
       &IsSystemFile},
      {"--nodes", "system.nodes", "N", "nodes of the system"},
      {"--memory", "system.memory", "BYTES",
       "of one device; default: the system's. Exit 3 where a rank needs more"},
      {"--memory-context", "strategy.memory_context", "BYTES",
       "on a device beyond the allocator (default: 1 GiB)"},
      {"--fragmentation", "strategy.fragmentation", "X",
       "what the allocator holds beyond its peak, as a share (default: 0)"},
      {"--engine", "engine", "NAME", "simgrid, fast"},
      {"--network", "network", "NAME", "network model: fluid or native"},
      {"--iterations", "iterations", "N",
       "default: until the period is constant, at most 8"},
  };
  return *flags;
}

absl::StatusOr<ConfigEdit> EditOfFlag(const ConfigFlag& flag,
                                      const std::string& value) {
  if (flag.repeats) {
    const size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) {
      return BadValue(flag.flag, value, "KEY=VALUE");
    }
    const std::string key = value.substr(0, equals);
    if (absl::StrContains(key, '.')) {
      return BadValue(flag.flag, value, "KEY=VALUE, the key without dots");
    }
    return ConfigEdit{absl::StrCat(flag.path, ".", key),
                      value.substr(equals + 1),
                      absl::StrCat(flag.flag, " ", value)};
  }
  const bool other = flag.is_other != nullptr && flag.is_other(value);
  return ConfigEdit{other ? flag.other_path : flag.path, value, flag.flag};
}

absl::StatusOr<ConfigEdit> EditOfSet(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return BadValue("--set", text, "PATH=VALUE, as in strategy.pp=8");
  }
  const std::string value = text.substr(equals + 1);
  return ConfigEdit{text.substr(0, equals), value, absl::StrCat("--set ", text),
                    value.empty()};
}

}  // namespace pipewright
