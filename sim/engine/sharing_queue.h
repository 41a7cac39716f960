// Processor sharing on one link, exactly: n flows get 1/n of it each, and a
// transfer is one of them, or several with the same bytes. A virtual clock
// counts the bytes that every flow has been given so far; a transfer that
// starts at virtual time V ends at V plus the bytes of a flow, however many
// come and go in between. O(log n) a start or end, no re-solving.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pipewright {

class SharingQueue {
 public:
  explicit SharingQueue(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  void Start(double now_s, double bytes, uint32_t transfer, double flows = 1) {
    Advance(now_s);
    jobs_.push_back({given_ + bytes, flows, transfer});
    std::push_heap(jobs_.begin(), jobs_.end(), Later);
    flows_ += flows;
    ++version_;
  }

  bool empty() const { return jobs_.empty(); }
  // Changes whenever NextEnd does: a timer set for an older one is stale.
  uint32_t version() const { return version_; }

  // When the next transfer ends if none starts before; not when empty.
  double NextEnd() const {
    return since_s_ + (jobs_.front().end - given_) * flows_ / bytes_per_s_;
  }

  // Takes out the transfer that ends at `now_s` = NextEnd().
  uint32_t Finish(double now_s) {
    // Not Advance: the end is exact, whatever the clock's rounding.
    given_ = jobs_.front().end;
    since_s_ = now_s;
    const uint32_t transfer = jobs_.front().transfer;
    flows_ -= jobs_.front().flows;
    std::pop_heap(jobs_.begin(), jobs_.end(), Later);
    jobs_.pop_back();
    ++version_;
    // An idle link starts afresh, so that rounding does not pile up.
    if (jobs_.empty()) given_ = flows_ = 0;
    return transfer;
  }

 private:
  struct Job {
    double end;  // on the virtual clock
    double flows;
    uint32_t transfer;
  };
  static bool Later(const Job& a, const Job& b) {
    return a.end != b.end ? a.end > b.end : a.transfer > b.transfer;
  }
  void Advance(double now_s) {
    if (!jobs_.empty()) {
      given_ += (now_s - since_s_) * bytes_per_s_ / flows_;
    }
    since_s_ = now_s;
  }

  double bytes_per_s_;
  double given_ = 0;    // bytes a flow has been given that never ended
  double since_s_ = 0;  // when that was
  double flows_ = 0;    // flows of all transfers
  uint32_t version_ = 0;
  std::vector<Job> jobs_;  // heap, earliest end first
};

}  // namespace pipewright
