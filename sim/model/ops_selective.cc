// What torchtitan's selective recomputation by operations keeps of a layer:
// outputs of attention and of every second matrix product, the first one
// included; all else runs again. The output of the layer is the input of the
// next one, so what makes it does not run again.
#include <string>
#include <vector>

#include "sim/model/ops_builder.h"

namespace pipewright {
namespace {

// Matrix products that stand in one op: torchtitan has one module each for
// queries, keys and values, and for both inputs of a gated activation.
int ProductsOf(const ModelOp& op, const ModelSpec& model) {
  if (op.name == "qkv") return 3;
  const bool is_pair =
      model.gated && op.name.find("gate-up") != std::string::npos;
  return is_pair ? 2 : 1;
}

bool IsProduct(const ModelOp& op) {
  return op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
}

// The outputs of an op with several products are of different widths: parts of
// the whole by product.
double WidthOf(const ModelOp& op, const ModelSpec& model, int product) {
  if (op.name != "qkv") return 1.0 / ProductsOf(op, model);
  const double keys = AsDouble(model.kv_heads);
  const double all = AsDouble(model.heads) + 2 * keys;
  return (product == 0 ? AsDouble(model.heads) : keys) / all;
}

}  // namespace

void MarkSelective(const ModelSpec& model, std::vector<ModelOp>& ops) {
  size_t last = 0;
  for (size_t index = 0; index < ops.size(); ++index) {
    if (IsProduct(ops[index])) last = index;
  }
  int count = 0;
  for (size_t index = 0; index < ops.size(); ++index) {
    ModelOp& op = ops[index];
    op.is_last_needed = index >= last;
    if (op.kind == OpClass::kAttention) {
      op.selective_part = 0;
      // Gives back, of queries, keys and values, the second product's: the
      // keys.
      const double width = AsDouble(model.QueryDim() + model.ValueDim());
      const double keys = AsDouble(model.kv_heads) * width;
      const double kept = AsDouble(model.heads) * AsDouble(model.QueryDim());
      const double flat = op.saved_until_backward * keys / (keys + kept);
      op.selective_backward = 0.5 * flat;
    } else if (IsProduct(op)) {
      double again = 0;
      for (int product = 0; product < ProductsOf(op, model); ++product) {
        if (++count % 2 == 0) again += WidthOf(op, model, product);
      }
      op.selective_part = op.is_last_needed ? 0 : again;
    } else {
      op.selective_part = op.is_last_needed ? 0 : 1;
      // What goes into the activation comes out of the product in front of it.
      const bool reads_product = index > 0 && IsProduct(ops[index - 1]) &&
                                 op.kind == OpClass::kElementwise &&
                                 op.saved_until_weight > 0;
      op.selective_backward = reads_product ? op.saved_until_backward *
                                                  ops[index - 1].selective_part
                                            : op.saved_until_backward;
    }
  }
  // The input of the layer is kept.
  if (!ops.empty()) ops.front().selective_backward = 0;
}

}  // namespace pipewright
