// A libcuda so old that it lacks what is needed.
extern "C" __attribute__((visibility("default"))) unsigned cuInit(unsigned) { return 0; }
