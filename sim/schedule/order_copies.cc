#include "sim/schedule/order_copies.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

namespace pipewright {
namespace {

// One rank's order, from the front on, with what it holds.
class CopyFitter {
 public:
  CopyFitter(const OrderTask& task, const std::vector<int>& order, int rank,
             const CopyRule& rule)
      : task_(task),
        rule_(rule),
        most_(WithRounding(task.room[rank])),
        slots_(static_cast<size_t>(task.placement.vpp()) * task.microbatches) {
    entries_.reserve(order.size());
    for (const int pass : order) {
      const int kind = task.KindOf(pass);
      if (kind == OrderTask::kFree) continue;
      Slot& slot = SlotOf(pass);
      if (kind == 1) slot.backward = entries_.size();
      if (kind == OrderTask::kAgain) slot.has_r = true;
      entries_.push_back(pass);
    }
    fitting_.reserve(order.size());
  }

  std::vector<int> Fit() {
    for (now_ = 0; now_ < entries_.size(); ++now_) {
      IssueLoads();
      if (!Add(entries_[now_])) return {};
    }
    return WithCopies();
  }

 private:
  // A microbatch on a stage.
  struct Slot {
    size_t backward = 0;  // where its B stands
    bool has_r = false;
    bool goes = false;     // an O has begun
    bool freed = false;    // and its room was given back
    bool loaded = false;   // L was issued
    bool weighed = false;  // W has run
    int64_t ended = 0;     // F has, in ticks of work at least
    int64_t away = 0;      // O has
  };
  // An L that is not issued yet.
  struct Load {
    size_t from = 0;  // the place from which on it may be
    int pass = 0;
  };

  size_t IndexOf(int pass) const {
    return static_cast<size_t>(task_.placement.ChunkOf(task_.StageOf(pass))) *
               task_.microbatches +
           task_.MicrobatchOf(pass);
  }
  Slot& SlotOf(int pass) { return slots_[IndexOf(pass)]; }
  int Beside(int pass, int kind) const {
    return task_.Number(kind, task_.StageOf(pass), task_.MicrobatchOf(pass));
  }

  void Put(int pass) {
    held_ += task_.Taken(pass);
    fitting_.push_back(pass);
    if (task_.KindOf(pass) < OrderTask::kOut) work_ += task_.Ticks(pass);
  }

  void BeginCopy(int forward) {
    Slot& slot = SlotOf(forward);
    slot.goes = true;
    out_ =
        std::max(out_, slot.ended) + task_.stages[task_.StageOf(forward)].out;
    slot.away = out_;
    leaving_.push_back(forward);
  }

  void Free() {
    const int forward = leaving_.front();
    leaving_.pop_front();
    SlotOf(forward).freed = true;
    work_ = std::max(work_, SlotOf(forward).away);
    Put(Beside(forward, OrderTask::kFree));
  }

  bool RunWeight() {
    // Some have run where they stood.
    while (!weights_.empty() && SlotOf(weights_.front()).weighed) {
      weights_.pop_front();
    }
    if (weights_.empty() || task_.Taken(weights_.front()) >= 0) return false;
    const int weight = weights_.front();
    SlotOf(weight).weighed = true;
    Put(weight);
    return true;
  }

  // Lets what waits longest for its B go, behind its F.
  bool CopyLatest() {
    const auto is_sooner = [&](int one, int two) {
      return SlotOf(one).backward < SlotOf(two).backward;
    };
    auto last = std::max_element(whole_.begin(), whole_.end(), is_sooner);
    if (last == whole_.end() || SlotOf(*last).backward <= now_) return false;
    if (rule_.spares_latest && whole_.size() > 1) {
      std::iter_swap(last, whole_.end() - 1);
      const auto other =
          std::max_element(whole_.begin(), whole_.end() - 1, is_sooner);
      last = SlotOf(*other).backward > now_ ? other : whole_.end() - 1;
    }
    const int forward = *last;
    whole_.erase(last);
    BeginCopy(forward);
    const PlanTicks& own = task_.stages[task_.StageOf(forward)];
    size_t from = SlotOf(forward).backward;
    for (int64_t ticks = 0; from > now_ && ticks < rule_.lead * own.in;) {
      const int pass = entries_[--from];
      if (task_.KindOf(pass) < OrderTask::kOut) ticks += task_.Ticks(pass);
    }
    AddLoad({from, Beside(forward, OrderTask::kIn)});
    return true;
  }

  void AddLoad(const Load& load) {
    const size_t backward = SlotOf(load.pass).backward;
    const auto behind =
        std::find_if(loads_.begin(), loads_.end(), [&](const Load& other) {
          return SlotOf(other.pass).backward > backward;
        });
    loads_.insert(behind, load);
  }

  // What room may cost: nothing; a W or a wait for an O that has begun; another
  // O.
  enum class Price { kNothing, kWait, kCopy };

  bool MakeRoom(double needed, Price price) {
    while (held_ + needed > most_) {
      const bool is_away =
          !leaving_.empty() && SlotOf(leaving_.front()).away <= work_;
      if (is_away) {
        Free();
      } else if (price == Price::kNothing) {
        return false;
      } else if (rule_.weights_first && RunWeight()) {
        continue;
      } else if (!leaving_.empty()) {
        Free();
      } else if (price == Price::kCopy && CopyLatest()) {
        continue;
      } else if (!RunWeight()) {
        return false;
      }
    }
    return true;
  }

  bool Issue(int load, Price price) {
    if (!MakeRoom(task_.Taken(load), price)) return false;
    SlotOf(load).loaded = true;
    Put(load);
    return true;
  }

  Price ForLoads() const {
    return rule_.waits_for_loads ? Price::kWait : Price::kNothing;
  }

  // Those whose place has come, while there is room.
  void IssueLoads() {
    while (!loads_.empty() && loads_.front().from <= now_) {
      const int load = loads_.front().pass;
      if (!SlotOf(load).loaded && !Issue(load, ForLoads())) return;
      loads_.erase(loads_.begin());
    }
  }

  // Before B: it has to be back.
  bool LoadNow(int backward) {
    Slot& slot = SlotOf(backward);
    if (!slot.goes) {
      std::erase(whole_, Beside(backward, 0));
      return true;
    }
    if (!slot.freed) {  // it has stayed
      std::erase(leaving_, Beside(backward, 0));
      slot.goes = false;
      return true;
    }
    if (slot.loaded) return true;
    const int load = Beside(backward, OrderTask::kIn);
    std::erase_if(loads_, [&](const Load& own) { return own.pass == load; });
    return Issue(load, Price::kCopy);
  }

  // False: no room.
  bool Add(int pass) {
    Slot& slot = SlotOf(pass);
    const int kind = task_.KindOf(pass);
    switch (kind) {
      case OrderTask::kOut:
        if (slot.goes) return true;  // since something came in between
        std::erase(whole_, Beside(pass, 0));
        BeginCopy(Beside(pass, 0));
        return true;
      case OrderTask::kIn:
        if (slot.freed && !slot.loaded && !Issue(pass, ForLoads())) {
          AddLoad({now_, pass});
        }
        return true;
      case 1:
        if (!LoadNow(pass)) return false;
        break;
      case 2:
        if (slot.weighed) return true;
        slot.weighed = true;
        break;
      default:
        break;
    }
    const double taken = task_.Taken(pass);
    if (taken > 0 && !MakeRoom(taken, Price::kCopy)) return false;
    Put(pass);
    if (kind == 1 && task_.splits) weights_.push_back(Beside(pass, 2));
    if (kind != 0) return true;
    slot.ended = work_;
    if (slot.has_r) {
      held_ -= task_.dropped[task_.StageOf(pass)];
    } else if (task_.moved[task_.StageOf(pass)] > 0) {
      whole_.push_back(pass);
    }
    return true;
  }

  // Each O right behind its F, wherever it stood.
  std::vector<int> WithCopies() const {
    std::vector<int> order;
    order.reserve(fitting_.size() + fitting_.size() / 4);
    for (const int pass : fitting_) {
      order.push_back(pass);
      if (task_.KindOf(pass) != 0) continue;
      if (!slots_[IndexOf(pass)].goes) continue;
      order.push_back(Beside(pass, OrderTask::kOut));
    }
    return order;
  }

  const OrderTask& task_;
  const CopyRule& rule_;
  const double most_;
  std::vector<Slot> slots_;
  std::vector<int> entries_;
  size_t now_ = 0;
  double held_ = 0;
  int64_t work_ = 0;          // ticks of the rank so far, at least
  int64_t out_ = 0;           // the stream's last O has ended by then
  std::vector<int> whole_;    // F whose B is to come, and which stay
  std::deque<int> leaving_;   // F whose O has begun, without FREE
  std::deque<int> weights_;   // W whose B has run
  std::vector<Load> loads_;   // by their B
  std::vector<int> fitting_;  // without O
};

}  // namespace

std::vector<int> FitByCopies(const OrderTask& task,
                             const std::vector<int>& order, int rank,
                             const CopyRule& rule) {
  return CopyFitter(task, order, rank, rule).Fit();
}

void EraseCopies(const OrderTask& task, int out, std::vector<int>* order) {
  const int stage = task.StageOf(out);
  const int microbatch = task.MicrobatchOf(out);
  std::erase_if(*order, [&](int pass) {
    return task.KindOf(pass) >= OrderTask::kOut &&
           task.StageOf(pass) == stage && task.MicrobatchOf(pass) == microbatch;
  });
}

std::vector<PassOrders> OrdersWithCopies(const OrderTask& task,
                                         const PassOrders& orders) {
  std::vector<PassOrders> found;
  for (const bool weights_first : {true, false}) {
    for (const int lead : {1, 2, 4}) {
      PassOrders own(task.pp());
      bool fits = true;
      for (int rank = 0; fits && rank < task.pp(); ++rank) {
        own[rank] =
            FitByCopies(task, orders[rank], rank, {weights_first, lead});
        fits = !own[rank].empty();
      }
      if (fits) found.push_back(std::move(own));
    }
  }
  return found;
}

}  // namespace pipewright
