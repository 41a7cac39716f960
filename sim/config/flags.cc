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
      {"--schedule", "schedule.name", "NAME|FILE", "schedule.file",
       &IsScheduleFile},
      {"--param", "schedule.params", "KEY=VALUE", "", nullptr, true},
      {"--pp", "strategy.pp", "N"},
      {"--vpp", "strategy.vpp", "N"},
      {"--dp", "strategy.dp", "N"},
      {"--dp-classes", "strategy.dp_classes.replicas", "N,N[,N...]"},
      {"--dp-microbatches", "strategy.dp_classes.microbatches", "N,N[,N...]"},
      {"--dp-slower", "strategy.dp_classes.slower", "X,X[,X...]"},
      {"--dp-slow-rank", "strategy.dp_classes.slow_rank", "N,N[,N...]"},
      {"--dp-schedules", "strategy.dp_classes.schedule", "NAME,NAME[,NAME...]"},
      {"--tp", "strategy.tp", "N"},
      {"--sequence-parallel", "strategy.sequence_parallel", "true|false"},
      {"--scatter-gather", "strategy.scatter_gather", "true|false"},
      {"--cp", "strategy.cp", "N"},
      {"--ep", "strategy.ep", "N"},
      {"--global-batch", "strategy.global_batch", "N|XMtokens"},
      {"--microbatches", "strategy.microbatches", "N"},
      {"--microbatch-size", "strategy.microbatch_size", "N"},
      {"--sequence", "strategy.sequence", "N"},
      {"--slices", "strategy.slices", "N"},
      {"--data-parallel", "strategy.data_parallel", "KIND"},
      {"--shard-blocks", "strategy.shard_blocks", "BLOCK"},
      {"--gather-type", "strategy.gather_type", "TYPE"},
      {"--zero", "strategy.zero", "0..3"},
      {"--overlap-gradients", "strategy.overlap_gradients", "true|false"},
      {"--recompute", "strategy.recompute", "KIND"},
      {"--offload", "strategy.offload", "none|selective|full"},
      {"--offload-chunks", "strategy.offload_chunks", "N[,N...]"},
      {"--offload-fraction", "strategy.offload_fraction", "0..1"},
      {"--offload-sharing", "strategy.offload_sharing", "together|in-turn"},
      {"--offload-tensors", "strategy.offload_tensors",
       "input|attention|mlp[,...]"},
      {"--attention", "strategy.attention", "KIND"},
      {"--precision", "strategy.precision", "KIND"},
      {"--framework", "strategy.framework", "NAME"},
      {"--layers", "strategy.layers", "N,N,..."},
      {"--layout", "strategy.layout", "STRING"},
      {"--split", "strategy.split", "KIND"},
      {"--vocabulary", "strategy.vocabulary", "WHERE"},
      {"--waiting", "strategy.waiting", "RULE"},
      {"--collectives", "strategy.collectives", "ALGORITHM"},
      {"--mapping", "strategy.mapping", "ORDER|LIST"},
      {"--optimizer", "strategy.optimizer", "MODE"},
      {"--validation", "strategy.validation", "PLACE"},
      {"--rollback-iterations", "strategy.rollback_iterations", "N[,N...]"},
      {"--optimizer-placement", "strategy.optimizer_placement", "WHERE"},
      {"--max-activations", "strategy.max_activations", "X"},
      {"--forward", "costs.uniform.forward", "TIME[,TIME...]",
       "costs.per_stage.forward", &IsList},
      {"--backward-input", "costs.uniform.backward_input", "TIME[,TIME...]",
       "costs.per_stage.backward_input", &IsList},
      {"--backward-weight", "costs.uniform.backward_weight", "TIME[,TIME...]",
       "costs.per_stage.backward_weight", &IsList},
      {"--backward", "costs.uniform.backward", "TIME[,TIME...]",
       "costs.per_stage.backward", &IsList},
      {"--recompute-time", "costs.uniform.recompute", "TIME"},
      {"--offload-time", "costs.uniform.offload", "TIME"},
      {"--load-time", "costs.uniform.load", "TIME"},
      {"--offload-ratio", "costs.offload_ratio", "K"},
      {"--p2p", "costs.p2p", "TIME"},
      {"--hop-bytes", "costs.hop_bytes", "BYTES"},
      {"--gradient-bytes", "costs.gradient_bytes", "BYTES"},
      {"--optimizer-time", "costs.optimizer_time", "TIME"},
      {"--validation-time", "costs.validation_time", "TIME"},
      {"--rollback-time", "costs.rollback_time", "TIME"},
      {"--prediction-time", "costs.prediction_time", "TIME"},
      {"--held-until-weight", "costs.held_until_weight", "0..1"},
      {"--pair-factor", "costs.pair_factor", "0.1..10"},
      {"--analytic", "costs.analytic.device", "[DEVICE]", "", nullptr, false,
       "auto"},
      {"--silicon", "costs.analytic.silicon", "auto|shipped|none|FILE"},
      {"--profile", "costs.profile", "NAME|FILE"},
      {"--scale-shapes", "costs.scale_shapes", "true|false"},
      {"--jitter", "costs.jitter", "none|profile|[uniform:]X%"},
      {"--seed", "costs.seed", "N"},
      {"--interference", "costs.interference", "on|off"},
      {"--price", "costs.price_per_device_hour", "X"},
      {"--model", "model.preset", "NAME|FILE", "model.hf", &IsModelFile},
      {"--system", "system.preset", "NAME|FILE", "system.file", &IsSystemFile},
      {"--nodes", "system.nodes", "N"},
      {"--memory", "system.memory", "BYTES"},
      {"--host-memory", "system.host_memory", "BYTES"},
      {"--memory-context", "strategy.memory_context", "BYTES"},
      {"--fragmentation", "strategy.fragmentation", "X"},
      {"--lengths", "sequences.lengths", "LAW|FILE"},
      {"--histogram", "sequences.histogram", "BIN[,BIN...]"},
      {"--packer", "sequences.packer", "NAME"},
      {"--packer-cost", "sequences.packer_cost", "linear|fit|flops"},
      {"--minibatch", "sequences.minibatch", "N"},
      {"--max-token-len", "sequences.max_token_len", "N"},
      {"--lengths-seed", "sequences.seed", "N"},
      {"--slow-devices", "slow.devices", "NAME*X[,...]"},
      {"--slow-law", "slow.devices_law", "LAW"},
      {"--slow-links", "slow.links", "NAME*X[,...]"},
      {"--slow-links-law", "slow.links_law", "LAW"},
      {"--mtbf", "reliability.mtbf_per_device", "TIME"},
      {"--checkpoint-every", "reliability.checkpoint_every", "TIME"},
      {"--checkpoint-write", "reliability.checkpoint_write", "TIME"},
      {"--restart-time", "reliability.restart", "TIME"},
      {"--horizon", "reliability.horizon", "TIME"},
      {"--engine", "engine", "NAME"},
      {"--network", "network", "NAME"},
      {"--iterations", "iterations", "N"},
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
