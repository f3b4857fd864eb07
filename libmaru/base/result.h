// Result<T>: a value, or an Error that names the operation and its object.
//
// The caller decides whether to log, so the message must stand on its own: "open '/run/x'", not
// "open failed". The code is a positive errno; the C boundary returns its negative.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace maru {

struct Error {
    int code = 0;         // positive errno
    std::string message;  // "operation 'object': what is allowed", without strerror
};

// The message with the errno's text appended, as it is shown to a person.
std::string describe(const Error &error);

template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    explicit operator bool() const { return state_.index() == 0; }
    bool ok() const { return state_.index() == 0; }

    T &operator*() & { return value(); }
    const T &operator*() const & { return value(); }
    T &&operator*() && { return std::move(value()); }
    T *operator->() { return &value(); }
    const T *operator->() const { return &value(); }

    const Error &error() const {
        assert(!ok());
        return *std::get_if<1>(&state_);
    }

  private:
    T &value() {
        assert(ok());
        return *std::get_if<0>(&state_);
    }
    const T &value() const {
        assert(ok());
        return *std::get_if<0>(&state_);
    }

    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)), failed_(true) {}

    explicit operator bool() const { return !failed_; }
    bool ok() const { return !failed_; }
    const Error &error() const {
        assert(failed_);
        return error_;
    }

  private:
    Error error_;
    bool failed_ = false;
};

}  // namespace maru
