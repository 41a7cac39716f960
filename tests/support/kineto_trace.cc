#include "tests/support/kineto_trace.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pipewright::testing {
namespace {

constexpr char kPython[] = "7";     // thread of the forward
constexpr char kAutograd[] = "12";  // thread of the backward

std::string Exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string DimsOf(const std::vector<std::vector<int64_t>>& dims) {
  std::vector<std::string> lists;
  for (const std::vector<int64_t>& each : dims) {
    lists.push_back(absl::StrCat("[", absl::StrJoin(each, ", "), "]"));
  }
  return absl::StrCat("[", absl::StrJoin(lists, ", "), "]");
}

// An operator of a forward: its kernel, and the part of its layer's time that
// the kernel takes, forward and backward.
struct Operator {
  std::string name;
  std::string kernel;
  double share;
  std::string dims;
};

class Writer {
 public:
  explicit Writer(const FakeRank& rank) : rank_(rank) {}

  std::vector<std::string> Write() {
    for (int microbatch = 0; microbatch < rank_.microbatches; ++microbatch) {
      made_.clear();
      Forward(microbatch);
      Backward(microbatch);
    }
    return events_;
  }

 private:
  struct Made {  // a forward operator, for its backward
    int64_t sequence;
    std::string kernel;
    double backward_us;
  };

  // A launch on the host and its kernel, right behind the last kernel.
  void Launch(const std::string& thread, const std::string& kernel,
              double duration_us) {
    ++correlation_;
    events_.push_back(FakeEvent(
        "cuda_runtime", "cudaLaunchKernel", thread, host_us_ + 0.25, 0.5,
        absl::StrCat("\"args\": {\"correlation\": ", correlation_, "}")));
    events_.push_back(
        FakeEvent("kernel", kernel, "stream 7", device_us_, duration_us,
                  absl::StrCat("\"args\": {\"device\": 0, \"stream\": 7, "
                               "\"correlation\": ",
                               correlation_, "}")));
    device_us_ += duration_us;
  }

  void Operate(const Operator& op, const double part_us[2]) {
    std::string arguments;
    if (rank_.has_sequences) {
      arguments = absl::StrCat("\"Fwd thread id\": 0, \"Sequence number\": ",
                               sequence_);
    }
    if (rank_.has_shapes && !op.dims.empty()) {
      absl::StrAppend(&arguments, arguments.empty() ? "" : ", ",
                      "\"Input Dims\": ", op.dims);
    }
    events_.push_back(FakeEvent("cpu_op", op.name, kPython, host_us_, 1,
                                absl::StrCat("\"args\": {", arguments, "}")));
    Launch(kPython, op.kernel, op.share * part_us[0]);
    made_.push_back({sequence_++, op.kernel, op.share * part_us[1]});
    host_us_ += 2;
  }

  // What `inside` does, within a module or a mark or neither.
  template <class Inside>
  void Within(const std::string& module, const std::string& mark,
              Inside inside) {
    const double start_us = host_us_;
    host_us_ += 1;
    inside();
    host_us_ += 1;
    if (rank_.has_modules) {
      events_.push_back(FakeEvent("python_function", "nn.Module: " + module,
                                  kPython, start_us, host_us_ - start_us));
    }
    if (rank_.has_marks) {
      events_.push_back(FakeEvent("user_annotation", mark, kPython, start_us,
                                  host_us_ - start_us));
    }
    host_us_ += 1;
  }

  std::string Product(int64_t columns, int64_t inner) const {
    return DimsOf({{rank_.batch * rank_.sequence, inner}, {inner, columns}});
  }

  void Layer() {
    const int64_t h = rank_.hidden;
    const int64_t d = h / rank_.heads;
    const std::vector<int64_t> queries = {rank_.batch, rank_.heads,
                                          rank_.sequence, d};
    for (const Operator& op : std::vector<Operator>{
             {"aten::layer_norm", "layer_norm_kernel", 0.0625, ""},
             {"aten::mm", "sm90_gemm_bf16_qkv", 0.1875, Product(3 * h, h)},
             {"aten::_scaled_dot_product_flash_attention", "flash_fwd_kernel",
              0.25, DimsOf({queries, queries, queries})},
             {"aten::mm", "sm90_gemm_bf16_out", 0.125, Product(h, h)},
             {"aten::mm", "sm90_gemm_bf16_up", 0.1875, Product(rank_.ffn, h)},
             {"aten::mm", "sm90_gemm_bf16_down", 0.1875,
              Product(h, rank_.ffn)}}) {
      Operate(op, rank_.layer_us);
    }
  }

  void Forward(int microbatch) {
    const double start_us = host_us_;
    host_us_ += 1;
    if (rank_.has_embedding) {
      Within("LanguageModelEmbedding_0", "embedding", [this] {
        Operate({"aten::embedding", "vectorized_gather_kernel", 1,
                 DimsOf({{rank_.vocabulary, rank_.hidden},
                         {rank_.batch, rank_.sequence}})},
                rank_.embedding_us);
      });
    }
    for (int layer = 0; layer < rank_.layers; ++layer) {
      Within(absl::StrCat("TransformerLayer_", layer),
             absl::StrCat("layer ", layer), [this] { Layer(); });
    }
    if (rank_.has_head) {
      // The last norm has no mark of its own.
      Operate({"aten::layer_norm", "layer_norm_kernel", 0.125, ""},
              rank_.head_us);
      Within("ColumnParallelLinear_9", "output_layer", [this] {
        Operate({"aten::mm", "sm90_gemm_bf16_logits", 0.625,
                 Product(rank_.vocabulary, rank_.hidden)},
                rank_.head_us);
      });
      Operate({"aten::cross_entropy_loss", "softmax_kernel", 0.25, ""},
              rank_.head_us);
    }
    Region(absl::StrCat("forward step ", microbatch), start_us);
  }

  void Backward(int microbatch) {
    const double start_us = host_us_;
    host_us_ += 1;
    for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
      const std::string arguments =
          rank_.has_sequences ? absl::StrCat(
                                    "\"args\": {\"Fwd thread id\": 1, "
                                    "\"Sequence number\": ",
                                    made->sequence, "}")
                              : "";
      events_.push_back(FakeEvent(
          "cpu_op", "autograd::engine::evaluate_function: SomeBackward0",
          kAutograd, host_us_, 1, arguments));
      // Three quarters by the node, a quarter by the sum of its gradients.
      Launch(kAutograd, "bwd_" + made->kernel, 0.75 * made->backward_us);
      host_us_ += 2;
      events_.push_back(FakeEvent("cpu_op",
                                  "autograd::engine::evaluate_function: "
                                  "torch::autograd::AccumulateGrad",
                                  kAutograd, host_us_, 1));
      Launch(kAutograd, "add_kernel", 0.25 * made->backward_us);
      host_us_ += 2;
    }
    Region(absl::StrCat("backward step ", microbatch), start_us);
  }

  void Region(const std::string& name, double start_us) {
    host_us_ += 1;
    events_.push_back(FakeEvent("user_annotation", name, kPython, start_us,
                                host_us_ - start_us));
    host_us_ += 10;
    device_us_ += 10;
  }

  const FakeRank& rank_;
  std::vector<std::string> events_;
  std::vector<Made> made_;
  double host_us_ = 1'000'000;
  double device_us_ = 1'000'100;
  int64_t correlation_ = 0;
  int64_t sequence_ = 0;
};

}  // namespace

std::string FakeEvent(const std::string& category, const std::string& name,
                      const std::string& thread, double start_us,
                      double duration_us, const std::string& more) {
  return absl::StrCat(
      "{\"ph\": \"X\", \"cat\": \"", category, "\", \"name\": \"", name,
      "\", \"pid\": 100, \"tid\": \"", thread, "\", \"ts\": ", Exact(start_us),
      ", \"dur\": ", Exact(duration_us), more.empty() ? "" : ", ", more, "}");
}

std::vector<std::string> FakeEvents(const FakeRank& rank) {
  return Writer(rank).Write();
}

std::string FakeTrace(const FakeRank& rank,
                      const std::vector<std::string>& events) {
  return absl::StrCat(
      "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"",
      rank.device, "\", \"totalGlobalMem\": ", rank.memory_bytes,
      ", \"numSms\": ", rank.multiprocessors,
      "}], \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": ", rank.rank,
      ", \"world_size\": ", rank.world_size, ", \"pg_config\": [", rank.groups,
      "]}, \"traceEvents\": [\n", absl::StrJoin(events, ",\n"), "]}\n");
}

}  // namespace pipewright::testing
