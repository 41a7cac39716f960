// What the emulated libnccl.so.2 does and refuses, on the emulated runtime.
//
//   nccl_checks CASE RANKS            ranks are threads
//   nccl_checks CASE RANKS RANK FILE  ranks are processes; FILE: the id, which
//                                     rank 0 writes
//
// Rank r has device r. Exit 0: what the case says holds; 1: not. Cases that
// break the library's rules end with the emulation's 99 (nccl_checks.sh).
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kCount = 1000;

[[noreturn]] void Fail(int rank, const std::string& what) {
  std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
  std::_Exit(1);
}

struct Rank {
  int rank = 0;
  int ranks = 0;
  ncclUniqueId id = {};
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  void Check(bool holds, const std::string& what) const {
    if (!holds) Fail(rank, what);
  }
  void Good(ncclResult_t result, const char* what) const {
    Check(result == ncclSuccess, std::string(what) + ": " +
                                     ncclGetErrorString(result) + " (" +
                                     ncclGetLastError(comm) + ")");
  }
  void Join() {
    Good(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");
  }
  float* Device(const std::vector<float>& values) const {
    void* memory = nullptr;
    Check(cudaMalloc(&memory, values.size() * 4) == cudaSuccess, "cudaMalloc");
    cudaMemcpyAsync(memory, values.data(), values.size() * 4,
                    cudaMemcpyHostToDevice, stream);
    return static_cast<float*>(memory);
  }
  std::vector<float> Host(const float* memory, size_t count) const {
    std::vector<float> values(count);
    cudaMemcpyAsync(values.data(), memory, count * 4, cudaMemcpyDeviceToHost,
                    stream);
    cudaStreamSynchronize(stream);
    return values;
  }
  ncclResult_t Asynchronous() const {
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(comm, &state);
    return state;
  }
  // Until the communicator fails; other streams of the process run on.
  ncclResult_t AwaitFailure() const {
    for (int wait = 0; wait < 10000; ++wait) {
      cudaStreamQuery(stream);
      cudaGetLastError();
      const ncclResult_t state = Asynchronous();
      if (state != ncclSuccess && state != ncclInProgress) return state;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return ncclSuccess;
  }
};

// Member m has 1000 m + index.
std::vector<float> Values(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t index = 0; index < count; ++index) {
    values[index] = static_cast<float>(1000 * rank) + static_cast<float>(index);
  }
  return values;
}

void CheckSum(const Rank& self, ncclComm_t comm, const std::vector<int>& of) {
  float* const values = self.Device(Values(self.rank, kCount));
  self.Good(ncclAllReduce(values, values, kCount, ncclFloat32, ncclSum, comm,
                          self.stream),
            "ncclAllReduce");
  const std::vector<float> sum = self.Host(values, kCount);
  for (size_t index = 0; index < kCount; ++index) {
    float expected = 0;
    for (const int rank : of) expected += Values(rank, kCount)[index];
    self.Check(sum[index] == expected, "a wrong sum");
  }
  cudaFree(values);
}

void Collectives(Rank& self) {
  self.Join();
  std::vector<int> all;
  for (int rank = 0; rank < self.ranks; ++rank) all.push_back(rank);
  CheckSum(self, self.comm, all);
  // A ring in one group; without it nobody would come to receive.
  const auto ranks = static_cast<size_t>(self.ranks);
  const int next = (self.rank + 1) % self.ranks;
  const int last = (self.rank + self.ranks - 1) % self.ranks;
  float* const from = self.Device(Values(self.rank, kCount));
  float* const into = self.Device(std::vector<float>(kCount * ranks));
  ncclGroupStart();
  self.Good(ncclSend(from, kCount, ncclFloat32, next, self.comm, self.stream),
            "ncclSend");
  self.Good(ncclRecv(into, kCount, ncclFloat32, last, self.comm, self.stream),
            "ncclRecv");
  self.Good(ncclGroupEnd(), "ncclGroupEnd");
  self.Check(self.Host(into, kCount) == Values(last, kCount), "a wrong ring");
  self.Good(
      ncclAllGather(from, into, kCount, ncclFloat32, self.comm, self.stream),
      "ncclAllGather");
  std::vector<float> gathered;
  for (const int rank : all) {
    const std::vector<float> theirs = Values(rank, kCount);
    gathered.insert(gathered.end(), theirs.begin(), theirs.end());
  }
  self.Check(self.Host(into, gathered.size()) == gathered, "a wrong gather");
  // Every member has the same now: shard r of it, as often as there are ranks.
  self.Good(ncclReduceScatter(into, from, kCount, ncclFloat32, ncclSum,
                              self.comm, self.stream),
            "ncclReduceScatter");
  std::vector<float> shard = Values(self.rank, kCount);
  for (float& value : shard) value *= static_cast<float>(self.ranks);
  self.Check(self.Host(from, kCount) == shard, "a wrong scatter");
  const int root = self.ranks - 1;
  self.Good(ncclBroadcast(from, into, kCount, ncclFloat32, root, self.comm,
                          self.stream),
            "ncclBroadcast");
  shard = Values(root, kCount);
  for (float& value : shard) value *= static_cast<float>(self.ranks);
  self.Check(self.Host(into, kCount) == shard, "a wrong broadcast");
  self.Good(ncclReduce(into, from, kCount, ncclFloat32, ncclSum, root,
                       self.comm, self.stream),
            "ncclReduce");
  for (float& value : shard) value *= static_cast<float>(self.ranks);
  if (self.rank == root) {
    self.Check(self.Host(from, kCount) == shard, "a wrong reduction");
  }
  cudaStreamSynchronize(self.stream);
  // Odd and even ranks, in reverse.
  ncclComm_t half = nullptr;
  self.Good(ncclCommSplit(self.comm, self.rank % 2, -self.rank, &half, nullptr),
            "ncclCommSplit");
  std::vector<int> mine;
  for (int rank = self.rank % 2; rank < self.ranks; rank += 2) {
    mine.push_back(rank);
  }
  int place = -1;
  int count = 0;
  ncclCommUserRank(half, &place);
  ncclCommCount(half, &count);
  self.Check(count == static_cast<int>(mine.size()) &&
                 place == count - 1 - self.rank / 2,
             "a wrong split");
  CheckSum(self, half, mine);
  ncclComm_t none = self.comm;
  self.Good(ncclCommSplit(self.comm, self.rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0,
                          &none, nullptr),
            "ncclCommSplit");
  self.Check((none != nullptr) == (self.rank == 0), "a split of no colour");
  cudaFree(from);
  cudaFree(into);
  for (ncclComm_t comm : {half, none, self.comm}) {
    if (comm != nullptr) self.Good(ncclCommDestroy(comm), "ncclCommDestroy");
  }
}

// What is refused at once, by the call itself.
void Arguments(Rank& self) {
  self.Join();
  float* const values = self.Device(Values(self.rank, kCount));
  const auto refused = [&](ncclResult_t result, ncclResult_t expected,
                           const char* what) {
    self.Check(result == expected, what);
  };
  refused(ncclSend(values, 1, ncclFloat32, self.ranks, self.comm, self.stream),
          ncclInvalidArgument, "a peer that is none");
  refused(ncclSend(values, 1, ncclFloat32, self.rank, self.comm, self.stream),
          ncclInvalidUsage, "a send to itself without a receive");
  refused(
      ncclBroadcast(values, values, 1, ncclFloat32, -1, self.comm, self.stream),
      ncclInvalidArgument, "a root that is none");
  refused(ncclAllReduce(values, values, 1, ncclNumTypes, ncclSum, self.comm,
                        self.stream),
          ncclInvalidArgument, "a type that is none");
  refused(ncclAllReduce(nullptr, values, 1, ncclFloat32, ncclSum, self.comm,
                        self.stream),
          ncclInvalidArgument, "no memory");
  refused(ncclGroupEnd(), ncclInvalidUsage, "the end of no group");
  // All of a group, for one of its calls.
  ncclGroupStart();
  ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, self.comm,
                self.stream);
  ncclSend(values, 1, ncclFloat32, self.ranks, self.comm, self.stream);
  refused(ncclGroupEnd(), ncclInvalidArgument, "a group with such a call");
  self.Check(cudaStreamSynchronize(self.stream) == cudaSuccess, "it waits");
  cudaFree(values);
  ncclCommDestroy(self.comm);
}

void Duplicate(Rank& self) {
  cudaSetDevice(0);
  const ncclResult_t joined =
      ncclCommInitRank(&self.comm, self.ranks, self.id, self.rank);
  self.Check(joined == ncclInvalidUsage, "a device twice");
  self.Check(
      std::strstr(ncclGetLastError(self.comm), "Duplicate GPU") != nullptr,
      "no word of a device twice");
  ncclCommAbort(self.comm);
}

// The last member never comes to the collective, and aborts.
void Abort(Rank& self) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclCommInitRankConfig(&self.comm, self.ranks, self.id, self.rank, &config);
  while (self.Asynchronous() == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  self.Good(self.Asynchronous(), "joining");
  float* const values = self.Device(Values(self.rank, kCount));
  const auto call = [&] {
    return ncclAllReduce(values, values, kCount, ncclFloat32, ncclSum,
                         self.comm, self.stream);
  };
  // All have joined when this has ended.
  self.Check(call() == ncclInProgress, "a call that blocks");
  cudaStreamSynchronize(self.stream);
  if (self.rank + 1 < self.ranks) {
    while (self.Asynchronous() == ncclInProgress) {
    }
    const ncclResult_t called = call();
    self.Check(called == ncclInProgress || called == ncclRemoteError,
               "another result");
    self.Check(self.AwaitFailure() == ncclRemoteError, "nobody has failed");
  }
  ncclCommAbort(self.comm);
  self.Check(cudaStreamSynchronize(self.stream) == cudaSuccess, "it waits");
  cudaFree(values);
}

// Makes calls that break the rules: the communicator fails for everybody.
void Broken(Rank& self, const std::function<void(float*)>& calls) {
  self.Join();
  float* const values = self.Device(Values(self.rank, kCount));
  calls(values);
  self.Check(self.AwaitFailure() != ncclSuccess, "nobody has failed");
  ncclCommAbort(self.comm);
}

void Counts(Rank& self) {
  Broken(self, [&](float* values) {
    if (self.rank == 0) {
      ncclSend(values, 4, ncclFloat32, 1, self.comm, self.stream);
    } else if (self.rank == 1) {
      ncclRecv(values, 8, ncclFloat32, 0, self.comm, self.stream);
    }
  });
}

void Types(Rank& self) {
  Broken(self, [&](float* values) {
    ncclBroadcast(values, values, 4, self.rank == 0 ? ncclFloat32 : ncclInt32,
                  0, self.comm, self.stream);
  });
}

void Order(Rank& self) {
  Broken(self, [&](float* values) {
    for (const bool first : {true, false}) {
      if (first == (self.rank == 0)) {
        ncclAllReduce(values, values, 4, ncclFloat32, ncclSum, self.comm,
                      self.stream);
      } else {
        ncclAllGather(values + self.rank, values, 1, ncclFloat32, self.comm,
                      self.stream);
      }
    }
  });
}

// Two that send first, without a group: each waits for the other's receive.
void Deadlock(Rank& self) {
  self.Join();
  float* const values = self.Device(Values(self.rank, kCount));
  if (self.rank < 2) {
    ncclSend(values, 4, ncclFloat32, 1 - self.rank, self.comm, self.stream);
    ncclRecv(values, 4, ncclFloat32, 1 - self.rank, self.comm, self.stream);
  }
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begun < std::chrono::seconds(3)) {
    self.Check(self.rank > 1 || cudaStreamQuery(self.stream) != cudaSuccess,
               "no deadlock");
    cudaGetLastError();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ncclCommAbort(self.comm);
}

// Memory of one device on a stream of another.
void Fill(Rank& self) {
  if (self.rank != 0) return;
  float* const values = self.Device(Values(self.rank, kCount));
  cudaStream_t other = nullptr;
  cudaSetDevice(1);
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  self.Check(cudaMemsetAsync(values, 0, 4, other) != cudaSuccess,
             "it is filled");
  cudaGetLastError();
  cudaStreamDestroy(other);
  cudaSetDevice(0);
}

const std::map<std::string, void (*)(Rank&)> kCases = {
    {"collectives", Collectives},
    {"arguments", Arguments},
    {"duplicate", Duplicate},
    {"abort", Abort},
    {"counts", Counts},
    {"types", Types},
    {"order", Order},
    {"deadlock", Deadlock},
    {"fill", Fill},
};

void Run(const std::string& name, Rank self) {
  if (cudaSetDevice(self.rank) != cudaSuccess) Fail(self.rank, "no device");
  cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking);
  kCases.at(name)(self);
  cudaStreamDestroy(self.stream);
}

ncclUniqueId IdFrom(const std::string& path, int rank) {
  ncclUniqueId id = {};
  if (rank == 0) {
    ncclGetUniqueId(&id);
    const std::string draft = path + ".draft";
    std::ofstream(draft, std::ios::binary).write(id.internal, sizeof(id));
    std::rename(draft.c_str(), path.c_str());
    return id;
  }
  for (int wait = 0; wait < 60000; ++wait) {
    std::ifstream file(path, std::ios::binary);
    if (file && file.read(id.internal, sizeof(id))) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Fail(rank, "no id");
}

}  // namespace

int main(int count, char** arguments) {
  if ((count != 3 && count != 5) || kCases.count(arguments[1]) == 0) {
    std::fprintf(stderr, "usage: nccl_checks CASE RANKS [RANK FILE]\n");
    return 2;
  }
  const std::string name = arguments[1];
  const int ranks = std::atoi(arguments[2]);
  if (count == 5) {
    const int rank = std::atoi(arguments[3]);
    Run(name, {.rank = rank, .ranks = ranks, .id = IdFrom(arguments[4], rank)});
    return 0;
  }
  ncclUniqueId id = {};
  ncclGetUniqueId(&id);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { Run(name, {.rank = rank, .ranks = ranks, .id = id}); });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}
