// Where the members of a communicator leave for each other what they bring and
// what they stand before: named contents that all of them see.
#ifndef PIPEWRIGHT_TESTS_EMULATION_NCCL_BOARD_H_
#define PIPEWRIGHT_TESTS_EMULATION_NCCL_BOARD_H_

#include <memory>
#include <string>

namespace emulated_nccl {

class Board {
 public:
  virtual ~Board() = default;
  // False, and nothing done, where there is one of that name.
  virtual bool Put(const std::string& name, std::string content) = 0;
  // Null where there is none.
  virtual std::shared_ptr<const std::string> Find(const std::string& name) = 0;
  virtual void Drop(const std::string& name) = 0;
  virtual void Clear() = 0;
};

// Board for threads of one process that share it.
std::shared_ptr<Board> MemoryBoard();
// Board for all processes that name the same folder; a file for each content.
// The folder is made, and goes with Clear. Ends the process if it cannot write.
std::shared_ptr<Board> FileBoard(const std::string& folder);

}  // namespace emulated_nccl

#endif  // PIPEWRIGHT_TESTS_EMULATION_NCCL_BOARD_H_
