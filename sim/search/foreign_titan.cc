#include "sim/search/foreign_titan.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"
#include "sim/schedule/registry.h"
#include "sim/search/foreign_table.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace pipewright {
namespace {

void FlattenTable(const toml::table& table, const std::string& above,
                  std::map<std::string, std::string>* values) {
  for (const auto& [key, node] : table) {
    const std::string name =
        above.empty() ? std::string(key.str())
                      : absl::StrCat(above, ".", std::string(key.str()));
    if (const toml::table* below = node.as_table()) {
      FlattenTable(*below, name, values);
    } else if (const auto text = node.value<std::string>()) {
      (*values)[name] = *text;
    } else if (const auto number = node.value<int64_t>()) {
      (*values)[name] = absl::StrCat(*number);
    } else if (const auto flag = node.value<bool>()) {
      (*values)[name] = *flag ? "true" : "false";
    } else {
      (*values)[name] = "";
    }
  }
}

}  // namespace

absl::StatusOr<ForeignArgs> ReadTitan(absl::string_view text,
                                      const std::string& path,
                                      const std::set<std::string>& said) {
  const toml::parse_result parsed =
      toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", parsed.error().source().begin.line, ": ",
                     std::string(parsed.error().description())));
  }
  std::map<std::string, std::string> values;
  FlattenTable(parsed.table(), "", &values);
  ForeignArgs out;
  std::set<std::string> used;
  const auto take = [&](const std::string& key) {
    const auto found = values.find(key);
    if (found == values.end()) return std::string();
    used.insert(key);
    return found->second;
  };
  absl::Status wrong;
  const auto number = [&](const std::string& key, int64_t fallback) {
    const std::string value = take(key);
    int64_t read = fallback;
    // Sharding alone may be -1: what is left.
    const int64_t least = std::min<int64_t>(fallback, 1);
    if (values.count(key) > 0 &&
        (!absl::SimpleAtoi(value, &read) || read < least || read == 0 ||
         read > kMostForeignNumber)) {
      wrong = Prefix(path, BadValue(key, value,
                                    absl::StrCat(least < 1 ? "-1, or " : "",
                                                 "an integer from 1 to ",
                                                 kMostForeignNumber)));
      read = 1;
    }
    return read;
  };
  const auto set = [&](const char* field, const std::string& value,
                       const char* key) {
    if (said.count(field) > 0) return;
    out.edits.push_back({field, value, absl::StrCat(path, " ", key)});
  };
  const std::string name = take("model.name");
  const std::string flavor = take("model.flavor");
  for (const TitanModelRow& row : TitanModelRows()) {
    if (name == row.name && flavor == row.flavor &&
        said.count("model.hf") == 0) {
      set("model.preset", row.preset, "model.flavor");
    }
  }
  const int64_t tp = number("parallelism.tensor_parallel_degree", 1);
  const int64_t pp = number("parallelism.pipeline_parallel_degree", 1);
  const int64_t cp = number("parallelism.context_parallel_degree", 1);
  const int64_t ep = number("parallelism.expert_parallel_degree", 1);
  const int64_t replicate =
      number("parallelism.data_parallel_replicate_degree", 1);
  const int64_t shard = number("parallelism.data_parallel_shard_degree", -1);
  set("strategy.tp", absl::StrCat(tp), "parallelism.tensor_parallel_degree");
  set("strategy.pp", absl::StrCat(pp), "parallelism.pipeline_parallel_degree");
  set("strategy.cp", absl::StrCat(cp), "parallelism.context_parallel_degree");
  if (ep > 1) {
    set("strategy.ep", absl::StrCat(ep), "parallelism.expert_parallel_degree");
  }
  const int64_t size =
      number("parallelism.pipeline_parallel_microbatch_size", 1);
  set("strategy.microbatch_size", absl::StrCat(size),
      "parallelism.pipeline_parallel_microbatch_size");
  const int64_t batch = number("training.local_batch_size", 8);
  if (!wrong.ok()) return wrong;
  if (batch % size == 0) {
    set("strategy.microbatches", absl::StrCat(batch / size),
        "training.local_batch_size");
  } else {
    return Prefix(path,
                  BadValue("training.local_batch_size", absl::StrCat(batch),
                           "a multiple of the microbatch size"));
  }
  const std::string sequence = take("training.seq_len");
  if (!sequence.empty()) {
    set("strategy.sequence", sequence, "training.seq_len");
  }
  if (shard > 0) {
    set("strategy.dp", absl::StrCat(shard * replicate),
        "parallelism.data_parallel_shard_degree");
  } else if (said.count("strategy.dp") == 0) {
    out.notes.push_back(absl::StrCat(
        path,
        ": data_parallel_shard_degree -1 takes the devices that are "
        "left, which are not in it: give strategy.dp"));
  }
  if (shard > 1 && replicate > 1) {
    out.notes.push_back(absl::StrCat(
        path, ": sharding within replicas (HSDP) is taken as FSDP over all"));
  }
  if (shard != 1 || replicate > 1) {
    // By default weights stay gathered under a pipeline
    // (torchtitan/distributed/fsdp.py, get_fsdp_reshard_after_forward_policy).
    const char* const key = "parallelism.fsdp_reshard_after_forward";
    const std::string policy = values.count(key) > 0 ? take(key) : "default";
    if (policy != "always" && policy != "never" && policy != "default") {
      return Prefix(path, BadValue(key, policy, "always, never, default"));
    }
    const bool keeps = policy == "never" || (policy == "default" && pp > 1);
    set("strategy.data_parallel",
        shard == 1 ? "ddp"
        : keeps    ? "zero2"
                   : "fsdp",
        "parallelism.data_parallel_shard_degree");
  }
  const std::string schedule = take("parallelism.pipeline_parallel_schedule");
  if (!schedule.empty() || pp == 1) {
    set("schedule.name", schedule.empty() ? "1f1b" : schedule,
        "parallelism.pipeline_parallel_schedule");
  }
  take("parallelism.pipeline_parallel_schedule_csv");
  const std::string adam = take("optimizer.implementation");
  if (adam == "fused" || adam == "foreach") {
    set("strategy.fused_optimizer", adam == "fused" ? "true" : "false",
        "optimizer.implementation");
  } else {
    used.erase("optimizer.implementation");
  }
  const std::string mode = take("activation_checkpoint.mode");
  if (mode == "none" || mode == "full") {
    set("strategy.recompute", mode, "activation_checkpoint.mode");
  } else if (said.count("strategy.recompute") == 0) {
    used.erase("activation_checkpoint.mode");
  }
  std::vector<std::string> ignored;
  for (const auto& [key, value] : values) {
    if (used.count(key) == 0) ignored.push_back(key);
  }
  if (!ignored.empty()) {
    out.notes.push_back(
        absl::StrCat(path, ": ignored: ", absl::StrJoin(ignored, ", ")));
  }
  return out;
}

}  // namespace pipewright
