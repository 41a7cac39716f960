#include "calibrate/thread_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "sim/base/check.h"
#include "sim/base/statistics.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(20);

// Waits until `value` is no longer `old`.
template <class Value>
void HybridWait(const std::atomic<Value>& value, Value old) {
  const auto start = Clock::now();
  while (value.load(std::memory_order_acquire) == old) {
    if (Clock::now() - start < kSpin) continue;
    value.wait(old, std::memory_order_acquire);
  }
}

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void Barrier::Wait() {
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  HybridWait(phase_, phase);
}

ThreadGroup::ThreadGroup(int ranks, int64_t max_bytes)
    : ranks_(ranks), barrier_(ranks), start_(ranks + 1), end_(ranks + 1) {
  PW_CHECK(ranks >= 2);
  // Room for shards that are rounded up.
  const size_t elements = static_cast<size_t>(max_bytes) / sizeof(float) +
                          static_cast<size_t>(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    all_.push_back(std::make_unique<Rank>());
    all_.back()->own.assign(elements, 0.5f + static_cast<float>(rank));
    all_.back()->from.assign(elements, 0.25f);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    all_[static_cast<size_t>(rank)]->thread =
        std::thread([this, rank] { Loop(rank); });
  }
}

ThreadGroup::~ThreadGroup() {
  quit_ = true;
  start_.Wait();
  for (auto& rank : all_) rank->thread.join();
}

double ThreadGroup::Run(TransferKind kind, int64_t bytes, int repeats) {
  kind_ = kind;
  bytes_ = bytes;
  repeats_ = repeats;
  stop_ = false;
  start_.Wait();
  end_.Wait();
  return Median(seconds_);
}

void ThreadGroup::Begin(TransferKind kind, int64_t bytes) {
  kind_ = kind;
  bytes_ = bytes;
  repeats_ = 0;
  stop_ = false;
  start_.Wait();
}

std::vector<double> ThreadGroup::End() {
  stop_ = true;
  end_.Wait();
  return seconds_;
}

void ThreadGroup::Loop(int rank) {
  while (true) {
    start_.Wait();
    if (quit_) return;
    if (rank == 0) seconds_.clear();
    for (int done = 0;; ++done) {
      if (rank == 0) {
        go_ = repeats_ > 0 ? done < repeats_ : done == 0 || !stop_;
      }
      barrier_.Wait();
      if (!go_) break;
      const auto start = Clock::now();
      Transfer(rank, kind_, bytes_);
      // Nobody reads go_ any more when rank 0 sets it anew.
      barrier_.Wait();
      if (rank == 0) {
        const double trips = kind_ == TransferKind::kSendRecv ? 2 : 1;
        seconds_.push_back(Seconds(start, Clock::now()) / trips);
      }
    }
    end_.Wait();
  }
}

void ThreadGroup::Send(int to, const float* data) {
  auto& mailbox = all_[static_cast<size_t>(to)]->mailbox;
  mailbox.store(data, std::memory_order_release);
  mailbox.notify_all();
}

void ThreadGroup::WaitTaken(int to) {
  auto& mailbox = all_[static_cast<size_t>(to)]->mailbox;
  while (const float* data = mailbox.load(std::memory_order_acquire)) {
    HybridWait(mailbox, data);
  }
}

void ThreadGroup::Receive(int rank, float* into, int64_t count, bool add) {
  auto& mailbox = all_[static_cast<size_t>(rank)]->mailbox;
  HybridWait(mailbox, static_cast<const float*>(nullptr));
  const float* data = mailbox.load(std::memory_order_acquire);
  if (add) {
    // The mean, so that numbers stay finite however often this runs.
    for (int64_t index = 0; index < count; ++index) {
      into[index] = 0.5f * (into[index] + data[index]);
    }
  } else {
    std::memcpy(into, data, static_cast<size_t>(count) * sizeof(float));
  }
  mailbox.store(nullptr, std::memory_order_release);
  mailbox.notify_all();
}

// ranks - 1 steps; in each every rank sends the shard it completed last to the
// next rank.
void ThreadGroup::Ring(int rank, int64_t bytes, bool reduce, int first_shard) {
  const auto elements = bytes / static_cast<int64_t>(sizeof(float));
  const int64_t shard = (elements + ranks_ - 1) / ranks_;
  const int next = (rank + 1) % ranks_;
  float* own = all_[static_cast<size_t>(rank)]->own.data();
  for (int step = 0; step + 1 < ranks_; ++step) {
    const int sent = (rank + first_shard - step + 2 * ranks_) % ranks_;
    const int received = (sent - 1 + ranks_) % ranks_;
    const auto place = [&](int index) {
      return std::min<int64_t>(index * shard, elements);
    };
    Send(next, own + place(sent));
    Receive(rank, own + place(received), place(received + 1) - place(received),
            reduce);
    WaitTaken(next);
  }
}

void ThreadGroup::Transfer(int rank, TransferKind kind, int64_t bytes) {
  Rank& self = *all_[static_cast<size_t>(rank)];
  const auto elements = bytes / static_cast<int64_t>(sizeof(float));
  switch (kind) {
    case TransferKind::kSendRecv:
      if (rank > 1) return;
      if (rank == 1) Receive(1, self.from.data(), elements, false);
      Send(1 - rank, self.own.data());
      if (rank == 0) Receive(0, self.from.data(), elements, false);
      WaitTaken(1 - rank);
      return;
    case TransferKind::kReduceScatter:
      Ring(rank, bytes, true, 0);
      return;
    case TransferKind::kAllGather:
      Ring(rank, bytes, false, 0);
      return;
    case TransferKind::kAllReduce:
      Ring(rank, bytes, true, 0);
      // This rank has the shard after its own in full.
      Ring(rank, bytes, false, 1);
      return;
  }
}

}  // namespace pipewright
