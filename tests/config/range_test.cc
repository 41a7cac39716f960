// Every number of a configuration at the ends of its range and beyond, alone
// and in pairs: it is refused with its field, or the report has neither a
// negative number nor one that is none.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare.h"
#include "sim/engine/engine.h"
#include "sim/memory/activations.h"
#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/run/describe_run.h"
#include "sim/topology/registry.h"
#include "tests/support/json.h"
#include "tests/support/shapes.h"

namespace pipewright::range_test {
namespace {

using testing::Json;

struct NumberField {
  std::string path;
  std::vector<std::string> inside;   // ends of its range
  std::vector<std::string> outside;  // behind them
};

std::string Text(double value) { return absl::StrFormat("%.17g", value); }

NumberField IntegerField(const ConfigField& field) {
  const int64_t least = field.least_int;
  const int64_t most = field.most_int;
  NumberField out = {
      field.path,
      {absl::StrCat(least), absl::StrCat(most)},
      {least > -1 ? "-1" : absl::StrCat(least - 1), "99999999999999999999"}};
  if (least > 0) out.outside.push_back(absl::StrCat(least - 1));
  if (most < std::numeric_limits<int64_t>::max()) {
    out.outside.push_back(absl::StrCat(most + 1));
  }
  return out;
}

NumberField FactorField(const ConfigField& field) {
  NumberField out = {field.path,
                     {Text(kFactors.least), Text(kFactors.most)},
                     {"-1", "1e-7", "1e300", "inf"}};
  (field.positive ? out.outside : out.inside).push_back("0");
  return out;
}

NumberField QuantityField(const ConfigField& field) {
  AmountRange range = RangeOf(field.unit);
  if (field.most > 0) range.most = std::min(range.most, field.most);
  const char* const name = field.unit == Unit::kTime    ? "s"
                           : field.unit == Unit::kBytes ? "B"
                                                        : "KBps";
  const double scale = field.unit == Unit::kBandwidth ? 1e3 : 1;
  return {
      field.path,
      {"0", Text(range.least / scale) + name, Text(range.most / scale) + name},
      {"-1" + std::string(name), "1e300" + std::string(name),
       Text(range.most * 2 / scale) + name}};
}

// All numbers of the rows of fields.
std::vector<NumberField> FieldNumbers() {
  std::vector<NumberField> fields;
  for (const ConfigField& field : ConfigFields()) {
    switch (field.kind) {
      case FieldKind::kInt:
      case FieldKind::kLong:
      case FieldKind::kInts:
        fields.push_back(IntegerField(field));
        break;
      case FieldKind::kReal:
        fields.push_back(
            {field.path,
             {Text(field.least), Text(field.most)},
             {Text(field.least - 1), Text(field.most * 2), "1e300", "nan"}});
        break;
      case FieldKind::kReals:
        fields.push_back(FactorField(field));
        break;
      case FieldKind::kQuantity:
      case FieldKind::kQuantities:
        fields.push_back(QuantityField(field));
        break;
      default:
        break;
    }
  }
  return fields;
}

// Those that only some shapes have, too.
std::vector<NumberField> AllNumbers() {
  std::vector<NumberField> fields = FieldNumbers();
  for (const ShapeInfo* shape : AllShapes()) {
    for (const ShapeParam& param : shape->params) {
      if (param.kind == ShapeParam::Kind::kChoice) continue;
      if (param.kind == ShapeParam::Kind::kSizes) continue;
      if (param.kind != ShapeParam::Kind::kInteger &&
          param.kind != ShapeParam::Kind::kNumber) {
        fields.push_back({absl::StrCat("system.params.", param.key),
                          testing::LegalValuesOf(param),
                          testing::IllegalValuesOf(param)});
        continue;
      }
      fields.push_back({absl::StrCat("system.params.", param.key),
                        {Text(param.least), Text(param.most)},
                        testing::IllegalValuesOf(param)});
    }
  }
  return fields;
}

// Several bases, since what one has another refuses.
const std::vector<std::string>& Bases() {
  static const std::vector<std::string> bases = {
      "schedule: {name: 1f1b}\n"
      "strategy: {pp: 2, microbatches: 2}\n"
      "costs: {uniform: {forward: 1ms, backward_input: 1ms, "
      "backward_weight: 1ms}, p2p: 1us}\n",
      "schedule: {name: zb-h1}\n"
      "strategy: {pp: 2, dp: 2, microbatches: 2, data_parallel: zero1}\n"
      "model: {layers: 4, hidden: 64, heads: 4, kv_heads: 4, ffn_hidden: 128, "
      "vocabulary: 1000, sequence: 128}\n"
      "system: {preset: dgx-h100}\ncosts: {analytic: {}}\n",
      "schedule: {name: interleaved-1f1b}\n"
      "strategy: {pp: 2, vpp: 2, microbatches: 2}\n"
      "model: {preset: mixtral-8x7b}\nsystem: {preset: dgx-h100}\n"
      "costs: {analytic: {}}\n"};
  return bases;
}

// Null where nothing is known of them; elsewhere it stands for a number that is
// none.
bool MayBeNull(absl::string_view key) {
  return key == "model" || key == "system" || key == "iteration_interval_s" ||
         key == "error";  // of an operation whose rate was not measured
}

// Negative numbers and what is no number, by their path.
void FindBad(const Json& value, const std::string& path,
             std::vector<std::string>* bad) {
  if (value.is_object() || value.is_array()) {
    for (const auto& item : value.items()) {
      if (item.value().is_null() && MayBeNull(item.key())) continue;
      FindBad(item.value(), absl::StrCat(path, ".", item.key()), bad);
    }
  } else if (value.is_null() ||
             (value.is_number() && !(value.get<double>() >= 0))) {
    bad->push_back(absl::StrCat(path, " ", value.dump()));
  }
}

// More would only take longer; those that are too many for the product itself
// are refused all the same.
constexpr double kMostWork = 1e6;
constexpr double kRefused = 6e9;
constexpr int kMostReplicas = 4096;  // that a report names one by one

double WorkOf(const RunConfig& config) {
  const StrategyChoice& strategy = config.strategy;
  return 3.0 * strategy.pp.value_or(1) * strategy.vpp.value_or(1) *
         strategy.slices.value_or(1) * strategy.microbatches.value_or(1);
}

// "" or what is wrong.
std::string Try(const std::string& base, const std::vector<ConfigEdit>& edits) {
  const absl::StatusOr<RunConfig> config =
      ReadConfig(base, "base.yaml", {edits});
  if (!config.ok()) {
    return PartsOf(config.status()).field
               ? ""
               : absl::StrCat("no field: ", config.status().message());
  }
  const double passes = WorkOf(*config);
  const double repeated = passes * config->iterations.value_or(8);
  if (passes < kRefused && repeated > kMostWork) return "";
  const absl::StatusOr<PreparedRun> run = Prepare(*config);
  if (!run.ok()) return "";
  // Replicas that fill a node are no part of `config`.
  if (NamesSystem(run->config.system) &&
      run->config.strategy.dp.value_or(1) > kMostReplicas) {
    return "";
  }
  const absl::StatusOr<Program> program =
      Lower(run->schedule.lowered, run->lower);
  if (!program.ok()) return "";
  const absl::StatusOr<const EngineInfo*> engine = FindEngine("fast");
  const absl::StatusOr<RunSummary> summary =
      (*engine)->run(*program, EngineOptions());
  if (!summary.ok()) return "";
  Report report =
      Summarize(*program, *summary,
                PeakActivations(*run->schedule.lowered,
                                run->lower.costs.held_until_weight));
  DescribeRun(*run, &report);
  DescribeResults(*run, &report);
  report.memory = run->memory;
  const Json json = Json::try_parse(ReportToJson(report));
  if (!json.is_object()) return "no JSON";
  std::vector<std::string> bad;
  FindBad(json, "", &bad);
  return bad.empty() ? "" : bad[0];
}

std::string Words(const std::vector<ConfigEdit>& edits) {
  std::string words;
  for (const ConfigEdit& edit : edits) {
    absl::StrAppend(&words, edit.path, "=", edit.value, " ");
  }
  return words;
}

TEST_CASE("range: behind its ends every number is refused by its field",
          "[config]") {
  for (const NumberField& field : AllNumbers()) {
    for (const std::string& value : field.outside) {
      const absl::Status status =
          ReadConfig(Bases()[0], "base.yaml", {{{field.path, value, "--x"}}})
              .status();
      INFO(field.path << "=" << value << ": " << status.message());
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(PartsOf(status).field == field.path);
      CHECK(PartsOf(status).allowed.has_value());
    }
  }
}

TEST_CASE("range: at its ends every number is refused or leads to numbers",
          "[config]") {
  for (const std::string& base : Bases()) {
    for (const NumberField& field : AllNumbers()) {
      for (const std::string& value : field.inside) {
        const std::vector<ConfigEdit> edits = {{field.path, value, "--x"}};
        INFO(base << Words(edits));
        CHECK(Try(base, edits) == "");
      }
    }
  }
}

TEST_CASE("range: two numbers at their ends are refused or lead to numbers",
          "[config][long]") {
  const std::vector<NumberField> fields = AllNumbers();
  std::mt19937 random(20260101);
  const auto any = [&](size_t count) { return random() % count; };
  for (int round = 0; round < 600; ++round) {
    const NumberField& one = fields[any(fields.size())];
    const NumberField& two = fields[any(fields.size())];
    if (one.path == two.path) continue;
    const std::vector<ConfigEdit> edits = {
        {one.path, one.inside[any(one.inside.size())], "--x"},
        {two.path, two.inside[any(two.inside.size())], "--y"}};
    const std::string& base = Bases()[any(Bases().size())];
    INFO(base << Words(edits));
    CHECK(Try(base, edits) == "");
  }
}

TEST_CASE("range: bytes that no integer holds are refused by their field",
          "[config]") {
  const auto refused = [](const std::string& yaml) {
    const absl::StatusOr<RunConfig> config = ReadConfig(yaml, "run.yaml");
    const absl::Status status =
        config.ok() ? Prepare(*config).status() : config.status();
    INFO(yaml << status.message());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return PartsOf(status).field.value_or("");
  };
  const std::string base =
      "schedule: {name: 1f1b}\nstrategy: {pp: 1, microbatches: 1";
  CHECK(refused(base + ", microbatch_size: 2147483647, sequence: 2147483647}\n"
                       "model: {preset: llama3-8b}\n") ==
        "strategy.microbatch_size");
  const std::string sizes =
      "}\nmodel: {layers: 1, heads: 1, ffn_hidden: 1, sequence: 1, ";
  CHECK(refused(base + sizes + "hidden: 2147483647, vocabulary: 2147483647}") ==
        "model.hidden");
  CHECK(refused(base + sizes + "hidden: 67108864, vocabulary: 2147483647}") ==
        "model.vocabulary");
  CHECK(refused(base + "}\nmodel: {preset: llama3-8b, layers: 1000000}") ==
        "model.layers");
  CHECK(refused(base + "}\ncosts: {uniform: {forward: 1e300s}}") ==
        "costs.uniform.forward");
  CHECK(refused(base + "}\nsystem: {memory: 1e30GiB}") == "system.memory");
}

}  // namespace
}  // namespace pipewright::range_test
