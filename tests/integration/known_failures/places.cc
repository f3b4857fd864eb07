#include "tests/integration/known_failures/places.h"

namespace maru::test {

const char *const kMarudPath = MARUD_PATH;
const char *const kMaructlPath = MARUCTL_PATH;
const char *const kLibraryMap = LIBRARY_MAP;
const char *const kConfigPage = CONFIG_PAGE;

}  // namespace maru::test
