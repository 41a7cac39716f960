// The Python module pipewright._core: calls of the library that __init__.py
// gives names, defaults and types to. Reports are JSON texts, the very ones
// that the command prints; arrays are NumPy's, one record a row.
//
// Threads: each call works on a thread of its own, without the interpreter's
// lock, while the caller looks for signals. Ctrl-C ends a plan between two
// points, runs of an engine at its next sign of progress; what cannot be ended
// early (the planner of a schedule) is waited for.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "sim/analysis/plot/read_points.h"
#include "sim/analysis/search/memory_advice.h"
#include "sim/analysis/search/plan.h"
#include "sim/analysis/sweep/leaves.h"
#include "sim/analysis/sweep/result.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/base/version.h"
#include "sim/cli/common.h"
#include "sim/cli/idle_flags.h"
#include "sim/cli/requests.h"
#include "sim/cli/sweep_verb.h"
#include "sim/config/flags.h"
#include "sim/config/prepare.h"
#include "sim/profile/profile.h"
#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/text.h"
#include "sim/trace/trace.h"

namespace pipewright::python {
namespace {

namespace py = pybind11;
using Clock = std::chrono::steady_clock;
using Pairs = std::vector<std::pair<std::string, std::string>>;
using Texts = std::vector<std::string>;

// How a configuration comes that is a dict; messages do not show it.
constexpr char kDict[] = "<dict>";
constexpr auto kSignalsEvery = std::chrono::milliseconds(50);

// An option as Python spells it: "max_candidates" of "--max-candidates".
std::string KeywordOf(absl::string_view flag) {
  return absl::ConsumePrefix(&flag, "--")
             ? absl::StrReplaceAll(flag, {{"-", "_"}})
             : std::string(flag);
}

// Without the place of a field in a dict, which is one line without a name.
std::string Shown(absl::string_view text) {
  return absl::StrReplaceAll(text, {{absl::StrCat(kDict, ":1: "), ""},
                                    {absl::StrCat(kDict, ": "), ""}});
}
Texts Shown(Texts texts) {
  for (std::string& text : texts) text = Shown(text);
  return texts;
}

// Raises pipewright.Error with the parts that are known.
[[noreturn]] void Raise(const absl::Status& status) {
  ErrorParts parts = PartsOf(status);
  std::string message(absl::StripTrailingAsciiWhitespace(status.message()));
  if (parts.field) parts.field = KeywordOf(*parts.field);
  // "--max-candidates: 0 is not allowed", "--pp: strategy.pp: ...".
  if (absl::StartsWith(message, "--")) {
    const size_t end = std::min(message.find_first_of(" :="), message.size());
    message.replace(0, end, KeywordOf(message.substr(0, end)));
  }
  if (parts.file == kDict) {
    parts.file.reset();
    parts.line.reset();
  }
  message = Shown(message);
  using py::literals::operator""_a;
  const py::object type = py::module_::import("pipewright").attr("Error");
  const py::object error =
      type(message, "file"_a = parts.file, "line"_a = parts.line,
           "field"_a = parts.field, "value"_a = parts.value,
           "allowed"_a = parts.allowed, "exit_code"_a = ExitCode(status));
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

using Stop = std::atomic<bool>;

// Waits until `ready` holds, which is asked under `mutex`, and looks for
// signals meanwhile: one whose handler raises sets `stop`, and what it raised
// is returned once `ready` holds. To be called with the interpreter's lock.
std::optional<py::error_already_set> WaitInterruptibly(
    std::mutex* mutex, std::condition_variable* changed,
    const std::function<bool()>& ready, Stop* stop) {
  std::optional<py::error_already_set> raised;
  while (true) {
    {
      const py::gil_scoped_release unlocked;
      std::unique_lock lock(*mutex);
      if (changed->wait_for(lock, kSignalsEvery, ready)) return raised;
    }
    if (raised || PyErr_CheckSignals() == 0) continue;
    raised.emplace();
    *stop = true;
  }
}

// What `work` returns on its thread. It should end early once its argument is
// true. Raises Error or what the handler of a signal has raised.
template <typename Result>
Result RunUnlocked(
    const std::function<absl::StatusOr<Result>(const Stop&)>& work) {
  Stop stop = false;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  absl::StatusOr<Result> result = absl::InternalError("no result");
  std::thread thread([&] {
    const absl::Status status = WithoutExceptions([&] {
      result = work(stop);
      return absl::OkStatus();
    });
    if (!status.ok()) result = status;
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  const std::optional<py::error_already_set> raised = WaitInterruptibly(
      &mutex, &changed, [&done] { return done; }, &stop);
  thread.join();
  if (raised) throw *raised;
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

// Ends the run that tells it how far it is.
class StoppableProgress : public Progress {
 public:
  explicit StoppableProgress(const Stop* stop) : stop_(*stop) {}
  void At(double /*part*/) override {
    if (stop_) throw std::runtime_error("stopped by a signal");
  }

 private:
  const Stop& stop_;
};

// What says a run: a file or a model ("" for none), a dict as JSON in its
// place, fields by their paths (an empty value clears), and flags by name.
using Given = std::tuple<std::string, std::optional<std::string>, Pairs, Pairs>;

absl::StatusOr<ConfigEdit> EditOfKeyword(const std::string& keyword,
                                         const std::string& value) {
  Texts known;
  for (const ConfigFlag& flag : ConfigFlags()) {
    known.push_back(KeywordOf(flag.flag));
    if (known.back() != keyword) continue;
    // True alone is what the flag without a value is.
    const bool alone = !flag.alone.empty() && value == "true";
    return EditOfFlag(flag, alone ? "" : value);
  }
  return AboutField(keyword, UnknownName("argument", keyword, known));
}

absl::Status Take(const Given& given, ConfigOptions* options) {
  const auto& [file, text, fields, flags] = given;
  std::vector<ConfigEdit> sets;
  for (const auto& [path, value] : fields) {
    PW_ASSIGN_OR_RETURN(ConfigEdit edit,
                        EditOfSet(absl::StrCat(path, "=", value)));
    sets.push_back(std::move(edit));
  }
  std::vector<ConfigEdit> edits;
  for (const auto& [keyword, value] : flags) {
    PW_ASSIGN_OR_RETURN(ConfigEdit edit, EditOfKeyword(keyword, value));
    edits.push_back(std::move(edit));
  }
  options->Give(text ? kDict : file, text, std::move(sets), std::move(edits));
  return absl::OkStatus();
}

absl::StatusOr<RunConfig> Read(const Given& given,
                               std::vector<ConfigEdit> extra = {}) {
  ConfigOptions options;
  PW_RETURN_IF_ERROR(Take(given, &options));
  return options.Read(nullptr, std::move(extra));
}

std::string Simulated(const Given& given) {
  return RunUnlocked<std::string>(
      [&](const Stop& stop) -> absl::StatusOr<std::string> {
        PW_ASSIGN_OR_RETURN(const RunConfig config, Read(given));
        RunContext context;
        StoppableProgress progress(&stop);
        SimulateOptions options = {.progress = &progress, .interval = true};
        options.advise = [&context](const PreparedRun& run) {
          return AdviseMemory(run, kChangesNamed, &context);
        };
        PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                            Simulate(config, &context, options));
        return Shown(ReportToJson(run.report));
      });
}

// A record of the arrays, for an operation of a run or a pass of a schedule.
// Numbers of a pass are -1 where it is of none.
struct Record {
  double start_s = 0;
  double end_s = 0;
  double bytes = 0;
  int32_t rank = 0;
  int32_t position = 0;
  int32_t stage = -1;
  int32_t chunk = -1;
  int32_t microbatch = -1;
  int32_t slice = -1;
  int32_t direction = -1;
  int32_t joint = 0;
  int32_t replica = 0;
  int32_t iteration = 0;
  char32_t kind[16] = {};  // the longest is "reduce-scatter"

  void Take(Pass pass, int stage_of_pass) {
    stage = stage_of_pass;
    chunk = pass.chunk();
    microbatch = pass.microbatch();
    slice = pass.slice();
    direction = pass.direction();
    joint = pass.joint_with_next();
  }
  void SetKind(absl::string_view name) {
    std::copy_n(name.begin(), std::min(name.size(), std::size(kind)), kind);
  }
};
using Records = std::vector<Record>;

// Fields of a record, as numpy.dtype has them.
struct Column {
  const char* name;
  const char* format;
  size_t offset;
};
constexpr Column kColumns[] = {
    {"rank", "<i4", offsetof(Record, rank)},
    {"position", "<i4", offsetof(Record, position)},
    {"kind", "<U16", offsetof(Record, kind)},
    {"stage", "<i4", offsetof(Record, stage)},
    {"chunk", "<i4", offsetof(Record, chunk)},
    {"microbatch", "<i4", offsetof(Record, microbatch)},
    {"slice", "<i4", offsetof(Record, slice)},
    {"direction", "<i4", offsetof(Record, direction)},
    {"joint", "<i4", offsetof(Record, joint)},
    {"start_s", "<f8", offsetof(Record, start_s)},
    {"end_s", "<f8", offsetof(Record, end_s)},
    {"bytes", "<f8", offsetof(Record, bytes)},
    {"replica", "<i4", offsetof(Record, replica)},
    {"iteration", "<i4", offsetof(Record, iteration)}};

py::array ArrayOf(Records records, const std::set<std::string>& left_out) {
  py::list names;
  py::list formats;
  py::list offsets;
  for (const Column& column : kColumns) {
    if (left_out.count(column.name) > 0) continue;
    names.append(column.name);
    formats.append(column.format);
    offsets.append(column.offset);
  }
  const py::dtype type(names, formats, offsets, sizeof(Record));
  auto* const kept = new Records(std::move(records));
  const py::capsule owner(
      kept, [](void* held) { delete static_cast<Records*>(held); });
  return py::array(type, {static_cast<py::ssize_t>(kept->size())},
                   {static_cast<py::ssize_t>(sizeof(Record))}, kept->data(),
                   owner);
}

// All operations, or those of the first iteration and of one replica of each
// class.
class RecordSink : public TraceSink {
 public:
  explicit RecordSink(bool whole) : whole_(whole) {}

  // Error: kInvalidArgument for more than an array should hold.
  absl::Status Admit(const Program& program) {
    first_ = program.FirstReplicas();
    const std::vector<int> replicas = program.ReplicasOfClasses();
    double all = 0;
    for (int index = 0; index < program.num_classes(); ++index) {
      const auto ops = static_cast<double>(program.dp_class(index).num_ops());
      all += whole_ ? ops * replicas[index] * program.iterations : ops;
    }
    if (all <= kMostRecords) return absl::OkStatus();
    return BadValue("timeline", absl::StrCat(all, " operations"),
                    absl::StrCat(kMostRecords,
                                 " (fewer microbatches or replicas, or "
                                 "without whole=True)"));
  }

  void OnOp(const TraceOp& op) override {
    const bool is_wanted =
        whole_ || (op.iteration == 0 && std::find(first_.begin(), first_.end(),
                                                  op.replica) != first_.end());
    if (!is_wanted) return;
    Record record = {.start_s = op.start_s,
                     .end_s = op.end_s,
                     .bytes = op.bytes,
                     .rank = op.rank,
                     .replica = op.replica,
                     .iteration = op.iteration};
    if (op.stage >= 0) record.Take(op.pass, op.stage);
    record.SetKind(op.kind == OpKind::kPass ? PassKindName(op.pass.kind())
                                            : OpKindName(op.kind));
    records_.push_back(record);
  }

  // By rank, then by start.
  Records Sorted() && {
    std::stable_sort(records_.begin(), records_.end(),
                     [](const Record& one, const Record& other) {
                       return std::tie(one.rank, one.start_s) <
                              std::tie(other.rank, other.start_s);
                     });
    return std::move(records_);
  }

 private:
  static constexpr double kMostRecords = 20'000'000;
  const bool whole_;
  std::vector<int> first_;
  Records records_;
};

// The array and the run's warnings.
std::pair<py::array, Texts> Timeline(const Given& given, bool whole) {
  using Made = std::pair<Records, Texts>;
  auto [records, warnings] =
      RunUnlocked<Made>([&](const Stop& stop) -> absl::StatusOr<Made> {
        PW_ASSIGN_OR_RETURN(const RunConfig config, Read(given));
        RunContext context;
        StoppableProgress progress(&stop);
        RecordSink sink(whole);
        SimulateOptions options = {.trace = &sink, .progress = &progress};
        options.admit = [&](const PreparedRun&, const Program& program) {
          return sink.Admit(program);
        };
        PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                            Simulate(config, &context, options));
        return Made(std::move(sink).Sorted(), Shown(run.warnings()));
      });
  return {ArrayOf(std::move(records), {"position", "joint"}),
          std::move(warnings)};
}

// In the order of each rank.
Records RecordsOf(const Schedule& schedule) {
  Records records;
  records.reserve(static_cast<size_t>(schedule.num_passes()));
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    int position = 0;
    for (const Pass pass : schedule.order(rank)) {
      Record record = {.rank = rank, .position = position++};
      record.Take(pass, schedule.placement.StageOf(rank, pass.chunk(),
                                                   pass.direction()));
      record.SetKind(PassKindName(pass.kind()));
      records.push_back(record);
    }
  }
  return records;
}

// The JSON form of the order, its passes, warnings.
std::tuple<std::string, py::array, Texts> Ordered(const std::string& name,
                                                  const Given& given) {
  using Made = std::tuple<std::string, Records, Texts>;
  auto [json, records, warnings] =
      RunUnlocked<Made>([&](const Stop&) -> absl::StatusOr<Made> {
        std::vector<ConfigEdit> extra;
        if (!name.empty()) {
          const bool is_file = IsScheduleFile(name);
          extra.push_back(
              {is_file ? "schedule.file" : "schedule.name", name, "schedule"});
        }
        PW_ASSIGN_OR_RETURN(RunConfig config, Read(given, std::move(extra)));
        config.only_order = true;
        PW_RETURN_IF_ERROR(RefuseClasses(config, "schedule"));
        PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(config));
        PW_RETURN_IF_ERROR(run.limit());
        const Schedule& schedule = *run.schedule.written;
        return Made(ScheduleToJson(schedule), RecordsOf(schedule),
                    Shown(IdleInSchedule(config, run)));
      });
  return {std::move(json),
          ArrayOf(std::move(records),
                  {"start_s", "end_s", "bytes", "replica", "iteration"}),
          std::move(warnings)};
}

std::pair<std::string, Texts> Checked(const std::string& file,
                                      const std::string& semantics,
                                      std::optional<int> queues,
                                      std::optional<int> kernels,
                                      const Given& given) {
  using Made = std::pair<std::string, Texts>;
  return RunUnlocked<Made>([&](const Stop&) -> absl::StatusOr<Made> {
    ScheduleCheck asked = {.file = file, .semantics = semantics};
    for (const auto& [name, number, target] :
         {std::tuple("--queues", queues, &asked.room.queues),
          std::tuple("--resident-kernels", kernels, &asked.room.kernels)}) {
      if (!number) continue;
      if (*number < 1) {
        return BadValue(name, absl::StrCat(*number), "an integer from 1 on");
      }
      *target = *number;
      asked.room_given = name;
    }
    PW_ASSIGN_OR_RETURN(const RunConfig config, Read(given));
    PW_ASSIGN_OR_RETURN(CheckedSchedule checked, CheckSchedule(asked, config));
    return Made(checked.report->dump(), Shown(std::move(checked.warnings)));
  });
}

int Workers(std::optional<int> workers) {
  return workers ? *workers
                 : static_cast<int>(
                       std::max(1U, std::thread::hardware_concurrency()));
}

std::string Planned(const Given& given, const Texts& fixed,
                    const std::string& objective, std::optional<int> workers,
                    std::optional<int> confirm, int top,
                    const std::string& time, int64_t most_candidates,
                    int refined) {
  return RunUnlocked<std::string>(
      [&](const Stop& stop) -> absl::StatusOr<std::string> {
        PW_ASSIGN_OR_RETURN(RunConfig base, Read(given));
        PW_ASSIGN_OR_RETURN(const PlanRequest request,
                            PlanRequestOf(std::move(base), fixed, objective));
        PW_ASSIGN_OR_RETURN(const double most_s, PlanSeconds(time));
        const Clock::time_point begin = Clock::now();
        PlanOptions options;
        options.workers = Workers(workers);
        options.confirm = confirm != 0;
        if (confirm) options.most_confirmed = std::max(0, *confirm);
        options.top = top;
        options.most_tried = most_candidates;
        options.refined = std::max(0, refined);
        options.stops = [&] {
          if (stop) return PlanCut::kSignal;
          const std::chrono::duration<double> passed = Clock::now() - begin;
          return most_s > 0 && passed.count() >= most_s ? PlanCut::kTime
                                                        : PlanCut::kNone;
        };
        RunContext context;
        PW_ASSIGN_OR_RETURN(PlanOutcome outcome,
                            MakePlan(request, options, &context));
        for (PlanRefined& each : outcome.refined) {
          each.command = SimulateCommand(ToString(each.config), {});
        }
        const absl::Status verdict = PlanVerdict(outcome);
        if (verdict.code() == absl::StatusCode::kInvalidArgument) {
          return verdict;
        }
        return Shown(PlanToJson(outcome));
      });
}

// The points of a grid in its order, each as the JSON of its row. Threads work
// ahead of whoever asks, by a limited number of points.
class Sweep {
 public:
  Sweep(const Given& given, const Texts& axes, const Texts& filters,
        int64_t seeds, std::optional<int> workers) {
    warnings_ = RunUnlocked<Texts>([&](const Stop&) -> absl::StatusOr<Texts> {
      SweepVerb verb;
      PW_RETURN_IF_ERROR(Take(given, &verb.config));
      verb.axes = axes;
      verb.filters = filters;
      verb.seeds = seeds;
      verb.database.clear();
      absl::StatusOr<SweepPoints> points = verb.ReadPoints(&context_);
      PW_RETURN_IF_ERROR(points.status());
      points_ = std::make_unique<SweepPoints>(*std::move(points));
      GridWalk first(&points_->grid(), points_->base());
      if (!first.Next()) {
        return FieldError("filters",
                          "no point is left; allowed: filters that keep "
                          "some");
      }
      return Shown(SweepVerb::WarningsOf(*points_));
    });
    walk_ = std::make_unique<GridWalk>(&points_->grid(), points_->base());
    // SimGrid's runs are child processes: one at a time.
    const int count =
        SweepVerb::NeedsNoSimgrid(*points_) ? Workers(workers) : 1;
    ahead_ = 4 * count;
    for (int index = 0; index < count; ++index) {
      threads_.emplace_back([this] { Work(); });
    }
  }
  ~Sweep() {
    const py::gil_scoped_release unlocked;
    Close();
  }
  Sweep(const Sweep&) = delete;

  const Texts& warnings() const { return warnings_; }

  std::string Next() {
    std::optional<std::string> row;
    const auto takes = [&] {
      const auto found = rows_.find(next_);
      if (found == rows_.end()) return stop_ || IsOver();
      row = std::move(found->second);
      rows_.erase(found);
      ++next_;
      return true;
    };
    const std::optional<py::error_already_set> raised =
        WaitInterruptibly(&mutex_, &finished_, takes, &stop_);
    room_.notify_all();
    if (raised) throw *raised;
    if (row) return *std::move(row);
    if (!failed_.ok()) Raise(failed_);
    throw py::stop_iteration();
  }

 private:
  // No row is to come.
  bool IsOver() const { return walked_ && next_ == given_; }

  void Close() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void Work() {
    while (true) {
      SweepChoices choices;
      int64_t number = 0;
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [this] {
          return stop_ || walked_ || given_ < next_ + ahead_;
        });
        if (stop_ || walked_) return;
        if (!walk_->Next()) {
          walked_ = true;
          finished_.notify_all();
          room_.notify_all();
          return;
        }
        choices = walk_->choices();
        number = given_++;
      }
      std::string row;
      const absl::Status status = WithoutExceptions([&] {
        row = RowOfPoint(choices);
        return absl::OkStatus();
      });
      const std::lock_guard lock(mutex_);
      if (status.ok()) {
        rows_[number] = std::move(row);
      } else {
        failed_ = status;
        stop_ = true;
      }
      finished_.notify_all();
    }
  }

  std::string RowOfPoint(const SweepChoices& choices) {
    StoppableProgress progress(&stop_);
    const PointResult result =
        EvaluatePoint(*points_, choices, &context_, &progress);
    const Json report = result.shape.empty()
                            ? Json()
                            : JoinTree(ParseJson(result.shape).value(),
                                       ParseJson(result.leaves).value());
    const Json row = {
        {"status", NameOf(result.status)},
        {"exit", result.exit},
        {"reason", result.reason.empty() ? Json() : Json(result.reason)},
        {"engine", result.engine},
        {"axes", ParseJson(result.axes).value()},
        {"report", report}};
    return Shown(row.dump());
  }

  RunContext context_;
  std::unique_ptr<const SweepPoints> points_;
  Texts warnings_;
  int64_t ahead_ = 1;

  std::mutex mutex_;  // of all below
  std::condition_variable finished_;
  std::condition_variable room_;
  std::unique_ptr<GridWalk> walk_;
  bool walked_ = false;
  Stop stop_ = false;
  int64_t given_ = 0;  // to threads
  int64_t next_ = 0;   // to be asked for
  std::map<int64_t, std::string> rows_;
  absl::Status failed_;  // a thread
  std::vector<std::thread> threads_;
};

std::string ProfileText(const std::string& name) {
  return RunUnlocked<std::string>(
      [&](const Stop&) -> absl::StatusOr<std::string> {
        PW_ASSIGN_OR_RETURN(const Profile profile, FindProfile(name));
        return ProfileToJson(profile).dump();
      });
}

Texts Keywords() {
  Texts names;
  for (const ConfigFlag& flag : ConfigFlags()) {
    names.push_back(KeywordOf(flag.flag));
  }
  return names;
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.attr("version") = pipewright::kVersion;
  module.def("keywords", &Keywords);
  module.def("simulate", &Simulated);
  module.def("timeline", &Timeline);
  module.def("schedule", &Ordered);
  module.def("check", &Checked);
  module.def("plan", &Planned);
  module.def("load_profile", &ProfileText);
  py::class_<Sweep>(module, "Sweep")
      .def(py::init<const Given&, const Texts&, const Texts&, int64_t,
                    std::optional<int>>())
      .def_property_readonly("warnings", &Sweep::warnings)
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Sweep::Next);
}

}  // namespace pipewright::python
