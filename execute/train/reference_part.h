// One part of the float64 reference: an embedding, a layer or a head, forward
// and backward on one sample. Internal to reference.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "execute/train/reference_math.h"
#include "kernels/layer.h"

namespace pipewright::reference {

// Where a part's tensors lie in a stage's parameters.
struct Tensors {
  std::map<std::string, int64_t> offsets;
  // -1: the style has none.
  int64_t Find(const std::string& name) const {
    const auto found = offsets.find(name);
    return found == offsets.end() ? -1 : found->second;
  }
};

// Weights or gradients of a part by name; null where there are none.
template <class Element>
class Named {
 public:
  Named(const Tensors& tensors, Element* values)
      : tensors_(tensors), values_(values) {}
  Element* operator[](const std::string& name) const {
    const int64_t offset = tensors_.Find(name);
    return offset < 0 ? nullptr : values_ + offset;
  }

 private:
  const Tensors& tensors_;
  Element* values_;
};

struct Sample {
  int64_t sequences = 1;
  int64_t tokens = 0;  // in each
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;
  double loss_scale = 1;  // scales the sum over tokens
  int64_t rows() const { return sequences * tokens; }
};

// Keeps what its backward needs.
class ReferencePart {
 public:
  virtual ~ReferencePart() = default;
  // `x` of the embedding is not looked at; the head gives {sum of losses}.
  virtual Values Forward(const Values& x) = 0;
  // `dy` of the head is not looked at. Gradients of weights are added to.
  virtual Values Backward(const Values& dy, const Named<double>& gradients) = 0;
};

// All must outlive the part.
std::unique_ptr<ReferencePart> MakePart(const PwModel& model,
                                        const Sample& sample, PwPart kind,
                                        const Named<const double>& weights);

// The mixture of experts of rows x, without norm and residual.
class Experts {
 public:
  Experts(const PwModel& model, int64_t rows,
          const Named<const double>& weights)
      : model_(model), rows_(rows), weights_(weights) {}
  Values Forward(const Values& x);
  Values Backward(const Values& dy, const Named<double>& gradients);

 private:
  struct Slot {
    int64_t token = 0;
    double weight = 0;
  };
  struct Expert {
    std::vector<Slot> slots;  // whose rows follow each other in the values
    Values x, wide, active, out;
    int64_t rows() const { return static_cast<int64_t>(slots.size()); }
  };
  // The experts of a token, from its logits.
  std::vector<int64_t> Choose(int64_t token, const double* logits) const;
  Values SharedForward();
  Values SharedBackward(const Values& dy, const Named<double>& gradients) const;

  const PwModel& model_;
  const int64_t rows_;
  const Named<const double> weights_;
  Values x_;
  std::vector<Expert> experts_;
  Values shared_wide_, shared_active_;
};

}  // namespace pipewright::reference
