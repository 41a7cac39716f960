#include "tests/support/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"

namespace pipewright::testing {
namespace {

FakeNcclWorld* world = nullptr;
thread_local std::string last_error;
// Between begin_group and end_group.
thread_local int group_depth = 0;

struct Call {
  std::string kind;  // "mark" for marks, "clock"
  const void* from = nullptr;
  void* into = nullptr;
  size_t count = 0;  // bytes or values
  int peer = 0;      // or root, or which end of the clock
};

// What a member has on its stream: calls of one group are one operation.
using Operation = std::vector<Call>;

}  // namespace

struct FakeNcclWorld::Instance {
  int index = 0;
  std::vector<PwNcclComm*> members;
  int calls = 0;
  bool failed = false;
};

}  // namespace pipewright::testing

// The name that the interface has for it.
struct PwNcclComm {
  std::shared_ptr<pipewright::testing::FakeNcclWorld::Instance> instance;
  int self = 0;
  int goes_on = 0;
  pipewright::testing::Operation group;
  std::deque<pipewright::testing::Operation> stream;
  int64_t reached = 0;
  double now_s = 0;  // on the stream
  double clocks_s[2] = {};
};

namespace pipewright::testing {

struct FakeCalls {
  static thread_local PwNcclComm* grouped;

  static int Fail(std::string text) {
    last_error = std::move(text);
    return -1;
  }
  static void Violate(const std::string& text) {
    world->violations.push_back(text);
  }

  static int MakeId(PwNcclId* id) {
    std::lock_guard lock(world->mutex_);
    std::memset(id, 0, sizeof(*id));
    const std::string name = absl::StrCat("id ", world->ids_++);
    std::memcpy(id->bytes, name.data(), name.size());
    return 0;
  }

  static int Join(int, const PwNcclId* id, int members, int self,
                  PwNcclComm** comm) {
    std::lock_guard lock(world->mutex_);
    std::shared_ptr<FakeNcclWorld::Instance>& instance =
        world->instances_[id->bytes];
    if (instance == nullptr) {
      instance = std::make_shared<FakeNcclWorld::Instance>();
      instance->index = std::atoi(id->bytes + 3);
      instance->members.resize(members);
    }
    if (static_cast<int>(instance->members.size()) != members ||
        instance->members[self] != nullptr) {
      Violate("join: members do not agree");
    }
    *comm = new PwNcclComm;
    (*comm)->instance = instance;
    (*comm)->self = self;
    (*comm)->goes_on = world->calls_go_on;
    instance->members[self] = *comm;
    ++world->made;
    return 0;
  }

  static bool Joined(const PwNcclComm& comm) {
    for (const PwNcclComm* const member : comm.instance->members) {
      if (member == nullptr) return false;
    }
    return true;
  }

  static int State(PwNcclComm* comm) {
    std::lock_guard lock(world->mutex_);
    if (comm->instance->failed) return Fail("fake: remote error");
    if (comm->goes_on > 0) {
      // Joining ends when all have come.
      if (comm->goes_on > 1 || Joined(*comm)) --comm->goes_on;
      return 1;
    }
    return 0;
  }

  static int BeginGroup() {
    if (group_depth++ > 0) Violate("begin_group twice");
    return 0;
  }
  static int EndGroup() {
    std::lock_guard lock(world->mutex_);
    if (--group_depth != 0) Violate("end_group without begin_group");
    PwNcclComm* const comm = grouped;
    grouped = nullptr;
    if (comm == nullptr) return 0;
    comm->stream.push_back(std::move(comm->group));
    comm->group.clear();
    comm->goes_on = world->calls_go_on;
    Run(*comm);
    return 0;
  }

  // No work of the library's.
  static bool OfStream(const Call& call) {
    return call.kind == "mark" || call.kind == "clock";
  }

  static int Add(PwNcclComm* comm, Call call) {
    std::lock_guard lock(world->mutex_);
    FakeNcclWorld::Instance& instance = *comm->instance;
    if (comm->goes_on > 0 && call.kind != "copy") {
      Violate(absl::StrCat(call.kind, " while a call goes on"));
    }
    if (call.count == 0 && !OfStream(call)) {
      Violate(absl::StrCat(call.kind, " of nothing"));
    }
    if (comm->self == world->fails_alone && !OfStream(call)) {
      return Fail("fake: only this one fails");
    }
    if (comm->self == world->never_comes && !OfStream(call)) return 0;
    if (instance.index == world->fails && !OfStream(call) &&
        instance.calls++ >= world->fails_after) {
      instance.failed = true;
      return Fail("fake: the call fails");
    }
    if (group_depth > 0) {
      comm->group.push_back(std::move(call));
      grouped = comm;
      return 0;
    }
    if (!OfStream(call) && call.kind != "copy") {
      comm->goes_on = world->calls_go_on;
    }
    comm->stream.push_back({std::move(call)});
    Run(*comm);
    return 0;
  }

  // All that can run on the communicator that `comm` is of.
  static void Run(PwNcclComm& comm) {
    if (comm.instance->index == world->hangs) return;
    bool progress = true;
    while (progress) {
      progress = false;
      for (PwNcclComm* const member : comm.instance->members) {
        if (member == nullptr) continue;
        while (!member->stream.empty() && RunAlone(*member)) progress = true;
      }
      progress = RunTogether(*comm.instance) || progress;
    }
  }

  static bool RunAlone(PwNcclComm& comm) {
    const Call& call = comm.stream.front()[0];
    if (call.kind == "mark") {
      ++comm.reached;
    } else if (call.kind == "clock") {
      comm.clocks_s[call.peer] = comm.now_s;
    } else if (call.kind == "copy") {
      std::memcpy(call.into, call.from, call.count);
    } else {
      return false;
    }
    comm.stream.pop_front();
    return true;
  }

  static bool RunTogether(FakeNcclWorld::Instance& instance) {
    std::vector<Operation> all;
    for (PwNcclComm* const member : instance.members) {
      if (member == nullptr || member->stream.empty()) return false;
      all.push_back(member->stream.front());
    }
    const std::string& kind = all[0][0].kind;
    if (kind == "send" || kind == "receive") {
      Transfer(all);
    } else {
      for (size_t index = 0; index < all[0].size(); ++index) {
        std::vector<Call> calls;
        for (const Operation& each : all) {
          if (each.size() != all[0].size()) {
            Violate("groups of different lengths");
            return false;
          }
          calls.push_back(each[index]);
        }
        Collect(calls);
      }
    }
    ++world->ran[all[0].size() > 1 ? absl::StrCat("group of ", kind) : kind];
    PassTime(instance, all[0][0]);
    for (PwNcclComm* const member : instance.members) {
      member->stream.pop_front();
    }
    return true;
  }

  // All begin when the last has come, and end together.
  static void PassTime(FakeNcclWorld::Instance& instance, const Call& call) {
    if (!world->seconds) return;
    const size_t members = instance.members.size();
    const bool transfers = call.kind == "send" || call.kind == "receive";
    const bool shards =
        call.kind == "all_gather" || call.kind == "reduce_scatter";
    const size_t bytes =
        transfers ? call.count : call.count * 4 * (shards ? members : 1);
    double end_s = 0;
    for (const PwNcclComm* const member : instance.members) {
      end_s = std::max(end_s, member->now_s);
    }
    end_s += world->seconds(transfers ? "send" : call.kind, bytes, members);
    for (PwNcclComm* const member : instance.members) member->now_s = end_s;
  }

  static void Transfer(const std::vector<Operation>& all) {
    const bool forth = all[0][0].kind == "send";
    const Call& sent = all[forth ? 0 : 1][0];
    const Call& taken = all[forth ? 1 : 0][0];
    if (sent.kind != "send" || taken.kind != "receive" ||
        sent.peer != (forth ? 1 : 0) || taken.peer != (forth ? 0 : 1) ||
        sent.count != taken.count) {
      Violate(absl::StrCat(sent.kind, " of ", sent.count, " meets ", taken.kind,
                           " of ", taken.count));
      return;
    }
    std::memcpy(taken.into, sent.from, sent.count);
  }

  static void Collect(const std::vector<Call>& calls) {
    const size_t count = calls[0].count;
    for (const Call& call : calls) {
      if (call.kind != calls[0].kind || call.count != count ||
          call.peer != calls[0].peer) {
        Violate(absl::StrCat(calls[0].kind, " meets ", call.kind));
        return;
      }
    }
    const std::string& kind = calls[0].kind;
    const size_t members = calls.size();
    const bool sums =
        kind == "all_reduce" || kind == "reduce_scatter" || kind == "reduce";
    const size_t whole = kind == "reduce_scatter" ? count * members : count;
    std::vector<float> result;
    if (sums) {
      // In the order of the members, as the transports without NCCL add up.
      result.assign(static_cast<const float*>(calls[0].from),
                    static_cast<const float*>(calls[0].from) + whole);
      for (size_t member = 1; member < members; ++member) {
        const auto* const from = static_cast<const float*>(calls[member].from);
        for (size_t index = 0; index < whole; ++index) {
          result[index] += from[index];
        }
      }
    } else if (kind == "broadcast") {
      const auto* const from =
          static_cast<const float*>(calls[calls[0].peer].from);
      result.assign(from, from + count);
    } else {
      for (const Call& call : calls) {
        const auto* const from = static_cast<const float*>(call.from);
        result.insert(result.end(), from, from + count);
      }
    }
    for (size_t member = 0; member < members; ++member) {
      if (kind == "reduce" && static_cast<int>(member) != calls[0].peer) {
        continue;
      }
      const size_t skip = kind == "reduce_scatter" ? member * count : 0;
      const size_t taken = kind == "reduce_scatter" ? count : result.size();
      std::memcpy(calls[member].into, result.data() + skip, taken * 4);
    }
  }

  static int64_t Reached(PwNcclComm* comm) {
    std::lock_guard lock(world->mutex_);
    return comm->reached;
  }

  static int Elapsed(PwNcclComm* comm, double* seconds) {
    std::lock_guard lock(world->mutex_);
    if (comm->reached == 0 || comm->clocks_s[1] < comm->clocks_s[0]) {
      Violate("elapsed before its clocks");
    }
    *seconds = comm->clocks_s[1] - comm->clocks_s[0];
    return 0;
  }

  static void End(PwNcclComm* comm, bool aborts) {
    std::lock_guard lock(world->mutex_);
    ++(aborts ? world->aborted : world->left);
    if (!aborts && !comm->stream.empty()) Violate("leave with work under way");
    if (aborts) comm->instance->failed = true;
    comm->instance->members[comm->self] = nullptr;
    delete comm;
  }
};

thread_local PwNcclComm* FakeCalls::grouped = nullptr;

FakeNcclWorld::FakeNcclWorld() { world = this; }
FakeNcclWorld::~FakeNcclWorld() { world = nullptr; }

const PwNccl* FakeNccl() {
  using Comm = PwNcclComm*;
  static const PwNccl table = {
      .abi = PW_NCCL_ABI,
      .device_count = [] { return world->devices; },
      .version = [] { return 22809; },
      .make_id = FakeCalls::MakeId,
      .join = FakeCalls::Join,
      .state = FakeCalls::State,
      .begin_group = FakeCalls::BeginGroup,
      .end_group = FakeCalls::EndGroup,
      .send =
          [](Comm comm, const void* from, size_t bytes, int to) {
            return FakeCalls::Add(
                comm,
                {.kind = "send", .from = from, .count = bytes, .peer = to});
          },
      .receive =
          [](Comm comm, void* into, size_t bytes, int from) {
            return FakeCalls::Add(comm, {.kind = "receive",
                                         .into = into,
                                         .count = bytes,
                                         .peer = from});
          },
      .all_reduce =
          [](Comm comm, const void* from, void* into, size_t count) {
            return FakeCalls::Add(comm, {"all_reduce", from, into, count});
          },
      .all_gather =
          [](Comm comm, const void* from, void* into, size_t count) {
            return FakeCalls::Add(comm, {"all_gather", from, into, count});
          },
      .reduce_scatter =
          [](Comm comm, const void* from, void* into, size_t count) {
            return FakeCalls::Add(comm, {"reduce_scatter", from, into, count});
          },
      .broadcast =
          [](Comm comm, const void* from, void* into, size_t count, int root) {
            return FakeCalls::Add(comm, {"broadcast", from, into, count, root});
          },
      .reduce =
          [](Comm comm, const void* from, void* into, size_t count, int root) {
            return FakeCalls::Add(comm, {"reduce", from, into, count, root});
          },
      .copy =
          [](Comm comm, void* to, const void* from, size_t bytes) {
            return FakeCalls::Add(comm, {"copy", from, to, bytes});
          },
      .mark = [](Comm comm) { return FakeCalls::Add(comm, {"mark"}); },
      .reached = FakeCalls::Reached,
      .clock =
          [](Comm comm, int end) {
            return FakeCalls::Add(comm, {.kind = "clock", .peer = end});
          },
      .elapsed = FakeCalls::Elapsed,
      .cut_off = [](Comm comm) { FakeCalls::End(comm, true); },
      .leave = [](Comm comm) { FakeCalls::End(comm, false); },
      .error = [] { return last_error.c_str(); },
  };
  return &table;
}

}  // namespace pipewright::testing
