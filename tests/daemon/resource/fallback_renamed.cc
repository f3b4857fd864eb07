// The file of the build without libdaxctl, under a name of its own, so that every machine tests it.
#define list_dax_devices list_dax_devices_fallback
#include "daemon/resource/dax_fallback.cc"
