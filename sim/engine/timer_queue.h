// Timers in the order of their dates, then of their setting. Devices that do
// the same set thousands of timers for one date: those share one place in the
// heap, as long as their date is among the last that were asked for. O(1) for
// them, else O(log n) of the dates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace pipewright {

class TimerQueue {
 public:
  bool empty() const { return heap_.empty(); }
  // Infinite when empty.
  double next_s() const {
    return heap_.empty() ? std::numeric_limits<double>::infinity()
                         : heap_[0].date_s;
  }

  void Push(double date_s, uint64_t code) {
    const uint32_t node = NewNode(code);
    Recent& recent = recent_[PlaceOf(date_s)];
    if (recent.bucket != kNone && recent.date_s == date_s) {
      Bucket& bucket = buckets_[recent.bucket];
      nodes_[bucket.last].next = node;
      bucket.last = node;
      return;
    }
    const uint32_t bucket = NewBucket(node);
    recent = {date_s, bucket};
    heap_.push_back({date_s, ++set_, bucket});
    Up(heap_.size() - 1);
  }

  // Takes the first out; not when empty.
  uint64_t Pop() {
    const Entry& top = heap_[0];
    Bucket& bucket = buckets_[top.bucket];
    const uint32_t node = bucket.first;
    const uint64_t code = nodes_[node].code;
    bucket.first = nodes_[node].next;
    nodes_[node].next = free_node_;
    free_node_ = node;
    if (ahead_of_ == top.set && ahead_ > 0) {
      --ahead_;
    } else {
      ahead_of_ = 0;
    }
    if (bucket.first == kNone) {
      Recent& recent = recent_[PlaceOf(top.date_s)];
      if (recent.bucket == top.bucket) recent.bucket = kNone;
      free_buckets_.push_back(top.bucket);
      PopEntry();
    }
    return code;
  }

  // Calls `call` once with every timer of the first date that comes within
  // `most` places, as far as it has not been called yet: what it needs can then
  // be fetched. Timers that come late may be left out.
  template <class Call>
  void LookAhead(int most, Call call) {
    if (heap_.empty()) return;
    const Entry& top = heap_[0];
    if (ahead_of_ != top.set) {
      ahead_of_ = top.set;
      ahead_node_ = buckets_[top.bucket].first;
      ahead_ = 0;
    }
    while (ahead_ < most && nodes_[ahead_node_].next != kNone) {
      ahead_node_ = nodes_[ahead_node_].next;
      ++ahead_;
      call(nodes_[ahead_node_].code);
    }
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kArity = 4;
  struct Node {
    uint64_t code;
    uint32_t next;
  };
  struct Bucket {  // timers of one date, in the order of setting
    uint32_t first;
    uint32_t last;
  };
  struct Entry {
    double date_s;
    uint64_t set;
    uint32_t bucket;
    bool IsBefore(const Entry& other) const {
      return date_s != other.date_s ? date_s < other.date_s : set < other.set;
    }
  };
  struct Recent {
    double date_s = 0;
    uint32_t bucket = kNone;
  };

  static size_t PlaceOf(double date_s) {
    uint64_t bits = 0;
    std::memcpy(&bits, &date_s, sizeof(bits));
    return bits * 0x9e3779b97f4a7c15 >> 58;
  }

  uint32_t NewNode(uint64_t code) {
    if (free_node_ == kNone) {
      nodes_.push_back({code, kNone});
      return static_cast<uint32_t>(nodes_.size() - 1);
    }
    const uint32_t node = free_node_;
    free_node_ = nodes_[node].next;
    nodes_[node] = {code, kNone};
    return node;
  }

  uint32_t NewBucket(uint32_t node) {
    if (free_buckets_.empty()) {
      buckets_.push_back({node, node});
      return static_cast<uint32_t>(buckets_.size() - 1);
    }
    const uint32_t bucket = free_buckets_.back();
    free_buckets_.pop_back();
    buckets_[bucket] = {node, node};
    return bucket;
  }

  void Up(size_t place) {
    const Entry moved = heap_[place];
    while (place > 0) {
      const size_t parent = (place - 1) / kArity;
      if (!moved.IsBefore(heap_[parent])) break;
      heap_[place] = heap_[parent];
      place = parent;
    }
    heap_[place] = moved;
  }

  void PopEntry() {
    const Entry moved = heap_.back();
    heap_.pop_back();
    const size_t size = heap_.size();
    if (size == 0) return;
    size_t place = 0;
    while (true) {
      const size_t first = kArity * place + 1;
      if (first >= size) break;
      const size_t behind = first + kArity < size ? first + kArity : size;
      size_t least = first;
      for (size_t child = first + 1; child < behind; ++child) {
        if (heap_[child].IsBefore(heap_[least])) least = child;
      }
      if (!heap_[least].IsBefore(moved)) break;
      heap_[place] = heap_[least];
      place = least;
    }
    heap_[place] = moved;
  }

  std::vector<Entry> heap_;
  std::vector<Bucket> buckets_;
  std::vector<uint32_t> free_buckets_;
  std::vector<Node> nodes_;
  uint32_t free_node_ = kNone;
  uint64_t set_ = 0;
  uint64_t ahead_of_ = 0;  // entry by its `set`
  uint32_t ahead_node_ = kNone;
  int ahead_ = 0;  // places of it behind the first
  std::array<Recent, 64> recent_;
};

}  // namespace pipewright
