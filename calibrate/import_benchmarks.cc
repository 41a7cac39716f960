#include "calibrate/import_benchmarks.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "calibrate/statistics.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/profile/check.h"
#include "sim/profile/transport_names.h"

namespace pipewright {
namespace {

using Json = nlohmann::json;

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
// Neither program prints more.
constexpr double kResolution = 1e-9;

absl::Status Unfit(const std::string& source, absl::string_view what,
                   absl::string_view allowed) {
  return InFile(source, 0,
                WithValue(absl::InvalidArgumentError(
                              absl::StrCat(what, "; allowed: ", allowed)),
                          "", allowed));
}

absl::StatusOr<Json> Parse(absl::string_view text, const std::string& source) {
  Json json = Json::parse(text.begin(), text.end(), nullptr,
                          /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return Unfit(source, "is no JSON object", "the file as it was written");
  }
  return json;
}

const Json* Member(const Json& json, const char* key) {
  const auto at = json.is_object() ? json.find(key) : json.end();
  return at == json.end() ? nullptr : &*at;
}

// Finite, and small enough to be counted exactly (2^53).
std::optional<double> NumberOf(const Json* json) {
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

absl::StatusOr<std::string> OperationOf(const Json& json,
                                        const std::string& source) {
  const Json* args = Member(json, "args");
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
int64_t RanksOf(const Json& config, const Json* devices) {
  const double each = NumberOf(Member(config, "nthreads")).value_or(1) *
                      NumberOf(Member(config, "ngpus")).value_or(1);
  const auto processes = static_cast<double>(
      devices != nullptr && devices->is_array() ? devices->size() : 1);
  // CheckProfile refuses too many and too few.
  return std::llround(std::clamp(each * processes, 0.0, 1e9));
}

// The number of hosts of all devices; 0 where a host has no name.
int64_t NodesOf(const Json* devices) {
  std::set<std::string> hosts;
  if (devices == nullptr || !devices->is_array()) return 0;
  for (const Json& device : *devices) {
    const Json* host = Member(device, "hostname");
    if (host == nullptr || !host->is_string()) return 0;
    hosts.insert(host->get<std::string>());
  }
  return static_cast<int64_t>(hosts.size());
}

std::optional<Distribution> TimeOf(const Json& row, const char* place,
                                   int64_t iterations) {
  const Json* each = Member(row, absl::StrCat(place, "_per_iter").c_str());
  const Json* times = each == nullptr ? nullptr : Member(*each, "times_us");
  if (times != nullptr && times->is_array() && !times->empty()) {
    std::vector<double> samples;
    for (const Json& time : *times) {
      if (const auto micros = NumberOf(&time)) {
        samples.push_back(*micros * kMicro);
      }
    }
    if (!samples.empty()) return Summarize({samples}, kResolution);
  }
  const Json* body = Member(row, place);
  if (body == nullptr) return {};
  const auto micros = NumberOf(Member(*body, "time"));
  if (!micros || *micros <= 0) return {};
  return OfMean(*micros * kMicro, iterations);
}

// nccl-tests go on when their own check of the results fails.
absl::Status CheckResults(const Json& json, const Json& results,
                          const std::string& source) {
  const Json* bounds = Member(json, "out_of_bounds");
  if (bounds != nullptr && bounds->is_object()) {
    const auto count = NumberOf(Member(*bounds, "count"));
    const Json* okay = Member(*bounds, "okay");
    if ((count && *count > 0) ||
        (okay != nullptr &&
         (okay->is_boolean() ? !okay->get<bool>() : *okay == "false"))) {
      return Unfit(source, "out_of_bounds is not okay",
                   "a run whose results were right");
    }
  }
  for (const Json& row : results) {
    for (const char* place : {"out_of_place", "in_place"}) {
      const Json* body = Member(row, place);
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

}  // namespace

absl::StatusOr<Profile> ImportNcclTests(absl::string_view text,
                                        const std::string& source_name) {
  PW_ASSIGN_OR_RETURN(const Json json, Parse(text, source_name));
  PW_ASSIGN_OR_RETURN(const std::string operation,
                      OperationOf(json, source_name));
  const Json* config = Member(json, "config");
  const Json* results = Member(json, "results");
  if (config == nullptr || results == nullptr || !results->is_array()) {
    return Unfit(source_name, "has no \"config\" and \"results\"",
                 "a file of nccl-tests -J");
  }
  PW_RETURN_IF_ERROR(CheckResults(json, *results, source_name));
  const Json* devices = Member(*config, "devices");
  const int64_t ranks = RanksOf(*config, devices);
  ProfileSource source = {
      .kind = "nccl-tests", .file = source_name, .backend = "cuda"};
  if (const Json* date = Member(json, "start_time");
      date != nullptr && date->is_string()) {
    source.date = date->get<std::string>();
  }
  if (devices != nullptr && devices->is_array() && !devices->empty()) {
    const Json* info = Member((*devices)[0], "device_info");
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
  const auto iterations =
      static_cast<int64_t>(NumberOf(Member(*config, "iterations")).value_or(1));
  Profile profile;
  for (const Json& row : *results) {
    const auto bytes = NumberOf(Member(row, "size"));
    std::optional<Distribution> time = TimeOf(row, "out_of_place", iterations);
    if (!time) time = TimeOf(row, "in_place", iterations);
    if (!bytes || *bytes <= 0 || !time) continue;
    profile.transfers.push_back({.operation = operation,
                                 .transport = kNcclTransport,
                                 .ranks = operation == "send_recv" ? 2 : ranks,
                                 .bytes = static_cast<int64_t>(*bytes),
                                 .time = *std::move(time),
                                 .nodes = NodesOf(devices)});
  }
  if (profile.transfers.empty()) {
    return Unfit(source_name, "has no times", "results with \"time\"");
  }
  profile.sources.push_back(std::move(source));
  PW_RETURN_IF_ERROR(CheckProfile(profile, source_name));
  return profile;
}

absl::StatusOr<Profile> ImportNvbandwidth(absl::string_view text,
                                          const std::string& source_name,
                                          int64_t bytes) {
  PW_ASSIGN_OR_RETURN(const Json json, Parse(text, source_name));
  const Json* root = Member(json, "nvbandwidth");
  const Json* tests = root == nullptr ? nullptr : Member(*root, "testcases");
  if (tests == nullptr || !tests->is_array()) {
    return Unfit(source_name, "has no \"nvbandwidth\" with \"testcases\"",
                 "the output of nvbandwidth -j");
  }
  ProfileSource source = {
      .kind = "nvbandwidth", .file = source_name, .backend = "cuda"};
  if (const Json* driver = Member(*root, "Driver Version");
      driver != nullptr && driver->is_string()) {
    source.driver = driver->get<std::string>();
  }
  Profile profile;
  for (const Json& test : *tests) {
    const Json* name = Member(test, "name");
    const Json* matrix = Member(test, "bandwidth_matrix");
    if (name == nullptr || !name->is_string() || matrix == nullptr ||
        !matrix->is_array()) {
      continue;
    }
    for (const CopyTest& known : kCopyTests) {
      if (name->get_ref<const std::string&>() != known.name) continue;
      std::vector<double> samples;
      for (const Json& row : *matrix) {
        if (!row.is_array()) continue;
        for (const Json& cell : row) {
          const auto rate = NumberOf(&cell);
          if (!rate || *rate <= 0) continue;
          samples.push_back(static_cast<double>(bytes) / (*rate * kGiga));
        }
      }
      if (samples.empty()) continue;
      profile.copies.push_back({.direction = known.direction,
                                .bytes = bytes,
                                .beside_opposite = known.beside_opposite,
                                .time = Summarize({samples}, kResolution)});
    }
  }
  if (profile.copies.empty()) {
    return Unfit(source_name, "has no copies between host and device",
                 "tests host_to_device_memcpy_ce, device_to_host_memcpy_ce "
                 "and their bidirectional ones");
  }
  profile.sources.push_back(std::move(source));
  PW_RETURN_IF_ERROR(CheckProfile(profile, source_name));
  return profile;
}

}  // namespace pipewright
