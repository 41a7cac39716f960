#include "tests/support/fake_nccl.h"

#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/emulation/nccl/board.h"
#include "tests/emulation/nccl/member.h"

namespace pipewright::testing {
namespace {

using emulated_nccl::Call;
using emulated_nccl::Kind;
using emulated_nccl::Operation;
using emulated_nccl::Result;

FakeNcclWorld* world = nullptr;
thread_local std::string last_error;

// What a member has on its stream: an operation, or something of its own.
struct Entry {
  std::shared_ptr<Operation> operation;
  std::function<void()> own;
};

}  // namespace

struct FakeNcclWorld::Instance {
  int index = 0;
  std::shared_ptr<emulated_nccl::Board> board = emulated_nccl::MemoryBoard();
  std::vector<PwNcclComm*> members;
  int calls = 0;
};

}  // namespace pipewright::testing

// The name that the interface has for it.
struct PwNcclComm {
  std::shared_ptr<pipewright::testing::FakeNcclWorld::Instance> instance;
  std::shared_ptr<emulated_nccl::Member> member;
  std::deque<pipewright::testing::Entry> stream;
  int64_t reached = 0;
  double now_s = 0;  // on the stream
  double clocks_s[2] = {};
};

namespace pipewright::testing {

struct FakeCalls {
  static int Fail(std::string text) {
    last_error = std::move(text);
    return -1;
  }
  static void Violate(const std::string& text) {
    world->violations.push_back(text);
  }
  static int Give(Result result) {
    if (result == Result::kSuccess || result == Result::kInProgress) return 0;
    return Fail(absl::StrCat("fake: error ", static_cast<int>(result)));
  }

  static int MakeId(PwNcclId* id) {
    std::lock_guard lock(world->mutex_);
    std::memset(id, 0, sizeof(*id));
    const std::string name = absl::StrCat("id ", world->ids_++);
    std::memcpy(id->bytes, name.data(), name.size());
    return 0;
  }

  static int Join(int, const PwNcclId* id, int members, int self,
                  PwNcclComm** made) {
    std::lock_guard lock(world->mutex_);
    std::shared_ptr<FakeNcclWorld::Instance>& instance =
        world->instances_[id->bytes];
    if (instance == nullptr) {
      instance = std::make_shared<FakeNcclWorld::Instance>();
      instance->index = std::atoi(id->bytes + 3);
    }
    auto* const comm = new PwNcclComm;
    comm->instance = instance;
    comm->member = std::make_shared<emulated_nccl::Member>(
        id->bytes, instance->board, members, self, /*device=*/"",
        emulated_nccl::Rules{.violation = Violate,
                             .calls_go_on = world->calls_go_on},
        [comm](std::shared_ptr<Operation> operation, void*) {
          comm->stream.push_back({.operation = std::move(operation)});
        });
    instance->members.push_back(comm);
    *made = comm;
    ++world->made;
    return 0;
  }

  static int State(PwNcclComm* comm) {
    std::lock_guard lock(world->mutex_);
    const Result state = comm->member->State();
    if (state == Result::kInProgress) return 1;
    if (state == Result::kSuccess) return 0;
    return Fail(absl::StrCat("fake: ", comm->member->failure()));
  }

  static int BeginGroup() {
    if (emulated_nccl::Group::Open()) Violate("begin_group twice");
    emulated_nccl::Group::Start();
    return 0;
  }
  static int EndGroup() {
    std::lock_guard lock(world->mutex_);
    const int ended = Give(emulated_nccl::Group::End());
    for (const auto& [id, instance] : world->instances_) Run(*instance);
    return ended;
  }

  static int Add(PwNcclComm* comm, const Call& call) {
    std::lock_guard lock(world->mutex_);
    FakeNcclWorld::Instance& instance = *comm->instance;
    // NCCL takes it; this project has no use for it.
    if (call.count == 0) {
      Violate(absl::StrCat(NameOf(call.kind), " of nothing"));
    }
    if (comm->member->self() == world->fails_alone) {
      return Fail("fake: only this one fails");
    }
    if (comm->member->self() == world->never_comes) return 0;
    if (instance.index == world->fails &&
        instance.calls++ >= world->fails_after) {
      comm->member->Fail(Result::kRemoteError, "the call fails");
      return Fail("fake: the call fails");
    }
    const int added = Give(comm->member->Add(call, nullptr));
    Run(instance);
    return added;
  }

  static int Combine(Kind kind, PwNcclComm* comm, const void* from, void* into,
                     size_t count, int root = 0) {
    return Add(comm, {.kind = kind,
                      .from = from,
                      .into = into,
                      .count = count,
                      .value_bytes = sizeof(float),
                      .peer = root});
  }

  // No work of the library's.
  static int OnStream(PwNcclComm* comm, std::function<void()> own) {
    std::lock_guard lock(world->mutex_);
    comm->stream.push_back({.own = std::move(own)});
    Run(*comm->instance);
    return 0;
  }

  // All that can run on the communicator.
  static void Run(FakeNcclWorld::Instance& instance) {
    if (instance.index == world->hangs) return;
    bool progress = true;
    while (progress) {
      progress = false;
      for (PwNcclComm* const comm : instance.members) {
        while (!comm->stream.empty() && Step(comm)) progress = true;
      }
    }
  }

  static bool Step(PwNcclComm* comm) {
    const Entry& entry = comm->stream.front();
    if (entry.own) {
      entry.own();
    } else if (entry.operation->Step(comm->now_s)) {
      Note(comm, *entry.operation);
    } else {
      return false;
    }
    comm->stream.pop_front();
    return true;
  }

  // All begin when the last has come, and end together.
  static void Note(PwNcclComm* comm, const Operation& operation) {
    const Call& call = operation.calls()[0];
    const auto members = static_cast<size_t>(comm->member->members());
    const std::string kind =
        call.kind == Kind::kReceive ? "send" : NameOf(call.kind);
    if (kind == "send" ? call.kind == Kind::kSend : comm->member->self() == 0) {
      ++world->ran[operation.calls().size() > 1 ? "group of " + kind : kind];
    }
    if (!world->seconds) return;
    const bool shards =
        call.kind == Kind::kAllGather || call.kind == Kind::kReduceScatter;
    const size_t bytes = call.count * call.value_bytes * (shards ? members : 1);
    comm->now_s = operation.met_s() + world->seconds(kind, bytes, members);
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
    if (aborts) {
      comm->member->Abort();
    } else {
      comm->member->Leave();
    }
    std::erase(comm->instance->members, comm);
    delete comm;
  }
};

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
            return FakeCalls::Add(comm, {.kind = Kind::kSend,
                                         .from = from,
                                         .count = bytes,
                                         .peer = to});
          },
      .receive =
          [](Comm comm, void* into, size_t bytes, int from) {
            return FakeCalls::Add(comm, {.kind = Kind::kReceive,
                                         .into = into,
                                         .count = bytes,
                                         .peer = from});
          },
      .all_reduce =
          [](Comm comm, const void* from, void* into, size_t count) {
            return FakeCalls::Combine(Kind::kAllReduce, comm, from, into,
                                      count);
          },
      .all_gather =
          [](Comm comm, const void* from, void* into, size_t count) {
            return FakeCalls::Combine(Kind::kAllGather, comm, from, into,
                                      count);
          },
      .reduce_scatter =
          [](Comm comm, const void* from, void* into, size_t count) {
            return FakeCalls::Combine(Kind::kReduceScatter, comm, from, into,
                                      count);
          },
      .broadcast =
          [](Comm comm, const void* from, void* into, size_t count, int root) {
            return FakeCalls::Combine(Kind::kBroadcast, comm, from, into, count,
                                      root);
          },
      .reduce =
          [](Comm comm, const void* from, void* into, size_t count, int root) {
            return FakeCalls::Combine(Kind::kReduce, comm, from, into, count,
                                      root);
          },
      .copy =
          [](Comm comm, void* to, const void* from, size_t bytes) {
            return FakeCalls::OnStream(comm,
                                       [=] { std::memcpy(to, from, bytes); });
          },
      .mark =
          [](Comm comm) {
            return FakeCalls::OnStream(comm, [comm] { ++comm->reached; });
          },
      .reached = FakeCalls::Reached,
      .clock =
          [](Comm comm, int end) {
            return FakeCalls::OnStream(
                comm, [comm, end] { comm->clocks_s[end] = comm->now_s; });
          },
      .elapsed = FakeCalls::Elapsed,
      .cut_off = [](Comm comm) { FakeCalls::End(comm, true); },
      .leave = [](Comm comm) { FakeCalls::End(comm, false); },
      .error = [] { return last_error.c_str(); },
  };
  return &table;
}

}  // namespace pipewright::testing
