// Activations on the host: a stage's memory there and the copies. All but
// HostCopy::Run is for the thread that runs the passes.
#include "execute/train/stage.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {

absl::Status HostCopy::Run(const DeviceHandle& handle, PwStream* stream) const {
  const PwKernels& kernels = *handle.kernels;
  const char* const what = out ? "offload" : "load";
  for (const Block& block : blocks) {
    PW_RETURN_IF_ERROR(KernelStatus(
        kernels,
        kernels.copy(
            handle.device, stream, out ? PW_DEVICE_TO_HOST : PW_HOST_TO_DEVICE,
            block.to.data.get(), block.from.data.get(), block.from.bytes),
        what));
  }
  return KernelStatus(kernels, kernels.synchronize(handle.device, stream),
                      what);
}

absl::StatusOr<HostCopy> Stage::BeginOffload(Key key) {
  Activations& activations = Find(key);
  PW_CHECK(activations.offloaded.empty());
  std::vector<Payload*> blocks = {&activations.input};
  for (PartBlocks& part : activations.parts) {
    // The gradients are a head's logits.
    for (Payload* const block : {&part.saved, &part.inputs, &part.grads}) {
      blocks.push_back(block);
    }
  }
  HostCopy copy = {.out = true};
  for (Payload* const block : blocks) {
    if (block->bytes == 0) continue;
    PW_ASSIGN_OR_RETURN(Payload host, host_.Take(block->bytes));
    copy.blocks.push_back({*block, host});
    activations.offloaded.push_back({.block = block, .host = std::move(host)});
  }
  return copy;
}

absl::Status Stage::FreeOffloaded(Key key) {
  for (const Activations::Offloaded& each : Find(key).offloaded) {
    *each.block = {};
  }
  // No kernel that is queued uses it, so that an L can have it.
  PW_RETURN_IF_ERROR(Check(
      handle_.kernels->synchronize(handle_.device, handle_.stream), "offload"));
  arena_.Settle();
  return absl::OkStatus();
}

absl::StatusOr<HostCopy> Stage::BeginLoad(Key key) {
  HostCopy copy;
  for (Activations::Offloaded& each : Find(key).offloaded) {
    // Its copy is queued behind nothing that passes have queued.
    PW_ASSIGN_OR_RETURN(each.loaded, arena_.TakeSettled(each.host.bytes));
    copy.blocks.push_back({each.host, each.loaded});
  }
  return copy;
}

absl::Status Stage::TakeLoaded(Activations& activations) {
  for (Activations::Offloaded& each : activations.offloaded) {
    if (each.loaded.bytes == 0) {
      return absl::InternalError(
          "a pass needs activations that are on the host");
    }
    *each.block = std::move(each.loaded);
  }
  activations.offloaded.clear();
  return absl::OkStatus();
}

std::vector<size_t> Stage::CopiedBlocks(bool again) const {
  std::vector<size_t> blocks;
  const auto add = [&blocks](size_t bytes) {
    if (bytes > 0) blocks.push_back(bytes);
  };
  add(InputBytes(again));
  if (again) return blocks;
  for (const Part& part : parts_) {
    add(part.size.saved);
    add(part.size.inputs);
    if (part.spec.part == PW_HEAD) add(part.size.grads);
  }
  return blocks;
}

}  // namespace pipewright
