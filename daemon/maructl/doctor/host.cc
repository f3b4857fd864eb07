#include "daemon/maructl/doctor/host.h"

#include <algorithm>
#include <filesystem>

#include "libmaru/base/text_file.h"

namespace maru::maructl {

std::optional<std::string> Host::text(const std::string &path) const {
    auto text = read_text_file(root_ + path);
    if (text && !text->empty() && text->back() == '\n')
        text->pop_back();
    return text;
}

std::optional<uint64_t> Host::number(const std::string &path) const {
    return read_number_file(root_ + path);
}

std::vector<std::string> Host::list(const std::string &folder) const {
    std::vector<std::string> names;
    std::error_code failed;
    for (std::filesystem::directory_iterator at(root_ + folder, failed), end; !failed && at != end;
         at.increment(failed))
        names.push_back(at->path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

std::optional<struct stat> Host::status(const std::string &path) const {
    struct stat info = {};
    if (::stat((root_ + path).c_str(), &info) != 0)
        return std::nullopt;
    return info;
}

std::string Host::link_name(const std::string &path) const {
    std::error_code failed;
    return std::filesystem::read_symlink(root_ + path, failed).filename().string();
}

}  // namespace maru::maructl
