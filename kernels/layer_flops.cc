// The work of a pass in numbers.
#include <algorithm>

#include "kernels/layer.h"
#include "kernels/layer_plan.h"

int32_t pw_pass_gemms(const PwModel* model, const PwWork* work, PwPart part,
                      PwPassKind pass, PwGemm* gemms) {
  const pipewright::PartShape shape = pipewright::ShapeOf(*model, *work);
  const PwGemmPass kind = pass == PW_PASS_F   ? PW_GEMM_FORWARD
                          : pass == PW_PASS_B ? PW_GEMM_BACKWARD_INPUT
                                              : PW_GEMM_BACKWARD_WEIGHT;
  int32_t count = 0;
  const bool fp8 = model->fp8_linear && part == PW_LAYER;
  const auto put = [&](int64_t inputs, int64_t outputs) {
    PwGemm& gemm = gemms[count++];
    gemm = {kind, fp8 ? PW_FP8 : model->type, shape.tokens, inputs, outputs};
    if (!fp8) return;
    gemm.dy_e5m2 = pass == PW_PASS_F ? 0 : 1;
    gemm.transposed = 1;
    gemm.fp32_output = model->type == PW_FP32 ? 1 : 0;
  };
  const auto put_experts = [&](int64_t inputs, int64_t outputs) {
    gemms[count++] = {kind, model->type, shape.expert_rows, inputs, outputs};
  };
  if (part == PW_LAYER || part == PW_EXPERT_LAYER) {
    put(shape.hidden, shape.qkv);
    put(shape.attention, shape.hidden);
  }
  if (part == PW_LAYER) {
    put(shape.hidden, shape.up);
    put(shape.ffn, shape.hidden);
  } else if (part == PW_EXPERT_LAYER) {
    put(shape.hidden, shape.experts);
    put_experts(shape.hidden, shape.expert_up);
    put_experts(shape.expert_ffn, shape.hidden);
    if (shape.shared_ffn > 0) {
      put(shape.hidden, shape.shared_up);
      put(shape.shared_ffn, shape.hidden);
    }
  } else if (part == PW_HEAD) {
    put(shape.hidden, shape.vocabulary);
  }
  if (pass != PW_PASS_F) std::reverse(gemms, gemms + count);
  return count;
}

int32_t pw_pass_groups(const PwModel* model, const PwWork* work, PwPart part,
                       PwPassKind pass, int32_t* groups) {
  PwGemm gemms[8];
  const int32_t count = pw_pass_gemms(model, work, part, pass, gemms);
  std::fill(groups, groups + count, 1);
  if (part != PW_EXPERT_LAYER) return count;
  // Behind attention's two and the router, counted from the forward's end.
  const int32_t first = pass == PW_PASS_F ? 3 : count - 5;
  groups[first] = groups[first + 1] = model->experts / model->ep;
  return count;
}

void pw_balanced_rows(int64_t rows, int32_t groups, int64_t* rows_of) {
  for (int32_t group = 0; group < groups; ++group) {
    rows_of[group] = (rows - group + groups - 1) / groups;
  }
}

void pw_pass_flops(const PwModel* model, const PwWork* work, PwPart part,
                   PwPassKind pass, double* linear, double* attention) {
  PwGemm gemms[8];
  const int32_t count = pw_pass_gemms(model, work, part, pass, gemms);
  *linear = 0;
  for (int32_t index = 0; index < count; ++index) {
    *linear +=
        2.0 * gemms[index].tokens * gemms[index].inputs * gemms[index].outputs;
  }
  *attention = 0;
  if ((part != PW_LAYER && part != PW_EXPERT_LAYER) || pass == PW_PASS_W) {
    return;
  }
  const pipewright::PartShape shape = pipewright::ShapeOf(*model, *work);
  const double queries = work->slice_tokens;
  // Keys that a query sees on average.
  const double keys = model->causal ? work->slice_first + queries / 2
                                    : static_cast<double>(shape.seen);
  // Two matrix products forward; backward five, one of them the scores again.
  const double products = pass == PW_PASS_F ? 2 : 5;
  *attention = 2 * products * work->batch * queries * keys * shape.attention;
}
