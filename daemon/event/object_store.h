// ObjectStore: marud's record of shared memory, a file in the runtime directory for its next life.
//
// Appended with one write() before the reply that promises it, so that a kill -9 loses nothing that
// was promised; no fsync, because it names a boot and is worth nothing after another. It is believed
// as a whole or not at all: the fact that is missing may be a retirement. Only its very end may be
// cut off, by a kill inside write(): nothing had been promised by then. What cannot be appended
// takes the file with it. It is begun anew, by rename, when most of it has been overtaken; as long
// as that fails the old one goes on.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/session/object_record.h"
#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru {

std::string format_objects(std::span<const ObjectRecord> records);
std::string format_objects_header(const std::string &boot_id);

struct ParsedObjects {
    std::string boot_id;
    std::vector<ObjectRecord> records;
    bool cut = false;  // the last fact was being written when marud died
};
// EBADMSG: says what is wrong with it.
Result<ParsedObjects> parse_objects(std::string_view bytes);

class ObjectStore {
  public:
    ObjectStore(std::string directory, std::string boot_id)
        : path_(std::move(directory) + "/shared.objects"), boot_id_(std::move(boot_id)) {}

    struct Loaded {
        std::vector<ObjectRecord> records;
        std::string problem;  // empty: none; else the file was set aside, and nothing is believed
    };
    Loaded load();

    // Replaces the file; without any records there is none. Failed: the one that this life has
    // appended to stays as it is, one of an earlier life goes.
    Result<void> begin(std::span<const ObjectRecord> records);
    // The same in pieces, while facts are appended: those go to both files, between the pieces. Over
    // with end_rewrite(), or when rewrite() fails.
    void begin_rewrite();
    Result<void> rewrite(std::span<const ObjectRecord> records);
    Result<void> end_rewrite();
    bool rewriting() const { return rewriting_; }
    // Failed: the file is gone, and stays so until begin() succeeds.
    Result<void> append(std::span<const ObjectRecord> records);
    bool open() const { return static_cast<bool>(file_); }
    // Most of it is overtaken.
    bool wants_begin() const;
    // The last begin() has failed, or append() has since: begin() should be tried now and then.
    bool failed() const { return failed_; }
    const std::string &path() const { return path_; }

  private:
    void forget();
    void write_next(std::span<const ObjectRecord> records);

    std::string path_;
    std::string boot_id_;
    UniqueFd file_;  // whole, up to the last fact that was appended
    UniqueFd next_;  // what is to replace it
    bool failed_ = false;
    bool rewriting_ = false;
    Result<void> written_;  // of next_
    uint64_t begun_bytes_ = 0, appended_bytes_ = 0, next_bytes_ = 0;
};

}  // namespace maru
