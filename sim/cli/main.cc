#include "sim/cli/verbs.h"

int main(int argc, char** argv) {
  return pipewright::RunCommandLine(argc, argv);
}
