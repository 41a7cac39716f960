#include "sim/config/time_scales.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kScaleNames[] =
    "F, B, W, BW, R, O, L, p2p, network, optimizer, stage0, stage1, ...";

double& Of(std::array<double, kNumPassKinds>& pass, PassKind kind) {
  return pass[static_cast<size_t>(kind)];
}
double Of(const std::array<double, kNumPassKinds>& pass, PassKind kind) {
  return pass[static_cast<size_t>(kind)];
}

// Null for a name that there is not.
double* FactorNamed(absl::string_view name, TimeScales* scales) {
  for (const PassKind kind :
       {PassKind::kForward, PassKind::kBackwardInput, PassKind::kBackwardWeight,
        PassKind::kBackwardFull, PassKind::kRecompute, PassKind::kOffload,
        PassKind::kLoad}) {
    if (name == PassKindName(kind)) return &Of(scales->pass, kind);
  }
  if (name == "p2p") return &scales->p2p;
  if (name == "network") return &scales->network;
  if (name == "optimizer") return &scales->optimizer;
  absl::string_view number = name;
  int stage = 0;
  if (absl::ConsumePrefix(&number, "stage") && !number.empty() &&
      absl::ascii_isdigit(static_cast<unsigned char>(number[0])) &&
      absl::SimpleAtoi(number, &stage)) {
    return &scales->stages.try_emplace(stage, 1.0).first->second;
  }
  return nullptr;
}

void Scale(double factor, std::optional<double>* value) {
  if (*value) **value *= factor;
}
void Scale(double factor, std::vector<double>* values) {
  for (double& value : *values) value *= factor;
}

absl::Status NoTimeFor(absl::string_view name, absl::string_view why) {
  return WithValue(FieldError("--what-if", absl::StrCat(name, ": ", why)), name,
                   why);
}

bool GivesTimes(const CostChoice& costs) {
  return costs.forward_s || costs.backward_input_s || costs.backward_weight_s ||
         !costs.stage_forward_s.empty() ||
         !costs.stage_backward_input_s.empty() ||
         !costs.stage_backward_weight_s.empty();
}

// The same of parameters that are a bandwidth or a time.
void ScaleOwnParams(double factor, const ShapeParams& base,
                    SystemChoice* system) {
  const ShapeInfo* const shape = FindShape(system->shape.value_or(base.shape));
  if (shape == nullptr) return;  // BuildCluster refuses it
  ShapeParamValues values = base.own;
  for (const auto& [key, value] : system->params) values[key] = value;
  for (const auto& [key, value] : values) {
    const ShapeParam* const param = FindShapeParam(*shape, key);
    if (param == nullptr) continue;
    const bool is_time = param->kind == ShapeParam::Kind::kTime;
    if (!is_time && param->kind != ShapeParam::Kind::kBandwidth) continue;
    const absl::StatusOr<double> amount =
        ParseQuantity(value, is_time ? Unit::kTime : Unit::kBandwidth);
    if (!amount.ok()) continue;  // BuildCluster refuses it
    system->params[key] =
        is_time ? absl::StrFormat("%.17gs", *amount * factor)
                : absl::StrFormat("%.17gGBps", *amount / factor / 1e9);
  }
}

// Bandwidth and latency of every class of links, as --set would give them.
absl::Status ScaleLinks(double factor, RunContext* context, RunConfig* config) {
  SystemChoice& system = config->system;
  ShapeParams base;
  if (system.file) {
    PW_ASSIGN_OR_RETURN(
        base, context->SystemFile(config->Field("system.file"), *system.file));
  } else if (system.preset) {
    PW_ASSIGN_OR_RETURN(base, context->System(*system.preset));
  }
  const auto scale = [factor](const LinkClass& from, LinkChoice* link) {
    const double bytes_per_s = link->bytes_per_s.value_or(from.bytes_per_s);
    const double latency_s = link->latency_s.value_or(from.latency_s);
    if (bytes_per_s > 0) link->bytes_per_s = bytes_per_s / factor;
    if (latency_s > 0) link->latency_s = latency_s * factor;
  };
  scale(base.nvlink, &system.nvlink);
  scale(base.nic, &system.nic);
  scale(base.pcie, &system.pcie);
  ScaleOwnParams(factor, base, &system);
  return absl::OkStatus();
}

absl::Status CheckScales(const TimeScales& scales, const RunConfig& config,
                         int stages) {
  const CostChoice& costs = config.costs;
  for (const auto& [stage, factor] : scales.stages) {
    if (stage < stages) continue;
    return NoTimeFor(absl::StrCat("stage", stage),
                     absl::StrCat("there are stages 0..", stages - 1));
  }
  if (scales.p2p != 1 && NamesSystem(config.system)) {
    return NoTimeFor("p2p",
                     "a hop follows from the links of the system; network*2 "
                     "makes all of them slower");
  }
  if (scales.p2p != 1 && !costs.p2p_s && !costs.profile) {
    return NoTimeFor("p2p", "hops take no time; give one (--p2p 0.5ms)");
  }
  if (scales.network != 1 && !NamesSystem(config.system)) {
    return NoTimeFor("network", "there is no system; give one (--system)");
  }
  if (scales.network == 0) {
    return NoTimeFor("network", "a factor above 0, since it divides bandwidth");
  }
  const bool copies = costs.offload_s.has_value() || costs.load_s.has_value();
  for (const PassKind kind : {PassKind::kOffload, PassKind::kLoad}) {
    if (Of(scales.pass, kind) == 1 || copies) continue;
    return NoTimeFor(PassKindName(kind),
                     "its time is not given (costs.uniform.offload, .load); "
                     "where it follows from the links, use network*2");
  }
  return absl::OkStatus();
}

}  // namespace

bool TimeScales::any() const {
  return p2p != 1 || network != 1 || optimizer != 1 || !stages.empty() ||
         std::any_of(pass.begin(), pass.end(),
                     [](double factor) { return factor != 1; });
}

absl::StatusOr<TimeScales> ParseTimeScales(absl::string_view name,
                                           absl::string_view text) {
  TimeScales scales;
  std::set<std::string> seen;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::string_view item = absl::StripAsciiWhitespace(part);
    const size_t star = item.find('*');
    double factor = 0;
    if (star == absl::string_view::npos ||
        !absl::SimpleAtod(item.substr(star + 1), &factor) ||
        !std::isfinite(factor) || factor < 0) {
      return BadValue(name, item, "NAME*FACTOR, as W*0.8, with a factor >= 0");
    }
    const absl::string_view what = item.substr(0, star);
    double* const target = FactorNamed(what, &scales);
    if (target == nullptr) return BadValue(name, what, kScaleNames);
    if (!seen.insert(std::string(what)).second) {
      return BadValue(name, what, "each name once");
    }
    *target = factor;
  }
  return scales;
}

std::string ToString(const TimeScales& scales) {
  std::vector<std::string> parts;
  const auto add = [&parts](absl::string_view name, double factor) {
    if (factor != 1) parts.push_back(absl::StrCat(name, "*", factor));
  };
  for (int kind = 0; kind < kNumPassKinds; ++kind) {
    add(PassKindName(static_cast<PassKind>(kind)), scales.pass[kind]);
  }
  add("p2p", scales.p2p);
  add("network", scales.network);
  add("optimizer", scales.optimizer);
  for (const auto& [stage, factor] : scales.stages) {
    add(absl::StrCat("stage", stage), factor);
  }
  return absl::StrJoin(parts, ", ");
}

absl::Status ScaleGivenTimes(const TimeScales& scales, int pp, int vpp,
                             RunContext* context, RunConfig* config) {
  const int stages = pp * vpp;
  PW_RETURN_IF_ERROR(CheckScales(scales, *config, stages));
  CostChoice& costs = config->costs;
  const auto scale = [&](PassKind kind, std::optional<double>* uniform,
                         std::vector<double>* per_stage) {
    const double factor = Of(scales.pass, kind);
    Scale(factor, uniform);
    Scale(factor, per_stage);
    if (scales.stages.empty()) return;
    // As lists of stages, which is how such a run is given.
    if (*uniform && per_stage->empty()) {
      per_stage->assign(stages, **uniform / vpp);
      uniform->reset();
    }
    for (const auto& [stage, own] : scales.stages) {
      if (stage < static_cast<int>(per_stage->size())) {
        (*per_stage)[stage] *= own;
      }
    }
  };
  scale(PassKind::kForward, &costs.forward_s, &costs.stage_forward_s);
  scale(PassKind::kBackwardInput, &costs.backward_input_s,
        &costs.stage_backward_input_s);
  scale(PassKind::kBackwardWeight, &costs.backward_weight_s,
        &costs.stage_backward_weight_s);
  Scale(Of(scales.pass, PassKind::kRecompute), &costs.recompute_s);
  Scale(Of(scales.pass, PassKind::kOffload), &costs.offload_s);
  Scale(Of(scales.pass, PassKind::kLoad), &costs.load_s);
  Scale(scales.p2p, &costs.p2p_s);
  Scale(scales.optimizer, &costs.optimizer_s);
  return scales.network == 1 ? absl::OkStatus()
                             : ScaleLinks(scales.network, context, config);
}

void ScaleOtherTimes(const RunConfig& config, const TimeScales& scales,
                     PassCosts* costs) {
  const bool given = GivesTimes(config.costs);
  for (size_t index = 0; index < costs->stages.size(); ++index) {
    StageCosts& stage = costs->stages[index];
    const auto own = scales.stages.find(static_cast<int>(index));
    const double factor = own == scales.stages.end() ? 1 : own->second;
    const auto scale = [&](PassKind kind, double* seconds) {
      *seconds *= Of(scales.pass, kind) * factor;
    };
    if (!given) {
      scale(PassKind::kForward, &stage.forward_s);
      scale(PassKind::kBackwardInput, &stage.backward_input_s);
      scale(PassKind::kBackwardWeight, &stage.backward_weight_s);
    }
    if (config.costs.recompute_s) {
      stage.recompute_s *= factor;
    } else {
      // With given times it is the forward again, which is scaled.
      stage.recompute_s *=
          Of(scales.pass, PassKind::kRecompute) * (given ? 1 : factor);
    }
    const double full = Of(scales.pass, PassKind::kBackwardFull);
    if (stage.backward_full_s > 0) {
      stage.backward_full_s *= full * factor;
    } else if (full != 1) {
      stage.backward_full_s =
          (stage.backward_input_s + stage.backward_weight_s) * full;
    }
  }
  if (!config.costs.optimizer_s) {
    costs->optimizer_s *= scales.optimizer;
    if (!config.costs.rollback_s) costs->rollback_s *= scales.optimizer;
  }
}

}  // namespace pipewright
