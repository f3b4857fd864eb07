// Divisor: a number that is divided by again and again: by a shift where it is a power of two.
//
// A division of 64 bits takes tens of cycles. Page and segment sizes are known at run time only, and
// nearly always are powers of two.
#pragma once

#include <bit>
#include <cstdint>

namespace maru {

class Divisor {
  public:
    constexpr explicit Divisor(uint64_t value)  // not 0
        : value_(value),
          shift_(std::has_single_bit(value) ? static_cast<uint32_t>(std::countr_zero(value))
                                            : kNoShift) {}

    constexpr uint64_t value() const { return value_; }
    constexpr uint64_t quotient(uint64_t number) const {
        return shift_ != kNoShift ? number >> shift_ : number / value_;
    }
    constexpr uint64_t remainder(uint64_t number) const {
        return shift_ != kNoShift ? number & (value_ - 1) : number % value_;
    }
    // The quotient, rounded up; for any number.
    constexpr uint64_t ceiling(uint64_t number) const {
        return quotient(number) + (remainder(number) != 0);
    }

  private:
    static constexpr uint32_t kNoShift = 64;
    uint64_t value_;
    uint32_t shift_;
};

}  // namespace maru
