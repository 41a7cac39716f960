// Every kind of entry of a profile, ten times as slow, makes the step of a run
// that is named for it longer by what a count by hand says. The kinds are those
// of the schema (sim/profile/fields.h): a new one fails until a run is named.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/config/prepare.h"
#include "sim/cost/profile_shape.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_interval.h"
#include "sim/profile/fields.h"
#include "sim/profile/profile.h"
#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/run/describe_run.h"
#include "sim/run/simulated_run.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"
#include "tests/support/tiny_profile.h"

namespace pipewright::measured_kinds_test {
namespace {

using testing::Around;

// Says how something was measured or in which type, not what.
bool IsAspect(const std::string& field) {
  return field == "type" || field == "transport";
}

// Kinds: "host_memory_GBps", "copies direction d2h", "splits recompute true".
// An entry is of one kind for each of its fields that is a choice.
class Visitor {
 public:
  virtual ~Visitor() = default;
  // A choice of an entry, with its value, and all that it can be.
  virtual void Chosen(const std::string&, const std::string&,
                      const std::vector<std::string>&) {}
  virtual void Second(double*) {}
  virtual void Other(const char*, double*) {}

  void Count(const char*, int64_t*, int64_t = 0) {}
  void Counts(const char*, std::vector<int64_t>*) {}
  void Text(const char*, std::string*) {}
  void Texts(const char*, std::vector<std::string>*) {}
  void Number(const char* name, double* number, double = 1) {
    Other(name, number);
  }
  void Time(const char*, double* seconds) { Second(seconds); }
  void Times(const char*, std::vector<double>* seconds) {
    for (double& each : *seconds) Second(&each);
  }
  void Flag(const char* name, bool* flag) {
    Chosen(name, *flag ? "true" : "false", {"false", "true"});
  }
  void Choice(const char* name, std::string* value,
              const std::vector<std::string>& all) {
    Chosen(name, *value, all);
  }
  template <class Value, class Name>
  void Enum(const char* name, Value* value, int count, Name name_of) {
    std::vector<std::string> all;
    for (int index = 0; index < count; ++index) {
      all.emplace_back(name_of(static_cast<Value>(index)));
    }
    Chosen(name, std::string(name_of(*value)), all);
  }
  template <class Part>
  void Nested(const char*, Part* part) {
    // What model it is of says nothing of the kind.
    if constexpr (std::is_same_v<Part, Distribution>) {
      profile_fields::Visit(*this, *part);
    }
  }
  template <class Part>
  void Optional(const char* name, Part* part) {
    Nested(name, part);
  }
};

class KindsOfEntry : public Visitor {
 public:
  void Chosen(const std::string& field, const std::string& value,
              const std::vector<std::string>& all) override {
    if (IsAspect(field)) return;
    own.insert(absl::StrCat(field, " ", value));
    for (const std::string& each : all) {
      possible.insert(absl::StrCat(field, " ", each));
    }
  }
  std::set<std::string> own;
  std::set<std::string> possible;
};

// Ten times as slow; of what has no times, ten times as much slower.
class Slow : public Visitor {
 public:
  void Second(double* seconds) override {
    *seconds *= 10;
    ++times;
  }
  void Other(const char*, double* number) override { others.push_back(number); }
  int times = 0;
  std::vector<double*> others;
};

// Lists the kinds of the schema, or slows those of one.
class Profiles {
 public:
  static std::set<std::string> All() {
    Profile profile;
    Profiles io;
    profile_fields::Visit(io, profile);
    return io.kinds_;
  }
  static Profile Slowed(Profile profile, const std::string& kind) {
    Profiles io;
    io.kind_ = kind;
    profile_fields::Visit(io, profile);
    INFO(kind);
    REQUIRE(io.slowed_ > 0);
    return profile;
  }

  template <class Entry>
  void Entries(const char* name, std::vector<Entry>* entries) {
    Entry one;
    KindsOfEntry possible;
    profile_fields::Visit(possible, one);
    for (const std::string& kind : possible.possible) {
      kinds_.insert(absl::StrCat(name, " ", kind));
    }
    if (possible.possible.empty()) kinds_.insert(name);
    for (Entry& entry : *entries) {
      KindsOfEntry is;
      profile_fields::Visit(is, entry);
      bool hit = kind_ == name;
      for (const std::string& own : is.own) {
        hit |= absl::StrCat(name, " ", own) == kind_;
      }
      if (!hit) continue;
      ++slowed_;
      Slow slow;
      profile_fields::Visit(slow, entry);
      for (double* const number : slow.others) {
        if (slow.times == 0) *number *= 10;
      }
    }
  }
  void Number(const char* name, double* number, double = 1) {
    kinds_.insert(name);
    if (kind_ != name) return;
    *number /= 10;
    ++slowed_;
  }
  template <class Part>
  void Repeated(const char*, std::vector<Part>*) {}
  void Flag(const char*, bool*) {}

 private:
  std::string kind_;
  std::set<std::string> kinds_;
  int slowed_ = 0;
};

// Seconds a byte, each another's, and seconds a parameter.
constexpr double kOut = 1e-9;
constexpr double kIn = 2e-9;
// With both busy: together more than one of them alone, and less than two.
constexpr double kOutBeside = 1.5e-9;
constexpr double kInBeside = 2.5e-9;
constexpr double kInside = 1e-11;
constexpr double kThreads = 11e-9;
constexpr double kInNode = 5e-9;
constexpr double kAcross = 7e-9;
constexpr double kReduce = 3e-11;
constexpr double kGather = 5e-11;
constexpr double kScatter = 7e-11;
constexpr double kHostStep = 1e-8;
constexpr double kStep = 5e-10;
constexpr double kPrediction = 6e-9;
constexpr double kHostMemory = 200e9;  // bytes a second
constexpr double kDeviceMemory = 1e12;
// Seconds of a pass of one microbatch: 16 layers, embedding and head.
constexpr double kForward = 16e-3 + 0.1e-3 + 0.2e-3;
constexpr double kInput = 16 * 1.2e-3 + 0.2e-3;
constexpr double kWeight = 16 * 0.9e-3 + 0.1e-3 + 0.2e-3;
// What is beside a pass, and of it the pass.
constexpr double kPassSlower = 1.1;
constexpr double kBesideSlower = 1.2;
// A copy of c seconds beside a pass takes b c, in which the pass does only b c
// / s: it takes b c (1 - 1/s) longer. With both ten times as large, 10.8 c
// more.
constexpr double kMoreBeside = 12 * (1 - 1 / 11.0) - 1.2 * (1 - 1 / 1.1);

// Proportional to the bytes, so straight in logarithms too.
template <class Entry>
void Add(std::vector<Entry>* entries, Entry entry, double seconds_per_byte) {
  for (const int64_t bytes : {int64_t{1000}, int64_t{1000000000000}}) {
    entry.bytes = bytes;
    entry.time = Around(1e6 * seconds_per_byte * static_cast<double>(bytes));
    entries->push_back(entry);
  }
}

void AddTransfer(Profile* profile, const char* operation, const char* transport,
                 int64_t nodes, double seconds_per_byte) {
  Add(&profile->transfers,
      {.operation = operation,
       .transport = transport,
       .ranks = 2,
       .nodes = nodes},
      seconds_per_byte);
}

// Of passes as TinyProfile's, and everything else.
Profile Everything() {
  Profile profile = testing::TinyProfile();
  const auto add_layer = [&](const char* model, ProfilePart part, int64_t ep,
                             ProfilePass pass, double micros) {
    profile.passes.push_back({.model = *ProfileModelOf(*FindModel(model)),
                              .part = part,
                              .pass = pass,
                              .type = "bf16",
                              .microbatch_size = 1,
                              .sequence = 128,
                              .ep = ep,
                              .time = Around(micros)});
  };
  for (const bool experts : {false, true}) {
    const ProfilePart part =
        experts ? ProfilePart::kExpertLayer : ProfilePart::kLayer;
    add_layer("moe-tiny", part, experts, ProfilePass::kForward, 1000);
    add_layer("moe-tiny", part, experts, ProfilePass::kBackwardInput, 1200);
    add_layer("moe-tiny", part, experts, ProfilePass::kBackwardWeight, 900);
    add_layer("moe-tiny", part, experts, ProfilePass::kBackwardFull, 2000);
  }
  for (const ProfilePass pass :
       {ProfilePass::kForward, ProfilePass::kBackwardInput,
        ProfilePass::kBackwardWeight}) {
    add_layer("moe-tiny", ProfilePart::kEmbedding, 0, pass, 100);
    add_layer("moe-tiny", ProfilePart::kHead, 0, pass, 200);
  }
  for (const bool recompute : {false, true}) {
    SplitEntry split = {.model = profile.passes[0].model,
                        .type = "bf16",
                        .microbatch_size = 1,
                        .sequence = 128,
                        .recompute = recompute,
                        // F, (R,) B, W and F, (R,) BW, 2 % longer than apart.
                        .chain = Around(1.02 * (recompute ? 4100 : 3100)),
                        .fused = Around(1.02 * (recompute ? 4000 : 3000))};
    profile.splits.push_back(split);
  }
  profile.kernels = {{.name = "gemm.forward",
                      .shape = {1, 2, 3},
                      .type = "bf16",
                      .time = Around(10)}};
  profile.optimizers = {
      {.where = "device", .parameters = 1000000, .time = Around(1e12 * kStep)},
      {.where = "device",
       .parameters = 1000000,
       .time = Around(1e12 * kPrediction),
       .prediction = true},
      {.where = "host",
       .parameters = 1000000,
       .time = Around(1e12 * kHostStep)}};
  const auto copies = [&](CopyDirection direction, bool beside, double each) {
    Add(&profile.copies, {.direction = direction, .beside_opposite = beside},
        each);
  };
  copies(CopyDirection::kDeviceToHost, false, kOut);
  copies(CopyDirection::kHostToDevice, false, kIn);
  copies(CopyDirection::kDeviceToHost, true, kOutBeside);
  copies(CopyDirection::kHostToDevice, true, kInBeside);
  copies(CopyDirection::kDeviceToDevice, false, kInside);
  profile.transfers.clear();
  AddTransfer(&profile, "send_recv", kThreadsTransport, 1, kThreads);
  AddTransfer(&profile, "send_recv", kNcclTransport, 1, kInNode);
  AddTransfer(&profile, "send_recv", kNcclTransport, 2, kAcross);
  AddTransfer(&profile, "all_reduce", kNcclTransport, 1, kReduce);
  AddTransfer(&profile, "all_gather", kNcclTransport, 1, kGather);
  AddTransfer(&profile, "reduce_scatter", kNcclTransport, 1, kScatter);
  for (const ProfilePass pass :
       {ProfilePass::kForward, ProfilePass::kBackwardInput,
        ProfilePass::kBackwardWeight}) {
    for (int beside = 0; beside < kNumBeside; ++beside) {
      profile.interference.push_back({.pass = pass,
                                      .beside = static_cast<Beside>(beside),
                                      .pass_slowdown = kPassSlower,
                                      .pass_low = kPassSlower,
                                      .pass_high = kPassSlower,
                                      .beside_slowdown = kBesideSlower,
                                      .beside_low = kBesideSlower,
                                      .beside_high = kBesideSlower});
    }
  }
  profile.host_memory_bytes_per_s = kHostMemory;
  profile.device_memory_bytes_per_s = kDeviceMemory;
  return profile;
}

// A file of this test.
std::string Written(const std::string& text, const std::string& name) {
  static const testing::TemporaryFolder folder;
  return folder.Write(name, text);
}

// gpt-tiny on one device: two microbatches, one iteration, no optimizer, and
// nothing slows anything else.
RunConfig OneDevice() {
  RunConfig config;
  config.model.preset = "gpt-tiny";
  config.schedule.name = "1f1b";
  config.strategy.pp = 1;
  config.strategy.microbatches = 2;
  config.strategy.optimizer = OptimizerMode::kNone;
  config.costs.interference = false;
  config.iterations = 1;
  return config;
}

// On nodes of the profile's device.
void OnSystem(RunConfig* config, int devices_per_node = 8) {
  config->system.preset = "dgx-h100";
  config->system.device_name = "toy";
  config->system.devices_per_node = devices_per_node;
  config->system.nics_per_node = devices_per_node;
  config->strategy.dp = 1;
}

// In this order on one device, with copies of the activations.
void InOrder(RunConfig* config, int microbatches, const std::string& order) {
  config->schedule.name.reset();
  config->schedule.file = Written(
      absl::StrCat("pipewright-schedule 1\npp 1 vpp 1 microbatches ",
                   microbatches,
                   " slices 1 replicas 1 placement plain\n0: ", order, "\n"),
      absl::StrCat("order", microbatches, ".txt"));
  config->strategy.microbatches = microbatches;
}

// The states on the host, gradients and weights as copies of 2 bytes.
void StepOnHost(RunConfig* config) {
  OnSystem(config);
  config->strategy.optimizer.reset();
  config->strategy.optimizer_placement = OptimizerPlacement::kZeroOffload;
  config->strategy.gradient_flush = GradientFlush::kAsynchronous;
}

void SuperOffload(RunConfig* config) {
  StepOnHost(config);
  config->strategy.optimizer_placement = OptimizerPlacement::kSuperOffload;
}

void TwoReplicas(RunConfig* config, DataParallel mode) {
  OnSystem(config);
  config->strategy.dp = 2;
  config->strategy.data_parallel = mode;
  config->iterations.reset();
}

// Copies of 1 ms each beside passes of 14 ms and more.
constexpr double kCopy_s = 1e-3;
void BesidePasses(RunConfig* config, int microbatches,
                  const std::string& order) {
  InOrder(config, microbatches, order);
  config->costs.offload_s = config->costs.load_s = kCopy_s;
  config->costs.interference = true;
}
// O0 is beside F1, O1 and L0 are beside F2, L1 is beside B0.
void CopiesBesidePasses(RunConfig* config) {
  BesidePasses(config, 3, "F0 O0 F1 O1 L0 F2 B2 W2 L1 B0 W0 B1 W1");
}

struct Case {
  std::string kind;
  std::function<void(RunConfig*)> set;
  // Seconds that it adds.
  std::function<double(const PreparedRun&)> added;
  // What the profile lacks.
  std::function<void(Profile*)> without = nullptr;
  // Engines: with sharing, where nothing meets, as without.
  bool shares = true;
  bool fast = true;
};

double Parameters(const PreparedRun& run) {
  return run.lower.offload.parameters.at(0);
}

// 9 times what it took, for each time that it is on the longest path.
std::vector<Case> Cases() {
  const auto passes = [](double seconds) {
    return [seconds](const PreparedRun&) { return 9 * 2 * seconds; };
  };
  const auto nothing = [](RunConfig*) {};
  const auto split = [](RunConfig* config) { config->schedule.name = "zb-h1"; };
  const auto recompute = [](RunConfig* config) {
    config->strategy.recompute = Recompute::kFull;
  };
  const auto step = [](RunConfig* config) {
    config->strategy.optimizer.reset();
  };
  // gpt-tiny: a table for the tokens and one for the head, two norms and 12 h^2
  // a layer, the last norm.
  constexpr double kWidth = 256;
  constexpr double kLayer = 12 * kWidth * kWidth;
  constexpr double kParameters = kWidth * (2 * 512 + 2 * 16 + 1) + 16 * kLayer;
  // The larger half of it: the head, and 8 layers.
  constexpr double kHalf = kWidth * (512 + 2 * 8 + 1) + 8 * kLayer;
  const auto steps = [=](double seconds) {
    return [=](const PreparedRun&) { return 9 * kParameters * seconds; };
  };
  const auto prediction = [](RunConfig* config) {
    config->schedule.name = "pipeoptim";
    config->strategy.pp = 2;
    config->strategy.optimizer.reset();
  };
  const auto copied = [](double bytes, double seconds) {
    return [=](const PreparedRun& run) {
      return 9 * bytes * Parameters(run) * seconds;
    };
  };
  // One microbatch goes out and comes back, and nothing else happens.
  const auto there_and_back = [](RunConfig* config) {
    OnSystem(config);
    InOrder(config, 1, "F0 O0 L0 BW0");
  };
  const auto activations = [](double seconds) {
    return [=](const PreparedRun& run) {
      return 9 * run.lower.activation_bytes.at(0) * seconds;
    };
  };
  // F0 of stage 0, a hop, F0 and BW0 of stage 1, a hop, BW0.
  const auto hops = [](int devices_per_node) {
    return [=](RunConfig* config) {
      if (devices_per_node > 0) OnSystem(config, devices_per_node);
      config->strategy.pp = 2;
      config->strategy.microbatches = 1;
    };
  };
  const auto hopped = [](double seconds) {
    return [=](const PreparedRun& run) {
      return 9 * 2 * run.lower.hop_bytes * seconds;
    };
  };
  const auto beside = [](double times) {
    return [=](const PreparedRun&) { return times * kMoreBeside * kCopy_s; };
  };
  std::vector<Case> cases = {
      {"passes pass F", nothing, passes(kForward)},
      {"passes pass BW", nothing, passes(16 * 2e-3)},
      {"passes pass B", split, passes(kInput)},
      {"passes pass W", split, passes(kWeight)},
      {"passes pass R", recompute, passes(16 * 1e-3)},
      {"passes part embedding", nothing, passes(0.2e-3)},
      {"passes part layer", nothing, passes(16 * 3e-3)},
      {"passes part head", nothing, passes(0.6e-3)},
      {"passes part expert-layer",
       [](RunConfig* config) { config->model.preset = "moe-tiny"; },
       passes(15 * 3e-3)},
      {"optimizers where device", step, steps(kStep)},
      {"optimizers prediction false", step, steps(kStep)},
      // Rank 0 predicts before each of its forwards, the next iteration's first
      // one included. They are longer than what rank 1 does meanwhile.
      {"optimizers prediction true", prediction,
       [=](const PreparedRun&) { return 9 * 3 * kHalf * kPrediction; }},
      {"device_memory_GBps", step, steps(30 / kDeviceMemory),
       [](Profile* profile) { profile->optimizers.clear(); }},
      {"optimizers where host", StepOnHost, copied(1, kHostStep)},
      // Without a measured step: 28 bytes of it, 8 of the cast, on half of the
      // memory, as two GPUs of a node were measured.
      {"host_memory_GBps", StepOnHost, copied(28 + 8, 2 / kHostMemory),
       [](Profile* profile) { profile->optimizers.pop_back(); }, true},
      {"copies direction d2h", StepOnHost, copied(2, kOut)},
      {"copies direction h2d", StepOnHost, copied(2, kIn)},
      {"copies beside_opposite false", StepOnHost, copied(2, kOut + kIn)},
      // Two casts, behind the backward and behind the norm.
      {"copies direction d2d", SuperOffload, copied(2 * 3, kInside)},
      {"device_memory_GBps", SuperOffload, copied(2 * 6, 1 / kDeviceMemory),
       [](Profile* profile) {
         profile->copies.resize(profile->copies.size() - 2);
       }},
      {"copies direction d2h", there_and_back, activations(kOut)},
      {"copies direction h2d", there_and_back, activations(kIn)},
      {"transfers operation send_recv", hops(0), hopped(kThreads),
       [](Profile* profile) {
         profile->transfers.erase(profile->transfers.begin() + 2,
                                  profile->transfers.begin() + 6);
       }},
      {"transfers operation send_recv", hops(8), hopped(kInNode)},
      {"transfers operation send_recv", hops(1), hopped(kAcross)},
      {"transfers operation all_reduce",
       [](RunConfig* config) { TwoReplicas(config, DataParallel::kDdp); },
       [](const PreparedRun& run) {
         return 9 * run.lower.gradient_bytes.at(0) * kReduce;
       }},
      {"transfers operation reduce_scatter",
       [](RunConfig* config) { TwoReplicas(config, DataParallel::kZero1); },
       [](const PreparedRun& run) {
         return 9 * run.lower.gradient_bytes.at(0) * kScatter;
       }},
      {"transfers operation all_gather",
       [](RunConfig* config) { TwoReplicas(config, DataParallel::kZero1); },
       [](const PreparedRun& run) {
         return 9 * run.lower.parameter_bytes.at(0) * kGather;
       }},
      {"interference pass F", CopiesBesidePasses, beside(2)},
      {"interference pass B", CopiesBesidePasses, beside(1)},
      {"interference pass W",
       [](RunConfig* config) {
         BesidePasses(config, 2, "F0 O0 F1 B1 L0 W1 B0 W0");
       },
       beside(1)},
      {"interference beside d2h", CopiesBesidePasses, beside(1)},
      {"interference beside h2d", CopiesBesidePasses, beside(1)},
      {"interference beside both", CopiesBesidePasses, beside(1)},
      // The first hop is beside F1 of its sender, and all wait for it. The
      // second one, and the first gradient, are beside passes of rank 1.
      {"interference beside send_recv",
       [](RunConfig* config) {
         config->strategy.pp = 2;
         config->costs.p2p_s = kCopy_s;
         config->costs.interference = true;
       },
       [](const PreparedRun&) {
         return (12 - 1.2) * kCopy_s + 2 * kMoreBeside * kCopy_s;
       }},
      // Of the last chunk, beside the backward of the first one.
      {"interference beside collective",
       [](RunConfig* config) {
         TwoReplicas(config, DataParallel::kDdp);
         config->schedule.name = "interleaved-1f1b";
         config->strategy.vpp = 2;
         config->costs.interference = true;
       },
       [](const PreparedRun& run) {
         return kMoreBeside * run.lower.gradient_bytes.at(1) * kReduce;
       },
       nullptr, /*shares=*/false},
  };
  // Both ways at once, which no engine without sharing knows.
  cases.push_back({"copies beside_opposite true",
                   [](RunConfig* config) {
                     OnSystem(config);
                     InOrder(config, 2, "F0 O0 F1 O1 L0 BW0 L1 BW1");
                   },
                   nullptr, nullptr, true, /*fast=*/false});
  return cases;
}

PreparedRun Prepared(const Profile& profile, const Case& one) {
  RunConfig config = OneDevice();
  config.costs.profile = Written(WriteProfile(profile), "profile.txtpb");
  one.set(&config);
  const absl::StatusOr<PreparedRun> run = Prepare(config);
  INFO(run.status());
  REQUIRE(run.ok());
  return *run;
}

double StepOf(const PreparedRun& run, const std::string& engine) {
  const absl::StatusOr<Program> program = LowerRun(run);
  INFO(program.status());
  REQUIRE(program.ok());
  const absl::StatusOr<RunSummary> summary =
      (*FindEngine(engine))->run(*program, {});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return summary->iteration_s();
}

Profile ProfileOf(const Case& one) {
  Profile profile = Everything();
  if (one.without != nullptr) one.without(&profile);
  return profile;
}

}  // namespace

TEST_CASE("measured kinds: ten times as slow, the step is longer as counted",
          "[config]") {
  for (const Case& one : Cases()) {
    if (one.added == nullptr) continue;
    INFO(one.kind);
    const Profile profile = ProfileOf(one);
    const PreparedRun run = Prepared(profile, one);
    const PreparedRun slow = Prepared(Profiles::Slowed(profile, one.kind), one);
    const double added_s = one.added(run);
    REQUIRE(added_s > 0);
    for (const std::string engine : {"fast", "simgrid"}) {
      INFO(engine);
      if (engine == "simgrid" && !one.shares) continue;
      const double more_s = StepOf(slow, engine) - StepOf(run, engine);
      const double error = engine == "fast" ? 1e-9 : 1e-6;
      CHECK(more_s == Approx(added_s).epsilon(error));
    }
  }
}

// A switch that gives both directions together less than one of them alone is
// one that copies one after the other: sharing allows no more. O1 and L0 begin
// together when O0 has ended. As measured, L0 gets all that it can take; ten
// times slower, it waits for as long as O1 takes alone.
TEST_CASE("measured kinds: copies both ways at once share as measured",
          "[config]") {
  for (const Case& one : Cases()) {
    if (one.added != nullptr) continue;
    INFO(one.kind);
    const Profile profile = ProfileOf(one);
    const PreparedRun run = Prepared(profile, one);
    const PreparedRun slow = Prepared(Profiles::Slowed(profile, one.kind), one);
    const double bytes = run.lower.activation_bytes.at(0);
    const double more_s = StepOf(slow, "simgrid") - StepOf(run, "simgrid");
    CHECK(more_s == Approx(bytes * kOut).epsilon(1e-6));
    // Without sharing each copy is alone.
    CHECK(StepOf(slow, "fast") == Approx(StepOf(run, "fast")).epsilon(1e-12));
  }
}

// They do not change a step but the interval around it: passes of several kinds
// in turn take so much longer than each among its own. Without noise the high
// end is that.
TEST_CASE("measured kinds: splits are the interval's high end", "[config]") {
  for (const bool recompute : {false, true}) {
    INFO(recompute);
    Profile profile = Everything();
    const Case one = {"", [&](RunConfig* config) {
                        if (recompute) {
                          config->strategy.recompute = Recompute::kFull;
                        }
                      }};
    const auto high = [&](const Profile& of) {
      const PreparedRun run = Prepared(of, one);
      const absl::StatusOr<Program> program = LowerRun(run);
      REQUIRE(program.ok());
      const double step_s = StepOf(run, "fast");
      const auto interval = PredictStepOf(run, *program, step_s);
      INFO(interval.status());
      REQUIRE(interval.ok());
      REQUIRE(interval->has_value());
      return (*interval)->high_s / step_s;
    };
    const std::string kind =
        absl::StrCat("splits recompute ", recompute ? "true" : "false");
    CHECK(high(Profiles::Slowed(profile, kind)) - high(profile) ==
          Approx(9 * 1.02).epsilon(0.03));
  }
}

TEST_CASE("measured kinds: every kind of the schema has a run", "[config]") {
  std::set<std::string> named = {"splits recompute false",
                                 "splits recompute true"};
  for (const Case& one : Cases()) named.insert(one.kind);
  std::vector<std::string> missing;
  for (const std::string& kind : Profiles::All()) {
    // Single kernels are for people, and simulate says so.
    if (kind != "kernels" && named.count(kind) == 0) missing.push_back(kind);
  }
  INFO(absl::StrJoin(missing, ", "));
  CHECK(missing.empty());
  for (const std::string& kind : named) {
    INFO(kind);
    CHECK(Profiles::All().count(kind) == 1);
  }
}

TEST_CASE("measured kinds: the report has what was measured and the system's",
          "[config]") {
  Case one = {"", [](RunConfig* config) {
                StepOnHost(config);
                config->strategy.pp = 2;
              }};
  const auto report_of = [&](const Case& of) {
    const PreparedRun run = Prepared(Everything(), of);
    const absl::StatusOr<Program> program = LowerRun(run);
    REQUIRE(program.ok());
    const absl::StatusOr<RunSummary> summary =
        (*FindEngine("fast"))->run(*program, {});
    REQUIRE(summary.ok());
    Report report = Summarize(*program, *summary, {});
    DescribeResults(run, &report);
    return testing::Json::parse(ReportToJson(report))["costs"];
  };
  std::map<std::string, std::pair<double, double>> values;
  const testing::Json costs = report_of(one);
  for (const auto& row : costs["measured"]) {
    values[row["name"].get<std::string>()] = {
        row["measured"].get<double>(),
        row["system"].is_null() ? 0 : row["system"].get<double>()};
  }
  CHECK(values["d2h bandwidth"].first == Approx(1 / kOut));
  CHECK(values["d2h bandwidth"].second == Approx(63e9));
  CHECK(values["h2d bandwidth"].first == Approx(1 / kIn));
  CHECK(values["send_recv in a node bandwidth"].first == Approx(1 / kInNode));
  CHECK(values["send_recv in a node bandwidth"].second == Approx(450e9));
  CHECK(values["host AdamW"].first == Approx(1 / kHostStep));
  // Two GPUs of a node were measured, each has half of its memory.
  CHECK(values["host memory bandwidth"].first == Approx(kHostMemory / 2));
  CHECK(values["host memory bandwidth"].second == Approx(49e9));
  CHECK(values["device AdamW"].second == Approx(25e9));
  CHECK(costs["unused"]["kernels"] == 1);
  // What the configuration says of the system stands.
  Case given = {"", [](RunConfig* config) {
                  StepOnHost(config);
                  config->system.pcie.bytes_per_s = 1e9;
                  config->system.host.adam_rate = 1e9;
                }};
  for (const auto& row : report_of(given)["measured"]) {
    const std::string name = row["name"].get<std::string>();
    CHECK(name != "d2h bandwidth");
    CHECK(name != "host AdamW");
  }
}

TEST_CASE("measured kinds: of another device nothing is taken, and it is said",
          "[config]") {
  const Case one = {"", [](RunConfig* config) {
                      StepOnHost(config);
                      config->strategy.pp = 2;
                      config->system.device_name = "other";
                    }};
  const PreparedRun run = Prepared(Everything(), one);
  CHECK(run.network.measured.empty());
  const std::string warnings = absl::StrJoin(run.warnings, "\n");
  CHECK(warnings.find("its copies are not used: it was measured on another "
                      "device than the system's") != std::string::npos);
  CHECK(warnings.find("its send_recv is not used: it was measured on another "
                      "device than the system's") != std::string::npos);
}

}  // namespace pipewright::measured_kinds_test
