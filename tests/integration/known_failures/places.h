// Where this build has its programs and sources.
#pragma once

namespace maru::test {

extern const char *const kMarudPath;
extern const char *const kMaructlPath;
extern const char *const kLibraryMap;  // libmaru.map, the exported names
extern const char *const kConfigPage;  // marud.toml(5)

}  // namespace maru::test
