#include "calibrate/kernel_subjects.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calibrate/kernel_bench.h"
#include "calibrate/measure.h"
#include "calibrate/pass_subjects.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Times the kernels of a shape, or only the new ones.
class KernelTimer {
 public:
  KernelTimer(MeasuredDevice* device, std::shared_ptr<PartBench> layer,
              std::shared_ptr<PartBench> head, std::set<std::string>* seen)
      : device_(device),
        bench_(device, std::move(layer), std::move(head)),
        watch_(device) {
    for (SingleKernel& kernel : bench_.Kernels()) {
      if (!seen->insert(KeyOf(kernel.entry)).second) continue;
      kernels_.push_back(std::move(kernel));
    }
    implementations_.resize(kernels_.size());
  }

  const std::vector<SingleKernel>& kernels() const { return kernels_; }
  const std::string& implementation(size_t index) const {
    return implementations_[index];
  }
  const Shape& shape() const { return bench_.shape(); }
  absl::Status Renew(int round) {
    return bench_.Renew(static_cast<uint64_t>(round) * 5 + 2);
  }

  // One sample of each.
  absl::Status Visit(std::vector<double>* samples) {
    PW_RETURN_IF_ERROR(WarmUp());
    layer_ = (layer_ + 1) % bench_.layers();
    samples->clear();
    for (size_t index = 0; index < kernels_.size(); ++index) {
      const SingleKernel& kernel = kernels_[index];
      PW_RETURN_IF_ERROR(watch_.Start());
      if (kernel.prepare != nullptr) PW_RETURN_IF_ERROR(kernel.prepare());
      if (!device_->is_cpu()) PW_RETURN_IF_ERROR(Flush());
      PW_RETURN_IF_ERROR(watch_.Mark());
      PW_RETURN_IF_ERROR(kernel.run(layer_));
      PW_RETURN_IF_ERROR(watch_.Mark());
      if (kernel.names_implementation) {
        implementations_[index] =
            device_->kernels()->implementation(device_->handle());
      }
      PW_RETURN_IF_ERROR(watch_.Stop(&seconds_));
      samples->push_back(seconds_[0]);
    }
    return absl::OkStatus();
  }

 private:
  // Runs once and without a hold, because first launches load kernels and take
  // workspaces. The CPU has no holds.
  absl::Status WarmUp() {
    if (warm_ || device_->is_cpu()) return absl::OkStatus();
    PW_RETURN_IF_ERROR(Flush());
    for (const SingleKernel& kernel : kernels_) {
      if (kernel.prepare != nullptr) PW_RETURN_IF_ERROR(kernel.prepare());
      PW_RETURN_IF_ERROR(kernel.run(0));
    }
    PW_RETURN_IF_ERROR(device_->Wait(nullptr));
    warm_ = true;
    return absl::OkStatus();
  }

  absl::Status Flush() {
    return device_->Check(
        device_->kernels()->flush_cache(device_->handle(), nullptr),
        "flush the cache");
  }

  MeasuredDevice* device_;
  KernelBench bench_;
  Stopwatch watch_;
  std::vector<SingleKernel> kernels_;
  std::vector<std::string> implementations_;
  int layer_ = 0;
  bool warm_ = false;
  std::vector<double> seconds_;
};

Series KernelSeries(const std::shared_ptr<KernelTimer>& timer, size_t index) {
  const KernelEntry& entry = timer->kernels()[index].entry;
  Series series = EntrySeries(entry, &Profile::kernels, &KernelEntry::time);
  series.put = [entry, timer, index](const Distribution& measured,
                                     Profile* profile) {
    KernelEntry* found = FindOrAdd(&profile->kernels, entry);
    found->time = measured;
    found->implementation = timer->implementation(index);
  };
  return series;
}

}  // namespace

std::vector<Subject> KernelSubjects(
    MeasuredDevice* device,
    const std::vector<std::shared_ptr<PartBench>>& layers,
    const std::vector<std::shared_ptr<PartBench>>& heads) {
  std::vector<Subject> subjects;
  std::set<std::string> seen;
  for (const std::shared_ptr<PartBench>& layer : layers) {
    const auto head = std::find_if(
        heads.begin(), heads.end(), [&](const std::shared_ptr<PartBench>& one) {
          return ShapeText(one->shape()) == ShapeText(layer->shape());
        });
    PW_CHECK(head != heads.end());
    auto timer = std::make_shared<KernelTimer>(device, layer, *head, &seen);
    if (timer->kernels().empty()) continue;
    Subject subject;
    subject.name = absl::StrCat("kernels, ", ShapeText(timer->shape()));
    subject.share = 0.3;
    for (size_t index = 0; index < timer->kernels().size(); ++index) {
      subject.series.push_back(KernelSeries(timer, index));
    }
    subject.visit = [timer](std::vector<double>* samples) {
      return timer->Visit(samples);
    };
    subject.begin_round = [timer](int round) { return timer->Renew(round); };
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

}  // namespace pipewright
