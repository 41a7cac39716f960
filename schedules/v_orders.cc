#include "schedules/v_orders.h"

#include <utility>

#include "sim/schedule/builder.h"

namespace pipewright {

namespace {

constexpr PassKind kKinds[kVKinds] = {
    PassKind::kForward,        PassKind::kForward,
    PassKind::kBackwardInput,  PassKind::kBackwardInput,
    PassKind::kBackwardWeight, PassKind::kBackwardWeight};
constexpr int kChunkOf[kVKinds] = {0, 1, 1, 0, 1, 0};

}  // namespace

Schedule VSchedule(absl::string_view name, const VOrders& orders) {
  ScheduleBuilder builder(name, Placement::V(orders.pp), orders.microbatches);
  for (int rank = 0; rank < orders.pp; ++rank) {
    builder.Reserve(rank, orders.length());
    std::array<int, kVKinds> counts{};
    const uint8_t* const order = orders.rank(rank);
    for (int position = 0; position < orders.length(); ++position) {
      const int kind = order[position];
      builder.Add(rank, kKinds[kind], counts[kind]++, kChunkOf[kind]);
    }
  }
  return std::move(builder).Finish();
}

int VPeakChunks(const VOrders& orders) {
  int peak = 0;
  for (int rank = 0; rank < orders.pp; ++rank) {
    int live = 0;
    const uint8_t* const order = orders.rank(rank);
    for (int position = 0; position < orders.length(); ++position) {
      live += (order[position] <= kF1) - (order[position] >= kW1);
      peak = std::max(peak, live);
    }
  }
  return peak;
}

double VPeak(const VOrders& orders, double held) {
  const std::array<double, kVKinds> changes = {
      0.5, 0.5, (held - 1) / 2, (held - 1) / 2, -held / 2, -held / 2};
  double peak = 0;
  for (int rank = 0; rank < orders.pp; ++rank) {
    double live = 0;
    const uint8_t* const order = orders.rank(rank);
    for (int position = 0; position < orders.length(); ++position) {
      live += changes[order[position]];
      peak = std::max(peak, live);
    }
  }
  return peak;
}

double VSpan(const VOrders& orders, const PlanCosts& costs) {
  VReplay<double> replay(orders.pp, orders.microbatches);
  return VSpan(orders, costs, &replay);
}

double VSpan(const VOrders& orders, const PlanCosts& costs,
             VReplay<double>* replay) {
  const double forward = costs.forward / 2;
  const double input = costs.backward_input / 2;
  const double weight = costs.backward_weight / 2;
  replay->Reset();
  if (!replay->Run(orders, {forward, forward, input, input, weight, weight},
                   costs.hop)) {
    return std::numeric_limits<double>::infinity();
  }
  double span = 0;
  for (int rank = 0; rank < orders.pp; ++rank) {
    span = std::max(span, replay->span(rank));
  }
  return span;
}

}  // namespace pipewright
