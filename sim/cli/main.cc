namespace pipewright {

// Stands in sim/cli/verbs.h, which reads all of CLI11: 10 s for this line.
int RunCommandLine(int argc, char** argv);

}  // namespace pipewright

int main(int argc, char** argv) {
  return pipewright::RunCommandLine(argc, argv);
}
