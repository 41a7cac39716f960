#include "tests/emulation/accesses/accesses.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <utility>

#include "tests/emulation/accesses/recorder.h"
#include "tests/emulation/runtime/block.h"
#include "tests/emulation/runtime/queue.h"

namespace emulated {
namespace {

constexpr int kLanes = 32;
constexpr uint64_t kBanks = 32;
constexpr uint64_t kWordBytes = 4;
constexpr uint64_t kPageBytes = 4096;
// In place of an allocation's end.
constexpr uintptr_t kShared = 1;
constexpr uintptr_t kOther = 0;  // stacks, constants

// What the lanes of a warp do with one instruction.
struct Request {
  std::array<uintptr_t, kLanes> addresses;
  uint32_t active = 0;
  uint32_t bytes = 0;
  bool is_write = false;
  uintptr_t place = kOther;
};

// An instruction of a warp, however its thread came to it. The n-th time of
// one lane is that of the others.
struct Site {
  std::array<uint32_t, kLanes> times = {};
  std::vector<Request> requests;
};

struct Range {
  uintptr_t begin;
  uintptr_t end;
};

// Functions that a thread is in.
struct CallStack {
  uint64_t hash = 0;
  std::vector<uint64_t> before;
};

Accesses accesses;
std::map<std::string, size_t> launch_of;
LaunchAccesses* current = nullptr;
std::unordered_map<uint64_t, Site> sites;
std::unordered_map<int, CallStack> stacks;
std::vector<Range> shared;
std::unordered_map<uintptr_t, uintptr_t> place_of_page;
std::map<uintptr_t, std::vector<bool>> read;  // sectors, from the end on

int ThreadNumber() {
  const Index& size = place.block_size;
  return static_cast<int>(place.thread.x +
                          size.x * (place.thread.y + size.y * place.thread.z));
}

uintptr_t PlaceOf(uintptr_t address) {
  for (const Range& range : shared) {
    if (address >= range.begin && address < range.end) return kShared;
  }
  const auto [found, is_new] =
      place_of_page.try_emplace(address / kPageBytes, kOther);
  if (is_new) {
    size_t left = 0;
    if (KindOf(reinterpret_cast<const void*>(address), &left) !=
        Kind::kPageable) {
      found->second = address + left;
    }
  }
  return found->second;
}

void Device(const Request& request) {
  std::set<uintptr_t> sectors;
  std::set<uintptr_t> starts;  // lanes share one or do not overlap
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((request.active >> lane & 1u) == 0) continue;
    const uintptr_t first = request.addresses[static_cast<size_t>(lane)];
    for (uintptr_t sector = first / kSectorBytes;
         sector <= (first + request.bytes - 1) / kSectorBytes; ++sector) {
      sectors.insert(sector);
    }
    starts.insert(first);
    ++current->lanes;
    current->lane_bytes += request.bytes;
  }
  const uint64_t asked = starts.size() * request.bytes;
  ++current->requests;
  current->sectors += static_cast<int64_t>(sectors.size());
  current->least_sectors +=
      static_cast<int64_t>((asked + kSectorBytes - 1) / kSectorBytes);
  current->bytes += static_cast<int64_t>(asked);
  Moved& moved = accesses.moved[request.place];
  if (request.is_write) {
    moved.written_sectors += sectors.size();
    return;
  }
  moved.read_sectors += sectors.size();
  std::vector<bool>& seen = read[request.place];
  for (const uintptr_t sector : sectors) {
    const size_t number = request.place / kSectorBytes + 1 - sector;
    if (seen.size() <= number) seen.resize(2 * number + 1);
    if (!seen[number]) ++moved.distinct_read;
    seen[number] = true;
  }
}

// Words of different addresses in one bank are one after the other. Lanes with
// 8 or 16 bytes come in halves or quarters of the warp.
void SharedMemory(const Request& request) {
  const int together =
      request.bytes <= kWordBytes
          ? kLanes
          : static_cast<int>(kLanes * kWordBytes / request.bytes);
  for (int first = 0; first < kLanes; first += together) {
    std::array<std::set<uintptr_t>, kBanks> words;
    std::set<uintptr_t> all;
    for (int lane = first; lane < first + together; ++lane) {
      if ((request.active >> lane & 1u) == 0) continue;
      const uintptr_t begin = request.addresses[static_cast<size_t>(lane)];
      for (uintptr_t word = begin / kWordBytes;
           word <= (begin + request.bytes - 1) / kWordBytes; ++word) {
        words[word % kBanks].insert(word);
        all.insert(word);
      }
    }
    if (all.empty()) continue;
    size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.size());
    current->shared_wavefronts += static_cast<int64_t>(most);
    current->least_wavefronts +=
        static_cast<int64_t>((all.size() + kBanks - 1) / kBanks);
  }
}

void EndBlock() {
  for (const auto& [key, site] : sites) {
    for (const Request& request : site.requests) {
      if (request.place == kShared) {
        SharedMemory(request);
      } else {
        Device(request);
      }
    }
  }
  sites.clear();
  stacks.clear();
  shared.clear();
  place_of_page.clear();
}

void BeginBlock(const KernelCall& call) {
  const auto [found, is_new] =
      launch_of.try_emplace(call.name, accesses.launches.size());
  if (is_new) {
    accesses.launches.emplace_back();
    accesses.launches.back().name = call.name;
  }
  current = &accesses.launches[found->second];
  if (call.dynamic_bytes > 0) {
    const auto begin = reinterpret_cast<uintptr_t>(DynamicShared());
    shared.push_back({begin, begin + call.dynamic_bytes});
  }
}

void BeginSharedMemory(void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  shared.push_back({begin, begin + bytes});
}

}  // namespace

void Record(uintptr_t address, uint32_t bytes, bool is_write, uintptr_t from) {
  const uintptr_t where = PlaceOf(address);
  if (where == kOther) return;
  const int thread = ThreadNumber();
  const auto lane = static_cast<size_t>(thread % kLanes);
  const uint64_t key = (from + stacks[thread].hash) * 2654435761u +
                       static_cast<uint64_t>(thread / kLanes) * 40503u +
                       (is_write ? 1u : 0u);
  Site& site = sites[key];
  const uint32_t time = site.times[lane]++;
  if (site.requests.size() <= time) {
    site.requests.resize(time + 1);
    site.requests[time] = {{}, 0, bytes, is_write, where};
  }
  Request& request = site.requests[time];
  request.addresses[lane] = address;
  request.active |= 1u << lane;
}

void EnterFunction(uintptr_t from) {
  CallStack& stack = stacks[ThreadNumber()];
  stack.before.push_back(stack.hash);
  stack.hash = stack.hash * 31 + from;
}

void LeaveFunction() {
  CallStack& stack = stacks[ThreadNumber()];
  if (stack.before.empty()) return;
  stack.hash = stack.before.back();
  stack.before.pop_back();
}

Accesses TakeAccesses() {
  watcher = {BeginBlock, EndBlock, BeginSharedMemory};
  launch_of.clear();
  read.clear();
  current = nullptr;
  return std::exchange(accesses, {});
}

uintptr_t AllocationOf(const void* address) {
  size_t left = 0;
  if (KindOf(address, &left) == Kind::kPageable) return 0;
  return reinterpret_cast<uintptr_t>(address) + left;
}

}  // namespace emulated
