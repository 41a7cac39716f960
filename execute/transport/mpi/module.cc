// Built as libpipewright_mpi.so, which the program loads when mpirun has
// started it.
//
// SimGrid simulates MPI and so has functions of the same names. Where a process
// has loaded it, they could be found first: MPI's own are looked up among what
// this library is linked with.
#include "execute/transport/mpi/module.h"

#include <dlfcn.h>
#include <mpi.h>

#include <chrono>
#include <climits>
#include <cstring>
#include <list>
#include <string>
#include <vector>

namespace {

// Something of this library, to find it by.
const char kHere = 0;

// A function among what this library is linked with. There is one, or the
// library would not have been loaded.
template <class Function>
void Find(const char* name, Function* function) {
  static void* const self = [] {
    Dl_info info;
    dladdr(&kHere, &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  *function = reinterpret_cast<Function>(dlsym(self, name));
}

struct Mpi {
  decltype(&MPI_Error_string) error_string;
  decltype(&MPI_Init_thread) init_thread;
  decltype(&MPI_Comm_dup) comm_dup;
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler;
  decltype(&MPI_Comm_rank) comm_rank;
  decltype(&MPI_Comm_size) comm_size;
  decltype(&MPI_Isend) isend;
  decltype(&MPI_Improbe) improbe;
  decltype(&MPI_Get_count) get_count;
  decltype(&MPI_Imrecv) imrecv;
  decltype(&MPI_Finalize) finalize;
  decltype(&MPI_Test) test;
  decltype(&MPI_Barrier) barrier;
  decltype(&MPI_Ibarrier) ibarrier;
  decltype(&MPI_Send) send;
  decltype(&MPI_Recv) recv;
  decltype(&MPI_Allreduce) allreduce;
  decltype(&MPI_Allgather) allgather;
  decltype(&MPI_Reduce_scatter_block) reduce_scatter_block;
  decltype(&MPI_Get_library_version) get_library_version;
};

const Mpi& Real() {
  static const Mpi mpi = [] {
    Mpi found;
    Find("MPI_Error_string", &found.error_string);
    Find("MPI_Init_thread", &found.init_thread);
    Find("MPI_Comm_dup", &found.comm_dup);
    Find("MPI_Comm_set_errhandler", &found.comm_set_errhandler);
    Find("MPI_Comm_rank", &found.comm_rank);
    Find("MPI_Comm_size", &found.comm_size);
    Find("MPI_Isend", &found.isend);
    Find("MPI_Improbe", &found.improbe);
    Find("MPI_Get_count", &found.get_count);
    Find("MPI_Imrecv", &found.imrecv);
    Find("MPI_Finalize", &found.finalize);
    Find("MPI_Test", &found.test);
    Find("MPI_Barrier", &found.barrier);
    Find("MPI_Ibarrier", &found.ibarrier);
    Find("MPI_Send", &found.send);
    Find("MPI_Recv", &found.recv);
    Find("MPI_Allreduce", &found.allreduce);
    Find("MPI_Allgather", &found.allgather);
    Find("MPI_Reduce_scatter_block", &found.reduce_scatter_block);
    Find("MPI_Get_library_version", &found.get_library_version);
    return found;
  }();
  return mpi;
}

struct Sending {
  std::vector<char> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// The one job that a process can be part of.
struct Job {
  MPI_Comm all = MPI_COMM_NULL;
  std::list<Sending> sending;
  MPI_Message probed = MPI_MESSAGE_NULL;
  int probed_bytes = 0;
  std::vector<MPI_Request> receiving;  // null: a number that is free
  bool ends = false;
  MPI_Request end = MPI_REQUEST_NULL;
  std::string error;
};

Job& TheJob() {
  // Lives to the end of the process: MPI may still look at buffers.
  static Job* const job = new Job;
  return *job;
}

int Check(int code, const char* what) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  Real().error_string(code, text, &length);
  TheJob().error = std::string(what) + ": " + std::string(text, length);
  return -1;
}

int Start() {
  int level = 0;
  // Any thread may call, but only one at a time.
  if (Check(Real().init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level),
            "MPI_Init_thread")) {
    return -1;
  }
  if (level < MPI_THREAD_SERIALIZED) {
    TheJob().error = "this MPI may be called by one thread only";
    return -1;
  }
  if (Check(Real().comm_dup(MPI_COMM_WORLD, &TheJob().all), "MPI_Comm_dup")) {
    return -1;
  }
  return Check(Real().comm_set_errhandler(TheJob().all, MPI_ERRORS_RETURN),
               "MPI_Comm_set_errhandler");
}

int Process() {
  int number = 0;
  return Check(Real().comm_rank(TheJob().all, &number), "MPI_Comm_rank")
             ? -1
             : number;
}

int Processes() {
  int count = 0;
  return Check(Real().comm_size(TheJob().all, &count), "MPI_Comm_size") ? -1
                                                                        : count;
}

int Unsent() {
  std::list<Sending>& sending = TheJob().sending;
  for (auto each = sending.begin(); each != sending.end();) {
    int done = 0;
    if (Check(Real().test(&each->request, &done, MPI_STATUS_IGNORE), "send")) {
      return -1;
    }
    each = done ? sending.erase(each) : std::next(each);
  }
  return static_cast<int>(sending.size());
}

int Send(int to, int tag, const void* head, size_t head_bytes, const void* body,
         size_t body_bytes) {
  if (head_bytes + body_bytes > INT_MAX) {
    TheJob().error = "a message of " + std::to_string(head_bytes + body_bytes) +
                     " bytes, MPI takes " + std::to_string(INT_MAX);
    return -1;
  }
  Sending& message = TheJob().sending.emplace_back();
  message.bytes.resize(head_bytes + body_bytes);
  if (head_bytes > 0) std::memcpy(message.bytes.data(), head, head_bytes);
  if (body_bytes > 0) {
    std::memcpy(message.bytes.data() + head_bytes, body, body_bytes);
  }
  if (Check(Real().isend(message.bytes.data(),
                         static_cast<int>(message.bytes.size()), MPI_BYTE, to,
                         tag, TheJob().all, &message.request),
            "send")) {
    TheJob().sending.pop_back();
    return -1;
  }
  return Unsent() < 0 ? -1 : 0;
}

int Probe(int tag, int* from, size_t* bytes) {
  Job& job = TheJob();
  // Every call moves sends under way on, and gives back the memory of those
  // that have ended.
  if (Unsent() < 0) return -1;
  int come = 0;
  MPI_Status status;
  if (Check(Real().improbe(MPI_ANY_SOURCE, tag, job.all, &come, &job.probed,
                           &status),
            "probe")) {
    return -1;
  }
  if (!come) return 0;
  if (Check(Real().get_count(&status, MPI_BYTE, &job.probed_bytes), "probe")) {
    return -1;
  }
  *from = status.MPI_SOURCE;
  *bytes = static_cast<size_t>(job.probed_bytes);
  return 1;
}

int Receive(void* into) {
  Job& job = TheJob();
  size_t number = 0;
  while (number < job.receiving.size() &&
         job.receiving[number] != MPI_REQUEST_NULL) {
    ++number;
  }
  if (number == job.receiving.size()) {
    job.receiving.push_back(MPI_REQUEST_NULL);
  }
  if (Check(Real().imrecv(into, job.probed_bytes, MPI_BYTE, &job.probed,
                          &job.receiving[number]),
            "receive")) {
    return -1;
  }
  return static_cast<int>(number);
}

int HasReceived(int number) {
  int done = 0;
  if (Check(Real().test(&TheJob().receiving[static_cast<size_t>(number)], &done,
                        MPI_STATUS_IGNORE),
            "receive")) {
    return -1;
  }
  return done != 0 ? 1 : 0;
}

int HasEnded() {
  Job& job = TheJob();
  if (!job.ends) {
    if (Check(Real().ibarrier(job.all, &job.end), "MPI_Ibarrier")) return -1;
    job.ends = true;
  }
  int done = 0;
  if (Check(Real().test(&job.end, &done, MPI_STATUS_IGNORE), "MPI_Ibarrier")) {
    return -1;
  }
  return done != 0 ? 1 : 0;
}

int Finish() { return Check(Real().finalize(), "MPI_Finalize"); }

// The buffers live on, so that the first transfer of a size does not use memory
// that has never been touched.
struct Floats {
  std::vector<float> own;
  std::vector<float> other;
  void Hold(size_t count) {
    if (own.size() >= count) return;
    own.assign(count, 0.5f);
    other.assign(count, 0.25f);
  }
};

int Exchange(PwTransfer kind, int count, int processes, Floats* floats) {
  const MPI_Comm all = TheJob().all;
  float* own = floats->own.data();
  float* other = floats->other.data();
  // Room for shards that are rounded up.
  const int shard = (count + processes - 1) / processes;
  switch (kind) {
    case PW_SEND_RECV: {
      constexpr int kTag = 2;  // none of ProcessGroup's
      const int self = Process();
      if (self > 1) return 0;
      const int peer = 1 - self;
      for (const bool sends : {self == 0, self == 1}) {
        const int code =
            sends ? Real().send(own, count, MPI_FLOAT, peer, kTag, all)
                  : Real().recv(other, count, MPI_FLOAT, peer, kTag, all,
                                MPI_STATUS_IGNORE);
        if (Check(code, "send and receive")) return -1;
      }
      return 0;
    }
    case PW_ALL_REDUCE:
      return Check(Real().allreduce(own, other, count, MPI_FLOAT, MPI_SUM, all),
                   "MPI_Allreduce");
    case PW_ALL_GATHER:
      return Check(
          Real().allgather(own, shard, MPI_FLOAT, other, shard, MPI_FLOAT, all),
          "MPI_Allgather");
    case PW_REDUCE_SCATTER:
      return Check(Real().reduce_scatter_block(own, other, shard, MPI_FLOAT,
                                               MPI_SUM, all),
                   "MPI_Reduce_scatter_block");
  }
  TheJob().error = "no such transfer";
  return -1;
}

int Transfer(PwTransfer kind, size_t bytes, int repeats, double* seconds) {
  static Floats* const floats = new Floats;
  const int processes = Processes();
  if (processes < 2 || repeats < 1 || bytes > INT_MAX) {
    TheJob().error = "a transfer needs two processes, a repeat and at most " +
                     std::to_string(INT_MAX) + " bytes";
    return -1;
  }
  const int count = static_cast<int>(bytes / sizeof(float));
  floats->Hold(static_cast<size_t>(count) + static_cast<size_t>(processes));
  if (Check(Real().barrier(TheJob().all), "MPI_Barrier")) return -1;
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0; done < repeats; ++done) {
    if (Exchange(kind, count, processes, floats)) return -1;
  }
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  const double trips = kind == PW_SEND_RECV ? 2 : 1;
  const double own = took.count() / repeats / trips;
  return Check(
      Real().allreduce(&own, seconds, 1, MPI_DOUBLE, MPI_MAX, TheJob().all),
      "MPI_Allreduce");
}

const char* Version() {
  static const std::string* const version = [] {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    Real().get_library_version(text, &length);
    const std::string all(text, static_cast<size_t>(length));
    // The rest says who has built it, and where.
    return new std::string(all.substr(0, all.find_first_of(",\n")));
  }();
  return version->c_str();
}
void Leave(const char*) {}

const char* Error() { return TheJob().error.c_str(); }

}  // namespace

extern "C" const PwProcesses* pw_mpi(void) {
  static const PwProcesses table = {
      .abi = PW_MPI_ABI,
      .start = Start,
      .process = Process,
      .processes = Processes,
      .send = Send,
      .probe = Probe,
      .receive = Receive,
      .received = HasReceived,
      .unsent = Unsent,
      // mpirun ends the others.
      .has_left = [](int, int) { return 0; },
      .has_ended = HasEnded,
      .finish = Finish,
      .transfer = Transfer,
      .version = Version,
      .leave = Leave,
      .error = Error,
  };
  return &table;
}
