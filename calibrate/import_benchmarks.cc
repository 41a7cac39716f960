#include "calibrate/import_benchmarks.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "calibrate/import_text.h"
#include "calibrate/statistics.h"
#include "sim/base/error_parts.h"
#include "sim/base/json_fault.h"
#include "sim/base/status.h"
#include "sim/profile/profile.h"
#include "sim/trace/log_lines.h"

namespace pipewright {
namespace {

using FileJson = nlohmann::json;

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
// Neither program prints more.
constexpr double kResolution = 1e-9;

// A text or a list of texts, as warnings.
void AddTexts(const FileJson* texts, std::vector<std::string>* warnings) {
  if (texts == nullptr) return;
  if (texts->is_array()) {
    for (const FileJson& text : *texts) AddTexts(&text, warnings);
  } else if (texts->is_string() && *texts != "") {
    warnings->push_back(absl::CHexEscape(texts->get_ref<const std::string&>()));
  }
}

// A file, and a line of it where it is a text.
struct Origin {
  // NOLINTNEXTLINE(google-explicit-constructor)
  Origin(std::string name, int64_t number = 0)
      : file(std::move(name)), line(number) {}

  std::string file;
  int64_t line;
};

absl::Status Unfit(const Origin& source, absl::string_view what,
                   absl::string_view allowed) {
  return InFile(source.file, source.line,
                WithValue(absl::InvalidArgumentError(
                              absl::StrCat(what, "; allowed: ", allowed)),
                          "", allowed));
}

absl::StatusOr<FileJson> Parse(absl::string_view text,
                               const std::string& source) {
  FileJson json = FileJson::parse(text.begin(), text.end(), nullptr,
                                  /*allow_exceptions=*/false);
  if (json.is_discarded()) return JsonFault(text, source);
  if (!json.is_object()) {
    return Unfit(source, "is no JSON object", "the file as it was written");
  }
  return json;
}

const FileJson* Member(const FileJson& json, const char* key) {
  const auto at = json.is_object() ? json.find(key) : json.end();
  return at == json.end() ? nullptr : &*at;
}

// Finite, and small enough to be counted exactly (2^53).
std::optional<double> NumberOf(const FileJson* json) {
  if (json == nullptr) return {};
  double value = 0;
  if (json->is_number()) {
    value = json->get<double>();
  } else if (!json->is_string() ||
             !absl::SimpleAtod(json->get_ref<const std::string&>(), &value)) {
    return {};
  }
  constexpr double kMost = 9007199254740992;
  if (!(std::abs(value) <= kMost)) return {};
  return value;
}

// As a message quotes it: "-5", "\"nan\"", "missing".
std::string ValueText(const FileJson* json) {
  return json == nullptr
             ? "missing"
             : json->dump(-1, ' ', true, FileJson::error_handler_t::replace);
}

// An error that names the place in the file, the value there and what it may
// be.
absl::Status BadEntry(const Origin& source, absl::string_view place,
                      const FileJson* value, absl::string_view allowed) {
  return Unfit(source, absl::StrCat(place, " is ", ValueText(value)), allowed);
}

// What both programs write where they have measured nothing.
bool IsAbsent(const FileJson* json) {
  return json == nullptr || json->is_null() || *json == "N/A";
}

// A count of the configuration; 1 where it does not say.
absl::StatusOr<int64_t> CountOf(const FileJson& config, const char* key,
                                const std::string& source) {
  const FileJson* const value = Member(config, key);
  if (value == nullptr) return 1;
  const std::optional<double> count = NumberOf(value);
  if (!count || *count < 1 || *count != std::floor(*count)) {
    return BadEntry(source, absl::StrCat("config.", key), value,
                    "an integer from 1");
  }
  return static_cast<int64_t>(*count);
}

// The programs may print nothing but a mean over many iterations.
Distribution OfMean(double seconds, int64_t count) {
  return {.count = count,
          .median_s = seconds,
          .p10_s = seconds,
          .p90_s = seconds,
          .mean_s = seconds,
          .min_s = seconds,
          .max_s = seconds};
}

absl::StatusOr<std::string> OperationOf(const FileJson& json,
                                        const std::string& source) {
  const FileJson* args = Member(json, "args");
  std::string program;
  if (args != nullptr && args->is_array() && !args->empty() &&
      (*args)[0].is_string()) {
    program = (*args)[0].get<std::string>();
  }
  program = program.substr(program.rfind('/') + 1);
  for (const auto& [prefix, name] : {std::pair("all_reduce", "all_reduce"),
                                     {"all_gather", "all_gather"},
                                     {"reduce_scatter", "reduce_scatter"},
                                     {"sendrecv", "send_recv"}}) {
    if (absl::StartsWith(program, prefix)) return std::string(name);
  }
  return Unfit(source, absl::StrCat("args[0] is '", program, "'"),
               "a run of all_reduce_perf, all_gather_perf, "
               "reduce_scatter_perf or sendrecv_perf");
}

// Processes are listed, each with its threads and their devices.
absl::StatusOr<int64_t> RanksOf(const FileJson& config, const FileJson* devices,
                                const std::string& source) {
  PW_ASSIGN_OR_RETURN(const int64_t threads,
                      CountOf(config, "nthreads", source));
  PW_ASSIGN_OR_RETURN(const int64_t gpus, CountOf(config, "ngpus", source));
  const auto processes = static_cast<double>(
      devices != nullptr && devices->is_array() ? devices->size() : 1);
  // CheckProfile refuses too many and too few.
  return std::llround(std::min(
      static_cast<double>(threads) * static_cast<double>(gpus) * processes,
      1e9));
}

// The number of hosts of all devices; 0 where a host has no name.
int64_t NodesOf(const FileJson* devices) {
  std::set<std::string> hosts;
  if (devices == nullptr || !devices->is_array()) return 0;
  for (const FileJson& device : *devices) {
    const FileJson* host = Member(device, "hostname");
    if (host == nullptr || !host->is_string()) return 0;
    hosts.insert(host->get<std::string>());
  }
  return static_cast<int64_t>(hosts.size());
}

// Time of the row `at` ("results[3]"), out of place or in place; nothing if the
// program has not measured it.
absl::StatusOr<std::optional<Distribution>> TimeOf(const FileJson& row,
                                                   const std::string& at,
                                                   const char* place,
                                                   int64_t iterations,
                                                   const Origin& source) {
  constexpr char kTime[] = "microseconds above 0";
  const std::string each_name = absl::StrCat(place, "_per_iter");
  const FileJson* each = Member(row, each_name.c_str());
  const FileJson* times = each == nullptr ? nullptr : Member(*each, "times_us");
  if (times != nullptr && times->is_array() && !times->empty()) {
    std::vector<double> samples;
    for (const FileJson& time : *times) {
      const std::optional<double> micros = NumberOf(&time);
      if (!micros || *micros <= 0) {
        return BadEntry(
            source,
            absl::StrCat(at, ".", each_name, ".times_us[", samples.size(), "]"),
            &time, kTime);
      }
      samples.push_back(*micros * kMicro);
    }
    return Summarize({samples}, kResolution);
  }
  const FileJson* body = Member(row, place);
  const FileJson* const time =
      body == nullptr ? nullptr : Member(*body, "time");
  if (IsAbsent(time)) return std::optional<Distribution>();
  const std::optional<double> micros = NumberOf(time);
  if (!micros || *micros <= 0) {
    return BadEntry(source, absl::StrCat(at, ".", place, ".time"), time, kTime);
  }
  return OfMean(*micros * kMicro, iterations);
}

// nccl-tests go on when their own check of the results fails.
absl::Status CheckResults(const FileJson& json, const FileJson& results,
                          const std::string& source) {
  const FileJson* bounds = Member(json, "out_of_bounds");
  if (bounds != nullptr && bounds->is_object()) {
    const auto count = NumberOf(Member(*bounds, "count"));
    const FileJson* okay = Member(*bounds, "okay");
    if ((count && *count > 0) ||
        (okay != nullptr &&
         (okay->is_boolean() ? !okay->get<bool>() : *okay == "false"))) {
      return Unfit(source, "out_of_bounds is not okay",
                   "a run whose results were right");
    }
  }
  for (const FileJson& row : results) {
    for (const char* place : {"out_of_place", "in_place"}) {
      const FileJson* body = Member(row, place);
      const auto wrong =
          NumberOf(body == nullptr ? nullptr : Member(*body, "nwrong"));
      if (!wrong || *wrong <= 0) continue;
      return Unfit(source, absl::StrCat(place, ".nwrong is ", *wrong),
                   "0: a run whose results were right");
    }
  }
  return absl::OkStatus();
}

struct CopyTest {
  const char* name;
  CopyDirection direction;
  bool beside_opposite;
};

constexpr CopyTest kCopyTests[] = {
    {"host_to_device_memcpy_ce", CopyDirection::kHostToDevice, false},
    {"device_to_host_memcpy_ce", CopyDirection::kDeviceToHost, false},
    {"host_to_device_bidirectional_memcpy_ce", CopyDirection::kHostToDevice,
     true},
    {"device_to_host_bidirectional_memcpy_ce", CopyDirection::kDeviceToHost,
     true}};

constexpr size_t kNamesShown = 5;

// "a, b and 3 more".
std::string SomeOf(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + shown, ", "),
                      shown < names.size()
                          ? absl::StrCat(" and ", names.size() - shown, " more")
                          : "");
}

std::string InBrackets(const std::vector<std::string>& warnings) {
  return warnings.empty()
             ? ""
             : absl::StrCat(" (", absl::StrJoin(warnings, "; "), ")");
}

// Rows of nccl-tests that are taken otherwise than they stand there, by what is
// said of them.
class RowNotes {
 public:
  void Add(const std::string& what, const std::string& row) {
    rows_[what].push_back(row);
  }
  void AppendTo(std::vector<std::string>* warnings) const {
    for (const auto& [what, rows] : rows_) {
      warnings->push_back(absl::StrCat(SomeOf(rows), ": ", what));
    }
  }

 private:
  std::map<std::string, std::vector<std::string>> rows_;
};

absl::StatusOr<std::vector<TransferEntry>> TransfersOf(
    const FileJson& results, const std::vector<int64_t>& lines,
    const TransferEntry& alike, int64_t iterations,
    const std::string& source_name, std::vector<std::string>* warnings) {
  std::vector<TransferEntry> transfers;
  RowNotes notes;
  for (size_t index = 0; index < results.size(); ++index) {
    const FileJson& row = results[index];
    const Origin source(source_name, lines.empty() ? 0 : lines[index]);
    const std::string at = lines.empty()
                               ? absl::StrCat("results[", index, "]")
                               : absl::StrCat("row of line ", lines[index]);
    const FileJson* const size = Member(row, "size");
    const std::optional<double> bytes = NumberOf(size);
    if (!bytes || *bytes < 0 || *bytes != std::floor(*bytes)) {
      return BadEntry(source, absl::StrCat(at, ".size"), size, "bytes from 0");
    }
    PW_ASSIGN_OR_RETURN(std::optional<Distribution> time,
                        TimeOf(row, at, "out_of_place", iterations, source));
    PW_ASSIGN_OR_RETURN(std::optional<Distribution> in_place,
                        TimeOf(row, at, "in_place", iterations, source));
    // As nccl-tests rounds less than an element a rank.
    if (*bytes == 0) {
      notes.Add("left out, since nothing is sent", at);
      continue;
    }
    if (!time && in_place) {
      notes.Add("has no time out of place; the one in place is taken", at);
      time = std::move(in_place);
    }
    if (!time) {
      notes.Add("left out, since it has no time", at);
      continue;
    }
    TransferEntry entry = alike;
    entry.bytes = static_cast<int64_t>(*bytes);
    entry.time = *std::move(time);
    transfers.push_back(std::move(entry));
  }
  notes.AppendTo(warnings);
  return transfers;
}

// Samples of one test of nvbandwidth, a device each.
absl::StatusOr<std::vector<double>> SamplesOf(const FileJson* matrix,
                                              const std::string& at,
                                              int64_t bytes,
                                              const Origin& source) {
  if (matrix == nullptr || !matrix->is_array()) {
    return BadEntry(source, absl::StrCat(at, ".bandwidth_matrix"), matrix,
                    "a list of rows");
  }
  std::vector<double> samples;
  for (size_t line = 0; line < matrix->size(); ++line) {
    const FileJson& row = (*matrix)[line];
    const std::string row_at =
        absl::StrCat(at, ".bandwidth_matrix[", line, "]");
    if (!row.is_array()) {
      return BadEntry(source, row_at, &row, "a list of bandwidths");
    }
    for (size_t column = 0; column < row.size(); ++column) {
      const FileJson& cell = row[column];
      if (IsAbsent(&cell)) continue;
      const std::optional<double> rate = NumberOf(&cell);
      if (!rate || *rate <= 0) {
        return BadEntry(source, absl::StrCat(row_at, "[", column, "]"), &cell,
                        "GB/s above 0, or N/A");
      }
      samples.push_back(static_cast<double>(bytes) / (*rate * kGiga));
    }
  }
  return samples;
}

// The text without the marks of processes; whether it is JSON.
bool IsJson(absl::string_view text, std::string* plain) {
  if (BeginsJson(text)) {
    *plain = std::string(text);
    return true;
  }
  *plain = absl::StrJoin(LogLines(text), "\n",
                         [](std::string* out, const LogLine& line) {
                           absl::StrAppend(out, line.text);
                         });
  return BeginsJson(*plain);
}

absl::StatusOr<Profile> ImportNcclRun(const BenchmarkText& run,
                                      const std::string& source_name) {
  PW_ASSIGN_OR_RETURN(const FileJson json, Parse(run.json, source_name));
  PW_ASSIGN_OR_RETURN(const std::string operation,
                      OperationOf(json, source_name));
  const FileJson* config = Member(json, "config");
  const FileJson* results = Member(json, "results");
  if (config == nullptr || results == nullptr || !results->is_array()) {
    return Unfit(source_name, "has no \"config\" and \"results\"",
                 "a file of nccl-tests -J");
  }
  PW_RETURN_IF_ERROR(CheckResults(json, *results, source_name));
  const FileJson* devices = Member(*config, "devices");
  PW_ASSIGN_OR_RETURN(const int64_t ranks,
                      RanksOf(*config, devices, source_name));
  ProfileSource source = {
      .kind = "nccl-tests", .file = source_name, .backend = "cuda"};
  source.warnings = run.warnings;
  AddTexts(Member(json, "errors"), &source.warnings);
  if (const FileJson* date = Member(json, "start_time");
      date != nullptr && date->is_string()) {
    source.date = date->get<std::string>();
  }
  if (devices != nullptr && devices->is_array() && !devices->empty()) {
    const FileJson* info = Member((*devices)[0], "device_info");
    if (info != nullptr && info->is_string()) {
      source.device = info->get<std::string>();
    }
  }
  if (const auto version = NumberOf(Member(json, "nccl_version"))) {
    source.libraries = absl::StrCat("NCCL ", std::llround(*version));
  }
  if (operation == "send_recv" && ranks != 2) {
    source.warnings.push_back(
        absl::StrCat("sendrecv ran in a ring of ", ranks, " devices"));
  }
  PW_ASSIGN_OR_RETURN(const int64_t iterations,
                      CountOf(*config, "iterations", source_name));
  const TransferEntry alike = {.operation = operation,
                               .transport = kNcclTransport,
                               .ranks = operation == "send_recv" ? 2 : ranks,
                               .nodes = NodesOf(devices)};
  Profile profile;
  PW_ASSIGN_OR_RETURN(profile.transfers,
                      TransfersOf(*results, run.lines, alike, iterations,
                                  source_name, &source.warnings));
  if (profile.transfers.empty()) {
    return Unfit(source_name,
                 absl::StrCat("has no times", InBrackets(source.warnings)),
                 "results with \"time\"");
  }
  profile.sources.push_back(std::move(source));
  PW_RETURN_IF_ERROR(CheckProfile(profile, source_name));
  return profile;
}

}  // namespace

absl::StatusOr<Profile> ImportNcclTests(absl::string_view text,
                                        const std::string& source_name) {
  std::string plain;
  std::vector<BenchmarkText> runs;
  if (IsJson(text, &plain)) {
    runs.push_back({.json = std::move(plain)});
  } else {
    PW_ASSIGN_OR_RETURN(runs, ReadNcclTestsText(text, source_name));
  }
  std::optional<Profile> all;
  for (const BenchmarkText& run : runs) {
    PW_ASSIGN_OR_RETURN(Profile each, ImportNcclRun(run, source_name));
    if (all) {
      const size_t rows = all->transfers.size() + each.transfers.size();
      PW_ASSIGN_OR_RETURN(all, MergeProfiles(*all, each));
      if (all->transfers.size() < rows) {
        all->sources.back().warnings.push_back(absl::StrCat(
            rows - all->transfers.size(),
            " rows are there twice; those of the later run are taken"));
      }
    } else {
      all = std::move(each);
    }
  }
  return *std::move(all);
}

absl::StatusOr<Profile> ImportNvbandwidth(absl::string_view text,
                                          const std::string& source_name,
                                          int64_t bytes) {
  BenchmarkText run;
  std::string plain;
  if (IsJson(text, &plain)) {
    run.json = std::move(plain);
  } else {
    PW_ASSIGN_OR_RETURN(run, ReadNvbandwidthText(text, source_name));
  }
  PW_ASSIGN_OR_RETURN(const FileJson json, Parse(run.json, source_name));
  const FileJson* root = Member(json, "nvbandwidth");
  const FileJson* tests =
      root == nullptr ? nullptr : Member(*root, "testcases");
  if (tests == nullptr || !tests->is_array()) {
    return Unfit(source_name, "has no \"nvbandwidth\" with \"testcases\"",
                 "the output of nvbandwidth -j");
  }
  ProfileSource source = {
      .kind = "nvbandwidth", .file = source_name, .backend = "cuda"};
  source.warnings = run.warnings;
  for (const char* told : {"error", "warning"}) {
    AddTexts(Member(*root, told), &source.warnings);
  }
  if (const FileJson* device = Member(*root, "device");
      device != nullptr && device->is_string()) {
    source.device = device->get<std::string>();
  }
  if (const FileJson* driver = Member(*root, "Driver Version");
      driver != nullptr && driver->is_string()) {
    source.driver = driver->get<std::string>();
  }
  Profile profile;
  std::vector<std::string> others;
  for (size_t index = 0; index < tests->size(); ++index) {
    const FileJson& test = (*tests)[index];
    const std::string at = absl::StrCat("testcases[", index, "]");
    const FileJson* name = Member(test, "name");
    if (name == nullptr || !name->is_string()) {
      return BadEntry(source_name, absl::StrCat(at, ".name"), name,
                      "the name of a test");
    }
    const std::string& title = name->get_ref<const std::string&>();
    const CopyTest* const known =
        std::find_if(std::begin(kCopyTests), std::end(kCopyTests),
                     [&](const CopyTest& each) { return title == each.name; });
    if (known == std::end(kCopyTests)) {
      others.push_back(absl::CHexEscape(title));
      continue;
    }
    const FileJson* const status = Member(test, "status");
    if (status != nullptr && *status != "Passed") {
      source.warnings.push_back(absl::StrCat(
          title, " is left out, since its status is ", ValueText(status)));
      AddTexts(Member(test, "error"), &source.warnings);
      continue;
    }
    PW_ASSIGN_OR_RETURN(
        std::vector<double> samples,
        SamplesOf(Member(test, "bandwidth_matrix"),
                  run.lines.empty() ? at : title, bytes,
                  {source_name, run.lines.empty() ? 0 : run.lines[index]}));
    if (samples.empty()) {
      source.warnings.push_back(
          absl::StrCat(title, " is left out, since it has no bandwidths"));
      continue;
    }
    profile.copies.push_back(
        {.direction = known->direction,
         .bytes = bytes,
         .beside_opposite = known->beside_opposite,
         .time = Summarize({std::move(samples)}, kResolution)});
  }
  if (!others.empty()) {
    source.warnings.push_back(absl::StrCat(
        "left out, since no copies between host and device by a copy engine: ",
        SomeOf(others)));
  }
  if (profile.copies.empty()) {
    return Unfit(source_name,
                 absl::StrCat("has no copies between host and device",
                              InBrackets(source.warnings)),
                 "tests host_to_device_memcpy_ce, device_to_host_memcpy_ce "
                 "and their bidirectional ones");
  }
  profile.sources.push_back(std::move(source));
  PW_RETURN_IF_ERROR(CheckProfile(profile, source_name));
  return profile;
}

}  // namespace pipewright
