#include "libmaru/base/size_text.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace maru {
namespace {

TEST(SizeText, TakesEveryUnitAsBinaryInEitherCase) {
    struct Row {
        const char *text;
        uint64_t bytes;
    };
    const Row rows[] = {
        {"8G", 8589934592},
        {"8g", 8589934592},
        {"8GiB", 8589934592},
        {"8GB", 8589934592},
        {"8gib", 8589934592},
        {"512M", 536870912},
        {"1024K", 1048576},
        {"1.5G", 1610612736},
        {"4096", 4096},
        {"4096B", 4096},
        {"16 MiB", 16777216},
        {" 16\tMiB ", 16777216},
        {"2T", 2199023255552},
        {"1P", 1125899906842624},
        {"0.1G", 107374182},
        {"0.0009765625M", 1024},
        {"18446744073709551615", UINT64_MAX},
        {"007K", 7168},
        {"1.99999999999999999999999999999999K", 2047},
    };
    for (const Row &row : rows) {
        const auto size = parse_size(row.text);
        ASSERT_TRUE(size.ok()) << row.text << ": " << size.error().message;
        EXPECT_EQ(*size, row.bytes) << row.text;
    }
}

TEST(SizeText, SaysWhatIsWrongAndRepeatsTheText) {
    struct Row {
        const char *text;
        int code;
        const char *reason;
    };
    const Row rows[] = {
        {"-5", EINVAL, "negative"},
        {"-5G", EINVAL, "negative"},
        {"", EINVAL, "empty"},
        {"   ", EINVAL, "empty"},
        {"8X", EINVAL, "unknown unit 'X'"},
        {"50%", EINVAL, "per cent"},
        {"0", EINVAL, "at least 1 byte"},
        {"0G", EINVAL, "at least 1 byte"},
        {"0.0001K", EINVAL, "at least 1 byte"},
        {"1e30G", EINVAL, "exponent"},
        {"1E+3", EINVAL, "exponent"},
        {"99999999999G", ERANGE, "too large"},
        {"18446744073709551616", ERANGE, "too large"},
        {"340282366920938463463374607431768211457", ERANGE, "too large"},
        {"16777216T", ERANGE, "too large"},
        {"8GG", EINVAL, "unknown unit 'GG'"},
        {"0x10", EINVAL, "hexadecimal"},
        {"1.5", EINVAL, "fraction"},
        {"1.G", EINVAL, "digits"},
        {".5G", EINVAL, "begin with a digit"},
        {"G", EINVAL, "begin with a digit"},
        {"+5", EINVAL, "begin with a digit"},
        {"1 2", EINVAL, "unknown unit '2'"},
        {"8 G B", EINVAL, "unknown unit 'G B'"},
        {"1,5G", EINVAL, "unknown unit ',5G'"},
    };
    for (const Row &row : rows) {
        const auto size = parse_size(row.text);
        ASSERT_FALSE(size.ok()) << row.text << " gave " << *size;
        EXPECT_EQ(size.error().code, row.code) << row.text;
        EXPECT_NE(size.error().message.find(row.reason), std::string::npos) << size.error().message;
        EXPECT_NE(size.error().message.find("'" + std::string(row.text) + "'"), std::string::npos)
            << size.error().message;
    }
}

TEST(SizeText, ZeroOnlyWhereTheCallerSaysSo) {
    EXPECT_FALSE(parse_size("0").ok());
    ASSERT_TRUE(parse_size("0", Zero::Allowed).ok());
    EXPECT_EQ(*parse_size("0G", Zero::Allowed), 0u);
}

TEST(SizeText, ShowsSizesForPeople) {
    EXPECT_EQ(format_size(0), "0 B");
    EXPECT_EQ(format_size(1023), "1023 B");
    EXPECT_EQ(format_size(1024), "1 KiB");
    EXPECT_EQ(format_size(4096), "4 KiB");
    EXPECT_EQ(format_size(1536), "1.5 KiB");
    EXPECT_EQ(format_size(1610612736), "1.5 GiB");
    EXPECT_EQ(format_size((1ull << 20) - 1), "1.0 MiB");  // not "1024.0 KiB"
    EXPECT_EQ(format_size(8ull << 30), "8 GiB");
    EXPECT_EQ(format_size(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace maru
