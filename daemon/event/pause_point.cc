// $MARU_PAUSE_POINTS names a directory. While it has a file with the name of a point, whoever comes
// to that point waits: until the file is gone if it is empty, else as many milliseconds as it says.

#include "daemon/event/pause_point.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "libmaru/base/unique_fd.h"

namespace maru {
namespace {

void sleep_ms(long ms) {
    timespec left = {ms / 1000, ms % 1000 * 1'000'000};
    while (::nanosleep(&left, &left) != 0) {
    }
}

}  // namespace

void pause_point(const char *name) {
    static const char *const directory = ::getenv("MARU_PAUSE_POINTS");
    if (!directory)
        return;
    const std::string path = std::string(directory) + "/" + name;
    for (;;) {
        UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!fd)
            return;
        char text[16] = {};
        if (::read(fd.get(), text, sizeof text - 1) > 0)
            return sleep_ms(std::atol(text));
        sleep_ms(5);
    }
}

}  // namespace maru
