// Rules for the lengths of samples.
#include "sim/config/idle_rules.h"

namespace pipewright {

const std::vector<IdleRule>& SequenceRules() {
  static const std::vector<IdleRule> rules = {
      {{"sequences."},
       [](const RunFacts& facts) {
         return Unless(facts.run().sequences.has_value(),
                       "without sequences.lengths or sequences.histogram");
       }},
      {{"sequences.packer_cost"},
       [](const RunFacts& facts) {
         // Without a model it says what passes take, too.
         if (facts.model() == nullptr) return Unless(true, "");
         const Packer packer = facts.run().sequences->request.packer;
         return Unless(packer == Packer::kLbMicro ||
                           packer == Packer::kLbMini ||
                           packer == Packer::kLbMiniBfd,
                       "with a packer that balances nothing");
       }},
      {{"sequences.max_token_len"},
       [](const RunFacts& facts) {
         const PreparedSequences& sequences = *facts.run().sequences;
         return Unless(TraitsOf(sequences.request.packer).packs,
                       "with a packer of one sample a microbatch");
       }},
  };
  return rules;
}

}  // namespace pipewright
