// Operations: who meets whom, and what comes of it.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/emulation/nccl/member.h"
#include "tests/emulation/nccl/text.h"

namespace emulated_nccl {
namespace {

// In front of what a member brings.
struct Label {
  Kind kind = Kind::kSend;
  int type = 0;
  int peer = 0;
  size_t count = 0;
  size_t bytes = 0;  // bytes of a transfer
  double now_s = 0;
};

Label LabelOf(const std::string& content) {
  Label label;
  std::memcpy(&label, content.data(), sizeof(label));
  return label;
}

const char* DataOf(const std::string& content) {
  return content.data() + sizeof(Label);
}

bool IsTransfer(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kReceive;
}

std::string Spelled(Kind kind, size_t count, int type) {
  return Text(NameOf(kind), " of ", count, " values of type ", type);
}

// Name of what a member leaves for another: `send.0.1.7` is the seventh from 0
// to 1, `take.0.1.7` that 1 stands before it.
std::string Place(const char* what, int from, int to, int64_t number) {
  return Text(what, ".", from, ".", to, ".", number);
}
std::string Place(const char* what, int member, int64_t number) {
  return Text(what, ".", member, ".", number);
}

double WallSeconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// Calls are numbered in the order in which they are made.
Operation::Operation(std::shared_ptr<Member> member, std::vector<Call> calls)
    : member_(std::move(member)), calls_(std::move(calls)) {
  turn_ = member_->emitted_++;
  for (const Call& call : calls_) {
    Meeting meeting;
    if (call.kind == Kind::kSend) {
      meeting.number = member_->transfers_[{member_->self_, call.peer}]++;
    } else if (call.kind == Kind::kReceive) {
      // Those to itself are two of one number.
      const bool itself = call.peer == member_->self_;
      meeting.number =
          member_->transfers_[{itself ? -1 : call.peer, member_->self_}]++;
    } else if (call.count > 0) {
      meeting.number = member_->collectives_++;
    } else {
      meeting.begun = meeting.ended = true;
    }
    meetings_.push_back(std::move(meeting));
  }
}

std::string Operation::Name() const {
  std::string name = Spelled(calls_[0].kind, calls_[0].count, calls_[0].type);
  if (IsTransfer(calls_[0].kind)) {
    name +=
        Text(calls_[0].kind == Kind::kSend ? " to " : " from ", calls_[0].peer);
  }
  if (calls_.size() > 1) {
    name += Text(" and ", calls_.size() - 1, " more of its group");
  }
  return name;
}

bool Operation::Step(double now_s) {
  const std::lock_guard lock(member_->mutex_);
  if (done_) return true;
  if (member_->aborted_) {
    done_ = aborted_ = true;
    ++member_->ended_;
    return true;
  }
  if (turn_ != member_->ended_) return false;
  bool all = true;
  bool collective_waits = false;
  for (size_t index = 0; index < calls_.size(); ++index) {
    Meeting& meeting = meetings_[index];
    const Call& call = calls_[index];
    // Transfers of a group go on side by side, collectives one by one.
    if (!IsTransfer(call.kind) && collective_waits) continue;
    if (!meeting.begun) Begin(call, &meeting, now_s);
    if (!meeting.ended) meeting.ended = End(call, &meeting);
    if (meeting.ended) continue;
    all = false;
    if (!IsTransfer(call.kind)) collective_waits = true;
  }
  if (!all) {
    Wait();
    return false;
  }
  if (waits_since_s_ >= 0) {
    member_->board_->Drop(Text("at.", member_->self_));
  }
  done_ = true;
  ++member_->ended_;
  return true;
}

void Operation::Begin(const Call& call, Meeting* meeting, double now_s) {
  meeting->begun = true;
  const Label label = {.kind = call.kind,
                       .type = call.type,
                       .peer = IsTransfer(call.kind) ? 0 : call.peer,
                       .count = call.count,
                       .bytes = call.count * call.value_bytes,
                       .now_s = now_s};
  size_t brought = call.count * call.value_bytes;
  const int self = member_->self_;
  if (call.kind == Kind::kReduceScatter) {
    brought *= static_cast<size_t>(member_->members_);
  }
  if (call.kind == Kind::kReceive || !member_->rules_.with_data ||
      (call.kind == Kind::kBroadcast && call.peer != self)) {
    brought = 0;
  }
  std::string content(sizeof(label) + brought, '\0');
  std::memcpy(content.data(), &label, sizeof(label));
  if (brought > 0) std::memcpy(&content[sizeof(label)], call.from, brought);
  std::string place;
  if (call.kind == Kind::kSend) {
    place = Place("send", self, call.peer, meeting->number);
  } else if (call.kind == Kind::kReceive) {
    place = Place("take", call.peer, self, meeting->number);
  } else {
    place = Place("call", self, meeting->number);
    meeting->come.resize(static_cast<size_t>(member_->members_));
  }
  member_->board_->Put(place, std::move(content));
  met_s_ = std::max(met_s_, now_s);
}

bool Operation::End(const Call& call, Meeting* meeting) {
  return IsTransfer(call.kind) ? Transfer(call, meeting)
                               : Collect(call, meeting);
}

bool Operation::Transfer(const Call& call, Meeting* meeting) {
  const bool sends = call.kind == Kind::kSend;
  const int from = sends ? member_->self_ : call.peer;
  const int to = sends ? call.peer : member_->self_;
  const std::string place =
      Place(sends ? "take" : "send", from, to, meeting->number);
  const auto other = member_->board_->Find(place);
  if (other == nullptr) return false;
  const Label label = LabelOf(*other);
  const size_t bytes = call.count * call.value_bytes;
  if (label.bytes != bytes || label.type != call.type) {
    // Whoever comes second may learn of the failure before it sees the other's
    // call, so that either of them has to say it.
    const std::string own = Spelled(call.kind, call.count, call.type);
    const std::string others = Spelled(label.kind, label.count, label.type);
    const std::string why =
        member_->Told(Text(sends ? others : own, " of member ", to, " meets ",
                           sends ? own : others, " of member ", from));
    if (member_->failed_ == Result::kSuccess) member_->rules_.violation(why);
    member_->FailHere(Result::kInvalidUsage, why);
    member_->board_->Put("failed", why);
    return false;
  }
  if (!sends && member_->rules_.with_data) {
    std::memcpy(call.into, DataOf(*other), bytes);
  }
  met_s_ = std::max(met_s_, label.now_s);
  member_->board_->Drop(place);
  return true;
}

bool Operation::Collect(const Call& call, Meeting* meeting) {
  Board& board = *member_->board_;
  for (size_t member = 0; member < meeting->come.size(); ++member) {
    auto& come = meeting->come[member];
    if (come == nullptr) {
      come =
          board.Find(Place("call", static_cast<int>(member), meeting->number));
    }
    if (come == nullptr) continue;
    const Label label = LabelOf(*come);
    if (label.kind == call.kind && label.count == call.count &&
        label.type == call.type && label.peer == call.peer) {
      continue;
    }
    const std::string why = member_->Told(
        Text("call number ", meeting->number, ", ",
             Spelled(call.kind, call.count, call.type), " of root ", call.peer,
             ", meets ", Spelled(label.kind, label.count, label.type),
             " of root ", label.peer, " of member ", member));
    if (member_->failed_ == Result::kSuccess) member_->rules_.violation(why);
    member_->FailHere(Result::kInvalidUsage, why);
    board.Put("failed", why);
    return false;
  }
  if (std::count(meeting->come.begin(), meeting->come.end(), nullptr) > 0) {
    return false;
  }
  for (const auto& come : meeting->come) {
    met_s_ = std::max(met_s_, LabelOf(*come).now_s);
  }
  if (member_->rules_.with_data) Combine(call, *meeting);
  // All have come, so that all have read what was before.
  board.Drop(Place("call", member_->self_, meeting->number - 1));
  return true;
}

void Operation::Combine(const Call& call, const Meeting& meeting) const {
  const size_t bytes = call.count * call.value_bytes;
  const auto members = static_cast<size_t>(member_->members_);
  const auto self = static_cast<size_t>(member_->self_);
  const auto& come = meeting.come;
  if (call.kind == Kind::kAllGather) {
    for (size_t member = 0; member < members; ++member) {
      std::memcpy(static_cast<char*>(call.into) + member * bytes,
                  DataOf(*come[member]), bytes);
    }
    return;
  }
  if (call.kind == Kind::kBroadcast) {
    std::memcpy(call.into, DataOf(*come[static_cast<size_t>(call.peer)]),
                bytes);
    return;
  }
  if (call.kind == Kind::kReduce && member_->self_ != call.peer) return;
  const size_t skipped = call.kind == Kind::kReduceScatter ? self * bytes : 0;
  const auto values = [&](size_t member) {
    return reinterpret_cast<const float*>(DataOf(*come[member]) + skipped);
  };
  const auto first = static_cast<size_t>(member_->rules_.first) % members;
  std::vector<float> sum(values(first), values(first) + call.count);
  for (size_t next = 1; next < members; ++next) {
    const float* const more = values((first + next) % members);
    for (size_t index = 0; index < call.count; ++index) {
      sum[index] += more[index];
    }
  }
  std::memcpy(call.into, sum.data(), bytes);
}

// Notes what the member stands before, and says so when that is for too long.
void Operation::Wait() {
  const double now_s = WallSeconds();
  if (waits_since_s_ < 0) {
    waits_since_s_ = now_s;
    member_->board_->Put(Text("at.", member_->self_), Name());
  }
  if (told_ || now_s - waits_since_s_ <= member_->rules_.patience_s) return;
  told_ = true;
  member_->rules_.violation(member_->Told(WhoWaits()));
}

std::string Operation::WhoWaits() const {
  std::ostringstream text;
  text << "it waits for ever, in " << Name() << ", for";
  for (size_t index = 0; index < calls_.size(); ++index) {
    const Meeting& meeting = meetings_[index];
    if (meeting.ended) continue;
    if (IsTransfer(calls_[index].kind)) text << ' ' << calls_[index].peer;
    for (size_t member = 0; member < meeting.come.size(); ++member) {
      if (meeting.come[member] == nullptr) text << ' ' << member;
    }
  }
  for (int member = 0; member < member_->members_; ++member) {
    if (member == member_->self_) continue;
    const auto at = member_->board_->Find(Text("at.", member));
    text << "; member " << member
         << (at == nullptr ? " waits for nobody here"
                           : Text(" waits in ", *at));
  }
  return text.str();
}

}  // namespace emulated_nccl
