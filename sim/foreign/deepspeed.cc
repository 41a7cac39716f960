// Facts: microsoft/DeepSpeed (Apache-2.0), deepspeed/runtime/config.py,
// deepspeed/runtime/zero/config.py and deepspeed/runtime/pipe/engine.py;
// frameworks/deepspeed.csv has each key with its source.
#include "sim/foreign/deepspeed.h"

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/foreign/key_reader.h"

namespace pipewright {
namespace {

constexpr char kBatch[] = "train_batch_size";
constexpr char kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kSteps[] = "gradient_accumulation_steps";
constexpr char kStage[] = "zero_optimization.stage";
constexpr char kOptimizerDevice[] =
    "zero_optimization.offload_optimizer.device";
constexpr char kType[] = "optimizer.type";
constexpr char kOptimizerRatio[] = "zero_optimization.offload_optimizer.ratio";
constexpr char kParamDevice[] = "zero_optimization.offload_param.device";

constexpr char kInterval[] = "pipeline.activation_checkpoint_interval";

class DeepSpeedFile {
 public:
  DeepSpeedFile(KeyReader* keys, const ForeignSurroundings& around)
      : keys_(*keys), around_(around) {}

  absl::StatusOr<ForeignArgs> Read() {
    pp_ = around_.Int("strategy.pp", 1);
    if (!around_.Gives("strategy.pp")) {
      keys_.SetDefault("strategy.pp", "1", "a file has no pipeline: --pp");
    }
    dp_ = around_.Int("strategy.dp", 0);
    const int64_t each =
        pp_ * around_.Int("strategy.tp", 1) * around_.Int("strategy.cp", 1);
    const int64_t devices =
        around_.Int("system.nodes", 0) * around_.devices_per_node;
    if (dp_ == 0 && devices > 0) {
      if (devices % each != 0) {
        return keys_.Refused(
            kBatch,
            absl::StrCat(devices, " devices are no multiple of ", each));
      }
      dp_ = devices / each;
      keys_.Set("strategy.dp", absl::StrCat(dp_), kBatch);
    }
    std::map<std::string, std::string> known = {
        {"pipeline_module", pp_ > 1 ? "true" : "false"},
        {"pipeline_stages", absl::StrCat(pp_)},
        {"num_stages", absl::StrCat(pp_)},
        {"topology", "given"}};
    if (dp_ > 0) {
      known["data_parallel_world_size"] = absl::StrCat(dp_);
      known["world_size"] = absl::StrCat(dp_ * each);
    }
    PW_RETURN_IF_ERROR(keys_.CheckRules(known));
    PW_RETURN_IF_ERROR(Batch());
    PW_RETURN_IF_ERROR(Zero());
    PW_RETURN_IF_ERROR(Checkpoint());
    Types();
    // PipelineEngine's TrainSchedule; without a pipeline there is no order.
    if (!around_.Gives("schedule.file")) {
      keys_.Set("schedule.name", "1f1b", kMicro);
    }
    keys_.Set("strategy.framework", "deepspeed", kMicro);
    return keys_.Finish();
  }

 private:
  // "auto" is the trainer's to say.
  absl::StatusOr<int64_t> Size(const char* id) {
    if (keys_.Text(id) == "auto") return 0;
    return keys_.Int(id, 0);
  }

  // train_batch_size = micro batch * accumulation steps * replicas.
  absl::Status Batch() {
    PW_ASSIGN_OR_RETURN(const int64_t batch, Size(kBatch));
    PW_ASSIGN_OR_RETURN(int64_t micro, Size(kMicro));
    PW_ASSIGN_OR_RETURN(int64_t steps, Size(kSteps));
    if (dp_ > 0 && batch > 0) {
      if (micro > 0 && steps > 0 && batch != micro * steps * dp_) {
        return keys_.Refused(
            kBatch, absl::StrCat("it is not micro batch * accumulation steps * "
                                 "replicas = ",
                                 micro * steps * dp_));
      }
      const int64_t divisor =
          (micro > 0 ? micro : 1) * (steps > 0 ? steps : 1) * dp_;
      if (batch % divisor != 0) {
        return keys_.Refused(kBatch,
                             absl::StrCat("it is no multiple of ", divisor));
      }
      if (micro > 0 && steps == 0) steps = batch / divisor;
      if (micro == 0) micro = batch / divisor;
    }
    if (steps == 0) steps = 1;
    if (micro > 0) {
      keys_.Set("strategy.microbatch_size", absl::StrCat(micro), kMicro);
    } else if (dp_ == 0) {
      keys_.Note(
          "the number of replicas is not in it: give --dp, or --system and "
          "--nodes");
    }
    keys_.Set("strategy.microbatches", absl::StrCat(steps), kSteps);
    return absl::OkStatus();
  }

  absl::Status Zero() {
    PW_ASSIGN_OR_RETURN(const int64_t stage, keys_.Int(kStage, 0, 0));
    if (stage > 3) return keys_.Wrong(kStage, "0 to 3");
    if (pp_ > 1 && stage >= 2) {
      return keys_.Refused(kStage, "ZeRO 2 and 3 do not go with a pipeline");
    }
    if (dp_ != 1) {
      keys_.Set("strategy.data_parallel",
                stage == 0   ? "ddp"
                : stage == 1 ? "zero1"
                : stage == 2 ? "zero2"
                             : "fsdp",
                kStage);
    }
    const std::string device = keys_.Text(kOptimizerDevice);
    if (device == "cpu") {
      keys_.Set("strategy.optimizer_placement", "zero-offload",
                kOptimizerDevice);
      const std::string ratio = keys_.Text(kOptimizerRatio);
      if (keys_.Has(kOptimizerRatio) && ratio != "1.0" && ratio != "1") {
        keys_.Set("strategy.optimizer_placement", "twinflow", kOptimizerDevice);
        keys_.Set("strategy.optimizer_ratio", ratio, kOptimizerRatio);
      }
    } else if (device == "nvme") {
      keys_.NotModelled(kOptimizerDevice, "states on NVMe");
    }
    // Adam by its many names, and Lion; others have states and work of their
    // own.
    const std::string type = absl::AsciiStrToLower(keys_.Text(kType));
    const std::string kind = keys_.Mapped(kType, type);
    if (keys_.Has(kType) && kind.empty()) {
      return keys_.Wrong(kType,
                         "adam, adamw, muadam, muadamw, lion: no field has "
                         "what others do here");
    }
    if (kind == "lion") keys_.Set("strategy.optimizer_kind", kind, kType);
    const std::string weights = keys_.Text(kParamDevice);
    if (weights == "cpu" || weights == "nvme") {
      keys_.NotModelled(kParamDevice, "weights off the device");
    }
    return absl::OkStatus();
  }

  // Layers of a checkpoint, under a pipeline.
  absl::Status Checkpoint() {
    PW_ASSIGN_OR_RETURN(const int64_t layers, keys_.Int(kInterval, 0, 0));
    if (pp_ == 1 || layers == 0) return absl::OkStatus();
    keys_.Set("strategy.recompute", "full", kInterval);
    if (layers > 1) {
      keys_.NotModelled(kInterval, "one checkpoint for several layers");
    }
    return absl::OkStatus();
  }

  void Types() {
    const std::string type = keys_.Text("communication_data_type");
    if (type == "fp32") {
      keys_.NotModelled("communication_data_type", "reductions in fp32");
    }
    const bool bf16 = keys_.On("bf16.enabled");
    if (!keys_.On("fp16.enabled") && !bf16) {
      keys_.NotModelled("bf16.enabled",
                        "without it and fp16 training is in fp32; 16 bit is "
                        "taken");
    }
  }

  KeyReader& keys_;
  const ForeignSurroundings& around_;
  int64_t pp_ = 1;
  int64_t dp_ = 0;
};

}  // namespace

absl::StatusOr<ForeignArgs> ReadDeepSpeed(std::vector<GivenKey> keys,
                                          const std::string& path,
                                          const std::set<std::string>& said,
                                          const ForeignSurroundings& around) {
  KeyReader reader(KeyTable::Of("deepspeed"), "DeepSpeed", "0.19.6", "0.16.5",
                   path, said);
  PW_RETURN_IF_ERROR(reader.Take(std::move(keys)));
  return DeepSpeedFile(&reader, around).Read();
}

}  // namespace pipewright
