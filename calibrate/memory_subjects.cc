#include "calibrate/memory_subjects.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calibrate/machine.h"
#include "calibrate/measure.h"
#include "calibrate/thread_group.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// More parameters say nothing new and take seconds on a host.
constexpr int64_t kMostParameters = int64_t{1} << 22;

// What a rank's step reads has long left the caches. So samples take turns over
// sets of buffers of so many bytes in all; more sets are of no use.
constexpr int64_t kRotatedBytes = int64_t{1} << 28;
constexpr int64_t kMostSets = 32;

constexpr PwAdam kAdam = {.learning_rate = 1e-4f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .epsilon = 1e-8f,
                          .weight_decay = 0.1f,
                          .step = 10,
                          .gradient_scale = 1};

// Gradients, master weights and both moments; where the type is not the
// master's, also the weights that passes compute with.
class AdamBuffers {
 public:
  AdamBuffers(MeasuredDevice* device, PwType type, int64_t count, bool host)
      : device_(device), type_(type), count_(count), host_(host) {}

  // Takes other memory.
  absl::Status Renew() {
    // The old buffers go first: a second set may not fit.
    all_ = Buffer();
    weights_ = Buffer();
    const size_t bytes = 4 * static_cast<size_t>(count_) * sizeof(float);
    PW_ASSIGN_OR_RETURN(all_, Allocate(bytes));
    if (type_ != PW_FP32) {
      PW_ASSIGN_OR_RETURN(
          weights_, Allocate(static_cast<size_t>(count_) * BytesOf(type_)));
    }
    if (!host_) {
      return device_->Randomize(PW_FP32, all_.data(), bytes, 9, 0.01f);
    }
    // The second moment is a square: not below 0.
    for (int64_t index = 0; index < 4 * count_; ++index) {
      all_.as<float>()[index] = 0.01f + 1e-4f * static_cast<float>(index % 97);
    }
    return absl::OkStatus();
  }

  // Queues the step; on the host it is done on return.
  absl::Status Step() const {
    const PwKernels* kernels = device_->kernels();
    void* weights = weights_.data();
    if (host_) {
      return device_->Check(kernels->adam_host(&kAdam, type_, count_, at(0),
                                               at(1), at(2), at(3), weights),
                            "run the optimizer on the host");
    }
    return device_->Check(
        kernels->adam(device_->handle(), nullptr, &kAdam, type_, count_, at(0),
                      at(1), at(2), at(3), weights),
        "run the optimizer");
  }

  // Predicts weights on the device. They overwrite the gradients, which are not
  // needed.
  absl::Status Predict() const {
    return device_->Check(
        device_->kernels()->predict(device_->handle(), nullptr, &kAdam,
                                    /*steps=*/3, PW_FP32, count_, at(1), at(2),
                                    at(3), at(0)),
        "predict weights");
  }

 private:
  absl::StatusOr<Buffer> Allocate(size_t bytes) {
    return host_ ? device_->AllocateHost(bytes) : device_->Allocate(bytes);
  }
  float* at(int64_t index) const { return all_.as<float>() + index * count_; }

  MeasuredDevice* device_;
  PwType type_;
  int64_t count_;
  bool host_;
  Buffer all_;
  Buffer weights_;
};

// Sets on the device, in turn.
class AdamRotation {
 public:
  AdamRotation(MeasuredDevice* device, PwType type, int64_t count) {
    const int64_t bytes = 4 * count * static_cast<int64_t>(sizeof(float));
    const int64_t sets =
        std::clamp<int64_t>(kRotatedBytes / bytes, 1, kMostSets);
    for (int64_t set = 0; set < sets; ++set) {
      sets_.emplace_back(device, type, count, /*host=*/false);
    }
  }
  absl::Status Renew() {
    for (AdamBuffers& set : sets_) PW_RETURN_IF_ERROR(set.Renew());
    return absl::OkStatus();
  }
  const AdamBuffers& Next() { return sets_[next_++ % sets_.size()]; }

 private:
  std::vector<AdamBuffers> sets_;
  size_t next_ = 0;
};

OptimizerEntry EntryOf(const char* where, int64_t parameters,
                       bool prediction = false) {
  OptimizerEntry entry;
  entry.where = where;
  entry.parameters = parameters;
  entry.prediction = prediction;
  return entry;
}

// One triad a thread, each with arrays of its own.
class Triad {
 public:
  Triad(int threads, int64_t elements)
      : start_(threads + 1), end_(threads + 1) {
    spans_.resize(static_cast<size_t>(threads));
    written_.resize(spans_.size());
    for (int index = 0; index < threads; ++index) {
      threads_.emplace_back([this, index, elements] { Loop(index, elements); });
    }
  }
  ~Triad() {
    quit_ = true;
    start_.Wait();
    for (std::thread& thread : threads_) thread.join();
  }
  // Bytes per second of all threads together.
  double Run(int64_t elements) {
    start_.Wait();
    end_.Wait();
    Span all = spans_[0];
    for (const Span& span : spans_) {
      all.start = std::min(all.start, span.start);
      all.end = std::max(all.end, span.end);
    }
    const double bytes = 3 * sizeof(double) * static_cast<double>(elements) *
                         static_cast<double>(spans_.size());
    return bytes / std::chrono::duration<double>(all.end - all.start).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point start, end;
  };

  void Loop(int index, int64_t elements) {
    const auto count = static_cast<size_t>(elements);
    std::vector<double> a(count, 1.0);
    // Else the compiler may see that nobody reads what is written.
    written_[static_cast<size_t>(index)] = a.data();
    const std::vector<double> b(count, 2.0 + index);
    const std::vector<double> c(count, 0.5);
    while (true) {
      start_.Wait();
      if (quit_) return;
      Span& span = spans_[static_cast<size_t>(index)];
      span.start = Clock::now();
      for (size_t at = 0; at < count; ++at) a[at] = b[at] + 3.0 * c[at];
      span.end = Clock::now();
      end_.Wait();
    }
  }

  Barrier start_;
  Barrier end_;
  bool quit_ = false;
  std::vector<Span> spans_;
  std::vector<const double*> written_;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::vector<Subject>> OptimizerSubjects(MeasuredDevice* device,
                                                       PwType type,
                                                       int64_t parameters) {
  const int64_t host_count = std::min(parameters, kMostParameters);
  auto inside = std::make_shared<AdamRotation>(device, type, parameters);
  auto host = std::make_shared<AdamBuffers>(device, type, host_count, true);
  PW_RETURN_IF_ERROR(inside->Renew());
  PW_RETURN_IF_ERROR(host->Renew());
  auto watch = std::make_shared<Stopwatch>(device);
  if (!device->is_cpu()) {
    // Runs without a hold, because a first launch may load the kernel.
    PW_RETURN_IF_ERROR(inside->Next().Step());
    PW_RETURN_IF_ERROR(inside->Next().Predict());
    PW_RETURN_IF_ERROR(device->Wait(nullptr));
  }
  std::vector<Subject> subjects(3);
  const auto on_device = [&](const char* name, bool prediction,
                             Subject* subject) {
    subject->name = name;
    subject->share = 0.3;
    subject->series = {EntrySeries(EntryOf("device", parameters, prediction),
                                   &Profile::optimizers,
                                   &OptimizerEntry::time)};
    const auto run = prediction ? &AdamBuffers::Predict : &AdamBuffers::Step;
    subject->visit = [inside, watch, run](std::vector<double>* samples) {
      PW_RETURN_IF_ERROR(watch->Start());
      PW_RETURN_IF_ERROR(watch->Mark());
      PW_RETURN_IF_ERROR((inside->Next().*run)());
      PW_RETURN_IF_ERROR(watch->Mark());
      return watch->Stop(samples);
    };
  };
  on_device("optimizer on the device", false, &subjects[0]);
  subjects[0].begin_round = [inside](int) { return inside->Renew(); };
  on_device("prediction of weights", true, &subjects[2]);
  subjects[1].name = "optimizer on the host";
  subjects[1].share = 0.3;
  subjects[1].series = {EntrySeries(EntryOf("host", host_count),
                                    &Profile::optimizers,
                                    &OptimizerEntry::time)};
  subjects[1].visit = [host](std::vector<double>* samples) {
    const double start = ThreadSeconds();
    PW_RETURN_IF_ERROR(host->Step());
    samples->assign(1, ThreadSeconds() - start);
    return absl::OkStatus();
  };
  subjects[1].begin_round = [host](int) { return host->Renew(); };
  return subjects;
}

Subject HostMemorySubject() {
  // Three arrays a thread, together four caches, but no more than 768 MiB; and
  // 16 MiB each, because many threads have several caches.
  const int threads = AllowedCpus();
  const int64_t bytes = std::max<int64_t>(
      std::clamp<int64_t>(4 * HostCacheBytes(), 48 << 20, 768 << 20),
      threads * (int64_t{16} << 20));
  const int64_t elements =
      bytes / (3 * static_cast<int64_t>(sizeof(double)) * threads);
  auto triad = std::make_shared<Triad>(threads, elements);
  Subject subject;
  subject.name = "bandwidth of the host's memory";
  subject.share = 0.5;
  subject.series = {{"host memory bandwidth",
                     [](const Distribution& measured, Profile* profile) {
                       profile->host_memory_bytes_per_s = measured.median_s;
                     },
                     [](const Profile& profile) {
                       return profile.host_memory_bytes_per_s > 0;
                     }}};
  subject.visit = [triad, elements](std::vector<double>* samples) {
    samples->assign(1, triad->Run(elements));
    return absl::OkStatus();
  };
  return subject;
}

}  // namespace pipewright
