#include "tests/emulation/accesses/cases.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace pipewright {
namespace {

// Rows of a microbatch of 8192 tokens; sums over rows leave a share of what
// they read that shrinks with them.
constexpr int64_t kRows = 8192;
constexpr int64_t kColumns = 512;

void* At(const Operand& operand) { return const_cast<void*>(operand.memory); }
float* Floats(const Operand& operand) {
  return static_cast<float*>(At(operand));
}
const int32_t* IdsOf(const Operand& operand) {
  return static_cast<const int32_t*>(operand.memory);
}
Operand Times(Operand operand, double times) {
  operand.times = times;
  return operand;
}
std::string Size(int64_t rows, int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}
void Must(PwStatus status, const PwKernels* kernels) {
  if (status == PW_OK) return;
  std::printf("FAILED: %s\n", kernels->error());
  std::exit(1);
}

}  // namespace

AccessBench::AccessBench(const PwKernels* kernels, PwDevice* device)
    : kernels_(kernels), device_(device) {}

Operand AccessBench::Make(PwType type, int64_t count, double times) {
  const int64_t bytes = count * (type == PW_FP32 ? 4 : type == PW_BF16 ? 2 : 1);
  void* memory = nullptr;
  Must(kernels_->allocate(device_, static_cast<size_t>(bytes), &memory),
       kernels_);
  Must(kernels_->zero(device_, nullptr, memory, static_cast<size_t>(bytes)),
       kernels_);
  return {memory, bytes, times, false};
}

Operand AccessBench::Kept(PwType type, int64_t count) {
  Operand operand = Make(type, count);
  operand.kept = true;
  return operand;
}

Operand AccessBench::Ids(int64_t count, int32_t limit) {
  Operand operand = Kept(PW_FP32, count);
  Must(
      kernels_->random_ids(device_, nullptr, static_cast<int32_t*>(At(operand)),
                           count, 5, limit),
      kernels_);
  return operand;
}

Operand AccessBench::Places(int64_t count, int64_t step) {
  std::vector<int32_t> places(static_cast<size_t>(count));
  for (int64_t slot = 0; slot < count; ++slot) {
    places[static_cast<size_t>(slot)] =
        static_cast<int32_t>(slot * step % count);
  }
  Operand operand = Kept(PW_FP32, count);
  Must(kernels_->copy(device_, nullptr, PW_HOST_TO_DEVICE, At(operand),
                      places.data(), places.size() * sizeof(int32_t)),
       kernels_);
  return operand;
}

void AccessBench::Elements(std::vector<AccessCase>* cases) {
  constexpr int64_t kFew = 1024;
  constexpr int64_t kCount = kFew * kColumns;
  const PwKernels& pw = *kernels_;
  PwDevice* const on = device_;
  const std::string size = Size(kFew, kColumns);
  const auto put = [&](AccessCase one) { cases->push_back(std::move(one)); };
  for (const PwType type : {PW_BF16, PW_FP32}) {
    const std::string of = type == PW_BF16 ? ", bf16" : ", fp32";
    const Operand a = Make(type, kCount);
    const Operand b = Make(type, kCount);
    const Operand y = Make(type, kCount);
    put({"add" + of, size, {a, b, y}, [=, &pw] {
           return pw.add(on, nullptr, type, kCount, At(a), At(b), At(y));
         }});
    put({"gelu" + of, size, {a, y}, [=, &pw] {
           return pw.activation_forward(on, nullptr, PW_GELU, type, kFew,
                                        kColumns, At(a), At(y));
         }});
    put({"gelu, backward" + of, size, {a, b, y}, [=, &pw] {
           return pw.activation_backward(on, nullptr, PW_GELU, type, kFew,
                                         kColumns, At(a), At(b), At(y));
         }});
    put({"swiglu" + of, size, {a, Times(y, 0.5)}, [=, &pw] {
           return pw.activation_forward(on, nullptr, PW_SWIGLU, type, kFew,
                                        kColumns / 2, At(a), At(y));
         }});
    put({"swiglu, backward" + of, size, {a, Times(b, 0.5), y}, [=, &pw] {
           return pw.activation_backward(on, nullptr, PW_SWIGLU, type, kFew,
                                         kColumns / 2, At(a), At(b), At(y));
         }});
    put({"rotary, heads of 128" + of, size, {Times(a, 2)}, [=, &pw] {
           return pw.rotary(on, nullptr, type, 2, kFew / 2, kColumns / 128, 128,
                            kColumns, 0, 10000, 0, At(a));
         }});
    put({"copy_rows" + of, size, {Times(a, 0.5), Times(y, 0.5)}, [=, &pw] {
           return pw.copy_rows(on, nullptr, type, kFew, kColumns / 2, At(a),
                               kColumns, At(y), kColumns);
         }});
    const Operand gradients = Make(PW_FP32, kCount);
    const Operand master = Make(PW_FP32, kCount, 2);
    const Operand moment1 = Make(PW_FP32, kCount, 2);
    const Operand moment2 = Make(PW_FP32, kCount, 2);
    static const PwAdam adam = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 1};
    put({"adam" + of, size, {gradients, master, moment1, moment2, y}, [=, &pw] {
           return pw.adam(on, nullptr, &adam, type, kCount, Floats(gradients),
                          Floats(master), Floats(moment1), Floats(moment2),
                          At(y));
         }});
    put({"predict" + of,
         size,
         {Times(master, 1), Times(moment1, 1), Times(moment2, 1), y},
         [=, &pw] {
           return pw.predict(on, nullptr, &adam, 2, type, kCount,
                             Floats(master), Floats(moment1), Floats(moment2),
                             At(y));
         }});
    put({"random" + of, size, {y}, [=, &pw] {
           return pw.random(on, nullptr, type, At(y), kCount, 3, 1);
         }});
    const Operand narrow = Make(PW_FP8, kCount);
    put({"convert to fp8" + of, size, {a, narrow}, [=, &pw] {
           return pw.convert(on, nullptr, PW_FP8, At(narrow), type, At(a),
                             kCount);
         }});
  }
}

void AccessBench::Norms(std::vector<AccessCase>* cases) {
  const PwKernels& pw = *kernels_;
  PwDevice* const on = device_;
  constexpr int64_t kCount = kRows * kColumns;
  for (const PwType type : {PW_BF16, PW_FP32}) {
    const std::string of = type == PW_BF16 ? ", bf16" : ", fp32";
    const Operand x = Make(type, kCount);
    const Operand dy = Make(type, kCount);
    const Operand y = Make(type, kCount);
    const Operand residual = Make(type, kCount);
    const Operand gamma = Kept(type, kColumns);
    const Operand beta = Kept(type, kColumns);
    const Operand statistics = Make(PW_FP32, 2 * kRows);
    const Operand dgamma = Make(PW_FP32, kColumns, 2);
    const Operand dbeta = Make(PW_FP32, kColumns, 2);
    const Operand workspace = Make(
        PW_FP8, static_cast<int64_t>(pw.norm_workspace(on, kRows, kColumns)));
    for (const PwNorm norm : {PW_RMS_NORM, PW_LAYER_NORM}) {
      const bool layer = norm == PW_LAYER_NORM;
      const std::string name = layer ? "layer norm" : "rms norm";
      cases->push_back({name + of,
                        Size(kRows, kColumns),
                        {x, y, gamma, beta, statistics},
                        [=, &pw] {
                          return pw.norm_forward(on, nullptr, norm, type, kRows,
                                                 kColumns, 1e-5f, At(x),
                                                 At(gamma), At(beta), At(y),
                                                 Floats(statistics));
                        }});
      // Neighbouring rows have theirs in one sector.
      Operand kept_statistics = statistics;
      kept_statistics.kept = true;
      cases->push_back(
          {name + ", backward" + of,
           Size(kRows, kColumns),
           {dy, x, residual, y, gamma, kept_statistics, dgamma, dbeta},
           [=, &pw] {
             return pw.norm_backward(
                 on, nullptr, norm, type, kRows, kColumns, At(dy), At(x),
                 At(gamma), Floats(statistics), At(residual), At(y),
                 Floats(dgamma), layer ? Floats(dbeta) : nullptr,
                 At(workspace));
           }});
    }
  }
}

void AccessBench::Ends(std::vector<AccessCase>* cases) {
  constexpr int64_t kTokens = 1024;
  constexpr int64_t kSequence = 512;
  constexpr int64_t kVocabulary = 4096;
  constexpr int64_t kFew = 64;
  constexpr PwType kType = PW_BF16;
  const PwKernels& pw = *kernels_;
  PwDevice* const on = device_;
  // Every token has an id of its own.
  const Operand ids = Places(kTokens, 5);
  const Operand table = Make(kType, kTokens * kColumns);
  const Operand positions = Kept(kType, kSequence * kColumns);
  const Operand y = Make(kType, kTokens * kColumns);
  const Operand dtable = Make(PW_FP32, kTokens * kColumns, 2);
  const Operand dpositions = Make(PW_FP32, kSequence * kColumns, 2);
  const std::string size = Size(kTokens, kColumns);
  cases->push_back(
      {"embedding, bf16", size, {ids, table, positions, y}, [=, &pw] {
         return pw.embedding_forward(on, nullptr, kType, kTokens, kColumns,
                                     kSequence, 0, IdsOf(ids), At(table),
                                     At(positions), At(y));
       }});
  cases->push_back(
      {"embedding, backward, bf16", size, {ids, y, dtable}, [=, &pw] {
         return pw.embedding_backward(on, nullptr, kType, kTokens, kColumns,
                                      kSequence, 0, IdsOf(ids), At(y),
                                      Floats(dtable), nullptr);
       }});
  cases->push_back({"the same with positions",
                    size,
                    {ids, Times(y, 2), dtable, dpositions},
                    [=, &pw] {
                      return pw.embedding_backward(
                          on, nullptr, kType, kTokens, kColumns, kSequence, 0,
                          IdsOf(ids), At(y), Floats(dtable),
                          Floats(dpositions));
                    }});
  const Operand logits = Make(kType, kFew * kVocabulary);
  const Operand targets = Ids(kFew, kVocabulary);
  const Operand losses = Make(PW_FP32, kFew);
  const Operand lse = Make(PW_FP32, kFew);
  cases->push_back({"cross-entropy, bf16",
                    Size(kFew, kVocabulary),
                    {logits, targets, losses, lse},
                    [=, &pw] {
                      return pw.cross_entropy_forward(
                          on, nullptr, kType, kFew, kVocabulary, At(logits),
                          IdsOf(targets), Floats(losses), Floats(lse));
                    }});
  Operand kept_lse = lse;
  kept_lse.kept = true;
  cases->push_back({"cross-entropy, backward, bf16",
                    Size(kFew, kVocabulary),
                    {Times(logits, 2), targets, kept_lse},
                    [=, &pw] {
                      return pw.cross_entropy_backward(
                          on, nullptr, kType, kFew, kVocabulary, At(logits),
                          IdsOf(targets), Floats(lse), 0.5f);
                    }});
}

void AccessBench::Sums(std::vector<AccessCase>* cases) {
  const PwKernels& pw = *kernels_;
  PwDevice* const on = device_;
  const Operand dy = Make(PW_BF16, kRows * kColumns);
  const Operand dbias = Make(PW_FP32, kColumns, 2);
  cases->push_back(
      {"bias, backward, bf16", Size(kRows, kColumns), {dy, dbias}, [=, &pw] {
         return pw.bias_backward(on, nullptr, PW_BF16, kRows, kColumns, At(dy),
                                 Floats(dbias));
       }});
  const Operand values = Make(PW_FP32, kRows * kColumns / 4);
  const Operand result = Make(PW_FP32, 4, 2);
  cases->push_back({"square_sum, fp32",
                    Size(kRows, kColumns / 4),
                    {values, result},
                    [=, &pw] {
                      return pw.square_sum(on, nullptr, kRows * kColumns / 4,
                                           Floats(values),
                                           static_cast<double*>(At(result)));
                    }});
}

void AccessBench::Bytes(std::vector<AccessCase>* cases) {
  constexpr int64_t kSide = 1024;
  constexpr int64_t kCount = kSide * kColumns;
  const PwKernels& pw = *kernels_;
  PwDevice* const on = device_;
  const std::string size = Size(kSide, kColumns);
  for (const PwType type : {PW_BF16, PW_FP32}) {
    const std::string of = type == PW_BF16 ? ", bf16" : ", fp32";
    // Read for the largest value, then again.
    const Operand x = Make(type, kCount, 2);
    const Operand to = Make(PW_FP8, kCount);
    const Operand turned = Make(PW_FP8, kCount);
    const Operand scale = Make(PW_FP32, 1);
    cases->push_back(
        {"quantize, both ways" + of, size, {x, to, turned, scale}, [=, &pw] {
           return pw.quantize(on, nullptr, type, kSide, kColumns, At(x), 0,
                              At(to), At(turned), Floats(scale));
         }});
    cases->push_back({"quantize" + of, size, {x, to, scale}, [=, &pw] {
                        return pw.quantize(on, nullptr, type, kSide, kColumns,
                                           At(x), 0, At(to), nullptr,
                                           Floats(scale));
                      }});
  }
  // The weight pass takes both operands transposed: one side is that of a
  // small product, which is not counted.
  const Operand a = Make(PW_FP8, kCount, 2);
  const Operand b = Make(PW_FP8, kSide * 16, 2);
  const Operand c = Make(PW_FP32, kColumns * 16, 0);
  cases->push_back({"transpose of fp8", size, {a, b, c}, [=, &pw] {
                      const PwGemm gemm = {PW_GEMM_BACKWARD_WEIGHT, PW_FP8,
                                           kSide, kColumns, 16};
                      return pw.gemm(on, nullptr, &gemm, At(a), At(b), nullptr,
                                     At(c));
                    }});
  for (AccessCase& one : *cases) {
    const bool turns =
        one.name.find("quantize") == 0 || one.name.find("transpose") == 0;
    if (turns) one.most_banks = 1;
  }
}

void AccessBench::Experts(std::vector<AccessCase>* cases) {
  constexpr int64_t kTokens = 512;
  constexpr int32_t kExperts = 64;
  constexpr int32_t kChosen = 8;
  constexpr int64_t kSlots = kTokens * kChosen;
  constexpr PwType kType = PW_BF16;
  const PwKernels& pw = *kernels_;
  PwDevice* const on = device_;
  static const PwRoute route = {kType, kTokens, kExperts, kChosen, kExperts, 0};
  const std::string size =
      Size(kTokens, kColumns) + ", " + std::to_string(kChosen) + " chosen";
  const Operand x = Make(kType, kTokens * kColumns);
  const Operand y = Make(kType, kTokens * kColumns);
  const Operand rows = Make(kType, kSlots * kColumns);
  const Operand drows = Make(kType, kSlots * kColumns);
  const Operand places = Places(kSlots, 37);
  const Operand weights = Kept(PW_FP32, kSlots);
  const Operand dweights = Make(PW_FP32, kSlots);
  cases->push_back({"dispatch_rows, bf16", size, {x, places, rows}, [=, &pw] {
                      return pw.dispatch_rows(on, nullptr, &route, kColumns,
                                              At(x), IdsOf(places), At(rows));
                    }});
  cases->push_back(
      {"combine_rows, bf16", size, {rows, x, places, weights, y}, [=, &pw] {
         return pw.combine_rows(on, nullptr, &route, kColumns, At(rows),
                                IdsOf(places), Floats(weights), At(x), At(y));
       }});
  cases->push_back({"combine_rows, backward, bf16",
                    size,
                    {x, rows, places, weights, drows, dweights},
                    [=, &pw] {
                      return pw.combine_rows_backward(
                          on, nullptr, &route, kColumns, At(x), At(rows),
                          IdsOf(places), Floats(weights), At(drows),
                          Floats(dweights));
                    }});
  const Operand logits = Make(kType, kTokens * kExperts);
  const Operand dlogits = Make(kType, kTokens * kExperts);
  const Operand ids = Make(PW_FP32, kSlots, 2);
  const Operand made = Make(PW_FP32, kSlots);
  const Operand placed = Make(PW_FP32, kSlots);
  Operand counts = Kept(PW_FP32, kExperts);
  counts.times = 2;
  Operand again = ids;
  again.kept = true;
  again.times = 2;
  Operand kept_logits = logits;
  kept_logits.kept = true;
  cases->push_back({"route_forward, bf16",
                    Size(kTokens, kExperts) + ", 8 chosen",
                    {kept_logits, again, made, placed, counts},
                    [=, &pw] {
                      return pw.route_forward(
                          on, nullptr, &route, At(logits),
                          static_cast<int32_t*>(At(ids)), Floats(made),
                          static_cast<int32_t*>(At(placed)),
                          static_cast<int32_t*>(At(counts)));
                    }});
  cases->back().most_bytes = 2;
  cases->back().cause =
      "a block of each own expert reads the ids of all tokens, 4 bytes each";
  Operand kept_ids = ids;
  kept_ids.kept = true;
  kept_ids.times = 1;
  Operand kept_dweights = dweights;
  kept_dweights.kept = true;
  cases->push_back({"route_backward, bf16",
                    Size(kTokens, kExperts) + ", 8 chosen",
                    {kept_ids, weights, kept_dweights, dlogits},
                    [=, &pw] {
                      return pw.route_backward(on, nullptr, &route, IdsOf(ids),
                                               Floats(weights),
                                               Floats(dweights), At(dlogits));
                    }});
}

void AccessBench::Attention(std::vector<AccessCase>* cases) {
  constexpr int64_t kTokens = 128;
  constexpr int64_t kHeads = 2;
  constexpr int64_t kDim = 64;
  constexpr int64_t kStride = kHeads * kDim;
  constexpr PwType kType = PW_BF16;
  static const PwAttention shape = {kType,   1,       1,       kTokens,
                                    kTokens, kHeads,  kHeads,  kDim,
                                    kStride, kStride, kStride, 0.125f};
  const PwKernels& pw = *kernels_;
  PwDevice* const on = device_;
  std::vector<Operand> own;
  for (int tensor = 0; tensor < 8; ++tensor) {
    own.push_back(Make(kType, kTokens * kStride));
  }
  const Operand lse = Make(PW_FP32, kTokens * kHeads);
  const Operand space =
      Make(PW_FP8,
           1 + static_cast<int64_t>(pw.attention_workspace(on, &shape, 1)), 0);
  const std::string size = "128 tokens, 2 heads of 64";
  const std::string cause =
      "keys and values are read for each tile of queries; not on the way of "
      "cuDNN";
  AccessCase forward = {"own attention, bf16",
                        size,
                        {own[0], own[1], own[2], own[3], lse},
                        [=, &pw] {
                          return pw.attention_forward(
                              on, nullptr, &shape, At(own[0]), At(own[1]),
                              At(own[2]), At(own[3]), Floats(lse), At(space));
                        }};
  AccessCase backward = {"own attention, backward, bf16", size, own, [=, &pw] {
                           return pw.attention_backward(
                               on, nullptr, &shape, At(own[0]), At(own[1]),
                               At(own[2]), At(own[3]), Floats(lse), At(own[4]),
                               At(own[5]), At(own[6]), At(own[7]), At(space));
                         }};
  backward.operands.push_back(lse);
  for (AccessCase* one : {&forward, &backward}) {
    one->most_bytes = 20;
    one->most_sectors = 4;
    one->cause = cause;
    cases->push_back(*one);
  }
}

std::vector<AccessCase> AccessBench::Cases() {
  std::vector<AccessCase> cases;
  Elements(&cases);
  Norms(&cases);
  Ends(&cases);
  Sums(&cases);
  Bytes(&cases);
  Experts(&cases);
  Attention(&cases);
  return cases;
}

}  // namespace pipewright
