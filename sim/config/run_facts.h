// Facts of a prepared run that decide whether a field of the configuration is
// read (idle_options.h). Those that need the whole program are computed at the
// first call.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_parts.h"
#include "sim/topology/registry.h"

namespace pipewright {

struct Program;

class RunFacts {
 public:
  // Arguments as of FindIdleOptions; they must outlive it.
  RunFacts(const PreparedRun& run, const RunSizes& sizes)
      : run_(run), sizes_(sizes), shape_(run.network.system_shape()) {}

  const RunConfig& config() const { return run_.config; }
  const PreparedRun& run() const { return run_; }
  const RunSizes& sizes() const { return sizes_; }
  // Null without a system, without a model.
  const ShapeParams* shape() const { return shape_; }
  const ModelSpec* model() const {
    return run_.prepared_model ? &run_.prepared_model->spec : nullptr;
  }
  const TrainingSpec* training() const {
    return run_.prepared_model ? &run_.prepared_model->training : nullptr;
  }

  // Are pass times not given, but estimated or measured?
  bool times_follow_model() const { return run_.costs.follow_model(); }
  bool recomputes() const {
    return model() != nullptr && training()->recompute != Recompute::kNone;
  }
  // Hops and collectives take no time.
  bool free_network() const {
    return shape_ == nullptr && run_.network.hop_s == 0 &&
           run_.lower.network.measured == nullptr;
  }
  // Copies of a stage: data-parallel ones, those of parts of a context or of
  // the other direction.
  bool has_copies() const {
    const bool odc = run_.lower.data_parallel == DataParallel::kOdc;
    return (odc ? sizes_.dp : sizes_.holders()) > 1 ||
           run_.schedule.lowered->directions > 1;
  }
  const DataParallelTraits& mode() const {
    return TraitsOf(run_.lower.data_parallel);
  }
  bool synchronises() const { return has_copies() && mode().reduces; }
  bool shards_step() const { return synchronises() && mode().shards_step; }

  // Plan of an optimizer on the host; null where it is on the device.
  const OptimizerOffload* offload() const {
    return run_.lower.offload.active() ? &run_.lower.offload : nullptr;
  }
  // Some subgroup, of any rank, is stepped so.
  bool StepsSo(SubgroupStep step) const;

  bool HasPass(PassKind kind) const { return run_.schedule.lowered->Has(kind); }
  bool HasPair() const;
  // Does a device of this run stand on another node than the first one's?
  bool SpansNodes() const;
  // What crosses a link: anything, messages of the program alone (no estimated
  // exchange within a pass), anything that has bytes.
  enum class Load { kAny, kMessages, kBytes };
  // Is that on a link whose name contains `part` ("nvlink", "/nic")?
  bool Crosses(absl::string_view part, Load load) const;
  // Do exchanges inside of passes cross a link whose name contains `part`?
  bool ExchangesCross(absl::string_view part) const;
  // May two devices use one network card at a time, as engine `fast` counts?
  bool SharesCards() const;
  // Does the peak of activations depend on costs.held_until_weight?
  bool HeldMatters() const;
  // Is there one table for embedding and head on a rank, or a sum of the
  // gradients of two?
  bool TableIsShared() const;
  // Does an even split of the layers give other stages?
  bool SplitMatters() const;
  // Would reductions that wait for the last pass stand elsewhere than those
  // that do not?
  bool OverlapMatters() const;
  // Is any collective, of any rank, something else than a ring?
  bool LeavesRings() const;
  // Are the members of any collective on several nodes?
  bool CollectivesSpanNodes() const;
  // Does strategy.mapping place any rank elsewhere than its default?
  bool MappingMatters() const;

 private:
  // Null where it cannot be lowered.
  const Program* program() const;
  bool EstimateCrosses(absl::string_view part) const;

  const PreparedRun& run_;
  const RunSizes& sizes_;
  const ShapeParams* shape_;
  mutable bool lowered_ = false;
  mutable std::shared_ptr<const Program> program_;
};

}  // namespace pipewright
