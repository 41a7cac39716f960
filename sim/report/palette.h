// Colours of operations in pictures. Hues are those of the Okabe-Ito palette
// (M. Okabe, K. Ito, "Color Universal Design", 2008), which colour-blind
// readers tell apart; the four common kinds F, W, B, BW also have four
// clearly different lightnesses, for print in grey.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Colour {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;
};

// What a picture tells apart by colour; in the order of legends.
enum class Style : uint8_t {
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kBackwardFull,
  kRecompute,
  kOptimizer,   // and the check of a step and its undoing
  kCollective,  // and one-sided pull and push
  kOffload,
  kLoad,
  kHost,
  kCopyWait,  // the compute stream waits for nothing but a copy
  kOther,
};
inline constexpr int kNumStyles = 12;

Style StyleOf(const TraceOp& op);
// Label in a legend: "F forward", "collective".
absl::string_view StyleLabel(Style style);

// Chunk 0 has the full colour, later chunks are lighter.
Colour ColourOf(Style style, int chunk, int vpp);
// Black or white, whichever reads better on `background`.
Colour TextOn(Colour background);
// WCAG 2.1 contrast ratio, 1..21.
double Contrast(Colour one, Colour other);
// "#0072B2".
std::string Hex(Colour colour);

}  // namespace pipewright
