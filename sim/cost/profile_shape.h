// The work of a measured pass, which follows from its shape: whether two
// entries have the same shape, and the work that times grow with. Also the time
// of a transfer between measured sizes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/cost/profile_interpolation.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"

namespace pipewright {

// The shape of a model as profiles name it; gated feed-forward: "llama", else
// "gpt". Error: kInvalidArgument for what no kernel of ours runs (latent
// attention, frozen or adapted weights).
absl::StatusOr<ProfileModel> ProfileModelOf(const ModelSpec& model);

// The parts for dense layers, for layers of experts, or both, in the model's
// order.
std::vector<ProfilePart> LayerPartsOf(const ModelSpec& model);

// True when a pass of `part` is the same work in both models: the vocabulary
// does not matter to a layer, nor the heads to the head.
bool SameShape(ProfilePart part, const ProfileModel& one,
               const ProfileModel& other);

// Linear FLOPs, FLOPs of attention, streamed elements of one device, and where
// the shape lies (microbatch size, sequence, tp, parameters of the part that a
// token meets); no seconds. A slice is a part of a microbatch. Experts of a
// device that others share do as much, in larger groups: entries of another ep
// are no points of a grid.
GridPoint PointOf(ProfilePart part, ProfilePass pass, const ProfileModel& model,
                  double microbatch_size, int64_t sequence, int64_t tp);

// All entries of (part, pass, type) of the shape of `model`, or of any shape
// of its style, but none of slices or of one rank.
std::vector<const PassEntry*> EntriesOf(const Profile& profile,
                                        ProfilePart part, ProfilePass pass,
                                        absl::string_view type,
                                        const ProfileModel& model,
                                        bool any_shape = false);

// How well the profile's own points are predicted when left out: a row a
// (model, part, pass, type) with at least two shapes.
struct LeftOutRow {
  std::string name;  // "layer F gpt h256 a4 d64 f1024 fp32"
  std::vector<const PassEntry*> entries;
  std::vector<double> errors;  // one an entry, relative, with its sign
};
std::vector<LeftOutRow> LeaveOneOut(const Profile& profile);

// Which of the measured transfers count.
struct TransferFilter {
  // One transport alone; "": nccl, else mpi, else threads, else what there is,
  // but one at a time.
  absl::string_view transport;
  // Ranks on so many nodes; 0: wherever they were.
  int64_t nodes = 0;
  // Takes fewer and more ranks where so many were not measured.
  bool between_ranks = true;
};

// The time of `operation` over `ranks` devices. Between measured sizes it lies
// on the straight line of their logarithms; below the least it is that one's,
// above the largest it grows in proportion. Between numbers of ranks it lies on
// the straight line of the logarithms of both. Nothing where none is measured.
struct TransferTime {
  double seconds = 0;
  bool inside = true;          // within the measured sizes
  bool between_ranks = false;  // between fewer and more
};
std::optional<TransferTime> TransferSeconds(const Profile& profile,
                                            absl::string_view operation,
                                            int64_t ranks, double bytes,
                                            const TransferFilter& filter = {});

// Seconds by bytes; AtSize() wants some.
using TimesBySize = std::map<double, double>;
TransferTime AtSize(const TimesBySize& seconds, double bytes);
// Copies of one direction, and messages from one GPU to another (NCCL's
// send_recv) on so many nodes; empty where none was measured.
TimesBySize TimesOfCopies(const Profile& profile, CopyDirection direction,
                          bool beside_opposite = false);
TimesBySize TimesOfSends(const Profile& profile, int64_t nodes);

// GPUs of the machine that the profile is of, as far as it shows: those that
// transfers inside a node were measured between. A machine of one GPU is most
// often a part of a node, with a part of its memory's bandwidth.
double MeasuredDevices(const Profile& profile);

// Bytes that leave each rank of a ring: over the time, the bus bandwidth of
// nccl-tests (doc/PERFORMANCE.md), which does not depend on the ranks.
double BusBytes(const TransferEntry& entry);

// "llama h4096 a32/8 d128 f14336", of embedding and head "gpt h256 v512".
std::string ShapeName(ProfilePart part, const ProfileModel& model);

}  // namespace pipewright
