// Journal: where marud's lines go, without ever blocking the loop.
//
// Under systemd (stderr is the journal's stream) a line is a datagram with fields in the journal's
// native protocol; sd_journal_send() would wait for a journald that does not read. Elsewhere a line
// goes to stderr: with a "<N>" prefix when that is not a terminal, plain on one. A line that cannot
// be written now is dropped and counted, and the next one says so. Never a token, never a key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "libmaru/base/unique_fd.h"

namespace maru {

struct LogField {
    const char *name;  // upper case, as the journal wants it
    std::string value;
};

// Stable names for what an operator may want to find; in the journal as MESSAGE_ID.
namespace message_id {
inline constexpr char kStarted[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a11";
inline constexpr char kStopping[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a12";
inline constexpr char kReloaded[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a13";
inline constexpr char kBadConfig[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a14";
inline constexpr char kStalled[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a15";
inline constexpr char kClientRefused[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a16";
inline constexpr char kSession[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a17";
inline constexpr char kBadRecord[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a18";
inline constexpr char kNoDescriptors[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a19";
inline constexpr char kNoMetrics[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a1a";
inline constexpr char kNoRecord[] = "6f7a3d0e3c5b4c0f9b1d52a8e4c07a1b";
}  // namespace message_id

class Journal {
  public:
    enum class Form { Terminal, Prefixed, Native };
    // Looks at `fd` (stderr) and $JOURNAL_STREAM to choose.
    explicit Journal(int fd = 2, const std::string &native_address = "/run/systemd/journal/socket");

    void set_level(int priority) { level_ = priority; }
    // A priority of syslog(3): 3 err, 4 warning, 5 notice, 6 info, 7 debug.
    void log(int priority, std::string_view message, std::initializer_list<LogField> fields = {});
    Form form() const { return form_; }
    uint64_t dropped() const { return all_dropped_; }  // since the start

  private:
    bool write_line(int priority, std::string_view message);
    bool send_native(int priority, std::string_view message,
                     std::initializer_list<LogField> fields);

    int fd_;
    Form form_ = Form::Prefixed;
    UniqueFd native_;
    int level_ = 6;
    uint64_t dropped_ = 0;  // since the last line that was written
    uint64_t all_dropped_ = 0;
};

}  // namespace maru
