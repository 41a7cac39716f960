#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "calibrate/session.h"
#include "execute/transport/calibration_group.h"
#include "kernels/loader.h"
#include "sim/base/error_parts.h"
#include "sim/base/file.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/signal_thread.h"
#include "sim/base/status.h"
#include "sim/cli/bootstrap.h"
#include "sim/cli/progress_bar.h"
#include "sim/cli/verbs.h"
#include "sim/config/flags.h"
#include "sim/config/measured_system.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"
#include "sim/report/calibration_report.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

// What a shell gives for a program that SIGINT has ended.
constexpr int kInterruptedTwice = 130;
// The product of sizes and degrees of one shape stays below 2^63.
constexpr int64_t kMostMicrobatchSize = int64_t{1} << 18;
constexpr int64_t kMostSequence = int64_t{1} << 23;
constexpr int64_t kMostDevices = int64_t{1} << 20;
// For the processes of a job to come, in seconds.
constexpr double kMeet_s = 60;

class Calibration {
 public:
  void AddTo(CLI::App* verb) {
    verb->add_option("--device", device_, "device to measure: cpu, cuda")
        ->type_name("NAME")
        ->capture_default_str();
    verb->add_option(
            "--model", model_,
            "measure the layers of this model (pipewright list models)")
        ->type_name("NAME");
    files_.AddTo(verb, "-o",
                 "the profile to write; PROFILE.partial holds it until the end",
                 FileFormat::kTextProto);
    verb->add_option("--microbatch-sizes", options_.grid.microbatch_sizes,
                     "microbatch sizes (default: 1,2,4)")
        ->check(IntegerCheck("--microbatch-sizes", 1, kMostMicrobatchSize))
        ->delimiter(',')
        ->type_name("N,...");
    verb->add_option("--sequences", options_.grid.sequences,
                     "tokens of a sample (default: the model's and half of it)")
        ->check(IntegerCheck("--sequences", 1, kMostSequence))
        ->delimiter(',')
        ->type_name("N,...");
    verb->add_option("--tp", options_.grid.tps,
                     "degrees of tensor parallelism (default: 1,2)")
        ->check(IntegerCheck("--tp", 1, kMostDevices))
        ->delimiter(',')
        ->type_name("N,...");
    verb->add_option("--ep", options_.grid.eps,
                     "degrees of expert parallelism (default: 1)")
        ->check(IntegerCheck("--ep", 1, kMostDevices))
        ->delimiter(',')
        ->type_name("N,...");
    verb->add_option("--sliced", sliced_,
                     "also measure slices of layers: microbatches of B "
                     "sequences, each cut into N")
        ->delimiter(',')
        ->type_name("B:N,...");
    verb->add_option("--type", options_.type,
                     "fp32, bf16, or fp8 for the linear layers of the layers "
                     "(default: bf16 on a GPU, else fp32)")
        ->type_name("TYPE");
    verb->add_option("--transport", transport_name_,
                     "measure transfers between threads; between the GPUs of "
                     "this process with nccl (default with several GPUs); "
                     "under mpirun between its processes with mpi, or with "
                     "nccl and a GPU each (default with --device cuda, and "
                     "with --bootstrap the only one)")
        ->type_name("NAME");
    bootstrap_.AddTo(verb, "number of this process");
    verb->add_flag("--quick", options_.grid.quick,
                   "measure one shape, few sizes and no interference matrix");
    verb->add_option("--budget", budget_,
                     "wall time for all of it; too little for three rounds of "
                     "everything is refused before the first, 0s takes as "
                     "little as they need (default: 30s, with --quick 8s)")
        ->type_name("TIME");
    verb->add_flag("--resume", resume_,
                   "continue with the PROFILE.partial of an interrupted run");
    verb->add_option("--merge", merge_,
                     "keep the entries of this profile of the same device that "
                     "this run does not measure")
        ->type_name("PROFILE");
    verb->add_flag("--json", json_,
                   "one JSON object about the profile on standard output");
  }

  absl::Status Run();

 private:
  absl::Status PrepareAndMeasure(std::chrono::steady_clock::time_point start);
  absl::Status Prepare();
  absl::StatusOr<std::unique_ptr<ProcessGroup>> Join() const;
  absl::StatusOr<CalibrateResult> Measure();
  std::string Partial() const {
    return absl::StrCat(files_.path("-o"), ".partial");
  }

  std::string device_ = "cpu";
  std::string model_;
  std::string budget_;
  std::string merge_;
  std::string transport_name_;
  Bootstrap bootstrap_;
  std::vector<std::string> sliced_;
  std::unique_ptr<CalibrationGroup> transport_;
  bool resume_ = false;
  bool json_ = false;
  OutputFiles files_;
  CalibrateOptions options_;
  const PwKernels* kernels_ = nullptr;
  std::atomic<bool> interrupted_{false};
};

// All that can be wrong before the first measurement.
absl::Status Calibration::Prepare() {
  if (device_ != "cpu" && device_ != "cuda") {
    return UnknownName("--device", device_, {"cpu", "cuda"});
  }
  if (model_.empty()) {
    return AboutField("--model", absl::InvalidArgumentError(
                                     "--model is missing (pipewright list "
                                     "models; gpt-tiny runs anywhere)"));
  }
  if (!files_.wanted("-o")) {
    return AboutField(
        "-o", absl::InvalidArgumentError("-o is missing: the profile's file"));
  }
  files_.Reads("--merge", merge_);
  files_.AlsoWrites("-o", Partial());
  PW_RETURN_IF_ERROR(files_.Check());
  PW_ASSIGN_OR_RETURN(options_.model, FindModel(model_));
  for (const std::string& text : sliced_) {
    const std::vector<std::string> parts = absl::StrSplit(text, ':');
    int64_t size = 0;
    int64_t slices = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &size) ||
        !absl::SimpleAtoi(parts[1], &slices) || size > kMostMicrobatchSize ||
        slices > kMostSequence) {
      return BadValue("--sliced", text,
                      "BATCH:SLICES, such as 16:8, several with commas");
    }
    options_.grid.sliced.emplace_back(size, slices);
  }
  if (options_.grid.quick) options_.budget_s = 8;
  if (!budget_.empty()) {
    const absl::StatusOr<double> seconds = ParseQuantity(budget_, Unit::kTime);
    PW_RETURN_IF_ERROR(InField("--budget", seconds.status()));
    PW_RETURN_IF_ERROR(
        InField("--budget", CheckAmount(*seconds, budget_, Unit::kTime)));
    options_.budget_s = *seconds;
    options_.refuses = true;
  }
  if (!merge_.empty()) {
    PW_ASSIGN_OR_RETURN(const std::string text,
                        ReadFile(merge_, InputKind::kProfile));
    PW_ASSIGN_OR_RETURN(options_.older, ReadProfile(text, merge_));
  }
  const absl::StatusOr<std::string> partial =
      ReadFile(Partial(), InputKind::kProfile);
  if (resume_) {
    if (!partial.ok()) {
      return absl::NotFoundError(absl::StrCat(
          "--resume: nothing to go on with: ", partial.status().message()));
    }
    PW_ASSIGN_OR_RETURN(options_.done, ReadProfile(*partial, Partial()));
  } else if (partial.ok()) {
    PrintWarnings({absl::StrCat(Partial(),
                                " of an interrupted run is replaced; "
                                "--resume would go on with it")});
  }
  char error[512] = "";
  kernels_ = pw_load_kernels(device_.c_str(), error, sizeof(error));
  if (kernels_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("--device ", device_, ": ", error));
  }
  return absl::OkStatus();
}

absl::StatusOr<CalibrateResult> Calibration::Measure() {
  ProgressBar bar;
  const CalibrateHooks hooks = {
      .stop = [this] { return interrupted_ || transport_->ended(); },
      .progress =
          [&bar](int round, int rounds, const std::string& subject) {
            bar.At(static_cast<double>(round) / rounds,
                   absl::StrCat("round ", round + 1, " of ", rounds, ": ",
                                subject));
          },
      .estimated =
          [&](double minimum_s) {
            bar.Wipe();
            std::fprintf(stderr,
                         "pipewright: at least about %s, for three rounds of "
                         "everything; --budget %s\n",
                         FormatSeconds(minimum_s).c_str(),
                         FormatSeconds(options_.budget_s).c_str());
          },
      .save =
          [this](const Profile& partial) {
            return WriteFile(Partial(), WriteProfile(partial));
          }};
  return Calibrate(kernels_, options_, hooks);
}

// The processes that find each other through a file; null without it.
absl::StatusOr<std::unique_ptr<ProcessGroup>> Calibration::Join() const {
  PW_RETURN_IF_ERROR(bootstrap_.Check());
  if (!bootstrap_.given()) return nullptr;
  if (device_ != "cuda") {
    return BadValue("--bootstrap", absl::StrCat("with --device ", device_),
                    "--device cuda (between processes on CPUs MPI's transfers "
                    "are measured: mpirun)");
  }
  if (!transport_name_.empty() && transport_name_ != kNcclTransport) {
    return BadValue("--transport",
                    absl::StrCat(transport_name_, " with --bootstrap"),
                    kNcclTransport);
  }
  return bootstrap_.Join(kMeet_s);
}

absl::Status Calibration::Run() {
  const auto start = std::chrono::steady_clock::now();
  const SignalThread signals({SIGINT, SIGTERM}, [this](int count) {
    if (count > 1) ::_exit(kInterruptedTwice);
    interrupted_ = true;
  });
  PW_ASSIGN_OR_RETURN(std::unique_ptr<ProcessGroup> job, Join());
  PW_ASSIGN_OR_RETURN(
      transport_,
      CalibrationGroup::Start(transport_name_, device_, std::move(job)));
  absl::Status status =
      transport_->serves() ? transport_->Serve() : PrepareAndMeasure(start);
  // The others may go.
  options_.transports.clear();
  transport_.reset();
  return status;
}

absl::Status Calibration::PrepareAndMeasure(
    std::chrono::steady_clock::time_point start) {
  PW_RETURN_IF_ERROR(Prepare());
  PW_ASSIGN_OR_RETURN(TimedTransports timed,
                      transport_->Transports(kernels_, options_.grid.quick));
  options_.transports = std::move(timed.transports);
  options_.transport_library = std::move(timed.library);
  options_.warnings = std::move(timed.warnings);
  options_.spent_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  PW_ASSIGN_OR_RETURN(CalibrateResult result, Measure());
  if (result.interrupted) {
    PW_RETURN_IF_ERROR(WriteFile(Partial(), WriteProfile(result.profile)));
    return absl::CancelledError(absl::StrFormat(
        "interrupted; %d of %d things are measured and in %s; the same command "
        "with --resume goes on",
        result.series - result.missing, result.series, Partial()));
  }
  if (!result.profile.sources.empty()) {
    PrintWarnings(result.profile.sources.back().warnings);
  }
  Profile profile = std::move(result.profile);
  if (!merge_.empty()) {
    PW_ASSIGN_OR_RETURN(profile, MergeProfiles(options_.older, profile));
  }
  files_.Put("-o", WriteProfile(profile));
  PW_RETURN_IF_ERROR(files_.Write());
  ::unlink(Partial().c_str());
  // On the terminal they already stand beside the text.
  if (!json_ && !profile.sources.empty()) {
    profile.sources.back().warnings.clear();
  }
  return Print(CalibrationReport(profile, json_));
}

// A profile that ships by its name; everything else is a file.
absl::StatusOr<Profile> ReadOne(const std::string& name_or_file) {
  const std::vector<std::string> shipped = ProfileNames();
  if (std::binary_search(shipped.begin(), shipped.end(), name_or_file)) {
    return FindProfile(name_or_file);
  }
  PW_ASSIGN_OR_RETURN(const std::string text,
                      ReadFile(name_or_file, InputKind::kProfile));
  return ReadProfile(text, name_or_file);
}

struct Show {
  std::string file;
  std::string model;
  bool json = false;

  absl::Status Run() const {
    OutputFiles outputs;
    outputs.Reads("PROFILE", file);
    PW_RETURN_IF_ERROR(outputs.Check());
    PW_ASSIGN_OR_RETURN(const Profile profile, ReadOne(file));
    if (model.empty()) return Print(CalibrationReport(profile, json));
    PW_ASSIGN_OR_RETURN(const ModelSpec spec, FindModel(model));
    PW_ASSIGN_OR_RETURN(const std::string report,
                        CalibrationReport(profile, spec, json));
    return Print(report);
  }
};

absl::StatusOr<std::vector<Profile>> ReadAll(
    const std::vector<std::string>& files) {
  std::vector<Profile> profiles;
  for (const std::string& file : files) {
    PW_ASSIGN_OR_RETURN(Profile profile, ReadOne(file));
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

struct Diff {
  std::vector<std::string> files;
  bool json = false;

  absl::Status Run() const {
    OutputFiles outputs;
    for (const std::string& file : files) outputs.Reads("PROFILES", file);
    PW_RETURN_IF_ERROR(outputs.Check());
    PW_ASSIGN_OR_RETURN(const std::vector<Profile> profiles, ReadAll(files));
    return Print(DiffReport(profiles[0], profiles[1], json));
  }
};

struct Coverage {
  std::vector<std::string> files;
  OutputFiles csv;

  absl::Status Run() {
    for (const std::string& file : files) csv.Reads("PROFILES", file);
    PW_RETURN_IF_ERROR(csv.Check());
    PW_ASSIGN_OR_RETURN(const std::vector<Profile> profiles, ReadAll(files));
    if (csv.wanted("--csv")) {
      csv.Put("--csv", CoverageCsv(profiles));
      PW_RETURN_IF_ERROR(csv.Write());
    }
    return Print(CoverageReport(profiles));
  }
};

struct MakeSystem {
  std::string file;
  std::string base;
  OutputFiles files;

  absl::Status Run();
};

absl::Status MakeSystem::Run() {
  if (!files.wanted("-o")) {
    return AboutField(
        "-o", absl::InvalidArgumentError("-o is missing: the system's file"));
  }
  files.Reads("PROFILE", file);
  const bool is_file = IsSystemFile(base);
  if (is_file) files.Reads("--system", base);
  PW_RETURN_IF_ERROR(files.Check());
  PW_ASSIGN_OR_RETURN(const Profile profile, ReadOne(file));
  absl::StatusOr<std::string> text =
      is_file ? ReadFile(base, InputKind::kConfiguration) : SystemText(base);
  PW_RETURN_IF_ERROR(InField("--system", text.status()));
  PW_ASSIGN_OR_RETURN(const MeasuredSystem made,
                      SystemOfProfile(profile, file, *text, base));
  files.Put("-o", made.text);
  PW_RETURN_IF_ERROR(files.Write());
  return Print(made.report);
}

}  // namespace

void AddCalibrate(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "calibrate",
      "Measure kernels, copies and transfers of this machine and write the "
      "profile that costs.profile reads");
  verb->require_subcommand(0, 1);
  auto run = std::make_shared<Calibration>();
  run->AddTo(verb);
  verb->callback([action, run, verb] {
    if (!verb->get_subcommands().empty()) return;
    *action = [run] { return run->Run(); };
  });

  CLI::App* show_verb =
      verb->add_subcommand("show",
                           "Show what a profile contains, how noisy it is, and "
                           "which shapes of a model it lacks");
  auto show = std::make_shared<Show>();
  show_verb->add_option("PROFILE", show->file)->required()->type_name("");
  show_verb
      ->add_option("--model", show->model,
                   "name the shapes that the profile lacks for this model")
      ->type_name("NAME");
  show_verb->add_flag("--json", show->json, "one JSON object");
  show_verb->callback(
      [action, show] { *action = [show] { return show->Run(); }; });

  CLI::App* diff_verb = verb->add_subcommand(
      "diff",
      "Show which times of two profiles differ by more than their noise");
  auto diff = std::make_shared<Diff>();
  diff_verb->add_option("PROFILES", diff->files)
      ->required()
      ->expected(2)
      ->type_name("");
  diff_verb->add_flag("--json", diff->json, "one JSON object");
  diff_verb->callback(
      [action, diff] { *action = [diff] { return diff->Run(); }; });

  CLI::App* coverage_verb = verb->add_subcommand(
      "coverage",
      "Show how often the prediction intervals of profiles contain the medians "
      "of later ones (calibrate/interval_coverage.sh makes twenty)");
  auto coverage = std::make_shared<Coverage>();
  coverage_verb->add_option("PROFILES", coverage->files)
      ->required()
      ->expected(2, 1000)
      ->type_name("");
  coverage->csv.AddTo(coverage_verb, "--csv", "the same table as a CSV file",
                      FileFormat::kCsv);
  coverage_verb->callback(
      [action, coverage] { *action = [coverage] { return coverage->Run(); }; });
  CLI::App* system_verb =
      verb->add_subcommand("system",
                           "Make a system file (--system) from a profile: its "
                           "links as measured, all else from another system");
  auto system = std::make_shared<MakeSystem>();
  system_verb->add_option("PROFILE", system->file)->required()->type_name("");
  system_verb
      ->add_option("--system", system->base,
                   "the system that has what the profile lacks")
      ->required()
      ->type_name("NAME|FILE");
  system->files.AddTo(system_verb, "-o", "the system file to write",
                      FileFormat::kTextProto);
  system_verb->callback(
      [action, system] { *action = [system] { return system->Run(); }; });
  AddCalibrateImport(verb, action);
}

}  // namespace pipewright
