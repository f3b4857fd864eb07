#include "daemon/event/object_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

#include "libmaru/wire/limits.h"

// The whole of XXH3 in this file, static: no libxxhash to find at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace maru {
namespace {

constexpr char kMagic[] = "maru-objects 1";
constexpr uint64_t kLeastRewrite = 4 << 20;
// Of one fact: a namespace with its two texts is the largest.
constexpr uint32_t kMaxPayload =
    wire::kMaxNamespaceBytes + wire::kMaxFormatBytes + wire::kMaxEngineIdBytes + 256;

// As for session records: not against people, against torn and flipped bits.
uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// Before each payload. Its own check comes first: a length that a flipped bit made too long would
// else look like a fact that was cut off by a kill.
struct Head {
    uint32_t kind = 0;
    uint32_t bytes = 0;
    uint64_t head_check = 0;
    uint64_t payload_check = 0;
};
static_assert(sizeof(Head) == 24 && std::is_trivially_copyable_v<Head>);

uint64_t check_of(const Head &head) {
    Head copy = head;
    copy.head_check = 0;
    return checksum({reinterpret_cast<const char *>(&copy), sizeof copy});
}

enum Kind : uint32_t { kHeader, kNamespace, kObject, kRetirement, kAdoption, kEnd };

class Writer {
  public:
    template <typename T>
    void number(T value) {
        static_assert(std::is_integral_v<T>);
        bytes_.append(reinterpret_cast<const char *>(&value), sizeof value);
    }
    void text(std::string_view value) {
        number(static_cast<uint32_t>(value.size()));
        bytes_ += value;
    }
    void raw(const void *at, size_t size) { bytes_.append(static_cast<const char *>(at), size); }
    const std::string &bytes() const { return bytes_; }
    void clear() { bytes_.clear(); }

  private:
    std::string bytes_;
};

class Reader {
  public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}
    template <typename T>
    void number(T *ret) {
        raw(ret, sizeof *ret);
    }
    void flag(bool *ret) {
        uint8_t value = 0;
        number(&value);
        ok_ = ok_ && value <= 1;
        *ret = value == 1;
    }
    void text(size_t max, std::string *ret) {
        uint32_t size = 0;
        number(&size);
        if (!ok_ || size > max || size > rest_.size()) {
            ok_ = false;
            return;
        }
        ret->assign(rest_.substr(0, size));
        rest_.remove_prefix(size);
    }
    void raw(void *to, size_t size) {
        if (!ok_ || rest_.size() < size) {
            ok_ = false;
            return;
        }
        std::memcpy(to, rest_.data(), size);
        rest_.remove_prefix(size);
    }
    bool whole() const { return ok_ && rest_.empty(); }

  private:
    std::string_view rest_;
    bool ok_ = true;
};

void add_fact(std::string &out, uint32_t kind, const std::string &payload) {
    Head head{kind, static_cast<uint32_t>(payload.size()), 0, checksum(payload)};
    head.head_check = check_of(head);
    out.append(reinterpret_cast<const char *>(&head), sizeof head);
    out += payload;
}

uint32_t put(Writer &out, const RecordedNamespace &fact) {
    out.number(fact.number);
    out.number(fact.uid);
    out.number(fact.object_bytes);
    out.text(fact.text);
    out.text(fact.format);
    return kNamespace;
}
uint32_t put(Writer &out, const RecordedObject &fact) {
    out.number(fact.ns);
    out.raw(&fact.item, sizeof fact.item);
    return kObject;
}
uint32_t put(Writer &out, const RecordedRetirement &fact) {
    out.number(fact.pool);
    out.number(fact.offset);
    out.number(fact.generation);
    return kRetirement;
}
uint32_t put(Writer &out, const RecordedAdoption &fact) {
    out.number(fact.segment.pool);
    out.number(fact.segment.segment);
    out.number(fact.uid);
    out.number(fact.segment_bytes);
    out.number(fact.first_offset);
    out.number(fact.bytes);
    out.number(fact.page_bytes);
    out.number(static_cast<uint8_t>(fact.huge));
    out.number(fact.identity.device);
    out.number(fact.identity.inode);
    out.text(fact.engine);
    return kAdoption;
}
uint32_t put(Writer &out, const RecordedEnd &fact) {
    out.number(fact.segment.pool);
    out.number(fact.segment.segment);
    return kEnd;
}

bool read_fact(uint32_t kind, std::string_view payload, std::vector<ObjectRecord> &out) {
    Reader in(payload);
    switch (kind) {
        case kNamespace: {
            RecordedNamespace fact;
            in.number(&fact.number);
            in.number(&fact.uid);
            in.number(&fact.object_bytes);
            in.text(wire::kMaxNamespaceBytes, &fact.text);
            in.text(wire::kMaxFormatBytes, &fact.format);
            out.emplace_back(std::move(fact));
            break;
        }
        case kObject: {
            RecordedObject fact;
            in.number(&fact.ns);
            in.raw(&fact.item, sizeof fact.item);
            out.emplace_back(fact);
            break;
        }
        case kRetirement: {
            RecordedRetirement fact;
            in.number(&fact.pool);
            in.number(&fact.offset);
            in.number(&fact.generation);
            out.emplace_back(fact);
            break;
        }
        case kAdoption: {
            RecordedAdoption fact;
            in.number(&fact.segment.pool);
            in.number(&fact.segment.segment);
            in.number(&fact.uid);
            in.number(&fact.segment_bytes);
            in.number(&fact.first_offset);
            in.number(&fact.bytes);
            in.number(&fact.page_bytes);
            in.flag(&fact.huge);
            in.number(&fact.identity.device);
            in.number(&fact.identity.inode);
            in.text(wire::kMaxEngineIdBytes, &fact.engine);
            // What nobody has written so is not calculated with.
            if (!fact.page_bytes || !fact.segment_bytes || !fact.bytes ||
                fact.bytes % fact.page_bytes != 0 || fact.bytes > UINT64_MAX - fact.first_offset)
                return false;
            out.emplace_back(std::move(fact));
            break;
        }
        case kEnd: {
            RecordedEnd fact;
            in.number(&fact.segment.pool);
            in.number(&fact.segment.segment);
            out.emplace_back(fact);
            break;
        }
        default:
            return false;
    }
    return in.whole();
}

Result<void> write_all(int fd, std::string_view bytes, const std::string &path) {
    while (!bytes.empty()) {
        ssize_t put = ::write(fd, bytes.data(), bytes.size());
        if (put < 0)
            return Error{errno, "write '" + path + "'"};
        bytes.remove_prefix(static_cast<size_t>(put));
    }
    return {};
}

}  // namespace

std::string format_objects_header(const std::string &boot_id) {
    Writer payload;
    payload.text(kMagic);
    payload.text(boot_id);
    std::string out;
    add_fact(out, kHeader, payload.bytes());
    return out;
}

std::string format_objects(std::span<const ObjectRecord> records) {
    std::string out;
    Writer payload;
    for (const ObjectRecord &record : records) {
        payload.clear();
        uint32_t kind = std::visit([&](const auto &fact) { return put(payload, fact); }, record);
        add_fact(out, kind, payload.bytes());
    }
    return out;
}

Result<ParsedObjects> parse_objects(std::string_view bytes) {
    const size_t size = bytes.size();
    auto damaged = [&](const std::string &why) {
        return Error{EBADMSG, "record of shared memory: at byte " +
                                  std::to_string(size - bytes.size()) + ": " + why};
    };
    ParsedObjects parsed;
    bool first = true;
    while (!bytes.empty()) {
        Head head;
        if (bytes.size() < sizeof head) {
            parsed.cut = true;
            break;
        }
        std::memcpy(&head, bytes.data(), sizeof head);
        if (head.head_check != check_of(head) || head.bytes > kMaxPayload)
            return damaged("the checksum of a head does not match");
        if (bytes.size() - sizeof head < head.bytes) {
            parsed.cut = true;
            break;
        }
        std::string_view payload = bytes.substr(sizeof head, head.bytes);
        if (head.payload_check != checksum(payload))
            return damaged("the checksum of a fact does not match");
        if (first) {
            Reader in(payload);
            std::string magic;
            in.text(64, &magic);
            in.text(256, &parsed.boot_id);
            if (head.kind != kHeader || !in.whole() || magic != kMagic)
                return damaged("'" + std::string(kMagic) + "' expected");
            first = false;
        } else if (!read_fact(head.kind, payload, parsed.records)) {
            return damaged("a fact of kind " + std::to_string(head.kind) + " does not parse");
        }
        bytes.remove_prefix(sizeof head + head.bytes);
    }
    if (first)
        return damaged("it has no beginning");
    return parsed;
}

ObjectStore::Loaded ObjectStore::load() {
    Loaded loaded;
    UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd && errno == ENOENT)
        return loaded;
    auto set_aside = [&](const Error &why) {
        ::rename(path_.c_str(), (path_ + ".damaged").c_str());
        loaded.records.clear();
        loaded.problem =
            "'" + path_ +
            "' is set aside as .damaged, and nothing in it is believed: " + describe(why);
        return loaded;
    };
    if (!fd)
        return set_aside(Error{errno, "open '" + path_ + "'"});
    struct stat info = {};
    if (::fstat(fd.get(), &info) < 0)
        return set_aside(Error{errno, "stat '" + path_ + "'"});
    // It is believed, so nobody else may be able to write it.
    if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 0022))
        return set_aside(
            Error{EPERM, "it must be a file of marud's user that nobody else may write"});
    std::string bytes(static_cast<size_t>(info.st_size), '\0');
    size_t have = 0;
    while (have < bytes.size()) {
        ssize_t got = ::read(fd.get(), bytes.data() + have, bytes.size() - have);
        if (got < 0)
            return set_aside(Error{errno, "read '" + path_ + "'"});
        if (got == 0)
            break;
        have += static_cast<size_t>(got);
    }
    bytes.resize(have);
    auto parsed = parse_objects(bytes);
    if (!parsed)
        return set_aside(parsed.error());
    if (parsed->boot_id == boot_id_)  // else its memory ended with that boot
        loaded.records = std::move(parsed->records);
    return loaded;
}

void ObjectStore::forget() {
    file_.reset();
    ::unlink(path_.c_str());
}

Result<void> ObjectStore::begin(std::span<const ObjectRecord> records) {
    begin_rewrite();
    write_next(records);
    return end_rewrite();
}

void ObjectStore::begin_rewrite() {
    rewriting_ = true;
    next_bytes_ = 0;
    next_.reset();
    written_ = {};
}

Result<void> ObjectStore::rewrite(std::span<const ObjectRecord> records) {
    write_next(records);
    return written_ ? Result<void>() : end_rewrite();
}

// The file is made with its first fact: without any there is none.
void ObjectStore::write_next(std::span<const ObjectRecord> records) {
    if (records.empty() || !written_)
        return;
    const std::string next = path_ + ".new";
    std::string bytes = format_objects(records);
    if (!next_) {
        next_.reset(::open(next.c_str(),
                           O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!next_) {
            written_ = Error{errno, "open '" + next + "'"};
            return;
        }
        bytes.insert(0, format_objects_header(boot_id_));
    }
    next_bytes_ += bytes.size();
    written_ = write_all(next_.get(), bytes, next);
}

Result<void> ObjectStore::end_rewrite() {
    const std::string next = path_ + ".new";
    rewriting_ = false;
    if (written_ && next_ && ::rename(next.c_str(), path_.c_str()) < 0)
        written_ = Error{errno, "rename '" + next + "'"};
    failed_ = !written_;
    if (!written_) {
        ::unlink(next.c_str());
        next_.reset();
        if (!file_)
            forget();  // of an earlier life: it numbers its namespaces otherwise
        return written_;
    }
    if (!next_)
        forget();
    file_ = std::move(next_);
    begun_bytes_ = next_bytes_;
    appended_bytes_ = 0;
    return {};
}

Result<void> ObjectStore::append(std::span<const ObjectRecord> records) {
    if (!file_ && !rewriting_)  // the first there are, or said already that there is none
        return failed_ ? Result<void>() : begin(records);
    Result<void> written;
    if (file_) {
        const std::string bytes = format_objects(records);
        written = write_all(file_.get(), bytes, path_);
        appended_bytes_ += bytes.size();
    }
    if (!written) {
        forget();
        failed_ = true;
    }
    if (rewriting_)
        write_next(records);  // if that fails rewrite() says so
    return written;
}

bool ObjectStore::wants_begin() const {
    return !failed_ && !rewriting_ && appended_bytes_ > kLeastRewrite &&
           appended_bytes_ > 2 * begun_bytes_;
}

}  // namespace maru
