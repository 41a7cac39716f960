#include "calibrate/import_silicon.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/error_parts.h"
#include "sim/base/gzip.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Half of a 90 % interval, and the spread that stands for campaigns where there
// is only one, as distil.py has them.
constexpr double kNormal90OfCampaigns = 1.6449;
constexpr double kOneCampaignSpread = 0.05;
// Median of |x - y| of two normal numbers over their deviation.
constexpr double kMedianOfDifference = 0.6745 * 1.4142135623730951;

// A kind of file: the columns that it needs.
struct SiliconForm {
  const char* kind;
  std::vector<std::string> columns;
  const char* time;
};

const std::vector<SiliconForm>& SiliconForms() {
  static const auto* forms = new std::vector<SiliconForm>{
      {"gemm", {"dtype", "m", "n", "k"}, "latency_ms"},
      {"sdpa",
       {"dtype", "mask", "batch", "q_len", "kv_len", "heads", "head_dim_qk",
        "head_dim_v", "pass"},
       "time_ms"},
      {"attention", {"batch", "isl", "heads", "head_dim"}, "latency_ms"},
      {"norm", {"norm", "rows", "cols", "pass"}, "time_ms"},
      {"cast", {"what", "m", "k"}, "latency_ms"},
      {"nccl", {"op", "dtype", "gpus", "bytes"}, "latency_ms"}};
  return *forms;
}

class SiliconRow {
 public:
  SiliconRow(const std::vector<std::string>& columns, absl::string_view line,
             absl::string_view source, int64_t number)
      : columns_(columns),
        fields_(absl::StrSplit(line, ',')),
        source_(source),
        number_(number) {}

  absl::Status Check() const {
    if (fields_.size() == columns_.size()) return absl::OkStatus();
    return At("row", absl::StrCat(fields_.size(), " fields"),
              absl::StrCat(columns_.size(), " fields, as the first line"));
  }
  bool Has(absl::string_view column) const { return Find(column) >= 0; }
  std::string Text(absl::string_view column) const {
    const int at = Find(column);
    return at < 0 ? "" : std::string(fields_[at]);
  }
  absl::StatusOr<double> Number(absl::string_view column, bool is_size) const {
    const std::string text = Text(column);
    double value = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number =
        error == std::errc() && end == text.data() + text.size();
    if (!is_number || !std::isfinite(value) || value <= 0 || value > 1e15 ||
        (is_size && value != std::floor(value))) {
      return At(column, text,
                is_size ? "an integer from 1 on" : "a finite number above 0");
    }
    return value;
  }
  absl::Status At(absl::string_view column, absl::string_view value,
                  absl::string_view allowed) const {
    return BadValue(FieldPlace::InFile(source_, number_, column), value,
                    allowed);
  }

 private:
  int Find(absl::string_view column) const {
    for (size_t at = 0; at < columns_.size(); ++at) {
      if (columns_[at] == column) return static_cast<int>(at);
    }
    return -1;
  }

  const std::vector<std::string>& columns_;
  std::vector<std::string> fields_;
  absl::string_view source_;
  int64_t number_;
};

// Words and the names of the columns of the sizes; sizes are products of
// columns ("batch*heads").
struct SiliconShape {
  std::vector<std::string> words;
  std::vector<std::vector<std::string>> sizes;
  bool is_skipped = false;
};

std::string TypeOf(const SiliconRow& row) {
  const std::string type = row.Text("dtype");
  return type == "bf16" || type == "half" || type == "float16" ? "bfloat16"
                                                               : type;
}

absl::StatusOr<SiliconShape> ShapeOf(absl::string_view kind,
                                     const SiliconRow& row) {
  SiliconShape shape;
  if (kind == "gemm") {
    const std::string layout = row.Has("layout") ? row.Text("layout") : "TN";
    if (layout != "TN" && layout != "NN" && layout != "NT") {
      return row.At("layout", layout, "TN, NN, NT");
    }
    shape = {{"gemm", TypeOf(row), layout}, {{"m"}, {"n"}, {"k"}}};
  } else if (kind == "attention") {
    PW_ASSIGN_OR_RETURN(const double dim, row.Number("head_dim", true));
    shape = {{"attention", "bfloat16", "fwd", "causal", absl::StrCat(dim)},
             {{"batch", "heads"}, {"isl"}}};
  } else if (kind == "sdpa") {
    const std::string mask = row.Text("mask");
    if (mask != "top_left" && mask != "no_mask" && mask != "causal" &&
        mask != "full") {
      return row.At("mask", mask, "top_left, causal, no_mask, full");
    }
    PW_ASSIGN_OR_RETURN(const double keys, row.Number("head_dim_qk", true));
    PW_ASSIGN_OR_RETURN(const double values, row.Number("head_dim_v", true));
    shape = {{"attention", TypeOf(row), row.Text("pass"),
              mask == "top_left" || mask == "causal" ? "causal" : "full",
              absl::StrCat(std::floor((keys + values) / 2))},
             {{"batch", "heads"}, {"q_len"}}};
    // A table has neither windows nor queries apart from keys.
    shape.is_skipped = row.Text("q_len") != row.Text("kv_len") ||
                       !row.Text("window").empty() ||
                       row.Text("deterministic") == "1";
  } else if (kind == "norm") {
    shape = {{"norm", row.Text("norm"), row.Text("pass")},
             {{"rows"}, {"cols"}}};
  } else if (kind == "cast") {
    shape = {{"cast", "fp8", "static"}, {{"m"}, {"k"}}};
    shape.is_skipped = row.Text("what") != "cast";
  } else {
    shape = {{"nccl", row.Text("op"), TypeOf(row)}, {{"gpus"}, {"bytes"}}};
  }
  if (row.Has("pass") && row.Text("pass") != "fwd" &&
      row.Text("pass") != "bwd") {
    return row.At("pass", row.Text("pass"), "fwd, bwd");
  }
  return shape;
}

}  // namespace

absl::Status SiliconImporter::Add(absl::string_view text,
                                  absl::string_view source) {
  std::vector<std::string> columns;
  const SiliconForm* form = nullptr;
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
    if (line.empty()) continue;
    if (form == nullptr) {
      columns = absl::StrSplit(line, ',');
      const auto has = [&](const std::string& name) {
        return std::find(columns.begin(), columns.end(), name) != columns.end();
      };
      for (const SiliconForm& other : SiliconForms()) {
        if (form == nullptr && has(other.time) &&
            std::all_of(other.columns.begin(), other.columns.end(), has)) {
          form = &other;
        }
      }
      if (form != nullptr) continue;
      std::vector<std::string> allowed;
      for (const SiliconForm& other : SiliconForms()) {
        allowed.push_back(
            absl::StrCat(absl::StrJoin(other.columns, ","), ",", other.time));
      }
      return BadValue(FieldPlace::InFile(source, number, "columns"), line,
                      absl::StrJoin(allowed, "; or "));
    }
    const SiliconRow row(columns, line, source, number);
    PW_RETURN_IF_ERROR(row.Check());
    PW_ASSIGN_OR_RETURN(const SiliconShape shape, ShapeOf(form->kind, row));
    PW_ASSIGN_OR_RETURN(const double milliseconds,
                        row.Number(form->time, false));
    Sample sample = {.words = shape.words,
                     .campaign = row.Text("campaign"),
                     .seconds = 1e-3 * milliseconds,
                     .place = absl::StrCat(source, ":", number)};
    for (const std::vector<std::string>& factors : shape.sizes) {
      double size = 1;
      for (const std::string& factor : factors) {
        PW_ASSIGN_OR_RETURN(const double value, row.Number(factor, true));
        size *= value;
      }
      sample.sizes.push_back(size);
    }
    if (shape.is_skipped) continue;
    // If a size is a product, several rows may have it: they count as campaigns
    // of one shape.
    if (form->kind == absl::string_view("attention") ||
        form->kind == absl::string_view("sdpa")) {
      absl::StrAppend(&sample.campaign, "/", row.Text("batch"), "/",
                      row.Text("kv_heads"), "/", row.Text("backend"), "/",
                      row.Text("head_dim_qk"));
    } else {
      absl::StrAppend(&sample.campaign, "/", row.Text("backend"));
    }
    samples_.push_back(std::move(sample));
  }
  if (form == nullptr) {
    return BadValue(FieldPlace::InFile(source, 0, "file"), "empty",
                    "a line of columns and rows");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SiliconTable>> SiliconImporter::Finish() && {
  if (samples_.empty()) {
    return absl::InvalidArgumentError("no rows of kernels in the files");
  }
  using Key = std::pair<std::vector<std::string>, std::vector<double>>;
  std::map<Key, std::map<std::string, const Sample*>> shapes;
  for (const Sample& sample : samples_) {
    const auto [at, is_new] =
        shapes[{sample.words, sample.sizes}].emplace(sample.campaign, &sample);
    if (is_new) continue;
    const std::vector<std::string> place =
        absl::StrSplit(sample.place, absl::MaxSplits(':', 1));
    return InFile(place[0], std::stoll(place[1]),
                  BadValue("shape",
                           absl::StrCat(absl::StrJoin(sample.words, " "), " ",
                                        absl::StrJoin(sample.sizes, ",")),
                           absl::StrCat("each shape of a campaign once (",
                                        at->second->place, " has it)")));
  }
  std::vector<SiliconTable> tables;
  for (auto next = shapes.begin(); next != shapes.end();) {
    const std::vector<std::string> words = next->first.first;
    auto end = next;
    std::vector<double> spreads;
    const auto spread_of = [](const std::map<std::string, const Sample*>& all) {
      double low = all.begin()->second->seconds;
      double high = low;
      for (const auto& [campaign, sample] : all) {
        low = std::min(low, sample->seconds);
        high = std::max(high, sample->seconds);
      }
      return std::log(high / low);
    };
    for (; end != shapes.end() && end->first.first == words; ++end) {
      if (end->second.size() > 1) spreads.push_back(spread_of(end->second));
    }
    std::sort(spreads.begin(), spreads.end());
    const double typical =
        spreads.empty() ? kOneCampaignSpread
                        : spreads[spreads.size() / 2] / kMedianOfDifference;
    SiliconTable table;
    table.words = words;
    table.sizes = static_cast<int>(next->first.second.size());
    for (; next != end; ++next) {
      double log = 0;
      const auto count = static_cast<double>(next->second.size());
      for (const auto& [campaign, sample] : next->second) {
        log += std::log(sample->seconds) / count;
      }
      const double own = spread_of(next->second) / std::sqrt(2.0);
      const double sigma =
          std::max(typical, std::sqrt((own * own + 2 * typical * typical) / 3));
      for (const double size : next->first.second) table.values.push_back(size);
      table.values.push_back(std::exp(log));
      table.values.push_back(std::max(
          0.01, kNormal90OfCampaigns * sigma * std::sqrt(1 + 1 / count)));
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

absl::StatusOr<std::vector<SiliconTable>> ImportSilicon(
    const std::string& folder) {
  std::error_code failed;
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator at(folder, failed), end;
       !failed && at != end; at.increment(failed)) {
    const std::string path = at->path().string();
    if (absl::EndsWith(path, ".csv") || absl::EndsWith(path, ".csv.gz")) {
      paths.push_back(path);
    }
  }
  if (failed) {
    return AboutFile(folder, absl::InvalidArgumentError(
                                 absl::StrCat(folder, ": ", failed.message())));
  }
  if (paths.empty()) {
    return AboutFile(folder, absl::InvalidArgumentError(absl::StrCat(
                                 folder, ": has no *.csv or *.csv.gz")));
  }
  std::sort(paths.begin(), paths.end());
  SiliconImporter importer;
  for (const std::string& path : paths) {
    PW_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> in,
                        InputFile::Open(path, InputKind::kProfile));
    const std::string text((std::istreambuf_iterator<char>(in->stream())),
                           std::istreambuf_iterator<char>());
    PW_RETURN_IF_ERROR(in->status());
    PW_RETURN_IF_ERROR(importer.Add(text, path));
  }
  return std::move(importer).Finish();
}

}  // namespace pipewright
