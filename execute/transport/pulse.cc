#include "execute/transport/pulse.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/transport/steady_seconds.h"
#include "execute/transport/wire.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// How soon the end of a run is seen.
constexpr std::chrono::milliseconds kLook{50};
// Short against the 12 ms that mpirun gives.
constexpr std::chrono::milliseconds kShortLook{1};
constexpr int kShortLooks = 4;
// How long a rank that computes keeps its process when the job has ended.
constexpr double kMostStuck_s = 0.7;

// A rank waits for an answer for a quarter of the time-out, at least a second
// (RankWaits::AwaitAnswers), and should see four signs in that time. On a long
// time-out a sign every 5 s is enough.
double PeriodOf(double timeout_s) {
  return std::min(5.0, std::max(1.0, timeout_s / 4) / 4);
}

}  // namespace

Pulse::Pulse(ProcessGroup* job, std::string name, double timeout_s)
    : job_(*job),
      name_(std::move(name)),
      period_s_(PeriodOf(timeout_s)),
      heard_(job->processes()) {
  for (Heard& heard : heard_) heard.any_s = SteadySeconds();
  if (heard_.size() == 1) return;
  thread_ = std::thread([this] { Run(); });
  // Other starters do not kill the processes that they tell to end.
  if (ProcessGroup::Started()) {
    ProcessGroup::SetOnTerminate([this] { EndIfComputing(); });
  }
}

Pulse::~Pulse() {
  if (thread_.joinable()) ProcessGroup::SetOnTerminate(nullptr);
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

double Pulse::heard_s(int process) const {
  std::lock_guard lock(mutex_);
  return heard_[process].any_s;
}

double Pulse::heard_running_s(int process) const {
  std::lock_guard lock(mutex_);
  return heard_[process].running_s;
}

double Pulse::stands_since_s(int process) const {
  std::lock_guard lock(mutex_);
  return heard_[process].runs ? heard_[process].got_on_s : 0;
}

void Pulse::Run() {
  double next_s = 0;
  while (true) {
    // A missed sign does no harm: others come.
    WithoutExceptions([&] {
      if (SteadySeconds() >= next_s) {
        next_s = SteadySeconds() + period_s_;
        Beat();
      }
      Listen();
      EndIfStuck();
      return absl::OkStatus();
    }).IgnoreError();
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, kLook, [this] { return ends_; })) return;
  }
}

void Pulse::Beat() {
  WireWriter writer;
  writer.Put<bool>(runs_);
  writer.Put<int64_t>(steps_);
  const std::string sign = writer.bytes();
  for (int process = 0; process < job_.processes(); ++process) {
    if (process == job_.process()) continue;
    job_.Send(process, ProcessGroup::kPulse, sign);
  }
}

// This also sees the end of another process when nobody else takes messages.
void Pulse::Listen() {
  ProcessGroup::Incoming incoming;
  while (job_.Receive(ProcessGroup::kPulse, 0, &incoming) ==
         Received::kMessage) {
    const double now_s = SteadySeconds();
    std::lock_guard lock(mutex_);
    Heard& heard = heard_[incoming.from];
    WireReader reader(incoming.text());
    heard.any_s = now_s;
    heard.runs = reader.Get<bool>();
    const auto steps = reader.Get<int64_t>();
    if (heard.runs) heard.running_s = now_s;
    if (!heard.runs || steps != heard.steps) heard.got_on_s = now_s;
    heard.steps = steps;
  }
}

// A rank that waits, or soon ends its pass, sees the end and says what it
// waited for. Otherwise this says so while there is time.
void Pulse::EndIfComputing() {
  const int64_t steps = steps_;
  for (int look = 0; look < kShortLooks; ++look) {
    if (!runs_ || waits_ || steps_ != steps) return;
    std::this_thread::sleep_for(kShortLook);
  }
  EndAtOnce();
}

// A rank that computes does not see the end of the job. This ends the process
// once the rank has had time to see it.
void Pulse::EndIfStuck() {
  if (job_.ended_by().empty() || !runs_) return;
  const double now_s = SteadySeconds();
  if (steps_at_end_ != steps_) {
    steps_at_end_ = steps_;
    stands_at_end_s_ = now_s;
  } else if (now_s - stands_at_end_s_ > std::min(kMostStuck_s, period_s_)) {
    EndAtOnce();
  }
}

void Pulse::EndAtOnce() {
  job_.EndAtOnce(absl::StrCat(job_.ended_by(), "\n", name_,
                              ": computes and sees nothing"));
}

}  // namespace pipewright
