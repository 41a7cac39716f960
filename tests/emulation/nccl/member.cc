#include "tests/emulation/nccl/member.h"

#include <algorithm>
#include <tuple>

#include "tests/emulation/nccl/text.h"

namespace emulated_nccl {
namespace {

std::string Numbered(const char* what, int member) {
  return Text(what, ".", member);
}

bool Overlap(const char* a, size_t a_bytes, const char* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kSend:
      return "send";
    case Kind::kReceive:
      return "receive";
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kReduce:
      return "reduce";
  }
  return "";
}

Member::Member(std::string name, std::shared_ptr<Board> board, int members,
               int self, const std::string& device, Rules rules, Queue queue)
    : name_(std::move(name)),
      board_(std::move(board)),
      members_(members),
      self_(self),
      rules_(std::move(rules)),
      queue_(std::move(queue)),
      goes_on_(rules_.calls_go_on) {
  if (!board_->Put(Numbered("join", self), Text(members, " ", device))) {
    const std::string why = "it joins twice";
    rules_.violation(Told(why));
    FailHere(Result::kInvalidUsage, why);
  }
}

std::string Member::Told(const std::string& what) const {
  return Text("member ", self_, " of ", members_, " of ", name_, ": ", what);
}

// True when all members are there. They must agree on their number, and have a
// device each (ncclInvalidUsage, "Duplicate GPU detected").
bool Member::Joined() {
  if (joined_) return true;
  std::vector<std::string> all;
  for (int member = 0; member < members_; ++member) {
    const auto found = board_->Find(Numbered("join", member));
    if (found == nullptr) return false;
    all.push_back(*found);
  }
  const std::string count = Text(members_, " ");
  for (const std::string& each : all) {
    if (each.compare(0, count.size(), count) != 0) {
      rules_.violation(Told("members do not agree on their number"));
      FailHere(Result::kInvalidArgument, "members do not agree");
      return true;
    }
  }
  for (size_t member = 0; member < all.size(); ++member) {
    const std::string device = all[member].substr(count.size());
    const auto same = std::find(all.begin(), all.end(), all[member]);
    const auto first = static_cast<size_t>(same - all.begin());
    if (device.empty() || first == member) continue;
    FailHere(Result::kInvalidUsage,
             Text("Duplicate GPU detected: rank ", first, " and rank ", member,
                  " both on ", device));
    return true;
  }
  joined_ = true;
  return true;
}

void Member::FailHere(Result result, const std::string& why) {
  if (failed_ != Result::kSuccess) return;
  failed_ = result;
  failure_ = why;
}

void Member::Fail(Result result, const std::string& why) {
  const std::lock_guard lock(mutex_);
  FailHere(result, why);
  board_->Put("failed", Told(why));
}

bool Member::Failed() {
  if (failed_ != Result::kSuccess) return true;
  const auto found = board_->Find("failed");
  if (found == nullptr) return false;
  FailHere(Result::kRemoteError, *found);
  return true;
}

std::string Member::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Result Member::State() {
  const std::lock_guard lock(mutex_);
  // What is wrong with the joining every member finds itself.
  const bool joined = Joined();
  if (Failed()) return failed_;
  if (goes_on_ > 0 && (goes_on_ > 1 || joined)) {
    --goes_on_;
    return Result::kInProgress;
  }
  return joined ? Result::kSuccess : Result::kInProgress;
}

// Only one way of using one memory for both is allowed.
bool Member::OutOfPlace(const Call& call) const {
  const auto* const from = static_cast<const char*>(call.from);
  const auto* const into = static_cast<const char*>(call.into);
  const size_t bytes = call.count * call.value_bytes;
  const size_t whole = bytes * static_cast<size_t>(members_);
  const size_t place = bytes * static_cast<size_t>(self_);
  switch (call.kind) {
    case Kind::kSend:
    case Kind::kReceive:
      return true;
    case Kind::kAllGather:
      return from == into + place || !Overlap(from, bytes, into, whole);
    case Kind::kReduceScatter:
      return into == from + place || !Overlap(from, whole, into, bytes);
    case Kind::kBroadcast:
      if (self_ != call.peer) return true;  // its `from` is not read
      break;
    case Kind::kReduce:
      if (self_ != call.peer) return true;  // its `into` is not written
      break;
    case Kind::kAllReduce:
      break;
  }
  return from == into || !Overlap(from, bytes, into, bytes);
}

Result Member::Check(const Call& call) {
  const std::lock_guard lock(mutex_);
  const char* const name = NameOf(call.kind);
  if (Failed()) return failed_;
  if (aborted_ || goes_on_ > 0 || !Joined()) {
    rules_.violation(Told(Text(name, " while a call goes on")));
    return Result::kInvalidArgument;
  }
  if (failed_ != Result::kSuccess) return failed_;
  if (call.peer < 0 || call.peer >= members_) return Result::kInvalidArgument;
  const bool reads = call.kind != Kind::kReceive &&
                     (call.kind != Kind::kBroadcast || self_ == call.peer);
  const bool writes = call.kind != Kind::kSend &&
                      (call.kind != Kind::kReduce || self_ == call.peer);
  if (call.count > 0 &&
      ((reads && call.from == nullptr) || (writes && call.into == nullptr))) {
    return Result::kInvalidArgument;
  }
  if (!OutOfPlace(call)) {
    rules_.violation(Told(Text(name, " in memory that overlaps")));
    return Result::kInvalidArgument;
  }
  return Result::kSuccess;
}

Result Member::Add(const Call& call, void* stream) {
  const Result checked = Check(call);
  return Group::Add(this, call, stream, checked);
}

void Member::Emit(std::vector<Call> calls, void* stream) {
  std::shared_ptr<Operation> operation;
  {
    const std::lock_guard lock(mutex_);
    operation = std::make_shared<Operation>(shared_from_this(), calls);
    goes_on_ = rules_.calls_go_on;
  }
  queue_(std::move(operation), stream);
}

Result Member::Split(int color, int key, Part* part) {
  const std::lock_guard lock(mutex_);
  const std::string round = Text("split", splits_);
  if (!split_begun_) {
    split_begun_ = true;
    board_->Put(Numbered(round.c_str(), self_), Text(color, " ", key));
  }
  if (Failed()) return failed_;
  std::vector<std::tuple<int, int>> mine;  // key, member
  for (int member = 0; member < members_; ++member) {
    const auto found = board_->Find(Numbered(round.c_str(), member));
    if (found == nullptr) return Result::kInProgress;
    const size_t blank = found->find(' ');
    if (std::stoi(found->substr(0, blank)) != color) continue;
    mine.emplace_back(std::stoi(found->substr(blank)), member);
  }
  split_begun_ = false;
  ++splits_;
  *part = {};
  if (color < 0) return Result::kSuccess;
  std::sort(mine.begin(), mine.end());
  part->name = Text(name_, ".", round, ".", color);
  part->members = static_cast<int>(mine.size());
  while (std::get<1>(mine[static_cast<size_t>(part->self)]) != self_) {
    ++part->self;
  }
  return Result::kSuccess;
}

bool Member::Idle() const {
  const std::lock_guard lock(mutex_);
  return ended_ == emitted_;
}

// What all have left is of use to nobody.
void Member::Gone() {
  board_->Put(Numbered("gone", self_), "");
  for (int member = 0; member < members_; ++member) {
    if (board_->Find(Numbered("gone", member)) == nullptr) return;
  }
  board_->Clear();
}

void Member::Abort() {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  FailHere(Result::kInvalidUsage, "it has aborted");
  board_->Put("failed", Told("it has aborted"));
  Gone();
}

void Member::Leave() {
  if (!Idle()) rules_.violation(Told("it leaves with work under way"));
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  Gone();
}

}  // namespace emulated_nccl
