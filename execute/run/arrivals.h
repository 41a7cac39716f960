// What has come to a rank from others, until the rank uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "execute/transport/transport.h"

namespace pipewright {

// Messages of channels, by channel and pass, first in, first out.
class Arrivals {
 public:
  struct Arrival {
    double start_s = 0;
    double time_s = 0;
    Payload payload;
  };

  void Push(int32_t channel, uint64_t pass_key, Arrival arrival) {
    arrivals_[{channel, pass_key}].push_back(std::move(arrival));
  }
  bool Has(int32_t channel, uint64_t pass_key) const {
    return arrivals_.contains({channel, pass_key});
  }
  // Arrival of the first message, in s; Has must be true of it.
  double TimeOf(int32_t channel, uint64_t pass_key) const {
    return arrivals_.find({channel, pass_key})->second.front().time_s;
  }
  // Takes the first message out; Has must be true of it.
  Arrival Pop(int32_t channel, uint64_t pass_key);

 private:
  absl::flat_hash_map<std::pair<int32_t, uint64_t>, std::deque<Arrival>>
      arrivals_;
};

// Meetings of the groups of a program: who has come to each, and with what.
// A group meets again and again; its meetings are counted from 1.
class Meetings {
 public:
  struct Part {
    double time_s = 0;
    Payload payload;
    size_t bytes = 0;  // if the transport moves it
  };

  // `members`: [group][member].
  Meetings(std::vector<std::vector<Address>> members, Address self);

  size_t groups() const { return members_.size(); }
  const std::vector<Address>& members(int group) const {
    return members_[group];
  }
  // Number of this rank among the members; -1: it is none.
  int self(int group) const { return self_[group]; }

  // Number of the next meeting that this rank comes to.
  int64_t Begin(int group) { return ++begun_[group]; }
  // Dropped if `from` is no member.
  void Arrive(int group, int64_t meeting, Address from, Part part);
  // Takes the parts of a meeting out, in the order of the members; empty until
  // all have come.
  std::vector<Part> TakeParts(int group, int64_t meeting);

 private:
  int IndexOf(int group, Address address) const;

  std::vector<std::vector<Address>> members_;
  std::vector<int> self_;                                         // [group]
  std::vector<int64_t> begun_;                                    // [group]
  std::map<std::pair<int, int64_t>, std::map<int, Part>> parts_;  // [member]
};

}  // namespace pipewright
