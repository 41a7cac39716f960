// What a request fixes, and the smallest run of it.
#include <algorithm>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/analysis/search/plan_space.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/framework.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr size_t kMostVariants = 256;

std::vector<std::string> AxisNames() {
  std::vector<std::string> names;
  for (const PlanAxis& axis : PlanAxes()) names.push_back(axis.name);
  for (const PlanVariantAxis& row : PlanVariantAxes()) {
    names.push_back(row.axis.name);
  }
  return names;
}

absl::Status CheckAxes(const PlanRequest& request) {
  const std::vector<std::string> names = AxisNames();
  for (const auto& [axis, values] : request.fixed) {
    if (std::find(names.begin(), names.end(), axis) == names.end()) {
      return Prefix("--fix", UnknownName("axis", axis, names));
    }
  }
  return absl::OkStatus();
}

template <typename Value>
void TakeAxis(const char* axis, std::optional<Value>* given,
              PlanRequest* request) {
  if (!*given) return;
  request->fixed.try_emplace(axis,
                             std::vector<std::string>{absl::StrCat(**given)});
  given->reset();
}

template <typename Value>
void TakeChoice(const char* axis, const std::vector<ChoiceRow>& rows,
                std::optional<Value>* given, PlanRequest* request) {
  if (!*given) return;
  request->fixed.try_emplace(
      axis, std::vector<std::string>{ChoiceName(rows, **given)});
  given->reset();
}

// Fields that are axes become fixed ones.
void TakeGivenAxes(PlanRequest* request) {
  StrategyChoice& strategy = request->base.strategy;
  TakeAxis("tp", &strategy.tp, request);
  TakeAxis("cp", &strategy.cp, request);
  TakeAxis("ep", &strategy.ep, request);
  TakeAxis("pp", &strategy.pp, request);
  TakeAxis("dp", &strategy.dp, request);
  TakeAxis("vpp", &strategy.vpp, request);
  TakeAxis("microbatch_size", &strategy.microbatch_size, request);
  TakeAxis("microbatches", &strategy.microbatches, request);
  TakeAxis("schedule", &request->base.schedule.name, request);
  TakeChoice("recompute", RecomputeChoices(), &strategy.recompute, request);
  TakeChoice("offload", OffloadChoices(), &strategy.offload, request);
  // Odc, which has the same stage as fsdp, is asked for by name.
  if (strategy.zero) strategy.data_parallel = DataParallelOf(strategy);
  strategy.zero.reset();
  TakeChoice("data_parallel", DataParallelChoices(), &strategy.data_parallel,
             request);
}

// Values of an axis that are names.
template <typename Enum>
absl::StatusOr<std::vector<Enum>> ChoicesOf(const PlanRequest& request,
                                            const char* axis,
                                            const std::vector<ChoiceRow>& rows,
                                            const std::vector<Enum>& usual) {
  const auto found = request.fixed.find(axis);
  if (found == request.fixed.end()) return usual;
  std::vector<Enum> values;
  std::vector<std::string> names;
  for (const ChoiceRow& row : rows) {
    if (row.available) names.push_back(row.name);
  }
  for (const std::string& text : found->second) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const ChoiceRow& each) {
          return each.available && text == each.name;
        });
    if (row == rows.end()) {
      return Prefix(absl::StrCat("--fix ", axis),
                    UnknownName("value", text, names));
    }
    values.push_back(static_cast<Enum>(row->value));
  }
  return values;
}

bool HasGivenTimes(const CostChoice& costs) {
  return costs.forward_s || costs.backward_s || costs.backward_input_s ||
         costs.backward_weight_s || !costs.stage_forward_s.empty() ||
         !costs.stage_backward_s.empty();
}

// Given times hold for one split of the model; what changes them is not
// searched.
absl::Status CheckGivenTimes(PlanRequest* request) {
  if (!HasGivenTimes(request->base.costs)) return absl::OkStatus();
  if (request->fixed.count("pp") == 0) {
    return MissingValue(
        "strategy.pp",
        "given with pass times (--pp N, or --fix pp=N): they are those of one "
        "number of ranks");
  }
  for (const char* axis : {"tp", "cp", "ep", "microbatch_size"}) {
    request->fixed.try_emplace(axis, std::vector<std::string>{"1"});
  }
  request->fixed.try_emplace("recompute", std::vector<std::string>{"none"});
  if (request->base.strategy.layers.empty()) {
    request->fixed.try_emplace("layout", std::vector<std::string>{"even"});
  }
  return absl::OkStatus();
}

RunConfig ProbeOf(const PlanRequest& request) {
  RunConfig config = request.base;
  config.strategy.pp = 1;
  config.strategy.vpp = 1;
  // It divides every tp there is.
  config.strategy.tp = config.strategy.etp;
  // One device alone has all experts.
  config.strategy.expert_load.reset();
  config.strategy.microbatches = 1;
  config.strategy.layers.clear();
  config.strategy.layout.reset();
  config.strategy.split.reset();
  config.strategy.recompute_chunks.clear();
  config.strategy.offload = OffloadMode::kNone;
  config.strategy.offload_chunks.clear();
  config.strategy.offload_fraction.reset();
  config.schedule.name = "1f1b";
  config.schedule.params.clear();
  config.system.nodes.reset();
  config.strategy.mapping.clear();
  config.costs.stage_forward_s.clear();
  config.costs.stage_backward_s.clear();
  config.costs.stage_backward_input_s.clear();
  config.costs.stage_backward_weight_s.clear();
  config.costs.microbatch_factor.clear();
  config.costs.slice_factor.clear();
  config.strategy.slices.reset();
  config.strategy.max_activations.reset();
  config.strategy.optimizer_placement.reset();
  config.strategy.optimizer_stride.reset();
  // They may have ranks of other runs.
  config.slow.devices.clear();
  return config;
}

// The configuration with one field as --fix says it.
absl::StatusOr<RunConfig> WithVariant(RunConfig base, const PlanAxis& axis,
                                      const std::string& value) {
  const std::string origin = absl::StrCat("--fix ", axis.name, "=", value);
  const std::string text = absl::StrReplaceAll(value, {{"+", ","}});
  PW_ASSIGN_OR_RETURN(const RunConfig one,
                      ReadConfig("", "", {{{axis.path, text, origin}}}));
  for (const ConfigField& field : ConfigFields()) {
    if (field.path != absl::string_view(axis.path)) continue;
    CopyField(field, one, &base);
  }
  base.origins.insert_or_assign(axis.path, ConfigOrigin{.flag = origin});
  return base;
}

}  // namespace

// All combinations of the values of such axes; this space becomes the first.
absl::Status PlanSpace::MakeVariants(RunContext* context) {
  struct Variant {
    RunConfig base;
    std::vector<std::pair<std::string, std::string>> chosen;
  };
  std::vector<Variant> variants = {{.base = request_.base}};
  std::vector<const PlanVariantAxis*> axes;  // [index of `chosen`]
  for (const PlanVariantAxis& row : PlanVariantAxes()) {
    const auto fixed = request_.fixed.find(row.axis.name);
    if (fixed == request_.fixed.end()) continue;
    const std::vector<std::string> values = std::move(fixed->second);
    request_.fixed.erase(fixed);
    std::vector<Variant> more;
    for (const Variant& before : variants) {
      for (const std::string& value : values) {
        Variant variant = before;
        PW_ASSIGN_OR_RETURN(variant.base, WithVariant(std::move(variant.base),
                                                      row.axis, value));
        if (values.size() > 1)
          variant.chosen.emplace_back(row.axis.name, value);
        more.push_back(std::move(variant));
      }
    }
    if (more.size() > kMostVariants) {
      return BadValue("--fix", absl::StrCat(more.size(), " variants"),
                      absl::StrCat("at most ", kMostVariants));
    }
    variants = std::move(more);
    if (values.size() > 1) axes.push_back(&row);
  }
  if (request_.drops_variants && variants.size() > 1) {
    std::vector<Variant> able;
    for (Variant& variant : variants) {
      PlanRequest alone = request_;
      alone.base = variant.base;
      const absl::Status status = Prepare(ProbeOf(alone), context).status();
      if (status.ok()) {
        able.push_back(std::move(variant));
      } else {
        left_out_.push_back({std::move(variant.chosen), status});
      }
    }
    if (able.empty()) return left_out_[0].status;
    variants = std::move(able);
  }
  for (size_t index = 0; index < variants.size(); ++index) {
    PlanSpace* space = this;
    if (index > 0) {
      others_.push_back(std::unique_ptr<PlanSpace>(new PlanSpace()));
      space = others_.back().get();
      space->request_ = request_;
    }
    space->variant_ = static_cast<int16_t>(index);
    space->request_.base = std::move(variants[index].base);
    space->chosen_ = variants[index].chosen;
    // An axis that does not matter is one value too many if an earlier variant
    // differs in nothing else.
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const auto differs_here_alone = [&](const Variant& before) {
        auto chosen = before.chosen;
        chosen[axis] = space->chosen_[axis];
        return chosen == space->chosen_;
      };
      if (std::any_of(variants.begin(), variants.begin() + index,
                      differs_here_alone)) {
        space->later_.push_back(axes[axis]);
      }
    }
    space->context_ = context;
    PW_RETURN_IF_ERROR(space->Fill(context));
  }
  return absl::OkStatus();
}

// Ranks stand in the order of the devices, so that which are slow depends on pp
// alone.
std::optional<PlanLayout> PlanSpace::SlowLayout(int pp, int vpp) {
  RunConfig config = ProbeOf(request_);
  config.slow.devices = request_.base.slow.devices;
  config.system.nodes = nodes_;
  StrategyChoice& strategy = config.strategy;
  strategy.mapping = request_.base.strategy.mapping;
  const int devices = nodes_ * devices_per_node_;
  const int each = pp * strategy.tp.value_or(1);
  if (devices % each != 0) return std::nullopt;
  strategy.pp = pp;
  strategy.vpp = vpp;
  strategy.dp = devices / each;
  strategy.microbatches = pp;
  strategy.split = LayerSplit::kBalanced;
  config.schedule.name = vpp == 1 ? "1f1b" : "interleaved-1f1b";
  const absl::StatusOr<PreparedRun> run = Prepare(config, context_);
  if (!run.ok()) return std::nullopt;
  PlanLayout layout = {.name = kBySpeed};
  for (int stage = 0; stage < pp * vpp; ++stage) {
    layout.counts.push_back(run->prepared_model->layout.LayersOf(stage));
  }
  return layout;
}

absl::StatusOr<std::unique_ptr<PlanSpace>> PlanSpace::Make(
    PlanRequest request, RunContext* context) {
  if (request.base.schedule.file) {
    return BadValue(request.base.Field("schedule.file"),
                    *request.base.schedule.file,
                    "none: a plan chooses among the registered schedules");
  }
  PW_RETURN_IF_ERROR(CheckAxes(request));
  PW_ASSIGN_OR_RETURN(request.base,
                      WithTimes(std::move(request.base), context));
  PW_RETURN_IF_ERROR(CheckTimed(request.base, context));
  if (InUnits(request.base)) {
    return MissingValue("costs.uniform.forward",
                        "times of passes (--forward TIME --backward TIME), or "
                        "a model on a system, which are estimated");
  }
  TakeGivenAxes(&request);
  PW_RETURN_IF_ERROR(CheckGivenTimes(&request));
  if (request.global_batch < 1 && GivesModel(request.base.model) &&
      !FrameworkIsOfFile(request.base)) {
    PW_ASSIGN_OR_RETURN(request.global_batch,
                        UsualBatch(request.base, context));
    request.base.notes.push_back(absl::StrCat(
        "strategy.global_batch: none is given: ", request.global_batch,
        " samples", kOfUsualBatch, "--global-batch N)"));
  }
  if (request.global_batch < 1) {
    return MissingValue("--global-batch", "samples of a step, from 1 on");
  }
  request.base.engine = "fast";
  request.base.costs.jitter.reset();
  auto space = std::unique_ptr<PlanSpace>(new PlanSpace());
  space->request_ = std::move(request);
  PW_RETURN_IF_ERROR(space->MakeVariants(context));
  return space;
}

// What joules are counted with. Error: kInvalidArgument if nobody knows them.
absl::Status PlanSpace::TakeEnergy(RunContext* context) {
  if (request_.objective != PlanObjective::kEnergy) return absl::OkStatus();
  PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                      Simulate(ProbeOf(request_), context));
  if (!run.report.throughput || !run.report.throughput->energy) {
    return BadValue(
        "--objective", "energy",
        "tokens_per_s, cost; energy is known of estimated times (--analytic) "
        "of "
        "a device with idle_watts and bf16_joules_per_flop, at the clock of a "
        "lasting load");
  }
  idle_watts_ = run.prepared.costs.analytic->device.idle_watts;
  return absl::OkStatus();
}

absl::Status PlanSpace::Fill(RunContext* context) {
  PW_ASSIGN_OR_RETURN(probe_, Prepare(ProbeOf(request_), context));
  const ShapeParams* const shape = probe_.network.system_shape();
  if (shape != nullptr) {
    devices_per_node_ = std::max(shape->devices_per_node, 1);
    nodes_ = request_.base.system.nodes.value_or(1);
  } else if (request_.fixed.count("dp") == 0 &&
             request_.fixed.count("nodes") == 0) {
    // Without a system a device is a node.
    return MissingValue("system.preset",
                        "a system (--system NAME --nodes N); without one, "
                        "the devices: --fix nodes=N, one device each");
  } else if (request_.fixed.count("nodes") == 0) {
    return MissingValue("--fix nodes",
                        "the number of devices without a "
                        "system (--fix nodes=N)");
  }
  PW_RETURN_IF_ERROR(ChooseSchedules());
  PW_RETURN_IF_ERROR(TakeEnergy(context));
  const bool flash =
      !probe_.prepared_model || probe_.prepared_model->training.flash_attention;
  std::vector<Recompute> recomputes = {Recompute::kNone};
  if (model() != nullptr) {
    if (!flash || !request_.base.strategy.recompute_modules.empty()) {
      recomputes.push_back(Recompute::kSelective);
    }
    recomputes.push_back(Recompute::kNormActivation);
    recomputes.push_back(Recompute::kFull);
  }
  PW_ASSIGN_OR_RETURN(recomputes_, ChoicesOf(request_, "recompute",
                                             RecomputeChoices(), recomputes));
  const OptimizerRule rule = OptimizerRuleOf(request_.base.strategy);
  std::vector<DataParallel> shardings;
  for (const DataParallel mode : {DataParallel::kDdp, DataParallel::kZero1,
                                  DataParallel::kZero2, DataParallel::kFsdp}) {
    if (TakesSharding(rule, mode)) {
      shardings.push_back(mode);
    }
  }
  PW_ASSIGN_OR_RETURN(
      shardings_, ChoicesOf<DataParallel>(request_, "data_parallel",
                                          DataParallelChoices(), shardings));
  // A target of --emit names all that it can say. Where the optimizer takes
  // none of them, its points say why.
  const auto takes = [&](DataParallel mode) {
    return TakesSharding(rule, mode);
  };
  if (absl::c_any_of(shardings_, takes)) {
    std::erase_if(shardings_, std::not_fn(takes));
  }
  const bool copies = shape != nullptr && shape->has_pcie() && model();
  std::vector<OffloadMode> offloads = {OffloadMode::kNone};
  if (copies) {
    offloads.push_back(OffloadMode::kSelective);
    offloads.push_back(OffloadMode::kFull);
  }
  PW_ASSIGN_OR_RETURN(
      offloads_, ChoicesOf(request_, "offload", OffloadChoices(), offloads));
  const auto layout = request_.fixed.find("layout");
  if (layout != request_.fixed.end()) {
    for (const std::string& name : layout->second) {
      if (name == "even" || name == kBySpeed || name.rfind("ends", 0) == 0) {
        continue;
      }
      PW_RETURN_IF_ERROR(LayoutOfText(name).status());
    }
  }
  return absl::OkStatus();
}

}  // namespace pipewright
