#include "sim/program/comm_calls.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// What is listed of a circle.
constexpr size_t kMostListedCalls = 12;

using Place = CallPlace;

class Proof {
 public:
  Proof(const CommCalls& calls, const DeviceRoom& room)
      : calls_(calls),
        room_(room),
        issued_(calls.calls.size(), 0),
        admitted_(calls.calls.size(), 0),
        resident_(calls.calls.size(), 0) {}

  absl::Status Run();

 private:
  enum class State : char { kWaits, kResident, kEnded };

  const CommCall& At(Place place) const {
    return calls_.calls[place.issuer][place.call];
  }
  bool Ended(Place place) const {
    return states_[place.issuer][place.call] == State::kEnded;
  }
  std::string Name(Place place) const;
  void DealQueues();
  absl::Status Agree(int comm) const;
  bool Advance(int rank);
  bool Starts(int rank, int call) const;
  bool Meets(int rank, int call) const;
  // A call that `place`, which has not ended, waits for, and why.
  std::pair<Place, const char*> WaitsFor(Place place) const;
  absl::Status Circle(Place first) const;

  const CommCalls& calls_;
  const DeviceRoom room_;
  std::vector<int> issued_;                 // [rank]
  std::vector<std::vector<State>> states_;  // [rank][call]
  // [rank][call]: which of its communicator, and the call before it in its
  // queue; -1: none.
  std::vector<std::vector<int>> number_;
  std::vector<std::vector<int>> before_;
  std::vector<char> window_;   // [rank] rule 4 holds
  std::vector<int> admitted_;  // [rank] calls that have become resident
  std::vector<int> resident_;  // [rank] those that have not ended
  // [rank] {communicator: calls on it}.
  std::vector<std::map<int, std::vector<int>>> on_comm_;
};

std::string Proof::Name(Place place) const {
  const CommCall& call = At(place);
  const CommCalls::Comm& comm = calls_.comms[call.comm];
  std::string text = absl::StrCat(calls_.issuers[place.issuer], ": ");
  if (!comm.link) return absl::StrCat(text, call.what);
  return absl::StrCat(text, call.sends ? "send of " : "receive of ", call.what,
                      call.sends ? " to " : " from ",
                      calls_.issuers[comm.members[call.sends ? 1 : 0]]);
}

void Proof::DealQueues() {
  for (size_t rank = 0; rank < calls_.calls.size(); ++rank) {
    std::map<int, int> queue_of;  // [communicator]
    for (size_t comm = 0; comm < calls_.comms.size(); ++comm) {
      const std::vector<int>& members = calls_.comms[comm].members;
      if (std::find(members.begin(), members.end(), static_cast<int>(rank)) ==
          members.end()) {
        continue;
      }
      const int next = static_cast<int>(queue_of.size()) % room_.queues;
      queue_of.emplace(static_cast<int>(comm), next);
    }
    window_.push_back(room_.kernels < std::ssize(queue_of) ? 1 : 0);
    std::vector<int> last(room_.queues, -1);
    std::vector<int> numbers;
    std::vector<int> before;
    auto& on_comm = on_comm_.emplace_back();
    const std::vector<CommCall>& list = calls_.calls[rank];
    for (size_t call = 0; call < list.size(); ++call) {
      const int comm = list[call].comm;
      numbers.push_back(static_cast<int>(on_comm[comm].size()));
      on_comm[comm].push_back(static_cast<int>(call));
      before.push_back(last[queue_of.at(comm)]);
      last[queue_of.at(comm)] = static_cast<int>(call);
    }
    number_.push_back(std::move(numbers));
    before_.push_back(std::move(before));
    states_.emplace_back(list.size(), State::kWaits);
  }
}

// Rule 1.
absl::Status Proof::Agree(int comm) const {
  const std::vector<int>& members = calls_.comms[comm].members;
  const auto calls_of = [&](int rank) {
    const auto found = on_comm_[rank].find(comm);
    return found == on_comm_[rank].end() ? std::vector<int>() : found->second;
  };
  const int first = members[0];
  const std::vector<int> own = calls_of(first);
  for (size_t member = 1; member < members.size(); ++member) {
    const int other = members[member];
    const std::vector<int> theirs = calls_of(other);
    const size_t both = std::min(own.size(), theirs.size());
    for (size_t number = 0; number < both; ++number) {
      const Place one = {first, own[number]};
      const Place two = {other, theirs[number]};
      const bool same =
          At(one).key == At(two).key && At(one).what == At(two).what;
      if (same && At(one).bytes == At(two).bytes) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          Name(one), ", ", At(one).bytes, " bytes, is number ", number + 1,
          " of its communicator, and meets ", Name(two), ", ", At(two).bytes,
          " bytes; the members of a communicator issue the same operations in "
          "the same order"));
    }
    if (own.size() == theirs.size()) continue;
    const Place alone = own.size() > both ? Place{first, own[both]}
                                          : Place{other, theirs[both]};
    return absl::FailedPreconditionError(absl::StrCat(
        Name(alone), " is number ", both + 1, " of its communicator; ",
        calls_.issuers[own.size() > both ? other : first], " has ", both));
  }
  return absl::OkStatus();
}

bool Proof::Starts(int rank, int call) const {
  const int before = before_[rank][call];
  if (before >= 0 && states_[rank][before] == State::kWaits) return false;
  if (window_[rank] == 0) return true;
  return admitted_[rank] == call && resident_[rank] < room_.kernels;
}

bool Proof::Meets(int rank, int call) const {
  const int comm = calls_.calls[rank][call].comm;
  for (const int member : calls_.comms[comm].members) {
    const int theirs = on_comm_[member].at(comm)[number_[rank][call]];
    if (states_[member][theirs] == State::kWaits) return false;
  }
  return true;
}

// Does what `rank` can; false where that is nothing.
bool Proof::Advance(int rank) {
  bool any = false;
  std::vector<State>& states = states_[rank];
  const std::vector<CommCall>& list = calls_.calls[rank];
  int& issued = issued_[rank];
  while (issued < static_cast<int>(list.size()) &&
         std::all_of(list[issued].needs.begin(), list[issued].needs.end(),
                     [&](Place need) { return Ended(need); })) {
    ++issued;
    any = true;
  }
  for (auto& [comm, calls] : on_comm_[rank]) {
    // The first that has not ended: all before it have.
    const auto next = std::partition_point(
        calls.begin(), calls.end(),
        [&](int call) { return states[call] == State::kEnded; });
    if (next == calls.end() || *next >= issued) continue;
    if (states[*next] == State::kWaits && Starts(rank, *next)) {
      states[*next] = State::kResident;
      ++admitted_[rank];
      ++resident_[rank];
      any = true;
    }
    if (states[*next] == State::kResident && Meets(rank, *next)) {
      states[*next] = State::kEnded;
      --resident_[rank];
      any = true;
    }
  }
  return any;
}

std::pair<Place, const char*> Proof::WaitsFor(Place place) const {
  const std::vector<State>& states = states_[place.issuer];
  const auto here = [&](int call) { return Place{place.issuer, call}; };
  if (states[place.call] == State::kResident) {
    const int comm = At(place).comm;
    for (const int member : calls_.comms[comm].members) {
      const int theirs =
          on_comm_[member].at(comm)[number_[place.issuer][place.call]];
      if (states_[member][theirs] == State::kWaits) {
        return {{member, theirs}, "is resident and waits for its other end"};
      }
    }
  }
  const int issued = issued_[place.issuer];
  if (place.call >= issued) {
    for (const Place need : calls_.calls[place.issuer][issued].needs) {
      if (!Ended(need)) return {need, "is issued behind a pass that waits for"};
    }
  }
  const int number = number_[place.issuer][place.call];
  if (number > 0) {
    const int last = on_comm_[place.issuer].at(At(place).comm)[number - 1];
    if (states[last] != State::kEnded) {
      return {here(last), "waits on its stream behind"};
    }
  }
  const int before = before_[place.issuer][place.call];
  if (before >= 0 && states[before] == State::kWaits) {
    return {here(before), "waits in its queue behind"};
  }
  for (int earlier = 0; earlier < place.call; ++earlier) {
    if (states[earlier] != State::kEnded) {
      return {here(earlier), "waits until fewer kernels are resident, with"};
    }
  }
  return {place, "waits for"};
}

absl::Status Proof::Circle(Place first) const {
  std::vector<Place> way = {first};
  while (true) {
    const Place next = WaitsFor(way.back()).first;
    const auto seen = std::find(way.begin(), way.end(), next);
    if (seen == way.end()) {
      way.push_back(next);
      continue;
    }
    way.erase(way.begin(), seen);
    break;
  }
  std::string text = absl::StrCat(
      "deadlock: with ", room_.queues, " hardware queues and ", room_.kernels,
      " resident kernels these calls wait for each other in a circle");
  for (size_t index = 0; index < std::min(way.size(), kMostListedCalls);
       ++index) {
    const auto& [next, why] = WaitsFor(way[index]);
    absl::StrAppend(&text, "\n  ", Name(way[index]), " ", why, " ", Name(next));
  }
  if (way.size() > kMostListedCalls) {
    absl::StrAppend(&text, "\n  and ", way.size() - kMostListedCalls, " more");
  }
  return absl::FailedPreconditionError(text);
}

absl::Status Proof::Run() {
  DealQueues();
  for (size_t comm = 0; comm < calls_.comms.size(); ++comm) {
    PW_RETURN_IF_ERROR(Agree(static_cast<int>(comm)));
  }
  const int ranks = static_cast<int>(calls_.calls.size());
  for (bool any = true; any;) {
    any = false;
    for (int rank = 0; rank < ranks; ++rank) {
      while (Advance(rank)) any = true;
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<State>& states = states_[rank];
    const auto stuck =
        std::find_if(states.begin(), states.end(),
                     [](State state) { return state != State::kEnded; });
    if (stuck != states.end()) {
      return Circle({rank, static_cast<int>(stuck - states.begin())});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProveCalls(const CommCalls& calls, const DeviceRoom& room) {
  return Proof(calls, room).Run();
}

CommCalls CallsOf(const Schedule& schedule,
                  const std::vector<StepList>& lists) {
  CommCalls made;
  std::map<std::pair<int, int>, int> links;
  const auto each_transfer = [&](const auto& call) {
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      for (const Step& step : lists[rank]) call(rank, step);
    }
  };
  const auto link_of = [&](int rank, const Step& step) {
    const int peer = MessageOf(schedule, rank, step).peer;
    return step.kind == StepKind::kSend ? std::pair(rank, peer)
                                        : std::pair(peer, rank);
  };
  const auto moves = [](const Step& step) {
    return step.kind == StepKind::kSend || step.kind == StepKind::kReceive;
  };
  each_transfer([&](int rank, const Step& step) {
    if (moves(step)) links.emplace(link_of(rank, step), 0);
  });
  for (auto& [ends, comm] : links) {
    comm = static_cast<int>(made.comms.size());
    made.comms.push_back({{ends.first, ends.second}});
  }
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    made.issuers.push_back(absl::StrCat("rank ", rank));
    made.calls.emplace_back();
    const auto own = [rank](const CommCalls::Comm& comm) {
      return comm.members[0] == rank || comm.members[1] == rank;
    };
    made.most_comms = std::max(made.most_comms,
                               static_cast<int>(std::count_if(
                                   made.comms.begin(), made.comms.end(), own)));
  }
  std::vector<std::map<int64_t, int>> received(schedule.pp());
  std::vector<std::vector<Place>> needs(schedule.pp());
  each_transfer([&](int rank, const Step& step) {
    std::vector<CommCall>& calls = made.calls[rank];
    if (step.kind == StepKind::kPass &&
        NeedsReceive(schedule, rank, step.pass)) {
      const int64_t key = MessageOf(schedule, rank, ReceiveOf(step.pass)).index;
      const auto found = received[rank].find(key);
      if (found != received[rank].end()) {
        needs[rank].push_back({rank, found->second});
      }
    }
    if (!moves(step)) return;
    const int64_t key = MessageOf(schedule, rank, step).index;
    if (step.kind == StepKind::kReceive) {
      received[rank][key] = static_cast<int>(calls.size());
    }
    calls.push_back({.comm = links.at(link_of(rank, step)),
                     .sends = step.kind == StepKind::kSend,
                     .key = key,
                     .what = absl::StrCat(step.pass.kind() == PassKind::kForward
                                              ? "activation "
                                              : "gradient ",
                                          step.pass.microbatch()),
                     .needs = std::exchange(needs[rank], {})});
  });
  return made;
}

}  // namespace pipewright
