// A member of a communicator under NCCL's rules: what it is called for, in
// which order, and whom each call waits for. Knows neither CUDA nor nccl.h: it
// stands behind the libnccl.so.2 of the emulation (libraries/nccl.cc) and
// behind tests/support/fake_nccl.h.
//
// Sources: NCCL user guide, "Group Calls", "In-place Operations", "Fault
// Tolerance", "Point-to-point communication".
//
// A call that is made becomes an operation of a stream; it begins when the
// stream comes to it (Operation::Step) and ends when all whom it needs have
// come. Nothing is buffered: a send waits for its receive.
#ifndef PIPEWRIGHT_TESTS_EMULATION_NCCL_MEMBER_H_
#define PIPEWRIGHT_TESTS_EMULATION_NCCL_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulation/nccl/board.h"

namespace emulated_nccl {

// ncclResult_t
enum class Result {
  kSuccess = 0,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class Kind {
  kSend,
  kReceive,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
};
const char* NameOf(Kind kind);  // "all_reduce"

// Values are summed as fp32 (kinds that reduce), or are only bytes.
struct Call {
  Kind kind = Kind::kSend;
  const void* from = nullptr;
  void* into = nullptr;
  size_t count = 0;  // number of values; one member's of gather and scatter
  size_t value_bytes = 1;
  int type = 0;  // ncclDataType_t, to compare
  int peer = 0;  // or root
};

struct Rules {
  // Says what breaks the library's rules.
  std::function<void(const std::string&)> violation;
  // How often State() says that a call goes on before it is over; 0: calls
  // block.
  int calls_go_on = 0;
  // False: only who meets whom, no contents.
  bool with_data = true;
  // Sums begin with this member, modulo their number.
  int first = 0;
  // Wall seconds that an operation may wait before it is a violation, with a
  // list of who waits for whom.
  double patience_s = 1e9;
};

class Operation;

class Member : public std::enable_shared_from_this<Member> {
 public:
  // Takes what is called to a stream.
  using Queue = std::function<void(std::shared_ptr<Operation>, void* stream)>;

  // `device` names a GPU of a host; two members on one are refused ("" is
  // nowhere in particular). `self` must be below `members`.
  Member(std::string name, std::shared_ptr<Board> board, int members, int self,
         const std::string& device, Rules rules, Queue queue);

  int members() const { return members_; }
  int self() const { return self_; }
  const std::string& name() const { return name_; }

  // Tells if all have come, what was called last is over on the host, and
  // nobody has failed.
  Result State();
  // A call, or a part of the thread's group.
  Result Add(const Call& call, void* stream);
  // All members come with a colour (below 0: none) and a key, which orders
  // those of a colour; call until it is not kInProgress.
  struct Part {
    std::string name;
    int members = 0;  // 0: none
    int self = 0;
  };
  Result Split(int color, int key, Part* part);
  // Ends what is under way: nothing is read or written any more, and others
  // that wait fail.
  void Abort();
  // All operations have ended.
  bool Idle() const;
  // In good order; a violation where one has not ended.
  void Leave();
  // Makes the whole communicator fail.
  void Fail(Result result, const std::string& why);
  std::string failure() const;

 private:
  friend class Operation;
  friend class Group;

  std::string Told(const std::string& what) const;
  Result Check(const Call& call);
  bool Joined();
  bool Failed();
  void FailHere(Result result, const std::string& why);
  void Gone();
  void Emit(std::vector<Call> calls, void* stream);
  bool OutOfPlace(const Call& call) const;

  const std::string name_;
  const std::shared_ptr<Board> board_;
  const int members_;
  const int self_;
  const Rules rules_;
  const Queue queue_;

  mutable std::mutex mutex_;
  bool joined_ = false;
  int goes_on_ = 0;
  bool aborted_ = false;
  Result failed_ = Result::kSuccess;
  std::string failure_;
  int64_t emitted_ = 0;  // operations
  int64_t ended_ = 0;
  int64_t collectives_ = 0;  // called
  int64_t splits_ = 0;
  bool split_begun_ = false;
  std::map<std::pair<int, int>, int64_t> transfers_;  // from, to
};

// The calls of one group, on one communicator.
class Operation {
 public:
  Operation(std::shared_ptr<Member> member, std::vector<Call> calls);

  // Begins and ends what can; true when all of it has ended, or its member has
  // aborted. One operation of a member after the other, on whatever streams.
  // `now_s`: of the stream's clock.
  bool Step(double now_s);
  // By their clocks: when the last of those that take part came.
  double met_s() const { return met_s_; }
  bool aborted() const { return aborted_; }
  const std::vector<Call>& calls() const { return calls_; }
  // "all_reduce of 4 values"
  std::string Name() const;

 private:
  struct Meeting {
    int64_t number = 0;
    bool begun = false;
    bool ended = false;
    std::vector<std::shared_ptr<const std::string>> come;  // [member]
  };

  void Begin(const Call& call, Meeting* meeting, double now_s);
  bool End(const Call& call, Meeting* meeting);
  bool Transfer(const Call& call, Meeting* meeting);
  bool Collect(const Call& call, Meeting* meeting);
  void Combine(const Call& call, const Meeting& meeting) const;
  void Wait();
  std::string WhoWaits() const;

  const std::shared_ptr<Member> member_;
  const std::vector<Call> calls_;
  std::vector<Meeting> meetings_;
  int64_t turn_ = 0;
  bool done_ = false;
  bool aborted_ = false;
  double met_s_ = 0;
  double waits_since_s_ = -1;
  bool told_ = false;
};

// Calls of a thread between start and end (nested ones are one). Operations
// are queued at the end, one for each communicator.
class Group {
 public:
  static void Start();
  // kInvalidUsage without a start. What one of its calls was refused for is
  // the result, and then nothing is queued.
  static Result End();
  static bool Open();
  // Done at the end: waits of calls that block.
  static void AtEnd(std::function<Result()> wait);

 private:
  friend class Member;
  struct Part {
    std::shared_ptr<Member> member;
    void* stream = nullptr;
    std::vector<Call> calls;
  };
  static Result Add(Member* member, const Call& call, void* stream,
                    Result checked);
  static Group& OfThread();
  Result EndParts();

  int depth_ = 0;
  Result refused_ = Result::kSuccess;
  std::vector<Part> parts_;
  std::vector<std::function<Result()>> waits_;
};

}  // namespace emulated_nccl

#endif  // PIPEWRIGHT_TESTS_EMULATION_NCCL_MEMBER_H_
