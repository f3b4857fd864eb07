// SessionStore: one small file per session in the runtime directory, for the next life of marud.
//
// A record is written before the reply that promises what it says. It is replaced by rename, so a
// file is whole or old, never half; no fsync, because a record is worth nothing after a reboot: it
// names a boot, and one of another boot is dropped. Reading trusts nothing: a damaged file is set
// aside and reported, and the others are taken.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/protocol/service.h"
#include "libmaru/base/result.h"

namespace maru {

std::string format_record(const SessionRecord &record, const std::string &boot_id);

struct ParsedRecord {
    SessionRecord record;
    std::string boot_id;
};
// EBADMSG: says what is wrong with it.
Result<ParsedRecord> parse_record(std::string_view text);

std::string read_boot_id();

class SessionStore {
  public:
    // Makes `directory`/sessions (0700) if it is not there.
    static Result<SessionStore> open(const std::string &directory, std::string boot_id);

    Result<void> save(const SessionRecord &record);
    void remove(wire::Id session);

    struct Loaded {
        std::vector<SessionRecord> records;
        std::vector<std::string>
            problems;           // one line per file that was set aside or could not be read
        size_t other_boot = 0;  // removed
    };
    // `progress` is called after each file: start-up must be able to say that it goes on. An error: what
    // there is cannot even be listed, and to start as if there was nothing would forget whose memory
    // is mapped.
    template <typename Progress>
    Result<Loaded> load(Progress progress) {
        Loaded loaded;
        auto names = list();
        if (!names)
            return names.error();
        for (const std::string &name : *names) {
            load_one(name, loaded);
            progress();
        }
        return loaded;
    }

  private:
    SessionStore(std::string directory, std::string boot_id)
        : directory_(std::move(directory)), boot_id_(std::move(boot_id)) {}
    Result<std::vector<std::string>> list();
    void load_one(const std::string &name, Loaded &loaded);

    std::string directory_;
    std::string boot_id_;
};

}  // namespace maru
