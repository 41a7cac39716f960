// How a rank waits for others and finds out when nothing will come; the
// protocol is told in rank_waits.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "execute/transport/message.h"
#include "execute/transport/transport.h"

namespace pipewright {

struct RankRunOptions;

class RankWaits {
 public:
  // `take` is given what carries the run on; `blocked` says what the rank waits
  // for. All must outlive it.
  RankWaits(const Program& program, Address self, Endpoint* endpoint,
            const RankRunOptions& options,
            std::function<absl::Status(RankMessage)> take,
            std::function<std::string()> blocked);

  // A message that carries the run on.
  void SendTo(Address to, RankMessage message);
  // One that does not, to all others.
  void Tell(RankMessage::Kind kind, absl::string_view text);
  // A copy or a collective of the rank's own is under way; kCopied or kCombined
  // ends it.
  void BeginOwn() { ++traffic_.under_way; }

  // Takes what has come.
  absl::Status Poll();
  // For others. Error: kFailedPrecondition, a deadlock; kUnavailable, a rank or
  // a message is lost.
  absl::Status Wait();
  // For a date in `left_s`, or for others until then.
  absl::Status WaitFor(double left_s);
  // The rank has ended. Somebody may still pull from it.
  absl::Status AwaitOthers();
  bool ended() const { return ended_; }

 private:
  // What a rank has done by the time at which it waits.
  struct Traffic {
    std::vector<int64_t> sent;  // [rank of all]: messages that carry it on
    int64_t taken = 0;          // how many of all ranks'
    int64_t under_way = 0;  // copies and collectives of its own, not yet ended
    bool goes_on = false;   // at a date that it waits for

    friend bool operator==(const Traffic&, const Traffic&) = default;
  };

  absl::Status Take(RankMessage message);
  absl::Status AskOthers();
  absl::Status CheckPatience(Address other);
  absl::Status AwaitAnswers();
  std::vector<Address> Unanswered() const;
  bool NothingComes(const std::map<Address, Traffic>& traffic) const;
  absl::Status GiveUp(const std::string& text);
  std::string TrafficText(bool goes_on) const;
  Traffic TrafficOf(const Payload& payload) const;
  size_t IndexOf(Address address) const;
  void Answer(bool goes_on);
  absl::Status EndedFromOutside();

  const Program& program_;
  const Address self_;
  Endpoint& endpoint_;
  const RankRunOptions& options_;
  const std::function<absl::Status(RankMessage)> take_;
  const std::function<std::string()> blocked_;
  int64_t taken_ = 0;  // messages that carry the run on, its own too
  Traffic traffic_;
  int64_t question_ = 0;                // the last that was asked
  std::map<Address, Traffic> answers_;  // to it
  std::map<Address, Traffic> stalled_;  // when it last led to nothing
  std::map<Address, Traffic> last_;     // traffic of those that have ended
  std::vector<std::pair<Address, int64_t>> asked_;  // by whom, question
  std::set<Address> done_;  // others that need nothing more
  bool ended_ = false;
};

}  // namespace pipewright
