#include "sim/config/prepare_profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/check_texts.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {
namespace {

// More would be no noise on a pass.
constexpr double kMostJitter = 100;  // %

absl::Status CheckAlone(const RunConfig& config) {
  const CostChoice& costs = config.costs;
  const auto both = [&](bool given, absl::string_view other) {
    return given ? BothGiven(config.Field("costs.profile"), config.Field(other))
                 : absl::OkStatus();
  };
  PW_RETURN_IF_ERROR(both(costs.analytic, "costs.analytic"));
  PW_RETURN_IF_ERROR(
      both(costs.forward_s.has_value(), "costs.uniform.forward"));
  PW_RETURN_IF_ERROR(
      both(costs.backward_input_s.has_value(), "costs.uniform.backward_input"));
  PW_RETURN_IF_ERROR(both(costs.backward_weight_s.has_value(),
                          "costs.uniform.backward_weight"));
  PW_RETURN_IF_ERROR(
      both(!costs.stage_forward_s.empty(), "costs.per_stage.forward"));
  PW_RETURN_IF_ERROR(both(!costs.stage_backward_input_s.empty(),
                          "costs.per_stage.backward_input"));
  return both(!costs.stage_backward_weight_s.empty(),
              "costs.per_stage.backward_weight");
}

// Error: a schedule that splits the backward, with a profile that does not.
absl::Status CheckSplit(const Schedule& schedule,
                        const PreparedProfile& profile) {
  if (profile.costs.splits_backward ||
      (!schedule.Has(PassKind::kBackwardInput) &&
       !schedule.Has(PassKind::kBackwardWeight))) {
    return absl::OkStatus();
  }
  return BadValue(
      "costs.profile", profile.name,
      absl::StrCat("a profile that measured B and W: schedule ", schedule.name,
                   " splits the backward, and this one has only whole ones"));
}

// costs.jitter as given.
struct JitterText {
  enum class Kind : uint8_t { kNone, kProfile, kNormal, kUniform };

  Kind kind = Kind::kNone;
  double percent = 0;
};

absl::StatusOr<JitterText> ReadJitter(const RunConfig& config) {
  using Kind = JitterText::Kind;
  const std::string text = config.costs.jitter.value_or("none");
  if (text == "none") return JitterText();
  if (text == "profile") return JitterText{.kind = Kind::kProfile};
  absl::string_view number = text;
  JitterText jitter;
  jitter.kind =
      absl::ConsumePrefix(&number, "uniform:") ? Kind::kUniform : Kind::kNormal;
  if (!absl::ConsumeSuffix(&number, "%") ||
      !absl::SimpleAtod(number, &jitter.percent) || !(jitter.percent > 0) ||
      jitter.percent > kMostJitter) {
    return BadValue(config.Field("costs.jitter"), text,
                    "none, profile, a percentage above 0% and up to 100%, "
                    "uniform: and such a percentage");
  }
  return jitter;
}

// Null for none.
absl::StatusOr<std::shared_ptr<const Jitter>> PrepareJitter(
    const RunConfig& config, const std::optional<PreparedProfile>& profile,
    int stages) {
  PW_ASSIGN_OR_RETURN(const JitterText text, ReadJitter(config));
  if (text.kind == JitterText::Kind::kNone) {
    return std::shared_ptr<const Jitter>();
  }
  auto jitter = std::make_shared<Jitter>();
  const double part = text.percent / 100;
  switch (text.kind) {
    case JitterText::Kind::kNone:
      break;
    case JitterText::Kind::kProfile:
      if (!profile) {
        return BadValue(config.Field("costs.jitter"), *config.costs.jitter,
                        "none, a percentage (3%, uniform:5%); profile needs "
                        "costs.profile");
      }
      *jitter = profile->costs.jitter;
      break;
    case JitterText::Kind::kNormal:
      jitter->sigma = part;
      break;
    case JitterText::Kind::kUniform:
      // Two quantiles, with a straight line between them.
      jitter->optimizer = {1 - part, 1 + part};
      jitter->passes.resize(stages);
      for (auto& kinds : jitter->passes) kinds.fill(jitter->optimizer);
      break;
  }
  jitter->seed = static_cast<uint64_t>(config.costs.seed.value_or(0));
  return std::shared_ptr<const Jitter>(std::move(jitter));
}

// What a calibration has warned of concerns whoever takes its times. A profile
// may have a page of it; `calibrate show` has all.
constexpr size_t kRepeatedWarnings = 5;

void RepeatWarnings(const PreparedProfile& profile,
                    std::vector<std::string>* warnings) {
  std::vector<std::string> all;
  for (const ProfileSource& source : profile.profile->sources) {
    for (const std::string& warning : source.warnings) {
      if (std::find(all.begin(), all.end(), warning) == all.end()) {
        all.push_back(warning);
      }
    }
  }
  for (size_t index = 0; index < all.size(); ++index) {
    if (index == kRepeatedWarnings && all.size() > kRepeatedWarnings + 1) {
      warnings->push_back(absl::StrCat(
          "profile ", profile.name, ": ", all.size() - index,
          " more warnings (pipewright calibrate show ", profile.name, ")"));
      return;
    }
    warnings->push_back(
        absl::StrCat("profile ", profile.name, ": ", all[index]));
  }
}

// High end over low end of a 95 % interval: an effect known to a factor of two.
constexpr double kMostUncertain = 2;

// Null for none.
absl::StatusOr<std::shared_ptr<const InterferenceMatrix>> PrepareInterference(
    const RunConfig& config, const std::optional<PreparedProfile>& profile,
    absl::string_view engine, bool has_links,
    std::vector<std::string>* warnings) {
  const std::optional<bool>& given = config.costs.interference;
  std::shared_ptr<const InterferenceMatrix> none;
  if (!profile || !given.value_or(true)) return none;
  const std::optional<InterferenceMatrix> matrix =
      InterferenceMatrix::Of(*profile->profile);
  if (!matrix) {
    if (!given) return none;
    return BadValue(config.Field("costs.interference"), "on",
                    absl::StrCat("off (profile ", profile->name,
                                 " has no interference matrix)"));
  }
  // Applied on its own only where the machine could tell what it measured.
  if (!given) {
    for (const InterferenceEntry& entry : profile->profile->interference) {
      if (entry.pass_high <= kMostUncertain * entry.pass_low &&
          entry.beside_high <= kMostUncertain * entry.beside_low) {
        continue;
      }
      warnings->push_back(
          absl::StrCat("interference: left out, since profile ", profile->name,
                       " is not sure of it (", KeyOf(entry), ": the pass ",
                       entry.pass_low, " to ", entry.pass_high,
                       " times as long, the other ", entry.beside_low, " to ",
                       entry.beside_high, "); --interference on applies it"));
      return none;
    }
  }
  if (has_links && engine != "fast") {
    warnings->push_back(
        "interference: transfers and collectives on links that are shared "
        "slow passes down and keep the network's time themselves");
  }
  return std::make_shared<const InterferenceMatrix>(*matrix);
}

}  // namespace

absl::Status CheckJitterText(const RunConfig& config) {
  return ReadJitter(config).status();
}

absl::StatusOr<std::optional<PreparedProfile>> LoadProfile(
    const RunConfig& config, bool has_model, RunContext* context) {
  if (!config.costs.profile) return std::optional<PreparedProfile>();
  PW_RETURN_IF_ERROR(CheckAlone(config));
  if (!has_model) {
    return FieldError(config.Field("costs.profile"),
                      "needs a model (--model NAME), whose parts it times");
  }
  absl::StatusOr<std::shared_ptr<const Profile>> profile =
      context->CalibrationProfile(*config.costs.profile);
  PW_RETURN_IF_ERROR(Prefix(config.Field("costs.profile"), profile.status()));
  PreparedProfile out;
  out.name = *config.costs.profile;
  out.profile = *std::move(profile);
  return std::optional<PreparedProfile>(std::move(out));
}

absl::Status TakeProfileTimes(const RunConfig& config,
                              const PreparedModel& model,
                              const ShapeParams* shape, const Network& links,
                              PreparedProfile* profile,
                              std::vector<std::string>* warnings) {
  ProfileCostOptions options;
  options.name = profile->name;
  options.scale_shapes = config.costs.scale_shapes.value_or(false);
  AnalyticOptions network;
  if (shape != nullptr) {
    const absl::StatusOr<DeviceSpec> device = FindDevice(shape->device_name);
    if (device.ok()) {
      network = {.device = *device, .network = NetworkOf(*shape)};
      PlaceGroups(links, model.training, &network.network);
      options.network = &network;
    }
  }
  absl::StatusOr<ProfileCosts> costs =
      CostsOfProfile(*profile->profile, model.spec, model.training,
                     model.layout, model.rank_of_stage, options);
  PW_RETURN_IF_ERROR(Locate(config, costs.status()));
  profile->costs = *std::move(costs);
  if (!profile->profile->complete) {
    warnings->push_back(absl::StrCat("profile ", profile->name,
                                     " is of a run that was interrupted"));
  }
  RepeatWarnings(*profile, warnings);
  warnings->insert(warnings->end(), profile->costs.warnings.begin(),
                   profile->costs.warnings.end());
  if (!profile->costs.error_unknown.empty()) {
    warnings->push_back(absl::StrCat("profile ", profile->name, ": ",
                                     profile->costs.error_unknown,
                                     "; a step has no interval"));
  }
  return absl::OkStatus();
}

std::optional<double> MeasuredHop(const RunConfig& config,
                                  const std::optional<PreparedProfile>& profile,
                                  int pp, double hop_bytes,
                                  std::vector<std::string>* warnings) {
  if (!profile || config.costs.p2p_s || NamesSystem(config.system) || pp == 1) {
    return {};
  }
  const std::optional<TransferTime> hop =
      TransferSeconds(*profile->profile, "send_recv", 2, hop_bytes);
  if (!hop) return {};
  if (!hop->inside) {
    warnings->push_back(absl::StrCat(
        "profile ", profile->name, ": a hop of ", FormatBytes(hop_bytes),
        " is outside of the measured sizes of send_recv"));
  }
  return hop->seconds;
}

absl::Status TakeProfileEffects(const RunConfig& config,
                                const PreparedModel* model,
                                const Schedule& schedule,
                                absl::string_view engine, bool has_links,
                                PreparedCosts* costs,
                                std::vector<std::string>* warnings) {
  const std::optional<PreparedProfile>& profile = costs->profile;
  PassCosts& passes = costs->passes;
  if (profile) PW_RETURN_IF_ERROR(CheckSplit(schedule, *profile));
  if (profile && schedule.update_every == 1 && !config.costs.prediction_s &&
      passes.prediction_s == 0) {
    warnings->push_back(absl::StrCat(
        "profile ", profile->name,
        ": no prediction of weights was measured; it takes no time unless "
        "--prediction-time says so"));
  }
  if (profile && schedule.directions == 2 && !config.costs.optimizer_s) {
    passes.optimizer_s =
        ProfileOptimizerSeconds(
            *profile->profile,
            MostUpdatedParameters(model->spec, model->training, model->layout,
                                  model->rank_of_stage, schedule.directions))
            .value_or(0) +
        ProfileQuantizeSeconds(*profile->profile, model->spec, model->training,
                               model->layout, model->rank_of_stage,
                               schedule.directions);
    passes.rollback_s = config.costs.rollback_s.value_or(passes.optimizer_s);
  }
  PW_ASSIGN_OR_RETURN(costs->jitter,
                      PrepareJitter(config, profile, schedule.stages()));
  PW_ASSIGN_OR_RETURN(
      costs->interference,
      PrepareInterference(config, profile, engine, has_links, warnings));
  return absl::OkStatus();
}

bool MeasuredOnCpu(const Profile& profile) {
  return !profile.sources.empty() &&
         std::all_of(profile.sources.begin(), profile.sources.end(),
                     [](const ProfileSource& source) {
                       return source.backend == "cpu";
                     });
}

void TakeProfileMemory(const PreparedProfile& profile, MemoryReport* memory) {
  if (memory->limit_bytes) return;
  for (const ProfileSource& source : profile.profile->sources) {
    if (source.memory_bytes <= 0) continue;
    memory->limit_bytes = static_cast<double>(source.memory_bytes);
    memory->limit_source = source.device.empty()
                               ? absl::StrCat("profile ", profile.name)
                               : source.device;
    return;
  }
}

}  // namespace pipewright
