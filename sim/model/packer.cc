#include "sim/model/packer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

absl::Status BadSamples(absl::string_view field, absl::string_view value,
                        absl::string_view message, absl::string_view allowed) {
  return WithValue(
      FieldError(field, absl::StrCat(message, "; allowed: ", allowed)), value,
      allowed);
}

absl::Status CheckSamples(const PackRequest& request) {
  const PackerTraits& traits = TraitsOf(request.packer);
  const auto samples = static_cast<int64_t>(request.lengths.size());
  if (samples < request.devices) {
    return BadSamples(
        "sequences.minibatch", absl::StrCat(samples),
        absl::StrCat(
            samples, samples == 1 ? " sample leaves" : " samples leave",
            " device ", samples, " of ", request.devices, " without any"),
        absl::StrCat(request.devices, " samples or more in all, one a device"));
  }
  if (traits.same_microbatches && samples % request.devices != 0) {
    return BadSamples(
        "sequences.packer", traits.name,
        absl::StrCat(traits.name, " gives every device equally many ",
                     traits.packs ? "samples" : "microbatches", ", and ",
                     samples, " do not divide by ", request.devices,
                     " devices"),
        absl::StrCat("a multiple of ", request.devices,
                     " samples, or packer lb-mini"));
  }
  for (int64_t index = 0; traits.packs && index < samples; ++index) {
    if (request.lengths[index] <= request.max_token_len) continue;
    return BadSamples(
        "sequences.max_token_len", absl::StrCat(request.max_token_len),
        absl::StrCat("sample ", index, " has ", request.lengths[index],
                     " tokens, more than the ", request.max_token_len,
                     " of a microbatch"),
        absl::StrCat(request.lengths[index],
                     " or more, or packer none or local-sort"));
  }
  return absl::OkStatus();
}

absl::Status TooManyMicrobatches(const PackRequest& request, int device,
                                 size_t samples) {
  const int microbatches = request.least_microbatches;
  return BadSamples(
      "strategy.microbatches", absl::StrCat(microbatches),
      absl::StrCat(microbatches, " microbatches are more than the ", samples,
                   " samples of device ", device),
      absl::StrCat("up to ", samples, ", or more samples in a minibatch"));
}

std::vector<double> CostsOf(const PackRequest& request,
                            const SampleSet& samples) {
  std::vector<double> costs;
  costs.reserve(samples.size());
  for (const int sample : samples) {
    costs.push_back(request.cost.At(request.lengths[sample]));
  }
  return costs;
}

int64_t TokensOf(const PackRequest& request, const SampleSet& samples) {
  int64_t tokens = 0;
  for (const int sample : samples) tokens += request.lengths[sample];
  return tokens;
}

// Parts of places in `samples` as parts of samples.
void Rename(const SampleSet& samples, Parts* parts) {
  for (SampleSet& part : *parts) {
    for (int& item : part) item = samples[item];
  }
}

Parts RoundRobin(const PackRequest& request) {
  Parts devices(request.devices);
  for (size_t sample = 0; sample < request.lengths.size(); ++sample) {
    devices[sample % request.devices].push_back(static_cast<int>(sample));
  }
  return devices;
}

Parts OneEach(const SampleSet& samples) {
  Parts microbatches;
  for (const int sample : samples) microbatches.push_back({sample});
  return microbatches;
}

// MICRO: as few microbatches as hold the tokens; of several devices together
// as many as the one that needs most.
absl::StatusOr<Packing> Microbatches(const PackRequest& request,
                                     const std::vector<SampleSet>& devices) {
  int count = request.least_microbatches;
  for (size_t device = 0; device < devices.size(); ++device) {
    const SampleSet& samples = devices[device];
    const auto size = static_cast<int>(samples.size());
    if (request.least_microbatches > size) {
      return TooManyMicrobatches(request, static_cast<int>(device),
                                 samples.size());
    }
    const int64_t tokens = TokensOf(request, samples);
    const int64_t needed =
        (tokens + request.max_token_len - 1) / request.max_token_len;
    count = static_cast<int>(
        std::max<int64_t>(count, std::min<int64_t>(size, needed)));
  }
  while (true) {
    Packing packing;
    bool fits = true;
    for (const SampleSet& samples : devices) {
      const std::vector<double> costs = CostsOf(request, samples);
      PW_ASSIGN_OR_RETURN(Parts parts, Divide(costs, count, false));
      SortParts(costs, &parts);
      Rename(samples, &parts);
      for (const SampleSet& part : parts) {
        fits = fits && TokensOf(request, part) <= request.max_token_len;
      }
      packing.push_back(std::move(parts));
    }
    if (fits) return packing;
    ++count;
  }
}

absl::StatusOr<Parts> Bins(const PackRequest& request, int device,
                           const SampleSet& samples, BinChoice choice) {
  std::vector<int64_t> sizes;
  sizes.reserve(samples.size());
  for (const int sample : samples) sizes.push_back(request.lengths[sample]);
  Parts bins = FillBins(sizes, request.max_token_len, choice);
  if (static_cast<int>(bins.size()) < request.least_microbatches) {
    return BadSamples(
        "strategy.microbatches", absl::StrCat(request.least_microbatches),
        absl::StrCat("packer ", TraitsOf(request.packer).name, " fills ",
                     bins.size(), " microbatches on device ", device),
        "no count, or packer lb-mini");
  }
  Rename(samples, &bins);
  return bins;
}

}  // namespace

double SampleCost::At(int64_t tokens) const {
  switch (kind) {
    case PackerCost::kLinear:
      return static_cast<double>(tokens);
    case PackerCost::kFit:
      return kFit7B.At(tokens);
    case PackerCost::kFlops:
      break;
  }
  const auto length = static_cast<double>(tokens);
  return (weights_over_queries + length) / 32000 * (length / 32000);
}

absl::StatusOr<Packing> Pack(const PackRequest& request) {
  PW_RETURN_IF_ERROR(CheckSamples(request));
  const Packer packer = request.packer;
  Parts devices;
  if (packer == Packer::kNone || packer == Packer::kLocalSort ||
      packer == Packer::kFfd) {
    devices = RoundRobin(request);
  } else {
    SampleSet all(request.lengths.size());
    for (size_t sample = 0; sample < all.size(); ++sample) {
      all[sample] = static_cast<int>(sample);
    }
    PW_ASSIGN_OR_RETURN(devices, Divide(CostsOf(request, all), request.devices,
                                        packer == Packer::kLbMicro));
  }
  if (packer == Packer::kLbMicro) return Microbatches(request, devices);
  Packing packing;
  for (int device = 0; device < request.devices; ++device) {
    SampleSet& samples = devices[device];
    if (packer == Packer::kLbMini) {
      PW_ASSIGN_OR_RETURN(Packing own, Microbatches(request, {samples}));
      packing.push_back(std::move(own[0]));
    } else if (packer == Packer::kLbMiniBfd || packer == Packer::kFfd) {
      PW_ASSIGN_OR_RETURN(
          Parts bins,
          Bins(request, device, samples,
               packer == Packer::kFfd ? BinChoice::kFirst : BinChoice::kBest));
      packing.push_back(std::move(bins));
    } else {
      if (request.least_microbatches > static_cast<int>(samples.size())) {
        return TooManyMicrobatches(request, device, samples.size());
      }
      if (packer == Packer::kLocalSort) {
        std::stable_sort(samples.begin(), samples.end(), [&](int a, int b) {
          return request.lengths[a] < request.lengths[b];
        });
      }
      packing.push_back(OneEach(samples));
    }
  }
  return packing;
}

std::string ToString(const PackRequest& request, const Packing& packing) {
  std::vector<size_t> counts;
  for (const Parts& device : packing) counts.push_back(device.size());
  return absl::StrCat(TraitsOf(request.packer).name, ": ",
                      absl::StrJoin(counts, " "), " microbatches, ",
                      request.lengths.size(), " samples");
}

}  // namespace pipewright
