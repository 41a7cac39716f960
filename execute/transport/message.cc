#include "execute/transport/message.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/program/network_time.h"

namespace pipewright {

Payload HostPayload(absl::string_view bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  char* const data = owner->data();
  return {.data = std::shared_ptr<void>(std::move(owner), data),
          .bytes = bytes.size()};
}

std::string TextOf(const Payload& payload) {
  return std::string(static_cast<const char*>(payload.data.get()),
                     payload.bytes);
}

std::string RankName(const Program& program, Address address) {
  return program.replicas == 1 ? absl::StrCat("rank ", address.rank)
                               : absl::StrCat("rank ", address.rank,
                                              " of replica ", address.replica);
}

std::vector<Address> OtherRanks(const Program& program, Address self) {
  std::vector<Address> others;
  for (int replica = 0; replica < program.replicas; ++replica) {
    for (int rank = 0; rank < program.pp(); ++rank) {
      const Address other = {replica, rank};
      if (!(other == self)) others.push_back(other);
    }
  }
  return others;
}

std::vector<Address> GroupRanks(const Program& program, int32_t group,
                                int32_t replica) {
  std::vector<Address> ranks;
  for (const Member& member :
       RanksOf(GroupMembers(program, program.groups[group], replica))) {
    ranks.push_back({member.replica, member.rank});
  }
  return ranks;
}

bool IsCombined(const Program& program, const SideOp& op) {
  if (op.stage < 0 || op.group < 0) return false;
  const std::vector<Member> members =
      RanksOf(GroupMembers(program, program.groups[op.group], 0));
  if (members.size() < 2) return false;
  return op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter ||
         op.kind == OpKind::kAllGather;
}

}  // namespace pipewright
