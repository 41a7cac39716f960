// How whole runs answer to changes whose effect is known without computing
// them: over random configurations of models on systems.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/quantity.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/text.h"
#include "sim/topology/registry.h"
#include "tests/support/json.h"
#include "tests/support/random_config.h"
#include "tests/support/random_schedule.h"
#include "tests/support/rounds.h"
#include "tests/support/run_binary.h"

namespace pipewright::metamorphic_test {
namespace {

using testing::AnyConfig;
using testing::ConfigWishes;
using testing::Json;
using testing::RandomConfig;
using testing::Rounds;
using testing::TemporaryFolder;

constexpr double kSame = 1e-9;  // relative

bool SameOrders(const Schedule& one, const Schedule& other) {
  for (int rank = 0; rank < one.pp(); ++rank) {
    if (one.order(rank) != other.order(rank)) return false;
  }
  return true;
}

// Runs configurations until `rounds` of them were legal. All of their kinds
// have to be among them: a test of what nobody asks for shows nothing.
class Legal {
 public:
  explicit Legal(int rounds) : rounds_(rounds) {}
  ~Legal() {
    std::string text;
    for (const auto& [why, times] : refusals_) {
      absl::StrAppend(&text, times, " times ", why, "\n");
    }
    INFO(seen_ << " of " << tried_ << " are legal\n" << text);
    CHECK(2 * seen_ > tried_);
  }
  Legal(const Legal&) = delete;
  Legal& operator=(const Legal&) = delete;

  // The next one that runs.
  std::optional<SimulatedRun> Next(RandomConfig* config,
                                   const ConfigWishes& wishes, uint32_t first,
                                   const SimulateOptions& options = {}) {
    while (seen_ < rounds_ && tried_ < 4 * rounds_) {
      *config = AnyConfig(first + tried_++, wishes);
      config->Set("iterations", "3");
      absl::StatusOr<SimulatedRun> run =
          Simulate(config->config(), &context_, options);
      if (!run.ok()) {
        ++refusals_[std::string(run.status().message())];
        continue;
      }
      ++seen_;
      return *std::move(run);
    }
    return {};
  }
  RunContext* context() { return &context_; }

 private:
  int rounds_;
  int tried_ = 0;
  int seen_ = 0;
  std::map<std::string, int> refusals_;
  RunContext context_;
};

TEST_CASE("metamorphic: random configurations have what few tests ask for",
          "[run]") {
  // Rare kinds need all of them, with sanitizers too.
  Legal legal(300);
  std::map<std::string, int> seen;
  RandomConfig config;
  while (const auto run = legal.Next(&config, {}, 0)) {
    const TrainingSpec& training = run->prepared.prepared_model->training;
    seen["etp below tp"] += training.etp() < training.tp;
    seen["odd vpp"] += run->report.vpp % 2 == 1 && run->report.vpp > 1;
    seen["cp without dp"] += training.cp > 1 && training.dp == 1;
    seen["two predicted layers"] +=
        run->prepared.prepared_model->spec.mtp_layers == 2;
    seen["uneven layers"] += !config.Value("strategy.layers").empty();
    seen["experts apart"] += training.ep > 1;
    seen["several nodes"] +=
        run->prepared.network.system_shape()->nodes > 1 ? 1 : 0;
    seen["copies"] += run->prepared.offload.has_value();
    seen["sharded by layer"] +=
        config.Value("strategy.shard_blocks") == "layer";
    seen["slow"] += run->prepared.slow.has_value();
  }
  CHECK(seen.size() == 10);
  for (const auto& [what, times] : seen) {
    INFO(what);
    CHECK(times > 0);
  }
}

// One class of links, twice as good or better.
std::string Better(const ShapeParams& shape, Random* random,
                   SystemChoice* system) {
  struct Row {
    const char* name;
    const LinkClass& now;
    LinkChoice& choice;
  };
  std::vector<Row> rows;
  if (shape.nvlink.bytes_per_s > 0) {
    rows.push_back({"nvlink", shape.nvlink, system->nvlink});
  }
  if (shape.nic.bytes_per_s > 0) {
    rows.push_back({"nic", shape.nic, system->nic});
  }
  if (shape.pcie.bytes_per_s > 0) {
    rows.push_back({"pcie", shape.pcie, system->pcie});
  }
  const Row& row = rows[random->Int(0, static_cast<int>(rows.size()) - 1)];
  const double factor = random->Int(5, 40) / 4.0;
  if (random->Chance(50)) {
    row.choice.bytes_per_s = row.now.bytes_per_s * factor;
    return absl::StrCat(row.name, " bandwidth times ", factor);
  }
  row.choice.latency_s = row.now.latency_s / factor;
  return absl::StrCat(row.name, " latency over ", factor);
}

TEST_CASE("metamorphic: a better link makes no run slower without contention",
          "[run]") {
  Legal legal(Rounds(400));
  RandomConfig config;
  int compared = 0;
  int faster = 0;
  uint32_t seed = 0;
  while (const auto before = legal.Next(&config, {}, 1000)) {
    // A slow device takes its factor of what exchanges leave of a pass, also
    // where the host hides them (sim/program/slow_devices.h).
    if (before->prepared.slow) continue;
    RunConfig better = config.config();
    Random random(++seed);
    const std::string change = Better(*before->prepared.network.system_shape(),
                                      &random, &better.system);
    INFO(config.about() << "\n" << change);
    const auto after = Simulate(better, legal.context());
    REQUIRE(after.ok());
    if (!SameOrders(before->schedule(), after->schedule())) continue;
    ++compared;
    const auto& ends = before->summary.iteration_end_s;
    for (size_t iteration = 0; iteration < ends.size(); ++iteration) {
      CHECK(after->summary.iteration_end_s[iteration] <=
            ends[iteration] * (1 + kSame));
    }
    faster += after->summary.iteration_end_s.back() < ends.back() * (1 - kSame);
  }
  CHECK(compared > Rounds(400) * 3 / 4);
  CHECK(faster > compared / 4);
}

template <typename Value>
void Times(std::optional<Value>* value, double factor) {
  if (*value) **value = **value * factor;
}

// Twice all rates, half of all times.
RunConfig Doubled(const RunConfig& config, const ShapeParams& shape) {
  RunConfig out = config;
  const auto link = [](const LinkClass& now, LinkChoice* choice) {
    if (now.bytes_per_s <= 0) return;
    choice->bytes_per_s = now.bytes_per_s * 2;
    choice->latency_s = now.latency_s / 2;
  };
  link(shape.nvlink, &out.system.nvlink);
  link(shape.nic, &out.system.nic);
  link(shape.pcie, &out.system.pcie);
  if (shape.host.bytes_per_s > 0) {
    out.system.host.memory_bytes_per_s = 2 * shape.host.bytes_per_s;
  }
  const ShapeInfo* const info = FindShape(shape.shape);
  for (const ShapeParam& param : info->params) {
    const auto given = shape.own.find(param.key);
    if (given == shape.own.end()) continue;
    if (param.kind == ShapeParam::Kind::kBandwidth) {
      out.system.params[param.key] =
          absl::StrFormat("%.17gMBps", 2e-6 * shape.OwnBandwidth(param.key));
    }
    if (param.kind == ShapeParam::Kind::kTime) {
      out.system.params[param.key] =
          absl::StrFormat("%.17gs", shape.OwnSeconds(param.key) / 2);
    }
  }
  Times(&out.costs.forward_s, 0.5);
  Times(&out.costs.backward_input_s, 0.5);
  Times(&out.costs.backward_weight_s, 0.5);
  Times(&out.costs.optimizer_s, 0.5);
  return out;
}

TEST_CASE("metamorphic: twice the rates and half the latencies halve a run",
          "[run]") {
  Legal legal(Rounds(60));
  // Some passes take less than the picosecond that SimGrid's dates are exact
  // to.
  const ConfigWishes wishes = {.engine = "fluid", .given_times = true};
  RandomConfig config;
  int only_network = 0;
  int shared = 0;
  while (const auto before = legal.Next(&config, wishes, 2000)) {
    INFO(config.about());
    const auto after = Simulate(
        Doubled(config.config(), *before->prepared.network.system_shape()),
        legal.context());
    REQUIRE(after.ok());
    REQUIRE(SameOrders(before->schedule(), after->schedule()));
    const auto& ends = before->summary.iteration_end_s;
    for (size_t iteration = 0; iteration < ends.size(); ++iteration) {
      CHECK(2 * after->summary.iteration_end_s[iteration] ==
            Approx(ends[iteration]).epsilon(kSame).margin(1e-15));
    }
    only_network += before->report.busy_s < 1e-6 * ends.back();
    config.Set("engine", "fast");
    const auto alone = Simulate(config.config(), legal.context());
    REQUIRE(alone.ok());
    shared += ends.back() > alone->summary.iteration_end_s.back() * 1.001;
  }
  CHECK(only_network > 0);
  CHECK(shared > 0);
}

TEST_CASE("metamorphic: categories add up to the peak of memory", "[run]") {
  Legal legal(Rounds(200));
  RandomConfig config;
  while (const auto run = legal.Next(&config, {}, 3000)) {
    INFO(config.about());
    const Json report = Json::parse(ReportToJson(run->report));
    const Json ranks = report["memory"]["ranks"];
    REQUIRE(ranks.size() == report["peak_memory_bytes"].size());
    double worst = 0;
    double beside = 0;  // with the context
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const Json row = ranks[rank];
      int64_t sum = 0;
      for (const auto& [kind, bytes] : row["at_peak"].items()) {
        CHECK(bytes.get<int64_t>() >= 0);
        sum += bytes.get<int64_t>();
      }
      CHECK(sum == row["peak_bytes"].get<int64_t>());
      CHECK(sum == report["peak_memory_bytes"][rank].get<int64_t>());
      CHECK(row["needed_bytes"].get<int64_t>() ==
            sum + row["context"].get<int64_t>() +
                row["fragmentation"].get<int64_t>());
      worst = std::max(worst, row["needed_bytes"].get<double>());
      beside = std::max(
          beside, row["context"].get<double>() + static_cast<double>(sum));
      const RankMemory& own = run->memory()->memory->ranks[rank];
      for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
        CHECK(own.at_peak.of[kind] >= own.fixed.of[kind]);
      }
    }
    CHECK(ranks[report["memory"]["worst_rank"].get<int>()]["needed_bytes"] ==
          worst);
    // What the allocator holds beyond its peak it gives back.
    if (report.contains("fits") &&
        !report["memory"].contains("host_limit_bytes")) {
      CHECK(report["fits"].get<bool>() ==
            (beside <= report["memory"]["limit_bytes"].get<double>()));
    }
  }
}

// The same order with other names for its ranks.
Schedule Renamed(const Schedule& schedule, const std::vector<int>& name) {
  Schedule out = schedule;
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    rank_of_stage.push_back(name[schedule.placement.RankOf(stage)]);
  }
  out.placement =
      Placement::FromList(schedule.pp(), std::move(rank_of_stage)).value();
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    out.orders[name[rank]] = schedule.orders[rank];
  }
  return out;
}

std::vector<int> Shuffled(int count, Random* random) {
  std::vector<int> out(count);
  std::iota(out.begin(), out.end(), 0);
  for (int at = count - 1; at > 0; --at) {
    std::swap(out[at], out[random->Int(0, at)]);
  }
  return out;
}

// Within one node all devices are alike.
TEST_CASE("metamorphic: names of ranks change no time and no memory", "[run]") {
  const TemporaryFolder folder;
  Legal legal(Rounds(400));
  RandomConfig config;
  int compared = 0;
  uint32_t seed = 0;
  while (const auto before = legal.Next(&config, {.most_devices = 8}, 4000)) {
    const Schedule& schedule = *before->prepared.schedule.written;
    if (before->prepared.network.system_shape()->nodes > 1 ||
        schedule.directions > 1 || schedule.pp() == 1 || schedule.slices > 1 ||
        before->prepared.slow || before->prepared.offload ||
        schedule.update_every > 0 || !schedule.gaps.empty()) {
      continue;
    }
    Random random(++seed);
    const std::vector<int> name = Shuffled(schedule.pp(), &random);
    RandomConfig renamed;
    for (const ConfigEdit& edit : config.edits) {
      if (edit.path != "schedule.name" && edit.path != "strategy.pp" &&
          edit.path != "strategy.vpp" && edit.path != "strategy.microbatches") {
        renamed.edits.push_back(edit);
      }
    }
    renamed.Set("schedule.file",
                folder.Write(absl::StrCat(seed, ".pws"),
                             ScheduleToText(Renamed(schedule, name))));
    // Which order a file is known as decides on no default below.
    RandomConfig plain = renamed;
    plain.Set("schedule.file", folder.Write(absl::StrCat(seed, "_plain.pws"),
                                            ScheduleToText(schedule)));
    INFO(plain.about() << "\n" << absl::StrJoin(name, " "));
    const auto one = Simulate(plain.config(), legal.context());
    const auto other = Simulate(renamed.config(), legal.context());
    INFO(one.status() << " " << other.status());
    REQUIRE(one.ok());
    REQUIRE(other.ok());
    ++compared;
    CHECK(other->report.iteration_s ==
          Approx(one->report.iteration_s).epsilon(kSame));
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      CAPTURE(rank);
      const RankReport& was = one->report.ranks[rank];
      const RankReport& is = other->report.ranks[name[rank]];
      CHECK(is.busy_s == Approx(was.busy_s).epsilon(kSame));
      CHECK(is.first_start_s ==
            Approx(was.first_start_s).epsilon(kSame).margin(1e-12));
      CHECK(is.last_end_s == Approx(was.last_end_s).epsilon(kSame));
      CHECK(is.peak_activations == Approx(was.peak_activations));
      CHECK(other->memory()->memory->ranks[name[rank]].needed() ==
            one->memory()->memory->ranks[rank].needed());
    }
  }
  CHECK(compared > Rounds(400) / 10);
}

// Nodes are alike, and so are devices of a node where each has a card. Where
// links are shared it matters in which order a ring goes through a node.
TEST_CASE("metamorphic: which of like devices a rank has changes no time",
          "[run]") {
  Legal legal(Rounds(150));
  RandomConfig config;
  int compared = 0;
  int nodes_moved = 0;
  uint32_t seed = 0;
  while (const auto before = legal.Next(
             &config, {.given_times = true, .most_devices = 24}, 5000)) {
    const ShapeParams& shape = *before->prepared.network.system_shape();
    if (shape.shape != "nic-switch" || before->prepared.slow ||
        before->prepared.offload || before->report.tp * before->report.cp > 1) {
      continue;
    }
    Random random(++seed);
    const std::vector<int> node = Shuffled(shape.nodes, &random);
    const std::vector<int> place = Shuffled(shape.devices_per_node, &random);
    std::vector<int> devices;
    std::vector<int> on_nodes;  // at their places in these
    for (int replica = 0; replica < before->report.dp; ++replica) {
      for (const RankReport& rank : before->report.ranks) {
        const int device = rank.devices[replica];
        const int at = device % shape.devices_per_node;
        const int first =
            node[device / shape.devices_per_node] * shape.devices_per_node;
        devices.push_back(first + place[at]);
        on_nodes.push_back(first + at);
      }
    }
    const std::string kShared = "simgrid";
    for (const std::string& engine : {std::string("fast"), kShared}) {
      if (engine == kShared && seed % 4 != 0) continue;
      RandomConfig moved = config;
      moved.Set("engine", engine);
      INFO(moved.about());
      const auto one = Simulate(moved.config(), legal.context());
      moved.Set("strategy.mapping",
                absl::StrJoin(engine == kShared ? on_nodes : devices, ","));
      INFO(moved.Value("strategy.mapping"));
      const auto other = Simulate(moved.config(), legal.context());
      INFO(one.status() << " " << other.status());
      REQUIRE(one.ok());
      REQUIRE(other.ok());
      ++compared;
      nodes_moved += shape.nodes > 1;
      CHECK(other->report.iteration_s ==
            Approx(one->report.iteration_s).epsilon(kSame));
      for (size_t rank = 0; rank < one->report.ranks.size(); ++rank) {
        CHECK(other->report.ranks[rank].last_end_s ==
              Approx(one->report.ranks[rank].last_end_s).epsilon(kSame));
      }
    }
  }
  CHECK(compared > Rounds(150) / 10);
  CHECK(nodes_moved > 0);
}

// Replicas are alike: a slow device is as bad in any of them.
TEST_CASE("metamorphic: a slow device is as slow in any replica", "[run]") {
  Legal legal(Rounds(100));
  RandomConfig config;
  int compared = 0;
  int slower = 0;
  while (const auto before = legal.Next(&config, {.most_devices = 8}, 6000)) {
    const ShapeParams& shape = *before->prepared.network.system_shape();
    if (before->report.dp == 1 || shape.nodes > 1 || before->prepared.slow) {
      continue;
    }
    const int rank = before->report.pp / 2;
    std::vector<double> steps;
    for (int replica = 0; replica < before->report.dp; ++replica) {
      RandomConfig slow = config;
      slow.Set(
          "slow.devices",
          absl::StrCat("node0/gpu", before->report.ranks[rank].devices[replica],
                       "*1.7"));
      INFO(slow.about());
      const auto run = Simulate(slow.config(), legal.context());
      INFO(run.status());
      if (!run.ok()) break;
      steps.push_back(run->report.iteration_s);
      CHECK(steps.back() == Approx(steps.front()).epsilon(kSame));
      CHECK(steps.back() >= before->report.iteration_s * (1 - kSame));
      slower += steps.back() > before->report.iteration_s * 1.01;
      compared += replica > 0;
    }
  }
  CHECK(compared > Rounds(100) / 10);
  CHECK(slower > 0);
}

// The words of a line that begins with `name`.
std::vector<std::string> WordsOf(const std::vector<std::string>& lines,
                                 const std::string& name) {
  for (const std::string& line : lines) {
    if (!absl::StartsWith(line, name)) continue;
    return absl::StrSplit(line.substr(name.size()), ' ', absl::SkipEmpty());
  }
  return {};
}

double Quantity(const std::vector<std::string>& words, Unit unit) {
  if (words.size() < 2) return NAN;
  return ParseQuantity(words[0] + words[1], unit).value_or(NAN);
}

// A number as printed, which has a few digits of `value`.
void CheckPrinted(double printed, double value, double digit) {
  CHECK(std::abs(printed - value) <= digit * 0.501 + std::abs(value) * 5e-4);
}

TEST_CASE("metamorphic: the text of a report has the numbers of its JSON",
          "[run]") {
  Legal legal(Rounds(200));
  RandomConfig config;
  int with_hardware = 0;
  int with_cost = 0;
  while (const auto run = legal.Next(&config, {}, 7000)) {
    INFO(config.about());
    const std::string text = ReportToText(run->report);
    INFO(text);
    const Json json = Json::parse(ReportToJson(run->report));
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    CheckPrinted(Quantity(WordsOf(lines, "iteration time"), Unit::kTime),
                 json["iteration_s"], 0);
    CheckPrinted(Quantity(WordsOf(lines, "busy "), Unit::kTime), json["busy_s"],
                 0);
    CHECK(WordsOf(lines, "passes").at(0) ==
          absl::StrCat(json["ops"].get<int64_t>()));
    CheckPrinted(std::stod(WordsOf(lines, "tokens per s").at(0)),
                 json["tokens_per_s"], 0);
    CheckPrinted(std::stod(WordsOf(lines, "TFLOP/s").at(0)),
                 json["tflops_per_device"], 0.1);
    CheckPrinted(std::stod(WordsOf(lines, "MFU").at(0)) / 100, json["mfu"],
                 1e-4);
    if (json.contains("hardware_tflops_per_device")) {
      ++with_hardware;
      CheckPrinted(std::stod(WordsOf(lines, "hardware").at(0)),
                   json["hardware_tflops_per_device"], 0.1);
    }
    if (json.contains("cost_per_1e9_tokens")) {
      ++with_cost;
      CheckPrinted(std::stod(WordsOf(lines, "cost").at(0)),
                   json["cost_per_1e9_tokens"], 0.01);
    }
    for (const char* kind : {"global", "per rank"}) {
      const auto words = WordsOf(lines, kind);
      REQUIRE(words.size() == 6);
      const std::string key = kind[0] == 'g' ? "global" : "per_rank";
      CheckPrinted(Quantity(words, Unit::kTime), json["span_s"][key], 0);
      CheckPrinted(std::stod(words[2]) / 100, json["bubble_fraction"][key],
                   1e-4);
      CheckPrinted(std::stod(words[4]) / 100, json["bubble_overhead"][key],
                   1e-4);
    }
    if (json["bytes_sent"].get<double>() > 0) {
      CheckPrinted(
          Quantity(WordsOf(lines, "sent between ranks:"), Unit::kBytes),
          json["bytes_sent"], 0);
    }
    // The two tables by rank.
    size_t row = 0;
    while (!absl::StrContains(lines[row], "  busy (")) ++row;
    const std::string unit =
        lines[row].substr(lines[row].find("busy (") + 6, 2);
    const double scale =
        ParseQuantity(absl::StrCat("1", unit[1] == ')' ? "s" : unit),
                      Unit::kTime)
            .value();
    for (const auto& [index, rank] : json["ranks"].items()) {
      const std::vector<std::string> cells =
          absl::StrSplit(lines[++row], ' ', absl::SkipEmpty());
      REQUIRE(cells.size() == 5);
      CHECK(cells[0] == absl::StrCat(rank["rank"].get<int>()));
      CheckPrinted(std::stod(cells[1]), rank["busy_s"].get<double>() / scale,
                   1e-3);
      CheckPrinted(std::stod(cells[2]), rank["span_s"].get<double>() / scale,
                   1e-3);
      CheckPrinted(std::stod(cells[3]), rank["idle_s"].get<double>() / scale,
                   1e-3);
      CheckPrinted(std::stod(cells[4]), rank["peak_activations"], 0);
    }
    while (!absl::StartsWith(lines[row], "memory at the peak")) ++row;
    ++row;
    for (const auto& [index, rank] : json["memory"]["ranks"].items()) {
      const std::vector<std::string> cells =
          absl::StrSplit(lines[++row], ' ', absl::SkipEmpty());
      constexpr double kGiB = 1024.0 * 1024 * 1024;
      CheckPrinted(std::stod(cells.at(1)),
                   rank["peak_bytes"].get<double>() / kGiB, 1e-2);
      // Its columns are the categories that anything is in, in their order.
      size_t column = 1;
      for (const auto& [kind, bytes] : rank["at_peak"].items()) {
        bool is_used = false;
        for (const auto& [at, other] : json["memory"]["ranks"].items()) {
          is_used = is_used || other["at_peak"][kind].get<int64_t>() != 0;
        }
        if (!is_used) continue;
        CheckPrinted(std::stod(cells.at(++column)), bytes.get<double>() / kGiB,
                     1e-2);
      }
    }
    for (const auto& [index, warning] : json["warnings"].items()) {
      CHECK(absl::StrContains(text, "warning: " + warning.get<std::string>()));
    }
  }
  CHECK(with_hardware > 0);
  CHECK(with_cost > 0);
}

}  // namespace
}  // namespace pipewright::metamorphic_test
