// A choice kept per boot as a small text in the user's own runtime folder.
//
// Not trusted: what does not parse exactly is made again and replaced. Written to a file of its own and
// renamed, so that a reader sees a whole one or none.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "libmaru/base/unique_fd.h"
#include "libmaru/copy/choice.h"
#include "libmaru/copy/cpu.h"

namespace maru::copy {

namespace {

constexpr char kFileName[] = "maru-copy-kernels";
constexpr size_t kMaxFileBytes = 1024;

std::string read_small(const std::string &path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status;
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode))
        return {};
    std::string text(kMaxFileBytes + 1, '\0');
    size_t size = 0;
    while (size < text.size()) {
        const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        size += static_cast<size_t>(got);
    }
    text.resize(size);
    return size > kMaxFileBytes ? std::string() : text;
}

bool owned_by_us(const std::string &path) {
    struct stat status;
    return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           status.st_uid == ::geteuid();
}

std::string boot_id() {
    std::string id = read_small("/proc/sys/kernel/random/boot_id");
    while (!id.empty() && id.back() == '\n')
        id.pop_back();
    return id;
}

// Best effort: a folder that cannot be written costs a calibration per process, nothing else.
void keep(const std::string &folder, const std::string &text) {
    const std::string path = folder + '/' + kFileName;
    std::string temporary = path + ".XXXXXX";
    UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));  // 0600, O_EXCL
    if (!fd)
        return;
    const ssize_t wrote = ::write(fd.get(), text.data(), text.size());
    if (wrote != static_cast<ssize_t>(text.size()) ||
        ::rename(temporary.c_str(), path.c_str()) != 0)
        ::unlink(temporary.c_str());
}

// "NAME NAME NAME\n" into kernels; advances the text.
bool parse_row(std::string_view &text, std::string_view head,
               std::array<const Kernel *, kSizeClasses> &row) {
    if (!text.starts_with(head))
        return false;
    text.remove_prefix(head.size());
    for (size_t i = 0; i < kSizeClasses; ++i) {
        const char end = i + 1 < kSizeClasses ? ' ' : '\n';
        const size_t length = text.find(end);
        if (length == text.npos)
            return false;
        row[i] = find_kernel(text.substr(0, length));
        if (!row[i] || !row[i]->supported())
            return false;
        text.remove_prefix(length + 1);
    }
    return true;
}

std::string header(std::string_view boot, std::string_view cpu) {
    std::string text = "maru copy kernels 3\nboot ";
    text.append(boot).append("\ncpu ").append(cpu).append("\n");
    return text;
}

void append_row(std::string &text, const char *head,
                const std::array<const Kernel *, kSizeClasses> &row) {
    text += head;
    for (size_t i = 0; i < kSizeClasses; ++i) {
        text += row[i]->name;
        text += i + 1 < kSizeClasses ? ' ' : '\n';
    }
}

}  // namespace

std::string format_choice(const Choice &choice, std::string_view boot, std::string_view cpu) {
    std::string text = header(boot, cpu);
    append_row(text, "in ", choice.in);
    append_row(text, "out ", choice.out);
    return text;
}

std::optional<Choice> parse_choice(std::string_view text, std::string_view boot,
                                   std::string_view cpu) {
    const std::string head = header(boot, cpu);
    if (!text.starts_with(head))
        return std::nullopt;
    text.remove_prefix(head.size());
    Choice choice;
    if (!parse_row(text, "in ", choice.in) || !parse_row(text, "out ", choice.out) || !text.empty())
        return std::nullopt;
    return choice;
}

Choice load_or_calibrate(const std::string &folder) {
    const std::string boot = boot_id();
    if (folder.empty() || boot.empty())
        return calibrate();
    const std::string cpu = cpu_model(), path = folder + '/' + kFileName;
    if (owned_by_us(path))
        if (auto choice = parse_choice(read_small(path), boot, cpu))
            return *choice;
    const Choice choice = calibrate();
    keep(folder, format_choice(choice, boot, cpu));
    return choice;
}

}  // namespace maru::copy
