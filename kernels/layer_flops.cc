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
  if (part == PW_LAYER) {
    put(shape.hidden, shape.qkv);
    put(shape.attention, shape.hidden);
    put(shape.hidden, shape.up);
    put(shape.ffn, shape.hidden);
  } else if (part == PW_HEAD) {
    put(shape.hidden, shape.vocabulary);
  }
  if (pass != PW_PASS_F) std::reverse(gemms, gemms + count);
  return count;
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
  if (part != PW_LAYER || pass == PW_PASS_W) return;
  const pipewright::PartShape shape = pipewright::ShapeOf(*model, *work);
  const double queries = work->slice_tokens;
  // Keys that a query sees on average.
  const double keys = model->causal ? work->slice_first + queries / 2
                                    : static_cast<double>(shape.seen);
  // Two matrix products forward; backward five, one of them the scores again.
  const double products = pass == PW_PASS_F ? 2 : 5;
  *attention = 2 * products * work->batch * queries * keys * shape.attention;
}
