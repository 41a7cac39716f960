#include "sim/config/reality_help.h"

namespace pipewright {

std::vector<FieldHelp> RealityHelp() {
  return {
      {"slow.devices", "",
       "NAME*FACTOR: passes and steps of these devices take FACTOR times as "
       "long; NAME is a device or node of the system (node0/gpu3, node0), or "
       "rank3, replica2, replica2/rank3"},
      {"slow.devices_law", "",
       "the same drawn for every device: fixed:1.44@1% (each with 1 % "
       "probability), uniform:1-1.1, lognormal:3%"},
      {"slow.links", "",
       "NAME*FACTOR: links of the system with FACTOR times the latency and the "
       "time a byte; NAME is a link or the beginning of several (node0/nic1, "
       "node0)"},
      {"slow.links_law", "", "the same drawn for every link"},
      {"slow.seed", "costs.seed", "seed of both laws"},
      {"reliability.mtbf_per_device", "",
       "mean time between failures of one device, in the report as goodput"},
      {"reliability.checkpoint_every", "Daly's interval",
       "work between two checkpoints"},
      {"reliability.checkpoint_write", "",
       "how long training stops for a checkpoint"},
      {"reliability.restart", "0", "from a failure to work again"},
      {"reliability.horizon", "1d", "how long a stretch is looked at"},
      {"reliability.seeds", "1000", "how many such stretches are drawn"},
      {"reliability.seed", "costs.seed", "seed of their failures"},
  };
}

}  // namespace pipewright
