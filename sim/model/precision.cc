#include "sim/model/precision.h"

namespace pipewright {

const char* PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp8:
      return "fp8";
    case Precision::kFp8Tensorwise:
      return "fp8-tensorwise";
    case Precision::kFp8Block:
      return "fp8-block";
    case Precision::kMxfp8:
      return "mxfp8";
    case Precision::kNvfp4:
      return "nvfp4";
  }
  return "";
}

bool IsNarrow(Precision precision) { return precision != Precision::kBf16; }

bool IsFp8(Precision precision) {
  return IsNarrow(precision) && precision != Precision::kNvfp4;
}

// Bytes of an element with its part of a scale (blocks of 128 with fp32, of 32
// and 16 with 8 bit; Transformer Engine's recipes). [framework source, bytes]
double OperandBytes(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return 2;
    case Precision::kFp8:
    case Precision::kFp8Tensorwise:
      return 1;
    case Precision::kFp8Block:
      return 1 + 4.0 / 128;  // a scale in fp32
    case Precision::kMxfp8:
      return 1 + 1.0 / 32;
    case Precision::kNvfp4:
      return 0.5 + 1.0 / 16;
  }
  return 2;
}

double NarrowWeightBytes(const TrainingSpec& training) {
  const Precision precision = training.precision;
  const bool once = training.reads_both_ways && !CastsBothWays(precision);
  return (once ? 1 : 2) * OperandBytes(precision);
}

double GatheredWeightBytes(const TrainingSpec& training) {
  return training.precision == Precision::kMxfp8
             ? training.weight_bytes
             : OperandBytes(training.precision);
}

bool CastsBothWays(Precision precision) {
  return precision == Precision::kFp8Block || precision == Precision::kMxfp8 ||
         precision == Precision::kNvfp4;
}

double GatheredBytes(Precision precision, bool for_weight) {
  const double copies = for_weight && CastsBothWays(precision) ? 2 : 1;
  return copies * OperandBytes(precision);
}

}  // namespace pipewright
