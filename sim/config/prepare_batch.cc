// One global batch: strategies are compared at equal work, so that dp follows
// from the devices, and the microbatches from dp.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/config/check_texts.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {
namespace {

constexpr char kAllowedBatch[] =
    "samples (1024), or tokens with one of tokens, Ktokens, Mtokens, Gtokens, "
    "Kitokens, Mitokens, Gitokens (4Mtokens)";
// Far above any batch; products with a sequence stay below 2^63.
constexpr int64_t kMostBatchSamples = std::numeric_limits<int>::max();
constexpr double kMostBatchTokens = 1e15;
constexpr int64_t kMostMicrobatchesOfBatch =
    std::numeric_limits<int>::max() / 3;

struct GlobalBatch {
  int64_t amount = 0;
  bool in_tokens = false;

  std::string Text(int64_t value) const {
    return absl::StrCat(value, in_tokens ? "tokens" : "");
  }
};

absl::StatusOr<GlobalBatch> ParseBatch(const RunConfig& config) {
  const std::string& text = *config.strategy.global_batch;
  const absl::Status bad = WithDigits(
      text,
      BadValue(config.Field("strategy.global_batch"), text, kAllowedBatch));
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  GlobalBatch batch;
  if (!absl::ConsumeSuffix(&rest, "tokens")) {
    if (!absl::SimpleAtoi(rest, &batch.amount) || batch.amount < 1 ||
        batch.amount > kMostBatchSamples) {
      return bad;
    }
    return batch;
  }
  double scale = 1;
  const bool binary = absl::ConsumeSuffix(&rest, "i");
  const double step = binary ? 1024 : 1000;
  if (absl::ConsumeSuffix(&rest, "G")) {
    scale = step * step * step;
  } else if (absl::ConsumeSuffix(&rest, "M")) {
    scale = step * step;
  } else if (absl::ConsumeSuffix(&rest, "K")) {
    scale = step;
  } else if (binary) {
    return bad;
  }
  double number = 0;
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(rest), &number)) return bad;
  const double tokens = std::round(number * scale);
  // Not whole, beyond rounding of the decimal number.
  const bool whole = std::abs(number * scale - tokens) <= 1e-9 * tokens;
  if (!(tokens >= 1 && tokens <= kMostBatchTokens) || !whole) return bad;
  batch.amount = static_cast<int64_t>(tokens);
  batch.in_tokens = true;
  return batch;
}

// As many replicas as the devices of system.nodes hold; 1 where nobody says
// how many there are.
absl::StatusOr<int> ReplicasOf(const RunConfig& config, const RunSizes& sizes,
                               RunContext* context) {
  if (!NamesSystem(config.system) || !config.system.nodes) return 1;
  PW_ASSIGN_OR_RETURN(const int per_node, DevicesOfNode(config, context));
  const int64_t devices = int64_t{*config.system.nodes} * per_node;
  const int64_t replica = sizes.devices();  // dp is 1
  if (replica > devices) return 1;          // NodesFor says it
  if (devices % replica == 0) return static_cast<int>(devices / replica);
  return BadValue(
      config.Field("system.nodes"), absl::StrCat(*config.system.nodes),
      absl::StrCat("nodes whose ", per_node, " devices each pp * tp * cp = ",
                   sizes.pp, " * ", sizes.tp, " * ", sizes.cp, " = ", replica,
                   " divides, so that dp follows from strategy.global_batch; "
                   "nearest products: ",
                   NearestDivisors(devices, replica)));
}

}  // namespace

absl::StatusOr<int64_t> SequenceOf(const RunConfig& config,
                                   RunContext* context) {
  if (config.strategy.sequence) return *config.strategy.sequence;
  PW_ASSIGN_OR_RETURN(const std::optional<ModelSpec> model,
                      PrepareModel(config, context));
  if (model) return model->sequence;
  return MissingValue(
      config.Field("strategy.sequence"),
      "the tokens of a sample, or a model, where strategy.global_batch is in "
      "tokens");
}

absl::Status CheckBatchText(const RunConfig& config) {
  return config.strategy.global_batch ? ParseBatch(config).status()
                                      : absl::OkStatus();
}

absl::StatusOr<int64_t> GlobalBatchSamples(const RunConfig& config,
                                           RunContext* context) {
  PW_ASSIGN_OR_RETURN(const GlobalBatch batch, ParseBatch(config));
  if (!batch.in_tokens) return batch.amount;
  PW_ASSIGN_OR_RETURN(const int64_t sequence, SequenceOf(config, context));
  if (batch.amount % sequence == 0) return batch.amount / sequence;
  const int64_t below = batch.amount / sequence * sequence;
  return BadValue(
      config.Field("strategy.global_batch"), *config.strategy.global_batch,
      absl::StrCat("multiples of the sequence, ", sequence, "; nearest: ",
                   below > 0 ? absl::StrCat(batch.Text(below), ", ") : "",
                   batch.Text(below + sequence)));
}

absl::Status TakeGlobalBatch(const RunConfig& config, RunContext* context,
                             RunSizes* sizes) {
  const StrategyChoice& strategy = config.strategy;
  PW_ASSIGN_OR_RETURN(const GlobalBatch batch, ParseBatch(config));
  if (!strategy.dp) {
    PW_ASSIGN_OR_RETURN(sizes->dp, ReplicasOf(config, *sizes, context));
  }
  const int64_t size = strategy.microbatch_size.value_or(1);
  std::string unit_words = "microbatch_size * dp";
  std::string unit_values = absl::StrCat(size, " * ", sizes->dp);
  // Samples of one microbatch of each replica; a double where it may be too
  // large.
  double unit = static_cast<double>(size) * sizes->dp;
  if (batch.in_tokens) {
    PW_ASSIGN_OR_RETURN(const int64_t sequence, SequenceOf(config, context));
    unit *= static_cast<double>(sequence);
    absl::StrAppend(&unit_words, " * sequence");
    absl::StrAppend(&unit_values, " * ", sequence);
  }
  const bool beyond = unit > static_cast<double>(batch.amount);
  const int64_t step = unit < 9e18 ? static_cast<int64_t>(unit) : 0;
  if (beyond || batch.amount % step != 0) {
    std::string nearest = "none";
    if (step > 0) {
      const int64_t below = batch.amount / step * step;
      nearest =
          absl::StrCat(below > 0 ? absl::StrCat(batch.Text(below), ", ") : "",
                       batch.Text(below + step));
    }
    return BadValue(
        config.Field("strategy.global_batch"), *strategy.global_batch,
        absl::StrCat("multiples of ", unit_words, " = ", unit_values, " = ",
                     step > 0 ? batch.Text(step) : absl::StrCat(unit),
                     "; nearest: ", nearest));
  }
  const int64_t microbatches = batch.amount / step;
  if (microbatches > kMostMicrobatchesOfBatch) {
    return BadValue(config.Field("strategy.global_batch"),
                    *strategy.global_batch,
                    absl::StrCat("at most ", kMostMicrobatchesOfBatch,
                                 " microbatches of each replica"));
  }
  if (sizes->microbatches > 0 && sizes->microbatches != microbatches) {
    return BadValue(
        config.Field("strategy.microbatches"),
        absl::StrCat(sizes->microbatches),
        absl::StrCat(microbatches, ", which is strategy.global_batch ",
                     *strategy.global_batch, " over ", unit_words, " = ",
                     unit_values, "; or one of the two left out"));
  }
  sizes->microbatches = static_cast<int>(microbatches);
  return absl::OkStatus();
}

}  // namespace pipewright
