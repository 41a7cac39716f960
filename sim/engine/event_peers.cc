#include "sim/engine/event_peers.h"

#include <algorithm>

#include "sim/program/network_time.h"

namespace pipewright {

PeerSteps::PeerSteps(const Program& program, bool share_links,
                     const TrafficSources& sources,
                     const SideSources& side_sources, EventTransfers* transfers)
    : program_(program),
      share_links_(share_links),
      sources_(sources),
      side_sources_(side_sources),
      transfers_(*transfers) {}

// When owners have added what they see from `seen_s` on. One does it for one
// client after the other, and a client sends all owners of its part as much at
// once: they have the same to do all the time.
double PeerSteps::AddAtOwners(int device, const SideOp& op, double seen_s) {
  const int owners = ClientsOf(op, program_.replicas);
  const int replica = device / program_.pp();
  double& free_s = owners_free_s_[replica / owners * owners * program_.pp() +
                                  device % program_.pp()];
  free_s = std::max(free_s, seen_s) + AddSeconds(op);
  return free_s;
}

void PeerSteps::Begin(int device, Stream stream, const SideOp& op,
                      double start_s) {
  State& state = Of(device, stream);
  state = {};
  BeginStep(device, stream, op, start_s, &state);
}

// The step that it has come to, or what it takes besides.
void PeerSteps::BeginStep(int device, Stream stream, const SideOp& op,
                          double start_s, State* state) {
  EventTransfer transfer = {.of = EventTransfer::Of::kPeers,
                            .index = device,
                            .stream = stream,
                            .start_s = start_s};
  state->flying = 1;
  const auto steps = static_cast<int32_t>(op.peers->steps.size());
  if (state->step >= steps) {
    // Owners take turns by when they have seen a request, which is not the
    // order in which requests come: a timer runs until then.
    transfer.alone_s =
        state->step > steps ? AddAtOwners(device, op, start_s) - start_s
        : share_links_      ? op.seconds
                            : op.seconds + AddAllSeconds(op, program_.replicas);
    transfer.beside = std::nullopt;
    return transfers_.Begin(transfer);
  }
  const auto* const planned = side_sources_.OfPeers(device, op);
  const std::vector<int>* const sources =
      planned == nullptr ? nullptr : &(*planned)[state->step];
  transfer.bytes = op.bytes;
  if (sources == nullptr || (!share_links_ && sources->size() != 1) ||
      (sources->size() == 1 && sources->front() < 0)) {
    // All at once, with links of its own.
    transfer.alone_s =
        PeerStepSeconds(program_, op, state->step, device / program_.pp(),
                        device % program_.pp());
    return transfers_.Begin(transfer);
  }
  state->flying = static_cast<int32_t>(sources->size());
  for (const int source : *sources) BeginFlow(op, source, transfer);
}

void PeerSteps::BeginFlow(const SideOp& op, int source,
                          EventTransfer transfer) {
  transfer.source = source;
  if (source >= 0) {
    transfer.latency_s = sources_.plan(source).latency_s;
    transfer.alone_s = sources_.AloneSeconds(source, op.bytes);
  }
  transfers_.Begin(transfer);
}

bool PeerSteps::End(int device, Stream stream, const SideOp& op, double end_s) {
  State& state = Of(device, stream);
  if (--state.flying > 0) return false;
  const auto steps = static_cast<int32_t>(op.peers->steps.size());
  ++state.step;
  const bool adds = AddSeconds(op) > 0;
  if (state.step < steps || (state.step == steps && (op.seconds > 0 || adds)) ||
      (state.step == steps + 1 && share_links_ && adds)) {
    BeginStep(device, stream, op, end_s, &state);
    return false;
  }
  return true;
}

}  // namespace pipewright
