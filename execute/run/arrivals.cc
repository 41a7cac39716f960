#include "execute/run/arrivals.h"

#include <algorithm>

namespace pipewright {

Arrivals::Arrival Arrivals::Pop(int32_t channel, uint64_t pass_key) {
  const auto found = arrivals_.find({channel, pass_key});
  Arrival arrival = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) arrivals_.erase(found);
  return arrival;
}

Meetings::Meetings(std::vector<std::vector<Address>> members, Address self)
    : members_(std::move(members)), begun_(members_.size()) {
  for (size_t group = 0; group < members_.size(); ++group) {
    self_.push_back(IndexOf(static_cast<int>(group), self));
  }
}

void Meetings::Arrive(int group, int64_t meeting, Address from, Part part) {
  const int member = IndexOf(group, from);
  if (member >= 0) parts_[{group, meeting}][member] = std::move(part);
}

std::vector<Meetings::Part> Meetings::TakeParts(int group, int64_t meeting) {
  const auto found = parts_.find({group, meeting});
  if (found == parts_.end() || found->second.size() < members_[group].size()) {
    return {};
  }
  std::vector<Part> parts;
  for (auto& [member, part] : found->second) parts.push_back(std::move(part));
  parts_.erase(found);
  return parts;
}

int Meetings::IndexOf(int group, Address address) const {
  const std::vector<Address>& members = members_[group];
  const auto found = std::find(members.begin(), members.end(), address);
  return found == members.end() ? -1
                                : static_cast<int>(found - members.begin());
}

}  // namespace pipewright
