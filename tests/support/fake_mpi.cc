#include "tests/support/fake_mpi.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pipewright::testing {
namespace {

FakeMpiWorld* world = nullptr;
thread_local int self = 0;
// Found by probe, of which receive() is told nothing.
thread_local std::string probed;
thread_local int probed_from = 0;
// On their way: who has sent it, its text, where to.
struct Part {
  int from = 0;
  std::string text;
  void* into = nullptr;
};
thread_local std::vector<Part> parts;

}  // namespace

struct FakeMpiCalls {
  static int Processes() { return static_cast<int>(world->boxes_.size()); }

  static int Send(int to, int tag, const void* head, size_t head_bytes,
                  const void* body, size_t body_bytes) {
    std::string text(static_cast<const char*>(head), head_bytes);
    if (body_bytes > 0) {
      text.append(static_cast<const char*>(body), body_bytes);
    }
    std::lock_guard lock(world->mutex_);
    world->boxes_[static_cast<size_t>(to)].push_back(
        {self, tag, std::move(text)});
    return 0;
  }

  static int Probe(int tag, int* from, size_t* bytes) {
    std::lock_guard lock(world->mutex_);
    auto& box = world->boxes_[static_cast<size_t>(self)];
    const auto mail =
        std::find_if(box.begin(), box.end(),
                     [tag](const auto& each) { return each.tag == tag; });
    if (mail == box.end()) return 0;
    *from = mail->from;
    *bytes = mail->text.size();
    probed = std::move(mail->text);
    probed_from = mail->from;
    box.erase(mail);
    return 1;
  }

  static int Receive(void* into) {
    parts.push_back({probed_from, std::move(probed), into});
    return static_cast<int>(parts.size()) - 1;
  }

  static int Received(int number) {
    std::lock_guard lock(world->mutex_);
    const Part& part = parts[static_cast<size_t>(number)];
    if (part.from == world->delayed_) return 0;
    std::memcpy(part.into, part.text.data(), part.text.size());
    return 1;
  }
};

FakeMpiWorld::FakeMpiWorld(int processes)
    : boxes_(static_cast<size_t>(processes)) {
  world = this;
}
FakeMpiWorld::~FakeMpiWorld() { world = nullptr; }
void FakeMpiWorld::Become(int process) { self = process; }
void FakeMpiWorld::Delay(int from) {
  std::lock_guard lock(mutex_);
  delayed_ = from;
}
void FakeMpiWorld::Arrive() { Delay(-1); }

const PwProcesses* FakeMpi() {
  static const PwProcesses table = {
      .abi = PW_MPI_ABI,
      .start = [] { return 0; },
      .process = [] { return self; },
      .processes = FakeMpiCalls::Processes,
      .send = FakeMpiCalls::Send,
      .probe = FakeMpiCalls::Probe,
      .receive = FakeMpiCalls::Receive,
      .received = FakeMpiCalls::Received,
      .unsent = [] { return 0; },
      .has_left = [](int, int) { return 0; },
      .has_ended = [] { return 1; },
      .finish = [] { return 0; },
      .transfer = [](PwTransfer, size_t, int, double*) { return -1; },
      .version = [] { return "fake"; },
      .leave = [](const char*) {},
      .error = [] { return "fake"; },
  };
  return &table;
}

}  // namespace pipewright::testing
