#include "sim/report/palette.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "sim/schedule/pass.h"

namespace pipewright {
namespace {

struct StyleRow {
  absl::string_view label;
  Colour colour;
};

constexpr StyleRow kStyles[kNumStyles] = {
    {"F forward", {0x00, 0x72, 0xb2}},              // blue
    {"B gradient of input", {0xe6, 0x9f, 0x00}},    // orange
    {"W gradient of weights", {0x00, 0x9e, 0x73}},  // bluish green
    {"BW full backward", {0xf0, 0xe4, 0x42}},       // yellow
    {"R recomputed forward", {0x56, 0xb4, 0xe9}},   // sky blue
    {"optimizer", {0xcc, 0x79, 0xa7}},              // reddish purple
    {"collective", {0x40, 0x40, 0x40}},             // black, softened
    {"offload", {0xd5, 0x5e, 0x00}},                // vermillion
    {"load", {0xee, 0xae, 0x7c}},                   // vermillion, half
    {"host", {0x8c, 0x6b, 0xb1}},                   // no room left in palette
    {"wait for a copy", {0xb0, 0x7d, 0x62}},        // vermillion, dull
    {"other", {0x90, 0x90, 0x90}},
};

// A later chunk goes at most this far towards white.
constexpr double kLightest = 0.58;

Style StyleOfPass(PassKind kind) {
  switch (kind) {
    case PassKind::kForward:
      return Style::kForward;
    case PassKind::kBackwardInput:
      return Style::kBackwardInput;
    case PassKind::kBackwardWeight:
      return Style::kBackwardWeight;
    case PassKind::kBackwardFull:
      return Style::kBackwardFull;
    case PassKind::kRecompute:
      return Style::kRecompute;
    case PassKind::kOffload:
      return Style::kOffload;
    case PassKind::kLoad:
      return Style::kLoad;
    case PassKind::kSync:
    case PassKind::kFree:
      return Style::kCollective;
  }
  return Style::kOther;
}

// Relative luminance, WCAG 2.1.
double Luminance(Colour colour) {
  const auto linear = [](uint8_t value) {
    const double share = value / 255.0;
    return share <= 0.04045 ? share / 12.92
                            : std::pow((share + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) +
         0.0722 * linear(colour.blue);
}

}  // namespace

Style StyleOf(const TraceOp& op) {
  switch (op.kind) {
    case OpKind::kPass:
      return StyleOfPass(op.pass.kind());
    case OpKind::kOffload:
      return Style::kOffload;
    case OpKind::kLoad:
      return Style::kLoad;
    case OpKind::kWait:
      // One of several streams takes no time and has no pass.
      return op.stage >= 0 ? Style::kCopyWait : Style::kOther;
    case OpKind::kCopyOut:
      return Style::kOffload;
    case OpKind::kCopyIn:
      return Style::kLoad;
    case OpKind::kCpu:
    case OpKind::kHostAdam:
    case OpKind::kHostCast:
    case OpKind::kHostUndo:
    case OpKind::kFlush:
      return Style::kHost;
    case OpKind::kOptimizer:
    case OpKind::kValidate:
    case OpKind::kRollback:
    case OpKind::kPredict:
    case OpKind::kCast:
      return Style::kOptimizer;
    default:
      return IsCollective(op.kind) || IsOneSided(op.kind) ? Style::kCollective
                                                          : Style::kOther;
  }
}

absl::string_view StyleLabel(Style style) {
  return kStyles[static_cast<int>(style)].label;
}

Colour ColourOf(Style style, int chunk, int vpp) {
  const Colour base = kStyles[static_cast<int>(style)].colour;
  if (vpp <= 1) return base;
  const double white = kLightest * std::clamp(chunk, 0, vpp - 1) / (vpp - 1);
  const auto mix = [white](uint8_t value) {
    return static_cast<uint8_t>(std::lround(value + white * (255 - value)));
  };
  return {mix(base.red), mix(base.green), mix(base.blue)};
}

Colour TextOn(Colour background) {
  const Colour black = {0, 0, 0};
  const Colour white = {255, 255, 255};
  return Contrast(background, black) >= Contrast(background, white) ? black
                                                                    : white;
}

double Contrast(Colour one, Colour other) {
  const double light = std::max(Luminance(one), Luminance(other));
  const double dark = std::min(Luminance(one), Luminance(other));
  return (light + 0.05) / (dark + 0.05);
}

std::string Hex(Colour colour) {
  return absl::StrFormat("#%02X%02X%02X", colour.red, colour.green,
                         colour.blue);
}

}  // namespace pipewright
