#include "sim/cli/verbs.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "calibrate/import_benchmarks.h"
#include "calibrate/import_kineto.h"
#include "calibrate/import_silicon.h"
#include "calibrate/kineto_checks.h"
#include "sim/base/error_parts.h"
#include "sim/base/file.h"
#include "sim/base/gzip.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/base/version.h"
#include "sim/cli/common.h"
#include "sim/cost/profile_shape.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

// Far beyond what anybody trains; products of them stay below 2^63.
constexpr int64_t kMostImportedTokens = int64_t{1} << 30;
constexpr int64_t kMostParameters = int64_t{1} << 50;
constexpr int64_t kMostImportedDevices = int64_t{1} << 20;
constexpr int64_t kMostImportedLayers = 100'000;
// --sequence was not given; --layers, --tp, --pp, --ep were not.
constexpr int64_t kOfModel = std::numeric_limits<int64_t>::min();
constexpr int64_t kAsTraced = 0;

struct Import {
  std::vector<std::string> kineto;
  std::vector<std::string> nccl_tests;
  std::vector<std::string> nvbandwidth;
  std::string silicon;
  std::string buffer = "512MiB";
  std::string model;
  std::string device;
  OutputFiles files;
  KinetoOptions options;
  int64_t ep = kAsTraced;

  absl::Status Run();
  absl::Status RunSilicon();
  absl::Status CheckOptions(const ModelSpec& spec) const;
  absl::Status TakeLayers(const ModelSpec& spec);
  absl::StatusOr<std::vector<std::string>> Traces() const;
  absl::StatusOr<Profile> Trace();
  absl::Status Add(absl::StatusOr<Profile> more, Profile* profile) const;
};

// The limit of the reader of profiles, which would otherwise refuse what is
// written.
absl::Status Import::CheckOptions(const ModelSpec& spec) const {
  if (options.type != "bf16" && options.type != "fp8" &&
      options.type != "fp32") {
    return UnknownName("--type", options.type, {"bf16", "fp8", "fp32"});
  }
  const int64_t tp = std::max<int64_t>(1, options.axes.tp);
  const struct {
    const char* flag;
    int64_t value;
    int64_t least;
    int64_t most;
  } numbers[] = {
      {"--microbatch-size", options.microbatch_size, 1, kMostImportedTokens},
      {"--sequence", options.sequence, 1, kMostImportedTokens},
      {"--tp", tp, 1, spec.heads},
      {"--layers", options.layers, kAsTraced, spec.layers},
      {"--parameters", options.parameters, 0, kMostParameters},
      {"--skip", options.skip, 0, kMostImportedTokens}};
  for (const auto& number : numbers) {
    if (number.value >= number.least && number.value <= number.most) continue;
    return BadValue(number.flag, absl::StrCat(number.value),
                    absl::StrCat(number.least, " to ", number.most));
  }
  if (spec.heads % tp != 0) {
    return BadValue(
        "--tp", absl::StrCat(tp),
        absl::StrCat("a divisor of the model's ", spec.heads, " heads"));
  }
  return absl::OkStatus();
}

// A trace has one kind of layers, and does not say which.
absl::Status Import::TakeLayers(const ModelSpec& spec) {
  const std::vector<ProfilePart> parts = LayerPartsOf(spec);
  if (parts.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model: ", spec.name,
        " has dense layers and layers of experts, which a trace does not tell "
        "apart; allowed: models of one kind"));
  }
  options.part = parts[0];
  options.axes.ep = ep;
  if (ep == kAsTraced) ep = 1;
  if (spec.has_experts() ? ep < 1 || spec.experts % ep != 0 : ep != 1) {
    return BadValue("--ep", absl::StrCat(ep),
                    spec.has_experts()
                        ? absl::StrCat("a divisor of the model's ",
                                       spec.experts, " experts")
                        : "1 (the model has no experts)");
  }
  options.ep = spec.has_experts() ? ep : 0;
  return absl::OkStatus();
}

absl::StatusOr<Profile> Import::Trace() {
  if (model.empty()) {
    return MissingValue("--model",
                        "with --kineto, the model that was trained (pipewright "
                        "list models)");
  }
  const absl::StatusOr<ModelSpec> spec = FindModel(model);
  PW_RETURN_IF_ERROR(InField("--model", spec.status()));
  PW_ASSIGN_OR_RETURN(options.model, ProfileModelOf(*spec));
  options.model_layers = spec->layers;
  options.device = device;
  PW_RETURN_IF_ERROR(TakeLayers(*spec));
  if (options.sequence == kOfModel) options.sequence = spec->sequence;
  PW_RETURN_IF_ERROR(CheckOptions(*spec));
  KinetoImport job(options);
  PW_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Traces());
  for (const std::string& path : paths) {
    absl::StatusOr<std::unique_ptr<InputFile>> in = InputFile::Open(path);
    PW_RETURN_IF_ERROR(InField("--kineto", in.status()));
    const absl::Status added = job.Add((*in)->stream(), path);
    // A broken file is also one that does not parse.
    PW_RETURN_IF_ERROR(InField("--kineto", (*in)->status()));
    PW_RETURN_IF_ERROR(added);
  }
  return job.Finish();
}

// Folders stand for the files in them.
absl::StatusOr<std::vector<std::string>> Import::Traces() const {
  std::vector<std::string> paths;
  for (const std::string& path : kineto) {
    if (!IsFolder(path)) {
      paths.push_back(path);
      continue;
    }
    absl::StatusOr<std::vector<std::string>> inside = TracesOfFolder(path);
    PW_RETURN_IF_ERROR(InField("--kineto", inside.status()));
    if (inside->empty()) {
      return BadValue("--kineto", path,
                      "a folder with a .json or .json.gz file of each rank");
    }
    paths.insert(paths.end(), inside->begin(), inside->end());
  }
  return paths;
}

// Programs call one device by different names: --device, or the first name,
// stands for all. Without --device they must be recognisable as one.
absl::Status Import::Add(absl::StatusOr<Profile> more, Profile* profile) const {
  PW_RETURN_IF_ERROR(more.status());
  for (ProfileSource& source : more->sources) {
    source.version = kVersion;
    if (!device.empty()) source.device = device;
    if (!profile->sources.empty()) {
      const std::string& first = profile->sources[0].device;
      if (device.empty() && !first.empty() && !source.device.empty() &&
          !NamesOneDevice(first, source.device)) {
        return BadValue(
            FieldPlace::InFile(source.file, 0, "device"), source.device,
            absl::StrCat("that of ", profile->sources[0].file, ": ", first,
                         " (--device NAME, where both are names of one)"));
      }
      source.device = first.empty() ? source.device : first;
    }
  }
  if (profile->sources.empty()) {
    *profile = *std::move(more);
    return absl::OkStatus();
  }
  PW_ASSIGN_OR_RETURN(*profile, MergeProfiles(*profile, *more));
  return absl::OkStatus();
}

// Tables of kernels are no profile: their times are of single kernels.
absl::Status Import::RunSilicon() {
  PW_RETURN_IF_ERROR(files.Check());
  absl::StatusOr<std::vector<SiliconTable>> tables = ImportSilicon(silicon);
  PW_RETURN_IF_ERROR(InField("--silicon", tables.status()));
  files.Put("-o", SiliconToText(*tables, {"imported"}));
  return files.Write();
}

absl::Status Import::Run() {
  if (!silicon.empty()) return RunSilicon();
  if (kineto.empty() && nccl_tests.empty() && nvbandwidth.empty()) {
    return absl::InvalidArgumentError(
        "nothing to import; allowed: --kineto FILE, --nccl-tests FILE, "
        "--nvbandwidth FILE, --silicon DIR");
  }
  if (!kineto.empty()) {
    PW_ASSIGN_OR_RETURN(const std::vector<std::string> traces, Traces());
    for (const std::string& path : traces) files.Reads("--kineto", path);
  }
  for (const std::string& path : nccl_tests) files.Reads("--nccl-tests", path);
  for (const std::string& path : nvbandwidth) {
    files.Reads("--nvbandwidth", path);
  }
  PW_RETURN_IF_ERROR(files.Check());
  const absl::StatusOr<double> bytes = ParseQuantity(buffer, Unit::kBytes);
  PW_RETURN_IF_ERROR(InField("--buffer", bytes.status()));
  PW_RETURN_IF_ERROR(
      InField("--buffer", CheckAmount(*bytes, buffer, Unit::kBytes)));
  if (*bytes < 1) return BadValue("--buffer", buffer, "at least 1 B");
  Profile profile;
  if (!kineto.empty()) PW_RETURN_IF_ERROR(Add(Trace(), &profile));
  for (const std::string& path : nccl_tests) {
    PW_ASSIGN_OR_RETURN(const std::string text,
                        ReadFile(path, InputKind::kProfile));
    PW_RETURN_IF_ERROR(Add(ImportNcclTests(text, path), &profile));
  }
  for (const std::string& path : nvbandwidth) {
    PW_ASSIGN_OR_RETURN(const std::string text,
                        ReadFile(path, InputKind::kProfile));
    PW_RETURN_IF_ERROR(Add(
        ImportNvbandwidth(text, path, static_cast<int64_t>(*bytes)), &profile));
  }
  for (const ProfileSource& source : profile.sources) {
    PrintWarnings(source.warnings);
  }
  files.Put("-o", WriteProfile(profile));
  return files.Write();
}

}  // namespace

void AddCalibrateImport(CLI::App* calibrate, Action* action) {
  CLI::App* verb = calibrate->add_subcommand(
      "import",
      "Make a profile from a trace of your own run, or from benchmarks");
  auto import = std::make_shared<Import>();
  KinetoOptions& options = import->options;
  options.sequence = kOfModel;
  CLI::Option* const kineto =
      verb->add_option("--kineto", import->kineto,
                       "trace of PyTorch's profiler (export_chrome_trace), or "
                       "a folder with one of each rank; may be repeated");
  verb->add_option("--nccl-tests", import->nccl_tests,
                   "what nccl-tests print, or their file of -J; may be "
                   "repeated");
  CLI::Option* const nvbandwidth =
      verb->add_option("--nvbandwidth", import->nvbandwidth,
                       "output of nvbandwidth, with or without -j; may be "
                       "repeated");
  verb->add_option("--buffer", import->buffer,
                   "bytes of nvbandwidth's buffer (its -b; default: 512MiB)")
      ->needs(nvbandwidth);
  verb->add_option("--silicon", import->silicon,
                   "folder of CSV files of kernel times, alone: -o becomes "
                   "tables for simulate --silicon")
      ->excludes(kineto)
      ->excludes(nvbandwidth);
  // Options that say what the trace is of.
  std::vector<CLI::Option*> of_trace;
  const auto add = [&](const std::string& flag, auto& value,
                       const std::string& help) {
    of_trace.push_back(verb->add_option(flag, value, help));
  };
  add("--model", import->model, "model of the trace");
  verb->add_option("--device", import->device,
                   "the device: a name of list devices, a device file, or "
                   "other words; what the files say is checked against it");
  for (const Region region :
       {Region::kForward, Region::kBackwardInput, Region::kBackwardWeight,
        Region::kBackwardFull, Region::kOptimizer}) {
    add(std::string(RegionFlag(region)),
        options.patterns[static_cast<int>(region)],
        absl::StrCat(
            "regular expression for the names of these regions (default: ",
            DefaultRegionPattern(region), ")"));
  }
  add("--type", options.type, "bf16 (default), fp8, fp32");
  const auto add_integer = [&](const char* flag, int64_t* value, int64_t least,
                               int64_t most, const std::string& help) {
    of_trace.push_back(AddInteger(verb, flag, value, least, most, help));
  };
  add_integer("--microbatch-size", &options.microbatch_size, 1,
              kMostImportedTokens, "samples");
  add_integer("--sequence", &options.sequence, 1, kMostImportedTokens,
              "tokens of a sample (default: the model's)");
  add_integer("--tp", &options.axes.tp, 1, kMostImportedDevices,
              "tensor parallelism of the run (default: as the trace tells, or "
              "1)");
  add_integer("--pp", &options.axes.pp, 1, kMostImportedDevices,
              "stages of the run's pipeline, the ranks of each following each "
              "other; needed with several traces that do not tell it");
  add_integer("--ep", &import->ep, 1, kMostImportedDevices,
              "expert parallelism of the run");
  add_integer(
      "--layers", &options.layers, 1, kMostImportedLayers,
      "layers that one region of a pass goes through: the layers of the rank's "
      "stage, or 1 where each layer has its own region; needed where the trace "
      "does not tell them, checked where it does");
  add("--layer-name", options.layer_name,
      "regular expression for the module class, or the mark, of one layer "
      "(default: common ones, such as TransformerLayer)");
  add_integer("--parameters", &options.parameters, 0, kMostParameters,
              "parameters that one optimizer step updates");
  add_integer("--skip", &options.skip, 0, kMostImportedTokens,
              "leave out this many regions of each kind at the start");
  of_trace.push_back(verb->add_flag(
      "--sum-kernels", options.sum_kernels,
      "take the sum of the kernels instead of first start to last end"));
  of_trace.push_back(
      verb->add_flag("--some-ranks", options.axes.some_ranks,
                     "take several traces though ranks are missing"));
  for (CLI::Option* option : of_trace) option->needs(kineto);
  import->files.AddTo(verb, "-o", "profile to write", FileFormat::kTextProto);
  verb->get_option("-o")->required();
  verb->callback(
      [action, import] { *action = [import] { return import->Run(); }; });
}

}  // namespace pipewright
