// Meetings of groups: collectives, by the ranks themselves or by the transport.
#include <algorithm>
#include <memory>
#include <utility>

#include "execute/run/rank_run.h"
#include "execute/transport/message.h"
#include "sim/base/status.h"

namespace pipewright {

// Every member gives every other its part and makes of all parts the same, so
// that nobody is needed in the middle. Or the transport combines them, once all
// members have met: none of them waits on its device for another.
absl::StatusOr<bool> RankRun::TryCollective(const SideOp& op, Issued& issued) {
  const std::vector<Address>& members = meetings_.members(op.group);
  const int count = static_cast<int>(members.size());
  const int self = meetings_.self(op.group);
  const auto give = [&](int to) {
    return worker_.GivePart(issued.item.side_op, self, to, count);
  };
  const bool combines = endpoint_.combines() && IsCombined(program_, op);
  if (issued.meeting == 0) {
    issued.meeting = meetings_.Begin(op.group);
    size_t bytes = 0;  // that the transport moves
    if (combines) {
      auto collective = std::make_shared<Collective>();
      collective->kind = op.kind;
      collective->group = op.group;
      collective->meeting = issued.meeting;
      collective->self = self;
      for (int to = 0; to < count; ++to) {
        if (op.kind == OpKind::kReduceScatter || to == self) {
          collective->give.push_back(give(to));
        }
      }
      bytes = collective->give.front().bytes;
      combined_[{op.group, issued.meeting}].collective = std::move(collective);
    }
    for (int member = 0; member < count; ++member) {
      Meetings::Part part = {.time_s = issued.start_s, .bytes = bytes};
      if (!combines) part.payload = give(member);
      if (member == self) {
        meetings_.Arrive(op.group, issued.meeting, self_, std::move(part));
        continue;
      }
      waits_.SendTo(members[member], {.kind = RankMessage::Kind::kArrive,
                                      .index = op.group,
                                      .key = bytes,
                                      .number = issued.meeting,
                                      .time_s = issued.start_s,
                                      .payload = std::move(part.payload)});
    }
  }
  Combined none;
  const std::pair<int, int64_t> key = {op.group, issued.meeting};
  Combined& combined = combines ? combined_.at(key) : none;
  std::vector<Payload> parts;
  if (!combined.begun) {
    std::vector<Meetings::Part> came =
        meetings_.TakeParts(op.group, issued.meeting);
    if (came.empty()) return false;
    for (Meetings::Part& part : came) {
      issued.start_s = std::max(issued.start_s, part.time_s);
      parts.push_back(std::move(part.payload));
      if (combines) combined.collective->bytes.push_back(part.bytes);
    }
    if (combines) {
      combined.begun = true;
      waits_.BeginOwn();
      endpoint_.Combine(combined.collective);
    }
  }
  if (combines) {
    if (!combined.ended) return false;
    parts = combined.collective->parts;
    combined_.erase(key);
  }
  PW_RETURN_IF_ERROR(worker_.TakeParts(issued.item.side_op, self, parts));
  return true;
}

}  // namespace pipewright
