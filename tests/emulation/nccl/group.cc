// Groups: what a thread calls between their start and end.
#include <algorithm>
#include <utility>

#include "tests/emulation/nccl/member.h"

namespace emulated_nccl {

Group& Group::OfThread() {
  static thread_local Group group;
  return group;
}

bool Group::Open() { return OfThread().depth_ > 0; }

void Group::Start() { ++OfThread().depth_; }

void Group::AtEnd(std::function<Result()> wait) {
  OfThread().waits_.push_back(std::move(wait));
}

Result Group::Add(Member* member, const Call& call, void* stream,
                  Result checked) {
  Group& group = OfThread();
  if (group.depth_ == 0) {
    // To itself, with nobody who receives.
    const bool transfer =
        call.kind == Kind::kSend || call.kind == Kind::kReceive;
    if (checked == Result::kSuccess && transfer &&
        call.peer == member->self()) {
      return Result::kInvalidUsage;
    }
    if (checked != Result::kSuccess) return checked;
    // Nothing of nobody: there is nothing to meet for.
    if (call.count > 0 || transfer) member->Emit({call}, stream);
    return member->rules_.calls_go_on > 0 ? Result::kInProgress
                                          : Result::kSuccess;
  }
  if (checked != Result::kSuccess) {
    if (group.refused_ == Result::kSuccess) group.refused_ = checked;
    return checked;
  }
  const auto same = std::find_if(
      group.parts_.begin(), group.parts_.end(),
      [member](const Part& part) { return part.member.get() == member; });
  if (same == group.parts_.end()) {
    group.parts_.push_back({member->shared_from_this(), stream, {call}});
  } else if (same->stream != stream) {
    member->rules_.violation(
        member->Told("a group on several streams is not emulated"));
    group.refused_ = Result::kInvalidUsage;
    return group.refused_;
  } else {
    same->calls.push_back(call);
  }
  return Result::kSuccess;
}

Result Group::EndParts() {
  const std::vector<Part> parts = std::exchange(parts_, {});
  const Result refused = std::exchange(refused_, Result::kSuccess);
  if (refused != Result::kSuccess) return refused;
  Result result = Result::kSuccess;
  for (const Part& part : parts) {
    int to_itself = 0;
    for (const Call& call : part.calls) {
      if (call.peer != part.member->self()) continue;
      if (call.kind == Kind::kSend) ++to_itself;
      if (call.kind == Kind::kReceive) --to_itself;
    }
    // "Trying to send to self without a matching recv".
    if (to_itself != 0) return Result::kInvalidUsage;
  }
  for (const Part& part : parts) {
    part.member->Emit(part.calls, part.stream);
    if (part.member->rules_.calls_go_on > 0) result = Result::kInProgress;
  }
  return result;
}

Result Group::End() {
  Group& group = OfThread();
  if (group.depth_ == 0) return Result::kInvalidUsage;
  if (--group.depth_ > 0) return Result::kSuccess;
  Result result = group.EndParts();
  for (const auto& wait : std::exchange(group.waits_, {})) {
    const Result waited = wait();
    if (result == Result::kSuccess) result = waited;
  }
  return result;
}

}  // namespace emulated_nccl
