// Writes the tests' tiny model where it is told: for tests that are scripts.
//
//   make_tiny_model tiny.gguf
#include "tests/tiny_model_file.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  coppice::test::write_tiny_model(argv[1]);
}
