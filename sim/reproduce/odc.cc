// ODC, arXiv 2601.19362: trends of the paper's section 5 on A100, and the table
// of a port to MI300X (odc_port.cc).
#include "sim/reproduce/odc.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/parallel.h"
#include "sim/base/status.h"
#include "sim/reproduce/table.h"
#include "sim/run/monte_carlo.h"
#include "sim/sequences/lengths.h"

namespace pipewright {
namespace {

constexpr char kLaw[] = "longalign";
constexpr int kGoldenMinibatch = 4;
constexpr int kGoldenDevices = 8;
constexpr int64_t kGoldenLongest = 65536;
// Below this a speed-up is none: the owner's polls cost as much.
constexpr double kAlike = 0.02;
// Of a step in a trend that is to fall or to rise: noise of 100 draws.
constexpr double kNoise = 0.01;

struct Gain {
  double micro = 0;  // odc over collectives, both LB-Micro
  double mini = 0;   // odc with LB-Mini over the same
};

// What a trend changes.
struct TrendSetting {
  std::string model = "1.5B";
  int devices = kGoldenDevices;
  int minibatch = kGoldenMinibatch;
  double scale = 1;    // of all lengths
  double packing = 1;  // tokens of a microbatch over the longest sample
};

// The law with lengths times `scale`.
std::string ScaledLaw(double scale) {
  if (scale == 1) return kLaw;
  const LengthLaw law = *ParseLengthLaw(kLaw);
  return absl::StrFormat("lognormal:%.0f,%g,%.0f,%.0f", law.median * scale,
                         law.sigma, static_cast<double>(law.least) * scale,
                         static_cast<double>(law.most) * scale);
}

absl::StatusOr<Gain> GainOf(const TrendSetting& setting, RunContext* context) {
  RunConfig config =
      OdcConfig(setting.model, "dgx-a100", setting.devices, setting.minibatch);
  config.costs.analytic = true;
  config.sequences.lengths = ScaledLaw(setting.scale);
  const double longest =
      static_cast<double>(kGoldenLongest) * setting.scale * setting.packing;
  config.sequences.max_token_len = static_cast<int64_t>(longest);
  std::vector<NamedConfig> strategies(3, NamedConfig{"", config});
  strategies[0].config.strategy.data_parallel = DataParallel::kFsdp;
  strategies[0].config.strategy.shard_blocks = ShardBlocks::kLayer;
  for (const size_t index : {1, 2}) {
    strategies[index].config.strategy.data_parallel = DataParallel::kOdc;
  }
  strategies[2].config.sequences.packer = Packer::kLbMini;
  PW_ASSIGN_OR_RETURN(
      const MonteCarlo result,
      RunMonteCarlo(std::move(strategies), kOdcDraws, NumCores(), context));
  const double base_s = result.strategies[0].mean_s;
  return Gain{.micro = base_s / result.strategies[1].mean_s,
              .mini = base_s / result.strategies[2].mean_s};
}

// Rows of the paper as they are computed.
class TrendRows {
 public:
  absl::Status Run();
  std::vector<Comparison> Take() && { return std::move(rows_); }

 private:
  absl::Status AddGolden();
  absl::StatusOr<std::vector<double>> Sweep(
      const std::string& what, const std::vector<TrendSetting>& settings,
      const std::vector<std::string>& values);
  // A statement of the paper: 1 where it holds.
  void AddTrend(std::string what, bool holds) {
    rows_.push_back({.setting = "A100 1.5B, LB-Mini",
                     .schedule = std::move(what),
                     .published = "1",
                     .simulated = holds ? 1.0 : 0.0,
                     .rounded = holds ? "1" : "0"});
  }

  RunContext context_;
  std::vector<Comparison> rows_;
};

absl::Status TrendRows::AddGolden() {
  for (const TableRow& row : ReadTable("odc/golden")) {
    PW_ASSIGN_OR_RETURN(
        const Gain gain,
        GainOf({.model = row.Text("model"), .devices = row.Integer("gpus")},
               &context_));
    const bool mini = row.Text("packer") == "lb-mini";
    const double found = mini ? gain.mini : gain.micro;
    rows_.push_back(
        {.setting = absl::StrCat("A100 ", row.Text("model"), " minibatch 4"),
         .schedule = absl::StrCat("speed-up, ", row.Text("packer")),
         .published = row.Text("speedup"),
         .simulated = found,
         .rounded = absl::StrFormat("%.2f", found),
         .rule = Comparison::Rule::kShown});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> TrendRows::Sweep(
    const std::string& what, const std::vector<TrendSetting>& settings,
    const std::vector<std::string>& values) {
  std::vector<double> gains;
  for (size_t index = 0; index < settings.size(); ++index) {
    PW_ASSIGN_OR_RETURN(const Gain gain, GainOf(settings[index], &context_));
    gains.push_back(gain.mini);
    // Against none: a curve, of which the paper states its course alone.
    rows_.push_back(
        {.setting = absl::StrCat("A100 1.5B ", what, " ", values[index]),
         .schedule = "speed-up, lb-mini",
         .published = "1.00",
         .simulated = gain.mini,
         .rounded = absl::StrFormat("%.2f", gain.mini),
         .rule = Comparison::Rule::kShown,
         .in_paper = false});
  }
  return gains;
}

bool Rises(const std::vector<double>& values) {
  bool rises = values.back() > values.front();
  for (size_t index = 1; index < values.size(); ++index) {
    rises &= values[index] > values[index - 1] - kNoise;
  }
  return rises;
}

bool Falls(std::vector<double> values) {
  std::reverse(values.begin(), values.end());
  return Rises(values);
}

absl::Status TrendRows::Run() {
  PW_RETURN_IF_ERROR(AddGolden());
  std::vector<TrendSetting> settings;
  std::vector<std::string> values;
  const auto add = [&](TrendSetting setting, std::string value) {
    settings.push_back(std::move(setting));
    values.push_back(std::move(value));
  };
  const auto sweep = [&](const std::string& what) {
    auto gains = Sweep(what, settings, values);
    settings.clear();
    values.clear();
    return gains;
  };

  for (const int minibatch : {1, 2, 4, 8, 16}) {
    add({.minibatch = minibatch}, absl::StrCat(minibatch));
  }
  PW_ASSIGN_OR_RETURN(const std::vector<double> over_minibatch,
                      sweep("minibatch"));
  AddTrend("minibatch 1: no gain", over_minibatch[0] < 1 + kAlike);
  const auto peak =
      std::max_element(over_minibatch.begin(), over_minibatch.end());
  AddTrend("peak at a moderate minibatch",
           peak != over_minibatch.begin() && peak != over_minibatch.end() - 1);

  for (const int devices : {2, 4, 8, 16, 32}) {
    add({.devices = devices}, absl::StrCat(devices));
  }
  PW_ASSIGN_OR_RETURN(const std::vector<double> over_devices, sweep("devices"));
  AddTrend("more with more devices, one node",
           Rises({over_devices[0], over_devices[1], over_devices[2]}));
  AddTrend("more with more devices, 2 to 32",
           over_devices.back() > over_devices.front());

  for (const double scale : {0.125, 0.25, 0.5, 1.0, 2.0}) {
    add({.scale = scale}, absl::StrFormat("%gK", 64 * scale));
  }
  PW_ASSIGN_OR_RETURN(const std::vector<double> over_length, sweep("longest"));
  AddTrend("more with longer samples", Rises(over_length));

  for (const double packing : {1.0, 2.0, 4.0}) {
    add({.packing = packing}, absl::StrFormat("%g", packing));
  }
  PW_ASSIGN_OR_RETURN(const std::vector<double> over_packing,
                      sweep("packing ratio"));
  AddTrend("less with a larger packing ratio", Falls(over_packing));
  return absl::OkStatus();
}

// Both halves run on engine fast, whatever is asked for: draws by the hundred.
absl::StatusOr<std::vector<Comparison>> Reproduce(
    const std::string& /*engine*/) {
  TrendRows rows;
  PW_RETURN_IF_ERROR(rows.Run());
  std::vector<Comparison> all = std::move(rows).Take();
  PW_ASSIGN_OR_RETURN(std::vector<Comparison> port, ReproduceOdcPort());
  all.insert(all.end(), port.begin(), port.end());
  return all;
}

const RegisterPapers kRow({{
    .name = "odc",
    .summary =
        "On-demand communication, arXiv 2601.19362, and AMD's port of it",
    .metric = "speed-up over FSDP2 layer by layer, means of 100 draws of "
              "LongAlign's lengths, on engine fast: the paper's trends, and "
              "MI300X with compute and transfers inferred from batch 16",
    .run = &Reproduce,
}});

}  // namespace

RunConfig OdcConfig(const std::string& model, const std::string& system,
                    int devices, int minibatch) {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "1f1b";
  config.system.preset = system;
  config.system.nodes = (devices + 7) / 8;
  // Qwen2.5's kinds of layers, with the sizes of the table.
  config.model.preset = "qwen2.5-7b";
  bool known = false;
  for (const TableRow& row : ReadTable("odc/models")) {
    if (row.Text("model") != model) continue;
    known = true;
    config.model.layers = row.Integer("layers");
    config.model.hidden = row.Integer("hidden");
    config.model.heads = row.Integer("heads");
    config.model.kv_heads = row.Integer("kv_heads");
    config.model.ffn_hidden = row.Integer("ffn_hidden");
    config.model.vocabulary = row.Integer("vocabulary");
  }
  PW_CHECK(known);
  StrategyChoice& strategy = config.strategy;
  strategy.pp = 1;
  strategy.dp = devices;
  strategy.recompute = Recompute::kFull;
  SequenceChoice& sequences = config.sequences;
  sequences.lengths = kLaw;
  sequences.minibatch = minibatch;
  sequences.packer = Packer::kLbMicro;
  sequences.packer_cost = PackerCost::kFit;
  sequences.seed = 1;
  return config;
}

}  // namespace pipewright
