#include "tests/support/random_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/schedule/registry.h"
#include "tests/support/random_schedule.h"

namespace pipewright::testing {
namespace {

struct AnyModel {
  const char* preset;
  int least_layers;  // a mixture keeps the dense ones in front of its experts
  int heads;
  int experts;    // 0: none
  bool predicts;  // may have layers of multi-token prediction
};
constexpr AnyModel kModels[] = {
    {"llama3-8b", 2, 8, 0, false},       {"gpt-1.7b", 2, 24, 0, false},
    {"qwen3-30b-a3b", 2, 4, 128, false}, {"mixtral-8x7b", 2, 8, 8, false},
    {"deepseek-v3", 5, 128, 256, true},
};

// Systems with a device that passes can be estimated for, and one without.
constexpr const char* kSystems[] = {"dgx-h100", "a100-roce", "gb200-nvl72",
                                    "gh200", "two-site-h100"};
// Their order depends on what passes take.
constexpr const char* kPlanners[] = {"zb-auto", "zb-v", "v-half", "v-min",
                                     "v-zb"};

class Maker {
 public:
  Maker(uint32_t seed, const ConfigWishes& wishes)
      : random_(seed), wishes_(wishes) {}

  RandomConfig Make() {
    Set("engine", wishes_.engine);
    Model();
    System();
    Degrees();
    Schedule();
    Batch();
    Costs();
    Sharding();
    Memory();
    Reality();
    return std::move(out_);
  }

 private:
  template <typename Value>
  void Set(const std::string& path, const Value& value) {
    out_.Set(path, absl::StrCat(value));
  }
  template <size_t kCount>
  const char* OneOf(const char* const (&names)[kCount]) {
    return names[random_.Int(0, kCount - 1)];
  }
  int OneOf(const std::vector<int>& values) {
    return values[random_.Int(0, static_cast<int>(values.size()) - 1)];
  }
  bool given_times() const { return wishes_.given_times; }

  void Model() {
    model_ = kModels[random_.Int(0, std::size(kModels) - 1)];
    Set("model.preset", model_.preset);
    layers_ = model_.least_layers + random_.Int(0, 11);
    Set("model.layers", layers_);
    if (model_.predicts) {
      predicted_ = random_.Int(0, 2);
      Set("model.mtp_layers", predicted_);
    }
  }

  void System() {
    system_ = OneOf(kSystems);
    Set("system.preset", system_);
  }

  void Degrees() {
    while (true) {
      tp_ = OneOf({1, 1, 2, 4});
      cp_ = OneOf({1, 1, 2});
      pp_ = OneOf({1, 2, 2, 3, 4, 4, 6});
      dp_ = OneOf({1, 1, 2, 3, 4});
      if (tp_ * cp_ * pp_ * dp_ <= wishes_.most_devices) break;
    }
    if (std::string(system_) == "gh200") tp_ = 1;
    Set("strategy.tp", tp_);
    Set("strategy.cp", cp_);
    Set("strategy.pp", pp_);
    Set("strategy.dp", dp_);
    if (model_.experts > 0) {
      const int etp = random_.Chance(50) ? tp_ : OneOf({1, tp_});
      if (etp != tp_) Set("strategy.etp", etp);
      const int shards = dp_ * cp_ * tp_ / etp;
      const bool divides = model_.experts % shards == 0;
      Set("strategy.ep", random_.Chance(50) && divides ? shards : 1);
    }
    Set("strategy.sequence", 512 * OneOf({1, 2, 3, 4}) * cp_);
  }

  void Schedule() {
    std::vector<const ScheduleInfo*> rows;
    for (const ScheduleInfo* row : AllSchedules()) {
      if (std::find(std::begin(kPlanners), std::end(kPlanners), row->name) ==
          std::end(kPlanners)) {
        rows.push_back(row);
      }
    }
    const ScheduleInfo* row =
        FindSchedule(random_.Chance(50) ? "1f1b" : "interleaved-1f1b")
            .value()
            .info;
    if (random_.Chance(60)) {
      row = rows[random_.Int(0, static_cast<int>(rows.size()) - 1)];
    }
    Set("schedule.name", row->name);
    vpp_ = row->default_vpp;
    if (vpp_ > 1 && random_.Chance(50)) vpp_ = OneOf({2, 3, 3, 4});
    if (layers_ < pp_ * vpp_ && row->name != "1f1b") {
      layers_ = pp_ * vpp_ + random_.Int(0, 3);
      Set("model.layers", layers_);
    }
    Set("strategy.vpp", vpp_);
    Stages();
    if (random_.Chance(15)) {
      Set("strategy.waiting", OneOf({"buffered", "rendezvous", "batched"}));
    }
  }

  // As many layers on each stage, or not.
  void Stages() {
    const int stages = pp_ * vpp_;
    const int more = (stages - layers_ % stages) % stages;
    if (random_.Chance(50)) {
      layers_ += more;
      Set("model.layers", layers_);
    } else if (more > 0 && (predicted_ > 0 || random_.Chance(40))) {
      Set("strategy.split", "balanced");
    } else if (predicted_ == 0) {
      Layers(stages);
    }
  }

  void Layers(int stages) {
    std::vector<int> counts(stages, layers_ / stages);
    for (int left = layers_ % stages; left > 0; --left) {
      ++counts[random_.Int(0, stages - 1)];
    }
    Set("strategy.layers", absl::StrJoin(counts, ","));
  }

  void Batch() {
    Set("strategy.microbatches", random_.Chance(85)
                                     ? 2 * pp_ * random_.Int(1, 2)
                                     : random_.Int(1, 3 * pp_));
    Set("strategy.microbatch_size", OneOf({1, 1, 2}));
  }

  void Costs() {
    if (!given_times()) {
      Set("costs.analytic.device", "auto");
      if (random_.Chance(20)) {
        Set("strategy.precision", OneOf({"fp8", "fp8-block"}));
      }
      if (random_.Chance(20)) Set("costs.price_per_device_hour", 2.5);
      return;
    }
    // Hardly anything but the network takes time in some.
    const double scale = random_.Chance(30) ? 1e-9 : 1e-3;
    Set("costs.uniform.forward", absl::StrCat(scale * random_.Int(1, 9), "s"));
    Set("costs.uniform.backward_input",
        absl::StrCat(scale * random_.Int(1, 9), "s"));
    Set("costs.uniform.backward_weight",
        absl::StrCat(scale * random_.Int(1, 9), "s"));
    if (random_.Chance(50)) {
      Set("strategy.optimizer", OneOf({"synchronised", "post-validated"}));
      Set("costs.optimizer_time", absl::StrCat(scale * 2, "s"));
    }
  }

  void Sharding() {
    if (dp_ * cp_ > 1 && random_.Chance(75)) {
      const char* const kind =
          OneOf({"ddp", "zero1", "zero2", "fsdp", "fsdp", "ddp"});
      Set("strategy.data_parallel", kind);
      if (random_.Chance(30)) Set("strategy.overlap_gradients", "false");
      if (std::string(kind) == "fsdp" && random_.Chance(40)) {
        Set("strategy.shard_blocks", "layer");
      }
      if (random_.Chance(25) && !given_times()) {
        Set("strategy.collectives", OneOf({"tree", "hierarchical", "fastest"}));
      }
    }
    if (random_.Chance(20)) {
      Set("strategy.framework", OneOf({"megatron", "torchtitan", "deepspeed"}));
    }
    if (random_.Chance(25)) {
      Set("strategy.mapping", OneOf({"dp-pp", "pp-dp"}));
    }
  }

  void Memory() {
    if (random_.Chance(40)) {
      const char* const kind =
          OneOf({"none", "selective", "norm-activation", "full"});
      Set("strategy.recompute", kind);
      if (std::string(kind) == "full" && random_.Chance(30)) {
        Set("strategy.recompute_layers", 1);
      }
    }
    if (random_.Chance(20)) {
      Set("strategy.offload", OneOf({"selective", "full"}));
    }
    if (random_.Chance(20)) Set("strategy.attention", "unfused");
    if (tp_ > 1 && model_.experts == 0 && random_.Chance(20)) {
      Set("strategy.sequence_parallel", "false");
    }
    if (random_.Chance(10)) Set("strategy.vocabulary", "spread");
    if (random_.Chance(15)) Set("strategy.fragmentation", 0.05);
  }

  void Reality() {
    if (random_.Chance(10)) Set("slow.devices", "node0/gpu0*1.5");
  }

  Random random_;
  ConfigWishes wishes_;
  RandomConfig out_;
  AnyModel model_ = kModels[0];
  const char* system_ = "";
  int layers_ = 0;
  int predicted_ = 0;
  int tp_ = 1;
  int cp_ = 1;
  int pp_ = 1;
  int dp_ = 1;
  int vpp_ = 1;
};

}  // namespace

RunConfig RandomConfig::config() const {
  return ReadConfig("", "", {edits}).value();
}

std::string RandomConfig::Value(const std::string& path) const {
  for (const ConfigEdit& edit : edits) {
    if (edit.path == path) return edit.value;
  }
  return "";
}

void RandomConfig::Set(const std::string& path, const std::string& value) {
  for (ConfigEdit& edit : edits) {
    if (edit.path == path) {
      edit.value = value;
      return;
    }
  }
  edits.push_back({path, value, absl::StrCat("--set ", path)});
}

std::string RandomConfig::about() const {
  std::string text = "simulate";
  for (const ConfigEdit& edit : edits) {
    absl::StrAppend(&text, " --set ", edit.path, "=", edit.value);
  }
  return text;
}

RandomConfig AnyConfig(uint32_t seed, const ConfigWishes& wishes) {
  return Maker(seed * 2654435761u + 1, wishes).Make();
}

}  // namespace pipewright::testing
