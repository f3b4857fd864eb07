#include "libmaru/copy/choice.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace maru::copy {
namespace {

class Folder {
  public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "maru-copy-XXXXXX").string();
        path = ::mkdtemp(name.data());
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string file() const { return path + "/maru-copy-kernels"; }
    std::string text() const {
        std::ifstream in(file());
        return {std::istreambuf_iterator<char>(in), {}};
    }
    std::string path;
};

void expect_complete(const Choice &choice) {
    for (const auto &row : {choice.in, choice.out})
        for (const Kernel *kernel : row) {
            ASSERT_NE(kernel, nullptr);
            EXPECT_TRUE(kernel->supported());
        }
}

// Some choice with two different kernels, other than what a calibration is likely to give.
Choice odd_choice() {
    Choice choice = uniform_choice(kernels()[0]);
    for (const Kernel &kernel : kernels())
        if (kernel.supported())
            choice.out[1] = &kernel;
    return choice;
}

TEST(Choice, SizeClassesAreAsDocumented) {
    EXPECT_EQ(size_class(4096), 0u);
    EXPECT_EQ(size_class(32 * 1024), 0u);
    EXPECT_EQ(size_class(32 * 1024 + 1), 1u);
    EXPECT_EQ(size_class(512 * 1024), 1u);
    EXPECT_EQ(size_class(512 * 1024 + 1), 2u);
    EXPECT_EQ(size_class(SIZE_MAX), 2u);
}

TEST(Choice, CalibrationNamesASupportedKernelForEverything) { expect_complete(calibrate()); }

TEST(Choice, TextRoundTrips) {
    const Choice choice = odd_choice();
    const std::string text = format_choice(choice, "boot-1", "Some CPU 9000");
    auto parsed = parse_choice(text, "boot-1", "Some CPU 9000");
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->in, choice.in);
    EXPECT_EQ(parsed->out, choice.out);
}

TEST(Choice, AnyOtherTextIsRefused) {
    const std::string text = format_choice(odd_choice(), "boot-1", "cpu");
    EXPECT_FALSE(parse_choice(text, "boot-2", "cpu"));
    EXPECT_FALSE(parse_choice(text, "boot-1", "cp"));
    EXPECT_FALSE(parse_choice("", "boot-1", "cpu"));
    EXPECT_FALSE(parse_choice(text + "\n", "boot-1", "cpu"));
    for (size_t size = 0; size < text.size(); ++size)
        EXPECT_FALSE(parse_choice(text.substr(0, size), "boot-1", "cpu")) << size;
    for (size_t i = 0; i < text.size(); ++i) {
        std::string wrong = text;
        wrong[i] ^= 0x11;
        EXPECT_FALSE(parse_choice(wrong, "boot-1", "cpu")) << wrong;
    }
}

TEST(Choice, KernelsThatThisMachineLacksAreRefused) {
    for (const Kernel &kernel : kernels()) {
        const std::string text = format_choice(uniform_choice(kernel), "b", "c");
        EXPECT_EQ(parse_choice(text, "b", "c").has_value(), kernel.supported()) << kernel.name;
    }
}

TEST(ChoiceCache, IsMadeOnceAndThenRead) {
    Folder folder;
    expect_complete(load_or_calibrate(folder.path));
    std::string text = folder.text();
    ASSERT_NE(text, "");
    struct stat status;
    ASSERT_EQ(::stat(folder.file().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    // Only what is read from the file can be this odd choice.
    const size_t rows = text.find("in ");
    const Choice odd = odd_choice();
    const std::string odd_text = format_choice(odd, "", "");
    text = text.substr(0, rows) + odd_text.substr(odd_text.find("in "));
    std::ofstream(folder.file()) << text;
    const Choice again = load_or_calibrate(folder.path);
    EXPECT_EQ(again.in, odd.in);
    EXPECT_EQ(again.out, odd.out);
    EXPECT_EQ(folder.text(), text);
}

TEST(ChoiceCache, BadFileIsMadeAgain) {
    Folder folder;
    for (const std::string &bad : {std::string("rubbish"), std::string(), std::string(5000, 'x')}) {
        std::ofstream(folder.file(), std::ios::trunc) << bad;
        expect_complete(load_or_calibrate(folder.path));
        EXPECT_TRUE(folder.text().starts_with("maru copy kernels 3\n"));
    }
    // No temporary files are left.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

TEST(ChoiceCache, LinksAreNotFollowedAndMissingFoldersDoNoHarm) {
    Folder folder, elsewhere;
    std::ofstream(elsewhere.path + "/victim") << "precious";
    std::filesystem::create_symlink(elsewhere.path + "/victim", folder.file());
    expect_complete(load_or_calibrate(folder.path));
    std::ifstream in(elsewhere.path + "/victim");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "precious");
    EXPECT_FALSE(std::filesystem::is_symlink(folder.file()));
    expect_complete(load_or_calibrate(folder.path + "/missing"));
    expect_complete(load_or_calibrate(""));
}

}  // namespace
}  // namespace maru::copy
