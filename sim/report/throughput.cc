#include "sim/report/throughput.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/report/format.h"

namespace pipewright {
namespace {

constexpr double kTera = 1e12;
constexpr double kSecondsPerHour = 3600;

std::string FormatJoules(double joules) {
  const double kilo = joules / 1e3;
  return kilo < 1e3 ? absl::StrFormat("%.3g kJ", kilo)
                    : absl::StrFormat("%.4g MJ", kilo / 1e3);
}

}  // namespace

std::optional<double> Throughput::tflops_per_device() const {
  if (!flops) return {};
  return flops->model * tokens_per_s / static_cast<double>(devices) / kTera;
}

std::optional<double> Throughput::mfu() const {
  if (!flops || !peak) return {};
  return *tflops_per_device() * kTera / peak->flops;
}

std::optional<double> Throughput::hardware_tflops_per_device() const {
  if (!flops || flops->recomputed == 0) return {};
  return (flops->model + flops->recomputed) * tokens_per_s /
         static_cast<double>(devices) / kTera;
}

std::optional<double> Throughput::hfu() const {
  const std::optional<double> hardware = hardware_tflops_per_device();
  if (!hardware || !peak) return {};
  return *hardware * kTera / peak->flops;
}

std::optional<double> Throughput::cost_per_1e9_tokens() const {
  if (!price_per_device_hour || tokens_per_s <= 0) return {};
  return *price_per_device_hour * static_cast<double>(devices) * 1e9 /
         tokens_per_s / kSecondsPerHour;
}

std::string Throughput::FlopsFormula() const {
  if (!flops) return "";
  std::string text = absl::StrCat(
      "2 FLOPs a multiply-add of every linear layer, attention",
      flops->has_scans ? ", scans and their convolutions" : "",
      " and the output head: forward, gradient of the input, gradient of the "
      "weights");
  if (flops->only_parts) {
    absl::StrAppend(&text, ", the last two where training needs them");
  }
  if (flops->has_experts) {
    absl::StrAppend(&text, "; of the experts those that a token meets");
  }
  absl::StrAppend(&text, flops->is_causal
                             ? "; causal attention counted in full, not halved"
                             : "; attention is not causal");
  return absl::StrCat(text, "; nothing recomputed is counted");
}

void AddThroughput(const Throughput& throughput, Json* out) {
  const auto put = [out](const char* key, const std::optional<double>& value) {
    if (value) (*out)[key] = *value;
  };
  (*out)["tokens_per_s"] = throughput.tokens_per_s;
  (*out)["devices"] = throughput.devices;
  put("tflops_per_device", throughput.tflops_per_device());
  put("mfu", throughput.mfu());
  put("hardware_tflops_per_device", throughput.hardware_tflops_per_device());
  put("hfu", throughput.hfu());
  if (throughput.flops) {
    (*out)["flops_per_token"] = throughput.flops->model;
    (*out)["flops_formula"] = throughput.FlopsFormula();
    (*out)["causal_attention_halved"] = false;
  }
  if (throughput.peak) {
    (*out)["peak_tflops"] = throughput.peak->flops / kTera;
    (*out)["peak_of"] = throughput.peak->name;
  }
  put("cost_per_1e9_tokens", throughput.cost_per_1e9_tokens());
  if (const auto& energy = throughput.energy) {
    (*out)["joules_per_step"] = energy->joules;
    if (energy->low > 0) {
      (*out)["joules_interval"] = Json::array({energy->low, energy->high});
    }
    (*out)["watts_per_device"] = energy->watts_per_device;
    (*out)["tokens_per_joule"] = energy->tokens_per_joule;
  }
}

std::string ThroughputToText(const Throughput& throughput) {
  std::string out = ReportLine(
      "tokens per s", absl::StrFormat("%.6g", throughput.tokens_per_s),
      throughput.devices == 1
          ? "of one device"
          : absl::StrCat("of all ", throughput.devices, " devices"));
  if (const auto tflops = throughput.tflops_per_device()) {
    absl::StrAppend(&out,
                    ReportLine("TFLOP/s", absl::StrFormat("%.1f", *tflops),
                               "a device, model FLOPs"));
  }
  if (const auto mfu = throughput.mfu()) {
    absl::StrAppend(&out,
                    ReportLine("MFU", FormatPercent(*mfu),
                               absl::StrCat("of ", throughput.peak->name)));
  }
  if (const auto tflops = throughput.hardware_tflops_per_device()) {
    const auto hfu = throughput.hfu();
    absl::StrAppend(
        &out,
        ReportLine(
            "hardware", absl::StrFormat("%.1f", *tflops),
            absl::StrCat("TFLOP/s a device with what is recomputed",
                         hfu ? absl::StrCat(", ", FormatPercent(*hfu)) : "")));
  }
  if (const auto cost = throughput.cost_per_1e9_tokens()) {
    absl::StrAppend(
        &out,
        ReportLine("cost", absl::StrFormat("%.2f", *cost),
                   absl::StrFormat("for 1e9 tokens at %g a device and hour",
                                   *throughput.price_per_device_hour)));
  }
  if (const auto& energy = throughput.energy) {
    const std::string interval =
        energy->low > 0 ? absl::StrCat("; 90 %: ", FormatJoules(energy->low),
                                       " to ", FormatJoules(energy->high))
                        : "";
    absl::StrAppend(
        &out, ReportLine("energy", FormatJoules(energy->joules),
                         absl::StrFormat(
                             "a step, %.0f W a device, %.3g tokens a joule%s",
                             energy->watts_per_device, energy->tokens_per_joule,
                             interval)));
  }
  if (throughput.flops) {
    absl::StrAppend(&out, "  model FLOPs: ", throughput.FlopsFormula(), "\n");
  }
  return out;
}

}  // namespace pipewright
