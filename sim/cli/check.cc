#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/search/memory_advice.h"
#include "sim/base/error_parts.h"
#include "sim/base/file.h"
#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/check_start.h"
#include "sim/cli/idle_flags.h"
#include "sim/cli/progress_bar.h"
#include "sim/cli/requests.h"
#include "sim/cli/verbs.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare.h"
#include "sim/memory/activations.h"
#include "sim/program/comm_calls.h"
#include "sim/program/posted_steps.h"
#include "sim/report/memory_report.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify_transfers.h"

namespace pipewright {
namespace {

constexpr int kMostRoom = 1 << 16;
// What is done after each part, about, of a file of a million passes.
constexpr double kRead = 0.25;
constexpr double kVerified = 0.45;
constexpr double kEnded = 0.7;
constexpr double kBuffered = 0.9;

struct Check {
  ConfigOptions config;
  ScheduleCheck asked;
  std::vector<CLI::Option*> room_options;
  CLI::Option* semantics = nullptr;
  bool json = false;

  absl::Status Run();
  absl::Status Start();
};

absl::StatusOr<MemoryReport> MemoryOf(const RunConfig& run_config,
                                      PreparedRun run, RunContext* context) {
  if (!run.memory) {
    constexpr char kAllowed[] =
        "with --model, or with a --config that has model.preset, model.hf or "
        "the model's sizes";
    return WithValue(
        FieldError(
            run_config.Field("system.memory"),
            absl::StrCat("the memory of the passes needs a model; allowed: ",
                         kAllowed)),
        "", kAllowed);
  }
  if (!run.memory->fits()) {
    run.memory->changes = AdviseMemory(run, kChangesNamed, context);
  }
  return *std::move(run.memory);
}

int64_t CountPasses(const Schedule& schedule) {
  int64_t passes = 0;
  for (const auto& order : schedule.orders) {
    passes += std::count_if(order->begin(), order->end(), [](Pass pass) {
      return IsComputePass(pass.kind());
    });
  }
  return passes;
}

// How transfers hold each other back.
void AppendSteps(const Json& report, std::string* text) {
  absl::StrAppend(text, "if each pass takes a step and a transfer none: ",
                  report["steps"].get<int64_t>(), " steps, ",
                  report["buffered_steps"].get<int64_t>(),
                  " with buffered transfers\n");
  if (!report.contains("longest_held")) return;
  const Json& held = report["longest_held"];
  absl::StrAppend(text, report["held_sends"].get<int64_t>(),
                  " sends wait for a receive in front of them: rank ",
                  held["rank"].get<int>(), " has ",
                  held["send"].get<std::string>(), " ready ",
                  held["steps"].get<int64_t>(), " steps before ",
                  held["receive"].get<std::string>(), " ends\n");
}

std::string CheckText(const Json& report) {
  std::string text = absl::StrFormat(
      "%s: %s\n", report["file"].get<std::string>(),
      report["valid"].get<bool>()
          ? absl::StrCat("complete, runs to its end with ",
                         report["semantics"].get<std::string>(), " transfers")
      : report.contains("transfers")
          ? absl::StrCat("complete, but deadlocks with ",
                         report["semantics"].get<std::string>(), " transfers")
          : "not legal");
  absl::StrAppend(&text, "pp ", report["pp"].get<int>(), ", vpp ",
                  report["vpp"].get<int>(), ", microbatches ",
                  report["microbatches"].get<int>(), ", slices ",
                  report["slices"].get<int>(), ", ",
                  report["ops"].get<int64_t>(), " passes\n");
  if (report.contains("transfers")) {
    absl::StrAppend(&text, report["transfers"].get<int64_t>(),
                    " transfers between ranks, sends and receives ",
                    report["transfers_from"] == "file" ? "as the file has them"
                    : report["transfers_from"] == "blocking"
                        ? "directly beside their passes"
                    : report["transfers_from"] == "batched"
                        ? "as simulate --waiting batched posts them"
                        : "posted ahead",
                    "\n");
  }
  const Json* const comms = report.find("communicators");
  if (comms != nullptr && report["valid"].get<bool>()) {
    absl::StrAppend(
        &text, "with a communicator for each direction between two ranks (",
        (*comms)["count"].get<int64_t>(), ", at most ",
        (*comms)["most_on_a_rank"].get<int64_t>(),
        " on a rank): no circle with ", (*comms)["queues"].get<int64_t>(),
        " hardware queues and ", (*comms)["resident_kernels"].get<int64_t>(),
        " resident kernels",
        (*comms)["any_order"].get<bool>() ? ", whatever the order of issue\n"
                                          : " in this order of issue\n");
  }
  if (report.contains("steps")) AppendSteps(report, &text);
  if (report.contains("peak_activations")) {
    absl::StrAppend(
        &text, "peak activations by rank: ",
        absl::StrJoin(report["peak_activations"], " ",
                      [](std::string* out, const Json& peak) {
                        absl::StrAppend(out, peak.get<double>());
                      }),
        "\n  ", PeakActivationsNote(report["held_until_weight"].get<double>()),
        "\n");
  }
  if (report.contains("memory_verdict")) {
    absl::StrAppend(
        &text, "memory: ", report["memory_verdict"].get<std::string>(), "\n");
  }
  return text;
}

absl::StatusOr<Semantics> FindSemantics(const std::string& name) {
  std::vector<std::string> known;
  for (const Semantics semantics :
       {Semantics::kBuffered, Semantics::kRendezvous, Semantics::kNccl,
        Semantics::kBatched}) {
    if (name == SemanticsName(semantics)) return semantics;
    known.emplace_back(SemanticsName(semantics));
  }
  return InField("--semantics", UnknownName("value", name, known));
}

void At(ProgressBar* bar, double part, absl::string_view doing) {
  if (bar != nullptr) bar->At(part, doing);
}

// Passes come first: only then can transfers fit.
absl::Status Verify(const ScheduleFile& file, Semantics semantics,
                    const DeviceRoom& room, ProgressBar* bar, Json* report) {
  At(bar, kRead, "passes");
  PW_RETURN_IF_ERROR(VerifyScheduleFile(file));
  At(bar, kVerified, "transfers");
  const bool given = !file.steps.empty();
  const bool batched = !given && semantics == Semantics::kBatched;
  std::vector<StepList> steps = file.steps;
  if (batched) {
    auto posted = PostedSteps(std::make_shared<const Schedule>(file.schedule),
                              WaitRule::kBatched);
    PW_RETURN_IF_ERROR(Prefix("--semantics batched", posted.status()));
    steps = *std::move(posted);
  } else if (!given) {
    steps = DefaultSteps(file.schedule, semantics);
  }
  int64_t transfers = 0;
  for (const StepList& list : steps) {
    transfers += std::count_if(list.begin(), list.end(), [](const Step& step) {
      return step.kind == StepKind::kSend;
    });
  }
  (*report)["transfers"] = transfers;
  (*report)["transfers_from"] = given     ? "file"
                                : batched ? "batched"
                                : semantics == Semantics::kRendezvous
                                    ? "blocking"
                                    : "posted-ahead";
  ProgressFacts facts;
  PW_RETURN_IF_ERROR(CheckProgress(file.schedule, steps, semantics, &facts));
  if (semantics == Semantics::kNccl) {
    const CommCalls calls = CallsOf(file.schedule, steps);
    (*report)["communicators"] = {
        {"count", static_cast<int64_t>(calls.comms.size())},
        {"most_on_a_rank", calls.most_comms},
        {"queues", room.queues},
        {"resident_kernels", room.kernels},
        {"any_order", room.HoldsAll(calls)}};
    PW_RETURN_IF_ERROR(ProveCalls(calls, room));
  }
  At(bar, kEnded, "transfers, buffered");
  (*report)["steps"] = facts.steps;
  (*report)["held_sends"] = facts.held_sends;
  if (facts.held_sends > 0) {
    const ProgressFacts::HeldSend& longest = facts.longest;
    (*report)["longest_held"] = {
        {"rank", longest.rank},
        {"send", StepToString(file.schedule, longest.send)},
        {"receive", StepToString(file.schedule, longest.receive)},
        {"steps", longest.steps}};
  }
  // In batches sends stand later than they could.
  if (batched) steps = DefaultSteps(file.schedule, Semantics::kBuffered);
  PW_RETURN_IF_ERROR(
      CheckProgress(file.schedule, steps, Semantics::kBuffered, &facts));
  (*report)["buffered_steps"] = facts.steps;
  return absl::OkStatus();
}

// Counts what the order holds; the verdict is whether that is within limits.
absl::Status Fit(const std::string& file, const Schedule& schedule,
                 const RunConfig& given, Json* report, absl::Status* verdict) {
  RunContext context;
  std::optional<PreparedRun> run;
  double held = given.costs.held_until_weight.value_or(1);
  if (GivesModel(given.model)) {
    // The file's order with the configuration's model.
    RunConfig run_config = given;
    run_config.schedule.name.reset();
    run_config.schedule.file = file;
    run_config.only_order = true;
    PW_ASSIGN_OR_RETURN(run, Prepare(run_config, &context));
    held = run->lower.costs.held_until_weight;
  }
  const std::vector<double> peaks = PeakActivations(schedule, held);
  (*report)["peak_activations"] = peaks;
  (*report)["held_until_weight"] = held;
  if (const auto& limit = given.strategy.max_activations) {
    const double worst = *std::max_element(peaks.begin(), peaks.end());
    (*report)["max_activations"] = *limit;
    const bool fits = worst <= *limit * (1 + 1e-9);
    (*report)["fits"] = fits;
    if (!fits) {
      *verdict = Prefix(
          given.Field("strategy.max_activations"),
          WithValue(
              absl::ResourceExhaustedError(absl::StrCat(
                  *limit, " is exceeded: the peak of ", file, " is ", worst)),
              absl::StrCat(*limit), absl::StrCat(worst, " or more")));
    }
  }
  if (!verdict->ok() || (!run && !given.system.memory_bytes)) {
    return absl::OkStatus();
  }
  PW_ASSIGN_OR_RETURN(
      const MemoryReport memory,
      MemoryOf(given, run ? *std::move(run) : PreparedRun(), &context));
  (*report)["memory"] = MemoryToJson(memory);
  if (memory.limit_bytes) {
    const Json* const fits = report->find("fits");
    (*report)["fits"] = (fits == nullptr || fits->get<bool>()) && memory.fits();
  }
  const int worst = memory.memory->WorstRank();
  (*report)["memory_verdict"] =
      memory.limit_bytes
          ? MemoryVerdictLine(memory)
          : absl::StrCat("rank ", worst, " needs most, ",
                         FormatBytes(static_cast<double>(
                             memory.memory->ranks[worst].needed())));
  *verdict = MemoryVerdict(memory);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckedSchedule> CheckSchedule(const ScheduleCheck& asked,
                                              const RunConfig& run_config,
                                              ProgressBar* bar) {
  PW_ASSIGN_OR_RETURN(const Semantics rule, FindSemantics(asked.semantics));
  PW_RETURN_IF_ERROR(RefuseClasses(run_config, "check"));
  PW_ASSIGN_OR_RETURN(const std::string text,
                      ReadFile(asked.file, InputKind::kSchedule));
  PW_ASSIGN_OR_RETURN(const ScheduleFile parsed,
                      ParseScheduleFile(text, asked.file));
  const Schedule& schedule = parsed.schedule;
  CheckedSchedule checked;
  checked.warnings = parsed.notes;
  for (std::string& warning : IdleInCheck(run_config, schedule)) {
    checked.warnings.push_back(std::move(warning));
  }
  Json report = {{"file", asked.file},
                 {"schedule", schedule.name},
                 {"pp", schedule.pp()},
                 {"vpp", schedule.vpp()},
                 {"microbatches", schedule.microbatches},
                 {"slices", schedule.slices},
                 {"replicas", schedule.directions},
                 {"ops", CountPasses(schedule)},
                 {"semantics", asked.semantics}};
  if (rule == Semantics::kBatched && schedule.update_every > 0) {
    return BadValue("--semantics", asked.semantics,
                    "buffered, rendezvous, nccl for a schedule that is never "
                    "flushed");
  }
  if (rule != Semantics::kNccl && !asked.room_given.empty()) {
    return BadValue(asked.room_given,
                    absl::StrCat("with --semantics ", asked.semantics),
                    "with --semantics nccl");
  }
  absl::Status& verdict = checked.verdict;
  verdict = Verify(parsed, rule, asked.room, bar, &report);
  report["valid"] = verdict.ok();
  if (verdict.ok()) {
    At(bar, kBuffered, "memory");
    PW_RETURN_IF_ERROR(
        Fit(asked.file, schedule, run_config, &report, &verdict));
  }
  if (bar != nullptr) bar->Wipe();
  if (!verdict.ok()) report["error"] = ErrorToJson(verdict);
  checked.report = std::make_shared<const Json>(std::move(report));
  return checked;
}

namespace {

absl::Status Check::Start() {
  if (!asked.file.empty()) {
    return BothGiven(FieldPlace::FromFlag("", "FILE"), "--from-args");
  }
  if (semantics->count() > 0 &&
      asked.semantics != SemanticsName(Semantics::kNccl)) {
    return BadValue("--semantics", asked.semantics, "nccl with --from-args");
  }
  OutputFiles files;
  absl::StatusOr<RunConfig> read = config.Read(&files);
  if (read.ok()) {
    PW_RETURN_IF_ERROR(files.Check());
    if (read->strategy.max_activations) {
      return BothGiven(read->Field("strategy.max_activations"), "--from-args");
    }
  }
  if (absl::IsNotFound(read.status())) return read.status();
  const CheckedStart checked = CheckStart(config.from_args(), read, asked.room);
  PrintWarnings(checked.warnings);
  PW_RETURN_IF_ERROR(Print(json ? absl::StrCat(checked.report.dump(2), "\n")
                                : StartText(checked.report)));
  return checked.verdict;
}

absl::Status Check::Run() {
  if (!config.from_args().empty()) return Start();
  if (asked.file.empty()) {
    return MissingValue("FILE",
                        "a schedule file, or --from-args with a framework's");
  }
  OutputFiles files;
  PW_ASSIGN_OR_RETURN(const RunConfig run_config, config.Read(&files));
  files.Reads("FILE", asked.file);
  PW_RETURN_IF_ERROR(files.Check());
  for (const CLI::Option* const option : room_options) {
    if (option->count() > 0) asked.room_given = option->get_name();
  }
  ProgressBar bar;
  PW_ASSIGN_OR_RETURN(const CheckedSchedule checked,
                      CheckSchedule(asked, run_config, &bar));
  PrintWarnings(checked.warnings);
  const Json& report = *checked.report;
  PW_RETURN_IF_ERROR(
      Print(json ? absl::StrCat(report.dump(2), "\n") : CheckText(report)));
  return checked.verdict;
}

}  // namespace

void AddCheck(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "check",
      "Prove that a schedule file is complete, ends and fits, or that a "
      "framework would start with its file");
  auto check = std::make_shared<Check>();
  verb->add_option("FILE", check->asked.file,
                   "schedule file: text, JSON or PyTorch's CSV; none with "
                   "--from-args")
      ->type_name("");
  check->config.AddTo(
      verb, ConfigOptions::File::kOption,
      {"--max-activations", "--held-until-weight", "--memory", "--model",
       "--from-args", "--system", "--nodes", "--dp", "--pp"});
  check->semantics =
      verb->add_option(
              "--semantics", check->asked.semantics,
              "which ranks a transfer blocks. buffered: none; rendezvous: "
              "both, "
              "one call after the other; nccl: both, in one batch between two "
              "passes, with receives posted ahead; batched: the same, and a "
              "pass "
              "waits for all batches before it (default: buffered)")
          ->type_name("RULE");
  check->room_options = {
      AddInteger(verb, "--queues", &check->asked.room.queues, 1,
                 DeviceRoom().queues,
                 "with --semantics nccl: hardware queues of a device that "
                 "streams share (CUDA_DEVICE_MAX_CONNECTIONS)"),
      AddInteger(verb, "--resident-kernels", &check->asked.room.kernels, 1,
                 kMostRoom,
                 "with --semantics nccl: kernels that a device runs at a "
                 "time")};
  for (CLI::Option* const option : check->room_options) {
    option->type_name("N")->capture_default_str();
  }
  verb->add_flag("--json", check->json, "one JSON object on standard output");
  verb->callback(
      [action, check] { *action = [check] { return check->Run(); }; });
}

}  // namespace pipewright
