// What the doctor says of one thing: how bad it is, what was found, what helps, where to read on.
//
// Names of checks are an interface: scripts read them from the JSON, and maru-host(7) has a paragraph
// for each. A finding that is not Ok has a remedy.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace maru::maructl {

enum class Severity : uint8_t {
    Ok,
    Note,     // good to know; all of Maru works
    Warning,  // Maru works, but slower or less safe than it could
    Problem,  // something of Maru cannot work
};
const char *severity_name(Severity severity);

struct Finding {
    std::string check;  // "huge-pages"
    Severity severity = Severity::Ok;
    std::string found;
    std::string remedy;  // empty with Ok
    std::string man;     // "maru-host(7), madvise(2)"
};

class Findings {
  public:
    // Further pages are named behind maru-host(7), which explains every check.
    void add(std::string check, Severity severity, std::string found, std::string remedy = "",
             const char *pages = nullptr);
    void ok(std::string check, std::string found, const char *pages = nullptr) {
        add(std::move(check), Severity::Ok, std::move(found), "", pages);
    }
    const std::vector<Finding> &all() const & { return all_; }
    std::vector<Finding> all() && { return std::move(all_); }
    size_t count(Severity severity) const;

  private:
    std::vector<Finding> all_;
};

}  // namespace maru::maructl
