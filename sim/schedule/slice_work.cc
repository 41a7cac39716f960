#include "sim/schedule/slice_work.h"

namespace pipewright {

double SliceWork(const SequenceShape& sequence, int64_t begin, int64_t end) {
  const auto tokens = static_cast<double>(sequence.tokens);
  return PrefixWork(sequence.attention, static_cast<double>(end) / tokens) -
         PrefixWork(sequence.attention, static_cast<double>(begin) / tokens);
}

std::vector<double> SliceFactors(const SequenceShape& sequence,
                                 const std::vector<int64_t>& lengths) {
  std::vector<double> factors;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    factors.push_back(SliceWork(sequence, begin, begin + length) *
                      static_cast<double>(lengths.size()));
    begin += length;
  }
  return factors;
}

double EqualSliceFactor(double attention, int slice, int slices) {
  return slices * (PrefixWork(attention, (slice + 1.0) / slices) -
                   PrefixWork(attention, 1.0 * slice / slices));
}

}  // namespace pipewright
