#include "calibrate/pass_subjects.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "calibrate/device.h"
#include "calibrate/kernel_bench.h"
#include "calibrate/measure.h"
#include "calibrate/part_bench.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Passes as CUDA graphs: what is queued once is launched as one from then on.
// For small shapes, where launching kernel by kernel takes longer than the
// kernels.
class PassGraphs {
 public:
  explicit PassGraphs(MeasuredDevice* device) : device_(device) {}
  ~PassGraphs() { Clear(); }
  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;

  // Makes a graph of each of `works` and launches it once, so that no timing
  // contains what a first launch brings to the device. The works queue on the
  // device's own stream and have run before. It does nothing while `place`,
  // where their memory lies, is that of the last call.
  absl::Status Capture(const void* place,
                       const std::vector<std::function<absl::Status()>>& works);
  absl::Status Launch(size_t index);

 private:
  void Clear();

  MeasuredDevice* device_;
  const void* place_ = nullptr;
  std::vector<PwGraph*> graphs_;
};

// What a GPU of 500 TFLOP/s does in a millisecond; an H100 does 400 to 750 in
// bf16 products of these sizes.
constexpr double kSmallFlops = 5e11;

// Layers on a GPU whose forward takes less than about a millisecond.
bool TakesGraphs(const MeasuredDevice& device, const PartBench& bench) {
  // A capture cannot take the one call for all experts that `execute` makes
  // (kernels/cuda/grouped_call.h): it would time another implementation.
  if (bench.part() == PW_EXPERT_LAYER) return false;
  return device.info().capability > 0 && bench.is_layer() &&
         bench.Flops(PW_PASS_F) < kSmallFlops;
}

void PassGraphs::Clear() {
  for (PwGraph* const graph : graphs_) {
    device_->kernels()->destroy_graph(device_->handle(), graph);
  }
  graphs_.clear();
  place_ = nullptr;
}

absl::Status PassGraphs::Capture(
    const void* place,
    const std::vector<std::function<absl::Status()>>& works) {
  if (place == place_) return absl::OkStatus();
  // None of the last graphs still runs: each was timed to its end.
  Clear();
  const PwKernels* const kernels = device_->kernels();
  for (const auto& work : works) {
    PW_RETURN_IF_ERROR(device_->Check(
        kernels->begin_graph(device_->handle(), nullptr), "begin a graph"));
    const absl::Status queued = work();
    // The stream must leave its capture whatever happened.
    PwGraph* graph = nullptr;
    const absl::Status ended = device_->Check(
        kernels->end_graph(device_->handle(), nullptr, &graph), "end a graph");
    if (graph != nullptr) graphs_.push_back(graph);
    PW_RETURN_IF_ERROR(queued);
    PW_RETURN_IF_ERROR(ended);
  }
  for (size_t index = 0; index < graphs_.size(); ++index) {
    PW_RETURN_IF_ERROR(Launch(index));
  }
  PW_RETURN_IF_ERROR(device_->Wait(nullptr));
  place_ = place;
  return absl::OkStatus();
}

absl::Status PassGraphs::Launch(size_t index) {
  return device_->Check(device_->kernels()->launch_graph(
                            device_->handle(), nullptr, graphs_[index]),
                        "launch a graph");
}

using enum ProfilePass;
using Passes = std::vector<ProfilePass>;

ProfilePart ProfilePartOf(PwPart part) {
  return part == PW_EMBEDDING ? ProfilePart::kEmbedding
         : part == PW_LAYER   ? ProfilePart::kLayer
         : part == PW_HEAD    ? ProfilePart::kHead
                              : ProfilePart::kExpertLayer;
}

// With one, B would find what F has just written in the cache.
constexpr int kBriefLayers = 2;

// A piece of work that is timed as one: `passes`, in order, on one layer.
struct Piece {
  Passes passes;
  bool gemms = false;  // the matrix products of passes[0] alone
};

PwPassKind KindOf(ProfilePass pass) {
  return pass == kBackwardInput    ? PW_PASS_B
         : pass == kBackwardWeight ? PW_PASS_W
                                   : PW_PASS_F;
}

double FlopsOf(const PartBench& bench, ProfilePass pass) {
  return pass == kBackwardFull ? bench.Flops(PW_PASS_B) + bench.Flops(PW_PASS_W)
                               : bench.Flops(KindOf(pass));
}

// Times one shape of one part. Sweeps go over all layers as a stage does (F of
// each, then B of each, last layer first), so what B reads was written some
// time before; chains stay on one layer.
class PassTimer {
 public:
  PassTimer(MeasuredDevice* device, std::shared_ptr<PartBench> bench,
            bool chains, std::shared_ptr<const bool> brief)
      : device_(device),
        bench_(std::move(bench)),
        brief_(std::move(brief)),
        watch_(device) {
    sweeps_ = {{{kForward}}};
    if (bench_->is_layer()) sweeps_.push_back({{kRecompute}});
    sweeps_.push_back({{kBackwardInput}});
    sweeps_.push_back({{kBackwardWeight}});
    // This one is not kept; it runs because BW needs what F leaves.
    sweeps_.push_back({{kForward}});
    unkept_ = sweeps_.size() - 1;
    sweeps_.push_back({{kBackwardFull}});
    // A slice has the products of as many tokens.
    if (bench_->part() != PW_EMBEDDING && bench_->shape().slices() == 1) {
      for (const ProfilePass pass :
           {kForward, kBackwardInput, kBackwardWeight}) {
        sweeps_.push_back({{pass}, true});
      }
    }
    implementations_.resize(sweeps_.size());
    if (TakesGraphs(*device_, *bench_)) {
      graphs_ = std::make_unique<PassGraphs>(device_);
    }
    if (!chains) return;
    chains_ = {{{kForward, kBackwardInput, kBackwardWeight}},
               {{kForward, kBackwardFull}},
               {{kForward, kRecompute, kBackwardInput, kBackwardWeight}},
               {{kForward, kRecompute, kBackwardFull}}};
  }

  // One sample of each sweep but the unkept one, then of each chain.
  absl::Status Visit(std::vector<double>* samples) {
    samples->clear();
    PW_RETURN_IF_ERROR(WarmUp());
    for (size_t index = 0; index < sweeps_.size(); ++index) {
      PW_ASSIGN_OR_RETURN(const double seconds, Sweep(sweeps_[index]));
      if (bench_->part() != PW_EMBEDDING) {
        implementations_[index] =
            device_->kernels()->implementation(device_->handle());
      }
      if (index != unkept_) samples->push_back(seconds);
    }
    if (graphs_ != nullptr) {
      PW_RETURN_IF_ERROR(VisitGraphs(samples));
    }
    // Each chain has to come to every layer. If the layer moved on once a
    // chain, and there were as many chains as layers, each chain would stay on
    // one layer.
    layer_ = (layer_ + 1) % bench_->layers();
    for (size_t index = 0; index < chains_.size(); ++index) {
      const Piece& chain = chains_[index];
      const int layer = (layer_ + static_cast<int>(index)) % bench_->layers();
      PW_RETURN_IF_ERROR(watch_.Start());
      PW_RETURN_IF_ERROR(watch_.Mark());
      for (const ProfilePass pass : chain.passes) {
        PW_RETURN_IF_ERROR(bench_->Run(pass, layer));
      }
      PW_RETURN_IF_ERROR(watch_.Mark());
      PW_RETURN_IF_ERROR(watch_.Stop(&seconds_));
      samples->push_back(seconds_[0]);
    }
    return absl::OkStatus();
  }

  const std::vector<Piece>& sweeps() const { return sweeps_; }
  size_t unkept() const { return unkept_; }
  // Is the sweep timed as a graph too?
  bool has_graph(size_t sweep) const {
    return graphs_ != nullptr && sweep != unkept_ && !sweeps_[sweep].gemms;
  }
  const std::vector<Piece>& chains() const { return chains_; }
  const PartBench& bench() const { return *bench_; }
  // The last product or attention of such a sweep; "" of an embedding.
  const std::string& implementation(size_t sweep) const {
    return implementations_[sweep];
  }

 private:
  // Runs once and without a hold, because first launches load kernels and take
  // workspaces. The CPU has no holds.
  absl::Status WarmUp() {
    if (warm_ || device_->is_cpu()) return absl::OkStatus();
    for (const Piece& sweep : sweeps_) PW_RETURN_IF_ERROR(Queue(sweep));
    PW_RETURN_IF_ERROR(device_->Wait(nullptr));
    warm_ = true;
    return absl::OkStatus();
  }

  // That a sweep goes over.
  int Layers(const Piece& piece) const {
    if (brief_ == nullptr || !*brief_) return bench_->layers();
    return std::min(bench_->layers(), piece.gemms ? 1 : kBriefLayers);
  }

  absl::Status Queue(const Piece& piece) {
    const int layers = Layers(piece);
    const ProfilePass pass = piece.passes[0];
    const bool down = pass == kBackwardInput || pass == kBackwardWeight ||
                      pass == kBackwardFull;
    for (int step = 0; step < layers; ++step) {
      const int place = down ? layers - 1 - step : step;
      // All layers get their turn in brief visits too.
      const int layer = layers == bench_->layers()
                            ? place
                            : (layer_ + place) % bench_->layers();
      PW_RETURN_IF_ERROR(piece.gemms ? bench_->RunGemms(KindOf(pass), layer)
                                     : bench_->Run(pass, layer));
    }
    return absl::OkStatus();
  }

  absl::Status VisitGraphs(std::vector<double>* samples) {
    std::vector<std::function<absl::Status()>> works;
    for (const Piece& sweep : sweeps_) {
      if (!sweep.gemms)
        works.push_back([this, &sweep] { return Queue(sweep); });
    }
    PW_RETURN_IF_ERROR(graphs_->Capture(bench_->place(), works));
    for (size_t index = 0; index < works.size(); ++index) {
      PW_RETURN_IF_ERROR(watch_.Start());
      PW_RETURN_IF_ERROR(watch_.Mark());
      PW_RETURN_IF_ERROR(graphs_->Launch(index));
      PW_RETURN_IF_ERROR(watch_.Mark());
      PW_RETURN_IF_ERROR(watch_.Stop(&seconds_));
      if (has_graph(index)) samples->push_back(seconds_[0] / bench_->layers());
    }
    return absl::OkStatus();
  }

  // Mean over the layers.
  absl::StatusOr<double> Sweep(const Piece& piece) {
    PW_RETURN_IF_ERROR(watch_.Start());
    PW_RETURN_IF_ERROR(watch_.Mark());
    PW_RETURN_IF_ERROR(Queue(piece));
    PW_RETURN_IF_ERROR(watch_.Mark());
    PW_RETURN_IF_ERROR(watch_.Stop(&seconds_));
    return seconds_[0] / Layers(piece);
  }

  MeasuredDevice* device_;
  std::shared_ptr<PartBench> bench_;
  std::shared_ptr<const bool> brief_;
  Stopwatch watch_;
  std::vector<Piece> sweeps_;                 // those of whole passes first
  std::vector<std::string> implementations_;  // [sweep]
  size_t unkept_ = 0;
  std::unique_ptr<PassGraphs> graphs_;  // null: none
  std::vector<Piece> chains_;
  int layer_ = 0;
  bool warm_ = false;
  std::vector<double> seconds_;
};

PassEntry EntryOf(const PassTimer& timer, const ProfileModel& model,
                  ProfilePass pass) {
  const Shape& shape = timer.bench().shape();
  PassEntry entry;
  entry.model = model;
  entry.part = ProfilePartOf(timer.bench().part());
  entry.pass = pass;
  entry.type = std::string(TypeName(shape.model));
  entry.microbatch_size = shape.work.batch;
  entry.sequence = shape.work.sequence;
  entry.tp = shape.tp();
  if (timer.bench().part() == PW_EXPERT_LAYER) entry.ep = shape.ep();
  if (shape.slices() > 1) entry.slices = shape.slices();
  entry.flops = FlopsOf(timer.bench(), pass);
  return entry;
}

Series SweepSeries(const std::shared_ptr<PassTimer>& timer,
                   const ProfileModel& model, size_t sweep) {
  const Piece& piece = timer->sweeps()[sweep];
  const PassEntry entry = EntryOf(*timer, model, piece.passes[0]);
  const std::string key = KeyOf(entry);
  if (piece.gemms) {
    return {absl::StrCat("gemms of ", key),
            [entry](const Distribution& measured, Profile* profile) {
              FindOrAdd(&profile->passes, entry)->gemm_s = measured.median_s;
            },
            [key](const Profile& profile) {
              const PassEntry* found = FindEntry(profile.passes, key);
              return found != nullptr && found->gemm_s > 0;
            }};
  }
  Series series = EntrySeries(entry, &Profile::passes, &PassEntry::time);
  series.put = [entry, timer, sweep](const Distribution& measured,
                                     Profile* profile) {
    PassEntry* found = FindOrAdd(&profile->passes, entry);
    found->time = measured;
    found->implementation = timer->implementation(sweep);
  };
  return series;
}

Series GraphSeries(const PassTimer& timer, const ProfileModel& model,
                   const Piece& piece) {
  Series series = EntrySeries(EntryOf(timer, model, piece.passes[0]),
                              &Profile::passes, &PassEntry::graph);
  series.key = absl::StrCat("graph of ", series.key);
  return series;
}

Series ChainSeries(const PassTimer& timer, const ProfileModel& model,
                   const Piece& chain) {
  const PassEntry pass = EntryOf(timer, model, kForward);
  SplitEntry entry;
  entry.model = model;
  entry.type = pass.type;
  entry.microbatch_size = pass.microbatch_size;
  entry.sequence = pass.sequence;
  entry.tp = pass.tp;
  entry.ep = pass.ep;
  entry.recompute = chain.passes[1] == kRecompute;
  const bool fused = chain.passes.back() == kBackwardFull;
  Series series = EntrySeries(entry, &Profile::splits,
                              fused ? &SplitEntry::fused : &SplitEntry::chain);
  if (fused) absl::StrAppend(&series.key, " fused");
  return series;
}

}  // namespace

absl::StatusOr<PassSet> PassSubjects(MeasuredDevice* device, const Grid& grid,
                                     const BenchMemory& memory,
                                     std::shared_ptr<const bool> brief) {
  auto arena = std::make_shared<Arena>(device, grid.type, memory.arena_bytes,
                                       memory.fp8_bytes);
  // Other subjects run a bench too, before the first round or without these.
  PW_RETURN_IF_ERROR(arena->Renew(1));
  auto renewed = std::make_shared<int>(-1);
  std::map<WeightsKey, std::shared_ptr<BenchWeights>> weights;
  const int64_t largest = grid.shapes.back().work.batch;
  const int64_t first_ep = grid.shapes.front().ep();
  PassSet set;
  for (const Shape& shape : grid.AllShapes()) {
    const bool whole = shape.slices() == 1;
    for (const PwPart part : grid.parts) {
      // ep makes a difference to experts only.
      if (part != PW_EXPERT_LAYER && shape.ep() != first_ep) continue;
      if (!whole && !IsLayer(part)) continue;
      auto& own = weights[WeightsKeyOf(part, shape)];
      if (own == nullptr) {
        PW_ASSIGN_OR_RETURN(
            own,
            BenchWeights::Create(device, shape, part,
                                 memory.copies.at(WeightsKeyOf(part, shape))));
      }
      PW_ASSIGN_OR_RETURN(std::shared_ptr<PartBench> bench,
                          PartBench::Create(device, shape, part, own, arena));
      const bool chains =
          whole && bench->is_layer() && shape.work.batch == largest;
      if (whole && bench->is_layer() &&
          shape.tp() == grid.shapes.front().tp() && shape.ep() == first_ep) {
        if (chains) set.example = bench;
        if (set.small == nullptr ||
            shape.work.batch == set.small->shape().work.batch) {
          set.small = bench;
        }
      }
      if (whole && bench->is_layer()) set.layers.push_back(bench);
      if (part == PW_HEAD) set.heads.push_back(bench);
      auto timer = std::make_shared<PassTimer>(device, bench, chains, brief);
      Subject subject;
      subject.name = absl::StrCat(
          ProfilePartName(ProfilePartOf(part)), " passes, ", ShapeText(shape),
          part == PW_EXPERT_LAYER ? absl::StrCat(" ep", shape.ep()) : "");
      // Small shapes need more samples, large ones take longer for each.
      subject.share = bench->is_layer() ? (chains ? 2 : 1) : 0.3;
      for (size_t index = 0; index < timer->sweeps().size(); ++index) {
        if (index == timer->unkept()) continue;
        subject.series.push_back(SweepSeries(timer, grid.model, index));
      }
      for (size_t index = 0; index < timer->sweeps().size(); ++index) {
        if (!timer->has_graph(index)) continue;
        subject.series.push_back(
            GraphSeries(*timer, grid.model, timer->sweeps()[index]));
      }
      for (const Piece& chain : timer->chains()) {
        subject.series.push_back(ChainSeries(*timer, grid.model, chain));
      }
      subject.visit = [timer](std::vector<double>* samples) {
        return timer->Visit(samples);
      };
      subject.begin_round = [arena, renewed](int round) {
        if (*renewed == round) return absl::OkStatus();
        *renewed = round;
        return arena->Renew(static_cast<uint64_t>(round) * 7 + 3);
      };
      set.subjects.push_back(std::move(subject));
    }
  }
  return set;
}

}  // namespace pipewright
