#include "daemon/config/config.h"
#include "libmaru/wire/limits.h"

namespace maru {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs, kHour = 3600 * kSecond;
constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB, kPiB = kGiB << 20;
constexpr bool kAuto = true, kReload = true;

// `number` and `text`: which kind of member the key fills.
constexpr Setting number(const char *section, const char *name, SettingType type,
                         uint64_t Config::*member, const char *value, uint64_t min, uint64_t max,
                         bool auto_allowed, bool reloadable, const char *doc) {
    return {section, name, type, nullptr, member, value, min, max, auto_allowed, reloadable, doc};
}
constexpr Setting text(const char *section, const char *name, SettingType type,
                       std::string Config::*member, bool reloadable, const char *doc) {
    return {section, name, type, member, nullptr, "", 0, 0, false, reloadable, doc};
}

constexpr Setting kSettings[] = {
    text("daemon", "socket", SettingType::Path, &Config::socket, !kReload,
         "The Unix socket clients connect to, as an absolute path of at most 107 bytes.\n"
         "Empty: /run/maru/marud.sock, or $XDG_RUNTIME_DIR/maru/marud.sock in user mode.\n"
         "Has no effect when systemd passes the socket (marud.socket)."),
    number(
        "daemon", "socket_mode", SettingType::Mode, &Config::socket_mode, "0666", 0, 0777, !kAuto,
        !kReload,
        "Permissions of the socket: whoever may write to it may use marud. Clients of different\n"
        "users never read each other's private pools, whatever stands here."),
    text("daemon", "admin_group", SettingType::Text, &Config::admin_group, kReload,
         "Members of this group may see and change the sessions of all users with maructl.\n"
         "Empty: only root and marud's own user."),
    text("daemon", "runtime_directory", SettingType::Path, &Config::runtime_directory, !kReload,
         "Where marud keeps its lock and one small record per session, which let it take its\n"
         "sessions back after a restart. Must be on tmpfs or another local file system.\n"
         "Empty: $RUNTIME_DIRECTORY as systemd sets it, else the directory of the socket."),
    number("daemon", "spin_us", SettingType::Count, &Config::spin_us, "0", 0, 1000, !kAuto, kReload,
           "Microseconds marud keeps polling busy clients before it sleeps. Saves a wake-up per\n"
           "request (tens of microseconds on a virtual machine) and costs processor time while\n"
           "clients are active. 0: never; set it only where a processor is to spare."),
    number("daemon", "log_level", SettingType::Level, &Config::log_level, "info", 0, 7, !kAuto,
           kReload,
           "The least severe kind of message to log: err, warning, notice, info or debug."),

    number("sessions", "timeout", SettingType::Duration, &Config::timeout_ns, "30s", 200 * kMs,
           kHour, !kAuto, kReload,
           "A session that has not been heard of for this long is detached: its objects are no\n"
           "longer found. What it holds stays charged until its process is proven to be gone."),
    number("sessions", "heartbeat", SettingType::Duration, &Config::heartbeat_ns, "auto", 50 * kMs,
           kHour, kAuto, kReload,
           "How often clients say that they live. auto: a third of timeout. At most half of it."),
    number("sessions", "max", SettingType::Count, &Config::sessions, "1024", 1, 1'000'000, !kAuto,
           kReload, "Sessions at the same time, of all users together."),
    number("sessions", "max_per_uid", SettingType::Count, &Config::sessions_per_uid, "256", 1,
           1'000'000, !kAuto, kReload, "Sessions at the same time, of one user."),
    number("sessions", "leases_per_session", SettingType::Count, &Config::leases_per_session,
           "65536", 1, 1u << 24, !kAuto, kReload,
           "Objects that one session may be reading at the same time."),
    number("sessions", "in_flight", SettingType::Count, &Config::in_flight, "256", 1,
           wire::kMaxInFlight, !kAuto, kReload,
           "Requests of one connection that may wait for their answer at the same time."),
    number(
        "sessions", "ledger_items", SettingType::Count, &Config::ledger_items, "65536",
        wire::kMaxBatchItems, wire::kMaxLedgerItems, !kAuto, kReload,
        "Commits per session whose result marud remembers until the client has acknowledged it."),

    number("cpu", "host_bytes", SettingType::Size, &Config::host_bytes, "auto", kMiB, kPiB, kAuto,
           kReload,
           "All CPU pools of this host together. auto: half of the machine's memory.\n"
           "This is a budget; the memory itself is allocated and paid for by the workers."),
    number("cpu", "uid_bytes", SettingType::Size, &Config::uid_bytes, "auto", kMiB, kPiB, kAuto,
           kReload, "The CPU pools of one user together. auto: host_bytes. Not above host_bytes."),
    number("cpu", "worker_bytes", SettingType::Size, &Config::worker_bytes, "auto", kMiB, kPiB,
           kAuto, kReload, "The CPU pools of one worker. auto: uid_bytes. Not above uid_bytes."),
    number(
        "cpu", "segment_bytes", SettingType::Size, &Config::segment_bytes, "256MiB", 64 * kKiB,
        kGiB, !kAuto, !kReload,
        "A pool is made of segments of this size, a multiple of 4 KiB (of 2 MiB for huge pages).\n"
        "A segment is created, proven unused and given back as a whole."),
    number(
        "cpu", "host_segment_bytes", SettingType::Size, &Config::host_segment_bytes, "64MiB",
        64 * kKiB, kGiB, !kAuto, !kReload,
        "The same for pools of scope host, whose segments are charged as they fill. marud\n"
        "keeps them for the user's next engine when a worker ends, and a kept segment gives its\n"
        "memory back only as a whole, so they are small."),

    number("limits", "namespaces", SettingType::Count, &Config::namespaces, "4096", 1, 1'000'000,
           !kAuto, !kReload, "Different namespaces that may be registered until marud restarts."),
    number(
        "limits", "namespaces_per_uid", SettingType::Count, &Config::namespaces_per_uid, "1024", 1,
        1'000'000, !kAuto, kReload,
        "Those of one user, so that no user can take all of them. The same text of two users is\n"
        "two namespaces."),
    number("limits", "objects", SettingType::Count, &Config::objects, "67108864", 1024, 1ull << 31,
           !kAuto, !kReload, "Replicas of objects that marud keeps in its directory."),
    number("limits", "descriptors_per_uid", SettingType::Count, &Config::descriptors_per_uid,
           "4096", 1, 1'000'000, !kAuto, kReload,
           "Segments of one user: marud holds a descriptor of each."),
    number("limits", "connections_per_uid", SettingType::Count, &Config::connections_per_uid, "512",
           1, 1'000'000, !kAuto, kReload,
           "Connections of one user. Further ones are closed as soon as they are accepted."),

    text("metrics", "socket", SettingType::PathOrOff, &Config::metrics_socket, !kReload,
         "The Unix socket on which metrics are served over HTTP, as GET /metrics: an absolute\n"
         "path of at most 107 bytes, or \"off\". Its permissions are those of daemon.socket_mode.\n"
         "Empty: metrics.sock in the directory of daemon.socket."),
    text("metrics", "tcp", SettingType::Loopback, &Config::metrics_tcp, !kReload,
         "An address for the same over TCP, such as \"127.0.0.1:9469\" or \"[::1]:9469\": only\n"
         "addresses of this host alone are taken, because nobody is asked who he is there.\n"
         "Empty: none. A unit without network needs a drop-in for it: see marud(8)."),
};

constexpr const char *kSections[] = {"daemon", "sessions", "cpu", "limits", "metrics"};

}  // namespace

std::span<const Setting> settings() { return kSettings; }

std::span<const char *const> sections() { return kSections; }

const Setting *find_setting(std::string_view section, std::string_view name) {
    for (const Setting &setting : kSettings)
        if (section == setting.section && name == setting.name)
            return &setting;
    return nullptr;
}

}  // namespace maru
