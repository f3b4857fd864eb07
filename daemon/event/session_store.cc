#include "daemon/event/session_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "libmaru/base/unique_fd.h"

namespace maru {
namespace {

constexpr size_t kMaxRecordBytes = 64 << 20;  // 2^20 segments of some 50 bytes
constexpr size_t kMaxDamaged = 32;  // kept for a person to look at; further ones are removed

std::string record_name(wire::Id session) {
    char name[32];
    std::snprintf(name, sizeof name, "%016llx.session", static_cast<unsigned long long>(session));
    return name;
}

bool ends_with(const std::string &text, std::string_view end) {
    return text.size() >= end.size() &&
           std::string_view(text).substr(text.size() - end.size()) == end;
}

Result<std::string> read_record_file(const std::string &path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd)
        return Error{errno, "open '" + path + "'"};
    struct stat info = {};
    if (::fstat(fd.get(), &info) < 0)
        return Error{errno, "stat '" + path + "'"};
    if (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) > kMaxRecordBytes)
        return Error{EBADMSG, "'" + path + "': not a session record"};
    std::string text(static_cast<size_t>(info.st_size), '\0');
    size_t have = 0;
    while (have < text.size()) {
        ssize_t got = ::read(fd.get(), text.data() + have, text.size() - have);
        if (got < 0)
            return Error{errno, "read '" + path + "'"};
        if (got == 0)
            break;
        have += static_cast<size_t>(got);
    }
    text.resize(have);
    return text;
}

Result<void> write_file(const std::string &path, std::string_view text) {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd)
        return Error{errno, "open '" + path + "'"};
    while (!text.empty()) {
        ssize_t put = ::write(fd.get(), text.data(), text.size());
        if (put < 0)
            return Error{errno, "write '" + path + "'"};
        text.remove_prefix(static_cast<size_t>(put));
    }
    return {};
}

}  // namespace

std::string read_boot_id() {
    UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    char text[64];
    ssize_t got = fd ? ::read(fd.get(), text, sizeof text) : -1;
    std::string id(text, got > 0 ? static_cast<size_t>(got) : 0);
    while (!id.empty() && id.back() == '\n')
        id.pop_back();
    return id.empty() ? "unknown" : id;
}

Result<SessionStore> SessionStore::open(const std::string &directory, std::string boot_id) {
    std::string sessions = directory + "/sessions";
    if (::mkdir(sessions.c_str(), 0700) < 0 && errno != EEXIST)
        return Error{errno, "mkdir '" + sessions + "'"};
    struct stat info = {};
    if (::lstat(sessions.c_str(), &info) < 0)
        return Error{errno, "stat '" + sessions + "'"};
    // Records are believed, so nobody else may be able to write them.
    if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 0022))
        return Error{EPERM, "directory '" + sessions +
                                "' must belong to marud's user and be writable by nobody else"};
    return SessionStore(sessions, std::move(boot_id));
}

Result<void> SessionStore::save(const SessionRecord &record) {
    std::string path = directory_ + "/" + record_name(record.session);
    std::string next = path + ".new";
    if (auto written = write_file(next, format_record(record, boot_id_)); !written) {
        ::unlink(next.c_str());
        return written;
    }
    if (::rename(next.c_str(), path.c_str()) < 0)
        return Error{errno, "rename '" + next + "'"};
    return {};
}

void SessionStore::remove(wire::Id session) {
    ::unlink((directory_ + "/" + record_name(session)).c_str());
}

Result<std::vector<std::string>> SessionStore::list() {
    std::vector<std::string> names;
    std::unique_ptr<DIR, int (*)(DIR *)> dir(::opendir(directory_.c_str()), ::closedir);
    if (!dir)
        return Error{errno, "list the session records in '" + directory_ + "'"};
    size_t damaged = 0;
    while (true) {
        errno = 0;
        const dirent *entry = ::readdir(dir.get());
        if (!entry && errno != 0)
            return Error{errno, "read the list of session records in '" + directory_ + "'"};
        if (!entry)
            break;
        std::string name = entry->d_name;
        if (ends_with(name, ".session"))
            names.push_back(name);
        // What a kill cut short, and more damaged ones than anybody will look at.
        else if (ends_with(name, ".new") ||
                 (ends_with(name, ".damaged") && ++damaged > kMaxDamaged))
            ::unlink((directory_ + "/" + name).c_str());
    }
    std::sort(names.begin(), names.end());
    return names;
}

void SessionStore::load_one(const std::string &name, Loaded &loaded) {
    std::string path = directory_ + "/" + name;
    auto text = read_record_file(path);
    Result<ParsedRecord> parsed = text ? parse_record(*text) : Result<ParsedRecord>(text.error());
    if (parsed && record_name(parsed->record.session) != name)
        parsed = Error{EBADMSG, "session record: of session " +
                                    std::to_string(parsed->record.session) + ", not of its name"};
    if (!parsed) {
        ::rename(path.c_str(), (path + ".damaged").c_str());
        loaded.problems.push_back("'" + path +
                                  "' is set aside as .damaged: " + describe(parsed.error()));
        return;
    }
    if (parsed->boot_id != boot_id_) {
        ::unlink(path.c_str());  // its process and its memory ended with that boot
        ++loaded.other_boot;
        return;
    }
    loaded.records.push_back(std::move(parsed->record));
}

}  // namespace maru
