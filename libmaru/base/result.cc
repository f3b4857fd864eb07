#include "libmaru/base/result.h"

#include <cstring>

namespace maru {

std::string describe(const Error &error) {
    if (error.code == 0)
        return error.message;
    // strerrordesc_np is static text: no lock, no locale.
    const char *text = strerrordesc_np(error.code);
    return error.message + ": " + (text ? text : "unknown error");
}

}  // namespace maru
